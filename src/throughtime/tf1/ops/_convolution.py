"""Convolutions over one, two and three spatial axes, channels last or first."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.grad import conv2d_weight

from throughtime.tf1.ops._helpers import as_list
from throughtime.tf1.ops._table import Static, Tensor, ints, operation

_CONV = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
_TRANSPOSED = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}


def spatial(values: Any, rank: int, channels_first: bool = False) -> list[int]:
    """Strides or sizes of the spatial axes, of a number, of a list of them, or of a list for all axes."""
    given = [1] * rank if values is None else [int(one) for one in as_list(values)]
    if len(given) == 1:
        return given * rank
    if len(given) == rank + 2:
        return given[2:] if channels_first else given[1:-1]
    return given


def first_channels(x: Tensor, channels_first: bool) -> Tensor:
    """Channels as the second axis."""
    return x if channels_first else x.movedim(-1, 1)


def last_channels(x: Tensor, channels_first: bool) -> Tensor:
    """Channels back where they were."""
    return x if channels_first else x.movedim(1, -1)


def same_padding(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """The padding before and after an axis that gives `ceil(size / stride)` outputs."""
    reach = (window - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def pads_of(
    sizes: Any, window: list[int], strides: list[int], dilations: list[int], padding: Any, channels_first: bool
) -> list[tuple[int, int]]:
    """The padding of each spatial axis."""
    if not isinstance(padding, str):
        pairs = [tuple(pair) for pair in padding]
        return pairs[2:] if channels_first else pairs[1:-1]
    if padding.upper() == "VALID":
        return [(0, 0)] * len(window)
    if padding.upper() != "SAME":
        raise ValueError(f"padding must be 'SAME' or 'VALID', got {padding!r}")
    return [same_padding(*each) for each in zip(sizes, window, strides, dilations, strict=True)]


def padded(x: Tensor, pairs: list[tuple[int, int]], value: float = 0.0) -> Tensor:
    """`x` with spatial axes padded."""
    if not any(any(pair) for pair in pairs):
        return x
    return torch.nn.functional.pad(x, [size for pair in reversed(pairs) for size in pair], value=value)


def convolve(
    x: Tensor, weight: Tensor, rank: int, strides: Any, padding: Any, data_format: Any, dilations: Any, groups: int = 1
) -> Tensor:
    """A convolution with a kernel `[*window, in, out]`."""
    first = bool(data_format) and data_format.startswith("NC")
    steps, spread = spatial(strides, rank, first), spatial(dilations, rank, first)
    inner = first_channels(x, first)
    if inner.ndim != rank + 2:
        raise ValueError(f"input must be {rank + 2}-dimensional, got {tuple(x.shape)}")
    kernel = weight.permute(rank + 1, rank, *range(rank))
    pairs = pads_of(inner.shape[2:], list(weight.shape[:rank]), steps, spread, padding, first)
    return last_channels(_CONV[rank](padded(inner, pairs), kernel, None, steps, 0, spread, groups), first)


def transposed(
    x: Tensor, weight: Tensor, rank: int, output_shape: list[int], strides: Any, padding: str, data_format: Any
) -> Tensor:
    """The gradient of a convolution by its input, for a kernel `[*window, out, in]`."""
    first = bool(data_format) and data_format.startswith("NC")
    steps = spatial(strides, rank, first)
    inner = first_channels(x, first)
    sizes = output_shape[2:] if first else output_shape[1:-1]
    full = _TRANSPOSED[rank](inner, weight.permute(rank + 1, rank, *range(rank)), None, steps)
    pairs = pads_of(sizes, list(weight.shape[:rank]), steps, [1] * rank, padding, first)
    for axis, (size, (before, _)) in enumerate(zip(sizes, pairs, strict=True)):
        missing = before + size - full.shape[axis + 2]
        if missing > 0:
            full = torch.nn.functional.pad(full, [0, 0] * (rank - 1 - axis) + [0, missing])
        full = full.narrow(axis + 2, before, size)
    return last_channels(full, first)


@operation(
    "nn.conv2d",
    op_name="Conv2D",
    spellings={"filters": "filter"},
    same_dtype=("input", "filter"),
    positional=(
        "input",
        "filter",
        "strides",
        "padding",
        "use_cudnn_on_gpu",
        "data_format",
        "dilations",
        "name",
        "filters",
    ),
)
def conv2d(
    input: Tensor,  # noqa: A002
    filter: Tensor,  # noqa: A002
    strides: Static = None,
    padding: Static = None,
    use_cudnn_on_gpu: Static = True,
    data_format: Static = "NHWC",
    dilations: Static = None,
) -> Tensor:
    """A convolution over two axes."""
    return convolve(input, filter, 2, strides, padding, data_format, dilations)


@operation(
    "nn.conv1d",
    op_name="Conv1D",
    scope="conv1d",
    spellings={"input": "value"},
    same_dtype=("value", "filters"),
    positional=(
        "value",
        "filters",
        "stride",
        "padding",
        "use_cudnn_on_gpu",
        "data_format",
        "name",
        "input",
        "dilations",
    ),
)
def conv1d(
    value: Tensor,
    filters: Tensor,
    stride: Static = None,
    padding: Static = None,
    use_cudnn_on_gpu: Static = None,
    data_format: Static = None,
    dilations: Static = None,
) -> Tensor:
    """A convolution over one axis."""
    return convolve(value, filters, 1, stride, padding, data_format, dilations)


@operation(
    "nn.conv3d",
    op_name="Conv3D",
    spellings={"filters": "filter"},
    same_dtype=("input", "filter"),
    positional=("input", "filter", "strides", "padding", "data_format", "dilations", "name", "filters"),
)
def conv3d(
    input: Tensor,  # noqa: A002
    filter: Tensor,  # noqa: A002
    strides: Static = None,
    padding: Static = None,
    data_format: Static = "NDHWC",
    dilations: Static = None,
) -> Tensor:
    """A convolution over three axes."""
    return convolve(input, filter, 3, strides, padding, data_format, dilations)


@operation(
    "nn.convolution",
    op_name="convolution",
    scope="convolution",
    spellings={"filters": "filter", "dilations": "dilation_rate"},
    positional=(
        "input",
        "filter",
        "padding",
        "strides",
        "dilation_rate",
        "name",
        "data_format",
        "filters",
        "dilations",
    ),
)
def convolution(
    input: Tensor,  # noqa: A002
    filter: Tensor,  # noqa: A002
    padding: Static,
    strides: Static = None,
    dilation_rate: Static = None,
    data_format: Static = None,
) -> Tensor:
    """A convolution over as many axes as the kernel has."""
    return convolve(input, filter, filter.ndim - 2, strides, padding, data_format, dilation_rate)


@operation("nn.atrous_conv2d", op_name="convolution", scope="convolution")
def atrous_conv2d(value: Tensor, filters: Tensor, rate: Static, padding: Static) -> Tensor:
    """A convolution with holes in its window."""
    return convolve(value, filters, 2, 1, padding, None, rate)


def _depthwise(x: Tensor, weight: Tensor, strides: Any, padding: Any, data_format: Any, rate: Any) -> Tensor:
    height, width, channels, multiplier = weight.shape
    kernel = weight.reshape(height, width, 1, channels * multiplier)
    return convolve(x, kernel, 2, strides, padding, data_format, rate, groups=channels)


@operation(
    "nn.depthwise_conv2d",
    op_name="depthwise",
    scope="depthwise",
    spellings={"dilations": "rate"},
    positional=("input", "filter", "strides", "padding", "rate", "name", "data_format", "dilations"),
)
def depthwise_conv2d(
    input: Tensor,  # noqa: A002
    filter: Tensor,  # noqa: A002
    strides: Static,
    padding: Static,
    rate: Static = None,
    data_format: Static = None,
) -> Tensor:
    """A convolution of each channel with kernels of its own."""
    return _depthwise(input, filter, strides, padding, data_format, rate)


@operation("nn.depthwise_conv2d_native", op_name="DepthwiseConv2dNative")
def depthwise_conv2d_native(
    input: Tensor,  # noqa: A002
    filter: Tensor,  # noqa: A002
    strides: Static,
    padding: Static,
    data_format: Static = "NHWC",
    dilations: Static = None,
) -> Tensor:
    """A convolution of each channel with kernels of its own."""
    return _depthwise(input, filter, strides, padding, data_format, dilations)


@operation(
    "nn.separable_conv2d",
    op_name="separable_conv2d",
    spellings={"dilations": "rate"},
    positional=(
        "input",
        "depthwise_filter",
        "pointwise_filter",
        "strides",
        "padding",
        "rate",
        "name",
        "data_format",
        "dilations",
    ),
)
def separable_conv2d(
    input: Tensor,  # noqa: A002
    depthwise_filter: Tensor,
    pointwise_filter: Tensor,
    strides: Static,
    padding: Static,
    rate: Static = None,
    data_format: Static = None,
) -> Tensor:
    """A convolution of each channel, then one of all channels at each point."""
    inner = _depthwise(input, depthwise_filter, strides, padding, data_format, rate)
    return convolve(inner, pointwise_filter, 2, 1, "VALID", data_format, None)


def _sized(**given: Any) -> list[Any]:
    from throughtime.tf1.ops._helpers import sizes_of  # noqa: PLC0415

    shape = given.get("output_shape", given.get("input_sizes"))
    return [sizes_of(shape)]


def _conv_transpose(name: str, scope: str, rank: int, value: str, layout: str, keyword: str) -> None:
    def kernel(
        input: Tensor,  # noqa: A002
        filters: Tensor,
        output_shape: Static,
        strides: Static = 1,
        padding: Static = "SAME",
        data_format: Static = layout,
        dilations: Static = None,
    ) -> Tensor:
        if dilations is not None and set(spatial(dilations, rank)) != {1}:
            raise NotImplementedError(f"tf.{name}: dilations must be 1, got {dilations}")
        return transposed(input, filters, rank, ints(output_shape), strides, padding, data_format)

    kernel.__doc__ = f"The gradient of a convolution over {rank} axes by its input, also known as deconvolution."
    operation(
        name,
        op_name=scope,
        scope=scope,
        spellings={value: "input", keyword: "filters"} if value != "input" else {keyword: "filters"},
        positional=_TRANSPOSED_1D if rank == 1 else _TRANSPOSED_ND,
        fallback_rule=_sized,
    )(kernel)


_TRANSPOSED_1D = (
    "input",
    "filters",
    "output_shape",
    "strides",
    "padding",
    "data_format",
    "dilations",
    "name",
    "filter",
)
_TRANSPOSED_ND = (
    "value", "filter", "output_shape", "strides", "padding", "data_format", "name", "input", "filters", "dilations",
)  # fmt: skip
_conv_transpose("nn.conv1d_transpose", "conv1d_transpose", 1, "input", "NWC", "filter")
_conv_transpose("nn.conv2d_transpose", "conv2d_transpose", 2, "value", "NHWC", "filter")
_conv_transpose("nn.conv3d_transpose", "conv3d_transpose", 3, "value", "NDHWC", "filter")


@operation(
    "nn.conv2d_backprop_input",
    op_name="Conv2DBackpropInput",
    fallback_rule=_sized,
    spellings={"filters": "filter"},
    positional=(
        "input_sizes",
        "filter",
        "out_backprop",
        "strides",
        "padding",
        "use_cudnn_on_gpu",
        "data_format",
        "dilations",
        "name",
        "filters",
    ),
)
def conv2d_backprop_input(
    input_sizes: Static,
    filter: Tensor,  # noqa: A002
    out_backprop: Tensor,
    strides: Static = None,
    padding: Static = None,
    use_cudnn_on_gpu: Static = True,
    data_format: Static = "NHWC",
    dilations: Static = None,
) -> Tensor:
    """The gradient of `conv2d` by its input."""
    return transposed(out_backprop, filter, 2, ints(input_sizes), strides, padding, data_format)


@operation(
    "nn.conv2d_backprop_filter",
    op_name="Conv2DBackpropFilter",
    positional=(
        "input",
        "filter_sizes",
        "out_backprop",
        "strides",
        "padding",
        "use_cudnn_on_gpu",
        "data_format",
        "dilations",
        "name",
    ),
)
def conv2d_backprop_filter(
    input: Tensor,  # noqa: A002
    filter_sizes: Static,
    out_backprop: Tensor,
    strides: Static,
    padding: Static,
    use_cudnn_on_gpu: Static = True,
    data_format: Static = "NHWC",
    dilations: Static = None,
) -> Tensor:
    """The gradient of `conv2d` by its kernel."""
    first = data_format.startswith("NC")
    height, width, inputs, outputs = ints(filter_sizes)
    steps = spatial(strides, 2, first)
    inner = first_channels(input, first)
    pairs = pads_of(inner.shape[2:], [height, width], steps, [1, 1], padding, first)
    gradient = conv2d_weight(
        padded(inner, pairs), (outputs, inputs, height, width), first_channels(out_backprop, first), steps
    )
    return gradient.permute(2, 3, 1, 0)
