"""Blocks of an image moved to the batch or to channels, and back."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._table import Static, Tensor, ints, operation


@operation("space_to_depth", op_name="SpaceToDepth", positional=("input", "block_size", "name", "data_format"))
def space_to_depth(input: Tensor, block_size: Static, data_format: Static = "NHWC") -> Tensor:  # noqa: A002
    """Blocks of an image as channels."""
    b, h, w, c = input.shape
    n = block_size
    return input.reshape(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h // n, w // n, n * n * c)


@operation("depth_to_space", op_name="DepthToSpace", positional=("input", "block_size", "name", "data_format"))
def depth_to_space(input: Tensor, block_size: Static, data_format: Static = "NHWC") -> Tensor:  # noqa: A002
    """Channels as blocks of an image."""
    b, h, w, c = input.shape
    n = block_size
    return input.reshape(b, h, w, n, n, c // (n * n)).permute(0, 1, 3, 2, 4, 5).reshape(b, h * n, w * n, c // (n * n))


@operation("space_to_batch_nd", op_name="SpaceToBatchND")
def space_to_batch_nd(input: Tensor, block_shape: Static, paddings: Static) -> Tensor:  # noqa: A002
    """Blocks of the spatial axes as rows of the batch."""
    return _to_batch(input, ints(block_shape), ints(paddings))


def _to_batch(input: Tensor, block: list[int], paddings: list[list[int]]) -> Tensor:  # noqa: A002
    m, rest = len(block), list(input.shape[1 + len(block) :])
    flat = [0, 0] * len(rest) + [size for pair in reversed(paddings) for size in pair]
    padded = torch.nn.functional.pad(input, flat)
    if any(size % n for size, n in zip(padded.shape[1 : 1 + m], block, strict=True)):
        raise ValueError(f"padded sizes {list(padded.shape[1 : 1 + m])} must be divisible by block_shape {block}")
    sizes = [size // n for size, n in zip(padded.shape[1 : 1 + m], block, strict=True)]
    parts = [part for pair in zip(sizes, block, strict=True) for part in pair]
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, 2 * m + 1 + len(rest))]
    return padded.reshape(input.shape[0], *parts, *rest).permute(order).reshape(-1, *sizes, *rest)


@operation("batch_to_space_nd", op_name="BatchToSpaceND")
def batch_to_space_nd(input: Tensor, block_shape: Static, crops: Static) -> Tensor:  # noqa: A002
    """Rows of the batch as blocks of the spatial axes."""
    return _from_batch(input, ints(block_shape), ints(crops))


def _from_batch(input: Tensor, block: list[int], crops: list[list[int]]) -> Tensor:  # noqa: A002
    m, count = len(block), 1
    for n in block:
        count *= n
    sizes, rest = list(input.shape[1 : 1 + m]), list(input.shape[1 + m :])
    parts = input.reshape(*block, input.shape[0] // count, *sizes, *rest)
    order = [
        m,
        *[place for axis in range(m) for place in (m + 1 + axis, axis)],
        *range(2 * m + 1, 2 * m + 1 + len(rest)),
    ]
    whole = parts.permute(order).reshape(-1, *[size * n for size, n in zip(sizes, block, strict=True)], *rest)
    for axis, (low, high) in enumerate(crops):
        whole = whole.narrow(axis + 1, low, whole.shape[axis + 1] - low - high)
    return whole


@exported("space_to_batch")
def space_to_batch(
    input: Any,  # noqa: A002
    paddings: Any,
    block_size: Any = None,
    name: str | None = None,
    block_shape: Any = None,
) -> Any:
    """Square blocks of an image as rows of the batch."""
    block = [block_size, block_size] if block_shape is None else block_shape
    return space_to_batch_nd(input, block, paddings, name=name or "SpaceToBatchND")


@exported("batch_to_space")
def batch_to_space(
    input: Any,  # noqa: A002
    crops: Any,
    block_size: Any = None,
    name: str | None = None,
    block_shape: Any = None,
) -> Any:
    """Rows of the batch as square blocks of an image."""
    block = [block_size, block_size] if block_shape is None else block_shape
    return batch_to_space_nd(input, block, crops, name=name or "BatchToSpaceND")


@operation("required_space_to_batch_paddings", op_name="required_space_to_batch_paddings", differentiable=False)
def required_space_to_batch_paddings(
    input_shape: Static, block_shape: Static, base_paddings: Static = None
) -> tuple[Tensor, Tensor]:
    """The paddings that make sizes divisible by a block, and the crops that undo them."""
    sizes, block = ints(input_shape), ints(block_shape)
    base = [[0, 0]] * len(sizes) if base_paddings is None else ints(base_paddings)
    extra = [-(size + low + high) % n for size, n, (low, high) in zip(sizes, block, base, strict=True)]
    paddings = [[low, high + more] for (low, high), more in zip(base, extra, strict=True)]
    crops = [[0, more] for more in extra]
    return torch.tensor(paddings, dtype=torch.int32, device="cpu"), torch.tensor(crops, dtype=torch.int32, device="cpu")
