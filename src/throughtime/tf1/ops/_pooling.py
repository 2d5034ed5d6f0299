"""Pooling, and patches of images."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1.ops._convolution import first_channels, last_channels, padded, pads_of, spatial
from throughtime.tf1.ops._table import Static, Tensor, operation

_F = torch.nn.functional
_MAX = {1: _F.max_pool1d, 2: _F.max_pool2d, 3: _F.max_pool3d}
_AVERAGE = {1: _F.avg_pool1d, 2: _F.avg_pool2d, 3: _F.avg_pool3d}


def pool(x: Tensor, kind: str, rank: int, ksize: Any, strides: Any, padding: Any, data_format: Any) -> Tensor:
    """The largest element or the mean of each window; padding counts for neither."""
    first = bool(data_format) and data_format.startswith("NC")
    window, steps = spatial(ksize, rank, first), spatial(strides, rank, first)
    inner = first_channels(x, first)
    if inner.ndim != rank + 2:
        raise ValueError(f"input must be {rank + 2}-dimensional, got {tuple(x.shape)}")
    pairs = pads_of(inner.shape[2:], window, steps, [1] * rank, padding, first)
    if kind == "MAX":
        return last_channels(_MAX[rank](padded(inner, pairs, float("-inf")), window, steps), first)
    sums = _AVERAGE[rank](padded(inner, pairs), window, steps)
    if any(any(pair) for pair in pairs):
        share = _AVERAGE[rank](padded(torch.ones_like(inner[:1, :1]), pairs), window, steps)
        sums = sums / share
    return last_channels(sums, first)


def _pooling(name: str, kind: str, rank: int, layout: str, value: str, *others: str) -> None:
    def kernel(input: Tensor, ksize: Static, strides: Static, padding: Static, data_format: Static = layout) -> Tensor:  # noqa: A002
        return pool(input, kind, rank, ksize, strides, padding, data_format)

    kernel.__doc__ = f"{'The largest element' if kind == 'MAX' else 'The mean'} of each window of {rank} axes."
    operation(
        f"nn.{name}",
        *(f"nn.{one}" for one in others),
        op_name=_OP_NAMES[name.replace("_v2", "")],
        scope=_SCOPES.get(name),
        spellings={"value": "input"} if value == "value" else None,
        positional=(value, "ksize", "strides", "padding", "data_format", "name", "input"),
    )(kernel)


_OP_NAMES = {
    "max_pool": "MaxPool",
    "avg_pool": "AvgPool",
    "max_pool1d": "MaxPool1d",
    "avg_pool1d": "AvgPool1D",
    "max_pool2d": "MaxPool2d",
    "avg_pool2d": "AvgPool2D",
    "max_pool3d": "MaxPool3D",
    "avg_pool3d": "AvgPool3D",
}
_SCOPES: dict[str, str] = {}
for _kind, _short in (("MAX", "max"), ("AVG", "avg")):
    _pooling(f"{_short}_pool", _kind, 2, "NHWC", "value")
    _pooling(f"{_short}_pool1d", _kind, 1, "NWC", "input")
    _pooling(f"{_short}_pool3d", _kind, 3, "NDHWC", "input")
_pooling("max_pool2d", "MAX", 2, "NHWC", "input")


def _any_rank(name: str, kind: str) -> None:
    def kernel(input: Tensor, ksize: Static, strides: Static, padding: Static, data_format: Static = None) -> Tensor:  # noqa: A002
        return pool(input, kind, input.ndim - 2, ksize, strides, padding, data_format)

    kernel.__doc__ = "The largest element of each window." if kind == "MAX" else "The mean of each window."
    operation(f"nn.{name}_pool_v2", op_name=f"{name}_pool", scope={"MAX": "MaxPool", "AVG": "AvgPool"}[kind])(kernel)


_any_rank("max", "MAX")
_any_rank("avg", "AVG")


@operation(
    "nn.pool",
    op_name="pool",
    scope="pool",
    spellings={"dilations": "dilation_rate"},
    positional=(
        "input",
        "window_shape",
        "pooling_type",
        "padding",
        "dilation_rate",
        "strides",
        "name",
        "data_format",
        "dilations",
    ),
)
def pool_nd(
    input: Tensor,  # noqa: A002
    window_shape: Static,
    pooling_type: Static,
    padding: Static,
    dilation_rate: Static = None,
    strides: Static = None,
    data_format: Static = None,
) -> Tensor:
    """The largest element ("MAX") or the mean ("AVG") of each window."""
    return pool(input, pooling_type, len(window_shape), window_shape, strides, padding, data_format)


@operation(
    "nn.max_pool_with_argmax",
    op_name="MaxPoolWithArgmax",
    positional=(
        "input",
        "ksize",
        "strides",
        "padding",
        "data_format",
        "Targmax",
        "name",
        "output_dtype",
        "include_batch_in_index",
    ),
)
def max_pool_with_argmax(
    input: Tensor,  # noqa: A002
    ksize: Static,
    strides: Static,
    padding: Static,
    data_format: Static = "NHWC",
    Targmax: Static = None,
    output_dtype: Static = None,
    include_batch_in_index: Static = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its flat index in the image."""
    window, steps = spatial(ksize, 2), spatial(strides, 2)
    inner = input.movedim(-1, 1)
    if padding.upper() != "VALID" and any(
        any(pair) for pair in pads_of(inner.shape[2:], window, steps, [1, 1], padding, False)
    ):
        raise NotImplementedError("tf.nn.max_pool_with_argmax: padding must be 'VALID', or sizes divisible by strides")
    values, places = _F.max_pool2d(inner, window, steps, return_indices=True)
    channels = torch.arange(input.shape[-1], device=input.device).reshape(-1, 1, 1)
    flat = places * input.shape[-1] + channels
    return values.movedim(1, -1), flat.movedim(1, -1)


def patches(images: Tensor, sizes: Any, strides: Any, rates: Any, padding: str) -> Tensor:
    """Windows of images `[batch, rows, columns, window × channels]`."""
    inner = images.movedim(-1, 1)
    pairs = pads_of(inner.shape[2:], sizes, strides, rates, padding, False)
    filled = padded(inner, pairs)
    counts = [
        (size - (n - 1) * r - 1) // s + 1 for size, n, s, r in zip(filled.shape[2:], sizes, strides, rates, strict=True)
    ]
    columns = _F.unfold(filled.float() if not filled.is_floating_point() else filled, sizes, rates, 0, strides).to(
        images.dtype
    )
    batch, channels = images.shape[0], images.shape[-1]
    parts = columns.reshape(batch, channels, sizes[0] * sizes[1], *counts)
    return parts.permute(0, 3, 4, 2, 1).reshape(batch, *counts, sizes[0] * sizes[1] * channels)


@operation(
    "extract_image_patches",
    op_name="ExtractImagePatches",
    spellings={"sizes": "ksizes"},
    positional=("images", "ksizes", "strides", "rates", "padding", "name", "sizes"),
)
def extract_image_patches(images: Tensor, ksizes: Static, strides: Static, rates: Static, padding: Static) -> Tensor:
    """Windows of images, each as one vector."""
    return patches(images, spatial(ksizes, 2), spatial(strides, 2), spatial(rates, 2), padding)


@operation("image.extract_patches", op_name="ExtractImagePatches")
def extract_patches(images: Tensor, sizes: Static, strides: Static, rates: Static, padding: Static) -> Tensor:
    """Windows of images, each as one vector."""
    return patches(images, spatial(sizes, 2), spatial(strides, 2), spatial(rates, 2), padding)


@operation("extract_volume_patches", op_name="ExtractVolumePatches")
def extract_volume_patches(input: Tensor, ksizes: Static, strides: Static, padding: Static) -> Tensor:  # noqa: A002
    """Windows of volumes, each as one vector."""
    sizes, steps = spatial(ksizes, 3), spatial(strides, 3)
    if input.ndim != 5:
        raise ValueError(f"input must be 5-dimensional, got {tuple(input.shape)}")
    inner = input.movedim(-1, 1)
    filled = padded(inner, pads_of(inner.shape[2:], sizes, steps, [1] * 3, padding, False))
    for axis in range(3):
        filled = filled.unfold(axis + 2, sizes[axis], steps[axis])
    batch, channels, *counts = filled.shape[:5]
    return filled.permute(0, 2, 3, 4, 5, 6, 7, 1).reshape(batch, *counts, sizes[0] * sizes[1] * sizes[2] * channels)


def _morphology(x: Tensor, kernel: Tensor, strides: Any, rates: Any, padding: str, sign: int) -> Tensor:
    sizes = list(kernel.shape[:2])
    steps, spread = spatial(strides, 2), spatial(rates, 2)
    inner = x.movedim(-1, 1)
    filled = padded(
        inner, pads_of(inner.shape[2:], sizes, steps, spread, padding, False), -sign * torch.finfo(x.dtype).max
    )
    windows = patches(filled.movedim(1, -1), sizes, steps, spread, "VALID")
    parts = windows.reshape(*windows.shape[:3], sizes[0] * sizes[1], x.shape[-1])
    found = parts + sign * kernel.reshape(sizes[0] * sizes[1], -1)
    return found.amax(3) if sign > 0 else found.amin(3)


@operation(
    "nn.dilation2d",
    op_name="Dilation2D",
    spellings={"filters": "filter", "dilations": "rates"},
    positional=("input", "filter", "strides", "rates", "padding", "name", "filters", "dilations"),
)
def dilation2d(input: Tensor, filter: Tensor, strides: Static, rates: Static, padding: Static) -> Tensor:  # noqa: A002
    """The largest sum of an image and a kernel in each window."""
    return _morphology(input, filter, strides, rates, padding, 1)
