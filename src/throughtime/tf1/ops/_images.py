"""Images: flips, crops, brightness and contrast."""

from __future__ import annotations

import math
from typing import Any

import torch

from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._helpers import plain, torch_dtype, unary
from throughtime.tf1.ops._table import Static, Tensor, operation

unary(
    "image.flip_left_right",
    "ReverseV2",
    lambda x: torch.flip(x, [-2]),
    "Columns in the opposite order.",
    scope="flip_left_right",
    argument="image",
)
unary(
    "image.flip_up_down",
    "ReverseV2",
    lambda x: torch.flip(x, [-3]),
    "Rows in the opposite order.",
    scope="flip_up_down",
    argument="image",
)
unary(
    "image.transpose",
    "Transpose",
    lambda x: x.transpose(-3, -2),
    "Rows and columns exchanged.",
    scope="transpose",
    argument="image",
)
unary(
    "image.total_variation",
    "total_variation",
    lambda x: _variation(x),  # noqa: PLW0108
    "The sum of differences of neighbours.",
    argument="images",
)
unary(
    "image.per_image_standardization",
    "per_image_standardization",
    lambda x: _standardised(x),  # noqa: PLW0108
    "Images with mean zero and deviation one.",
    argument="image",
)


def _variation(x: Tensor) -> Tensor:
    over = tuple(range(x.ndim - 3, x.ndim))
    down, across = x.diff(dim=-3).abs(), x.diff(dim=-2).abs()
    return down.sum(over) + across.sum(over)


def _standardised(x: Tensor) -> Tensor:
    over = (-3, -2, -1)
    values = x.to(torch.float32)
    count = x.shape[-1] * x.shape[-2] * x.shape[-3]
    mean = values.mean(over, True)
    deviation = torch.sqrt(torch.relu(torch.square(values).mean(over, True) - mean * mean))
    return (values - mean) / torch.clamp(deviation, min=1 / math.sqrt(count))


@operation("image.rot90", op_name="rot90")
def rot90(image: Tensor, k: Static = 1) -> Tensor:
    """An image turned by quarter turns against the clock."""
    return torch.rot90(image, int(plain(k)), (-3, -2))


@operation("image.adjust_brightness", op_name="adjust_brightness")
def adjust_brightness(image: Tensor, delta: Tensor) -> Tensor:
    """A number added to all pixels."""
    return image + delta


@operation("image.adjust_contrast", op_name="adjust_contrast")
def adjust_contrast(images: Tensor, contrast_factor: Tensor) -> Tensor:
    """The distance of pixels from the mean of their channel multiplied."""
    mean = images.mean((-3, -2), True)
    return (images - mean) * contrast_factor + mean


@operation("image.adjust_gamma", op_name="adjust_gamma")
def adjust_gamma(image: Tensor, gamma: Static = 1, gain: Static = 1) -> Tensor:
    """`gain image ** gamma`."""
    return image ** plain(gamma) * plain(gain)


@operation("image.central_crop", op_name="central_crop")
def central_crop(image: Tensor, central_fraction: Static) -> Tensor:
    """The middle of an image."""
    if not 0 < central_fraction <= 1:
        raise ValueError("central_fraction must be within (0, 1]")
    for axis in (-3, -2):
        size = image.shape[axis]
        start = int((size - size * central_fraction) / 2)
        image = image.narrow(axis, start, size - 2 * start)
    return image


@operation("image.crop_to_bounding_box", op_name="crop_to_bounding_box")
def crop_to_bounding_box(
    image: Tensor, offset_height: Static, offset_width: Static, target_height: Static, target_width: Static
) -> Tensor:
    """A part of an image."""
    return image.narrow(-3, int(plain(offset_height)), int(plain(target_height))).narrow(
        -2, int(plain(offset_width)), int(plain(target_width))
    )


@operation("image.pad_to_bounding_box", op_name="pad_to_bounding_box")
def pad_to_bounding_box(
    image: Tensor, offset_height: Static, offset_width: Static, target_height: Static, target_width: Static
) -> Tensor:
    """An image with zeros around it."""
    top, left, height, width = (int(plain(one)) for one in (offset_height, offset_width, target_height, target_width))
    return _framed(image, top, left, height, width)


def _framed(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    below, right = height - top - image.shape[-3], width - left - image.shape[-2]
    if min(below, right) < 0:
        raise ValueError("the target must be at least as large as the image with its offset")
    return torch.nn.functional.pad(image, [0, 0, left, right, top, below])


@operation("image.resize_image_with_crop_or_pad", op_name="resize_image_with_crop_or_pad")
def resize_image_with_crop_or_pad(image: Tensor, target_height: Static, target_width: Static) -> Tensor:
    """The middle of an image, or the image with zeros around it."""
    wanted = [int(plain(one)) for one in (target_height, target_width)]
    for axis, size in zip((-3, -2), wanted, strict=True):
        extra = image.shape[axis] - size
        if extra > 0:
            image = image.narrow(axis, extra // 2, size)
    top, left = ((size - image.shape[axis]) // 2 for axis, size in zip((-3, -2), wanted, strict=True))
    return _framed(image, top, left, *wanted)


@operation(
    "image.convert_image_dtype",
    op_name="convert_image",
    scope="convert_image",
    positional=("image", "dtype", "saturate", "name"),
)
def convert_image_dtype(image: Tensor, dtype: Static, saturate: Static = False) -> Tensor:
    """An image in another dtype, scaled: floats are in [0, 1], whole numbers use their range."""
    kind = torch_dtype(dtype)
    if image.dtype == kind:
        return image
    if kind.is_floating_point:
        return image.to(kind) if image.is_floating_point() else image.to(kind) * (1 / torch.iinfo(image.dtype).max)
    if image.is_floating_point():
        scaled = image * (torch.iinfo(kind).max + 0.5)
        return (scaled.clamp(0, torch.iinfo(kind).max) if saturate else scaled).to(kind)
    old, new = torch.iinfo(image.dtype).max, torch.iinfo(kind).max
    return (image // ((old + 1) // (new + 1))).to(kind) if old > new else image.to(kind) * ((new + 1) // (old + 1))


@operation("image.psnr", op_name="PSNR", scope="PSNR")
def psnr(a: Tensor, b: Tensor, max_val: Static) -> Tensor:
    """The ratio of signal to noise in decibels."""
    error = torch.square(a - b).mean((-3, -2, -1))
    return 20 * math.log(max_val) / math.log(10) - 10 / math.log(10) * torch.log(error)


@operation("image.image_gradients", op_name="image_gradients")
def image_gradients(image: Tensor) -> tuple[Tensor, Tensor]:
    """The differences of neighbours, down and across; zero at the last row or column."""
    down = torch.nn.functional.pad(image.diff(dim=1), [0, 0, 0, 0, 0, 1])
    return down, torch.nn.functional.pad(image.diff(dim=2), [0, 0, 0, 1])


@operation("image.sobel_edges", op_name="sobel_edges")
def sobel_edges(image: Tensor) -> Tensor:
    """The Sobel filter, down and across, along a new last axis; the border is mirrored."""
    kernel = torch.tensor([[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])
    channels = image.shape[-1]
    inner = torch.nn.functional.pad(image.movedim(-1, 1), [1, 1, 1, 1], mode="reflect")
    found = [
        torch.nn.functional.conv2d(inner, one.expand(channels, 1, 3, 3), groups=channels) for one in (kernel, kernel.mT)
    ]
    return torch.stack(found, -1).movedim(1, 3)


def _random_flip(name: str, axis: int) -> None:
    def function(image: Any, seed: int | None = None) -> Any:
        tensor = convert_to_tensor(image)
        with lookup("name_scope")(None, name):
            chance = lookup("random_uniform")(
                [] if tensor.shape.ndims == 3 else [lookup("shape")(tensor)[0]], 0, 1.0, seed=seed
            )
            flipped = lookup("reverse")(tensor, [axis])
            return lookup("where")(chance < 0.5, flipped, tensor)

    function.__doc__ = "An image flipped with a probability of one half."
    exported(f"image.{name}")(function)


_random_flip("random_flip_left_right", -2)
_random_flip("random_flip_up_down", -3)


@exported("image.random_brightness")
def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """A random number added to all pixels."""
    delta = lookup("random_uniform")([], -max_delta, max_delta, seed=seed)
    return adjust_brightness(image, delta)


@exported("image.random_contrast")
def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """The contrast multiplied by a random number."""
    return adjust_contrast(image, lookup("random_uniform")([], lower, upper, seed=seed))


@exported("random_crop", "image.random_crop")
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Any:
    """A part of a tensor at a random place."""
    with lookup("name_scope")(name, "random_crop", [value, size]) as scope:
        tensor, wanted = convert_to_tensor(value), convert_to_tensor(size, as_dtype("int32"), name="size")
        limit = lookup("shape")(tensor) - wanted + 1
        rank = (wanted.shape.sizes or (None,))[0]
        offset = lookup("random_uniform")([rank], 0, 2**31 - 1, dtype=as_dtype("int32"), seed=seed) % limit
        return lookup("slice")(tensor, offset, wanted, name=scope)


@operation(
    "image.non_max_suppression",
    op_name="NonMaxSuppressionV3",
    dtypes=lambda **_: ["int32"],
    shape_rule=lambda **_: [(None,)],
    scope="non_max_suppression/NonMaxSuppressionV3",
    differentiable=False,
)
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_size: Static,
    iou_threshold: Static = 0.5,
    score_threshold: Static = float("-inf"),
) -> Tensor:
    """The boxes of highest score that do not overlap much."""
    chosen: list[int] = []
    for place in torch.argsort(scores, descending=True, stable=True).tolist():
        if len(chosen) >= int(plain(max_output_size)) or scores[place] <= plain(score_threshold):
            break
        if all(_overlap(boxes[place].tolist(), boxes[other].tolist()) <= plain(iou_threshold) for other in chosen):
            chosen.append(place)
    return torch.tensor(chosen, dtype=torch.int32)


def _overlap(first: list[float], second: list[float]) -> float:
    (a, b, c, d), (e, f, g, h) = _ordered(first), _ordered(second)
    common = max(min(c, g) - max(a, e), 0) * max(min(d, h) - max(b, f), 0)
    whole = (c - a) * (d - b) + (g - e) * (h - f) - common
    return common / whole if whole > 0 else 0.0


def _ordered(box: list[float]) -> tuple[float, float, float, float]:
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])
