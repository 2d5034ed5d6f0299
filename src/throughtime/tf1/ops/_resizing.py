"""Resizing of images: each method is a matrix for rows and one for columns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._table import Static, Tensor, ints, operation

_CUBIC_STEPS = 1024
_CUBIC = -0.75
METHODS = ("bilinear", "nearest_neighbor", "bicubic", "area")


def _scale(size: int, target: int, align: bool) -> np.float32:
    return np.float32((size - 1) / (target - 1)) if align and target > 1 else np.float32(size / target)


def _positions(size: int, target: int, align: bool, centers: bool) -> Any:
    """Where the centre of each target pixel lies in the source."""
    places = np.arange(target, dtype=np.float32)
    scale = _scale(size, target, align)
    return (places + np.float32(0.5)) * scale - np.float32(0.5) if centers else places * scale


@functools.lru_cache(256)
def _matrix(method: str, size: int, target: int, align: bool, centers: bool) -> torch.Tensor:
    """The weights `[target, size]` of one axis."""
    weights = np.zeros((target, size), np.float32)
    if method == "area":
        _fill_area(weights, _scale(size, target, align))
        return torch.as_tensor(weights)
    position = _positions(size, target, align, centers)
    rows = np.arange(target)
    if method == "nearest_neighbor":
        chosen = np.floor(position + (0.5 if align or centers else 0))
        weights[rows, np.clip(chosen, 0, size - 1).astype(int)] = 1
    elif method == "bilinear":
        low = np.floor(position)
        share = position - low
        np.add.at(weights, (rows, np.clip(low, 0, size - 1).astype(int)), 1 - share)
        np.add.at(weights, (rows, np.clip(low + 1, 0, size - 1).astype(int)), share)
    else:
        _fill_cubic(weights, position)
    return torch.as_tensor(weights)


def _fill_area(weights: Any, scale: np.float32) -> None:
    """Each target pixel is the mean of what it covers."""
    target, size = weights.shape
    for row in range(target):
        begin, end = row * scale, (row + 1) * scale
        for column in range(int(np.floor(begin)), int(np.ceil(end))):
            covered = min(column + 1.0, float(end)) - max(float(column), float(begin))
            weights[row, min(column, size - 1)] += covered / (end - begin)


def _fill_cubic(weights: Any, position: Any) -> None:
    """Keys' cubic convolution, with the fraction in steps of 1/1024."""
    size = weights.shape[1]
    low = np.floor(position)
    step = np.rint((position - low) * _CUBIC_STEPS) / _CUBIC_STEPS
    shares = {-1: _far(step), 0: _near(step), 1: _near(1 - step), 2: _far(1 - step)}
    for offset, share in shares.items():
        np.add.at(weights, (np.arange(len(low)), np.clip(low + offset, 0, size - 1).astype(int)), share)


def _near(x: Any) -> Any:
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1


def _far(x: Any) -> Any:
    return ((_CUBIC * (x + 1) - 5 * _CUBIC) * (x + 1) + 8 * _CUBIC) * (x + 1) - 4 * _CUBIC


def _resized(images: Tensor, size: Any, method: str, align: bool, centers: bool) -> Tensor:
    height, width = ints(size)
    rows = _matrix(method, images.shape[1], height, bool(align), bool(centers))
    columns = _matrix(method, images.shape[2], width, bool(align), bool(centers))
    if images.is_meta:
        rows, columns = rows.to("meta"), columns.to("meta")
    values = torch.einsum("oh,bhwc,pw->bopc", rows, images.to(torch.float32), columns)
    return values.to(images.dtype) if method == "nearest_neighbor" else values


def _shape(images: Any, size: Any, **_: Any) -> list[Any]:
    from throughtime.tf1.ops._helpers import sizes_of  # noqa: PLC0415

    known, wanted = images.shape.sizes, sizes_of(size)
    wanted = [None, None] if wanted is None else wanted
    return [[None, *wanted, None] if known is None else [known[0], *wanted, known[3]]]


def _method(method: str) -> Any:
    def kernel(
        images: Tensor, size: Static, align_corners: Static = False, half_pixel_centers: Static = False
    ) -> Tensor:
        return _resized(images, size, method, align_corners, half_pixel_centers)

    kernel.__doc__ = f"Images in another size ({method.replace('_', ' ')})."
    op_name = "Resize" + method.title().replace("_", "")
    return operation(
        f"image.resize_{method}",
        op_name=op_name,
        shape_rule=_shape,
        dtypes=lambda images, **_: [images.dtype.base_dtype if method == "nearest_neighbor" else "float32"],
        positional=("images", "size", "align_corners", "name", "half_pixel_centers"),
    )(kernel)


_RESIZE = {method: _method(method) for method in METHODS}


@exported("image.ResizeMethod")
class ResizeMethod:
    """Methods of `tf.image.resize_images`."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = range(4)


@exported("image.resize_images", "image.resize", "image.resize_images_v2")
def resize_images(
    images: Any,
    size: Any,
    method: Any = 0,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Any:
    """Images `[batch, height, width, channels]`, or one image, in another size."""
    from throughtime.tf1._namespace import lookup  # noqa: PLC0415

    if preserve_aspect_ratio:
        raise NotImplementedError("tf.image.resize_images: preserve_aspect_ratio is not supported; compute the size")
    tensor = convert_to_tensor(images)
    one = tensor.shape.ndims == 3
    chosen = METHODS[method] if isinstance(method, int) else {"nearest": "nearest_neighbor"}.get(method, method)
    with lookup("name_scope")(name, "resize", [images]):
        batch = lookup("expand_dims")(tensor, 0) if one else tensor
        found = _RESIZE[chosen](batch, size, align_corners)
        return lookup("squeeze")(found, axis=[0]) if one else found
