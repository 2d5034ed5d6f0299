"""Colour spaces of images."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1.ops._helpers import dtype_of, plain, unary
from throughtime.tf1.ops._table import Static, Tensor, operation

_GREY = [0.2989, 0.5870, 0.1140]
_MATRICES = {
    "rgb_to_yiq": [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]],
    "yiq_to_rgb": [[1.0, 1.0, 1.0], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]],
    "rgb_to_yuv": [
        [0.299, -0.14714119, 0.61497538],
        [0.587, -0.28886916, -0.51496512],
        [0.114, 0.43601035, -0.10001026],
    ],
    "yuv_to_rgb": [[1.0, 1.0, 1.0], [0.0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0.0]],
}


def _three(**given: Any) -> list[Any]:
    """Images with three channels."""
    (images, *_) = (one for one in given.values() if hasattr(one, "shape"))
    sizes = images.shape.sizes
    return [None if sizes is None else [*sizes[:-1], 3]]


def _converted(name: str) -> None:
    def convert(images: Tensor) -> Tensor:
        return images @ torch.tensor(_MATRICES[name], dtype=images.dtype)

    unary(
        f"image.{name}",
        "Tensordot",
        convert,
        f"Colours converted ({name.replace('_', ' ')}).",
        scope="Tensordot",
        argument="images",
        fallback_rule=_three,
    )


for _name in _MATRICES:
    _converted(_name)


def _to_hsv(images: Tensor) -> Tensor:
    red, green, blue = images.unbind(-1)
    value, low = images.amax(-1), images.amin(-1)
    spread = value - low
    safe = torch.where(spread > 0, spread, torch.ones_like(spread))
    hue = torch.where(
        red == value,
        (green - blue) / safe,
        torch.where(green == value, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = torch.where(spread > 0, torch.remainder(hue / 6, 1), torch.zeros_like(hue))
    saturation = torch.where(
        value > 0, spread / torch.where(value > 0, value, torch.ones_like(value)), torch.zeros_like(value)
    )
    return torch.stack([hue, saturation, value], -1)


def _to_rgb(images: Tensor) -> Tensor:
    hue, saturation, value = images.unbind(-1)
    sector = hue * 6
    shares = [torch.abs(sector - 3) - 1, 2 - torch.abs(sector - 2), 2 - torch.abs(sector - 4)]
    return torch.stack([((1 - saturation) + saturation * share.clamp(0, 1)) * value for share in shares], -1)


unary(
    "image.rgb_to_hsv",
    "RGBToHSV",
    _to_hsv,
    "Hue, saturation and value of colours.",
    argument="images",
    fallback_rule=_three,
)
unary(
    "image.hsv_to_rgb",
    "HSVToRGB",
    _to_rgb,
    "Colours of hue, saturation and value.",
    argument="images",
    fallback_rule=_three,
)


@operation("image.adjust_saturation", op_name="adjust_saturation", fallback_rule=_three)
def adjust_saturation(image: Tensor, saturation_factor: Static) -> Tensor:
    """The saturation multiplied."""
    hue, saturation, value = _to_hsv(image).unbind(-1)
    return _to_rgb(torch.stack([hue, (saturation * plain(saturation_factor)).clamp(0, 1), value], -1))


@operation("image.adjust_hue", op_name="adjust_hue", fallback_rule=_three)
def adjust_hue(image: Tensor, delta: Static) -> Tensor:
    """The hue moved."""
    hue, saturation, value = _to_hsv(image).unbind(-1)
    return _to_rgb(torch.stack([torch.remainder(hue + plain(delta), 1), saturation, value], -1))


@operation("image.rgb_to_grayscale", op_name="rgb_to_grayscale")
def rgb_to_grayscale(images: Tensor) -> Tensor:
    """Images with one channel."""
    return (images * torch.tensor(_GREY, dtype=images.dtype)).sum(-1, keepdim=True)


@operation("image.grayscale_to_rgb", op_name="grayscale_to_rgb", shape_rule=_three, dtypes=dtype_of("images"))
def grayscale_to_rgb(images: Tensor) -> Tensor:
    """Images with one channel three times."""
    return images.repeat(*[1] * (images.ndim - 1), 3)
