"""Rules for rows: one for each way in which operations treat the rows of a batch. The operation table names them.

A rule raises `Uncompilable` if a row of a result depends on another row. It returns the results that are sums over
rows, which only the backward part of a step may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import ROWS, Node, Value

RowRule: TypeAlias = Callable[[Node], set[Value] | None]


def refuse(node: Node, what: str) -> None:
    """Say what a node does to rows."""
    raise Uncompilable(f"the rows of a batch are not independent: {node.title} {what}")


def _axis(value: object) -> int | None:
    return value.row_axis if isinstance(value, Value) else None


def _dim(node: Node, value: Value, name: str = "dim") -> int:
    return int(node.arg(name)) % max(1, len(value.shape))


def _pointwise(node: Node) -> None:
    """Broadcasting aligns shapes at their ends, so batch axes must be at the same distance from the end."""
    places = {len(value.shape) - _axis(value) for value in node.values if value.has_rows}  # type: ignore[operator]
    for result in node.results:
        expected = None if result.row_axis is None else len(result.shape) - result.row_axis
        if places != {expected}:
            refuse(node, "combines batch axes at different positions")


def _free(node: Node) -> None:
    """From shapes alone: all rows are equal, or drawn independently."""


def _reshape(node: Node) -> None:
    source, result = node.values[0], node.result
    if source.row_axis is None or result.row_axis is None:
        refuse(node, "folds them into another dimension")
    assert source.row_axis is not None
    assert result.row_axis is not None
    if math.prod(source.shape[: source.row_axis]) != math.prod(result.shape[: result.row_axis]):  # type: ignore[arg-type]
        refuse(node, "folds them into another dimension")


def _permute(node: Node) -> None:
    if not node.result.has_rows:
        refuse(node, "moves them away")


def _repeat(node: Node) -> None:
    """The batch axis must not be repeated; a value without rows may be repeated for each row."""
    source, result = node.values[0], node.result
    if source.row_axis is None:
        return
    if result.row_axis is None or len(result.shape) - result.row_axis != len(source.shape) - source.row_axis:
        refuse(node, "moves them away")


def _along(name: str = "dim") -> Callable[[Node], None]:
    """Works along some dimensions, which must not be the batch axis."""

    def rule(node: Node) -> None:
        for value in node.values:
            if value.has_rows and value.row_axis in _axes(node, value, name):
                refuse(node, "works along them")

    return rule


def _axes(node: Node, value: Value, name: str = "dim") -> set[int]:
    """The dimensions that an operation names; all of them if it names none."""
    dims = node.arg(name) if node.has_arg(name) else None
    if dims is None or dims == []:
        return set(range(len(value.shape)))
    return {dim % len(value.shape) for dim in ([dims] if isinstance(dims, int) else dims)}


def _slice(node: Node) -> None:
    source = node.values[0]
    if source.has_rows and _dim(node, source) == source.row_axis:
        start, end, step = node.arg("start"), node.arg("end"), node.arg("step")
        whole = start in (None, 0) and (end is None or end is ROWS or end >= 2**62) and step == 1
        if not whole:
            refuse(node, "cuts some of them out")


def _cat(node: Node) -> None:
    (result,) = node.results
    dim = _dim(node, result)
    for value in node.values:
        if value.row_axis != result.row_axis or value.row_axis == dim:
            refuse(node, "joins them with others")


def _stack(node: Node) -> None:
    """If the new dimension comes first, the batch axis of the parts is one less than that of the result."""
    dim, axis = _dim(node, node.result), node.result.row_axis
    if axis is None or any(value.row_axis != axis - (dim < axis) for value in node.values):
        refuse(node, "joins them with others")


def _reduce(node: Node) -> set[Value]:
    source = node.values[0]
    if source.row_axis in _axes(node, source):
        if node.name != "sum":
            refuse(node, "works along them")
        return set(node.results)
    return set()


def _mm(node: Node) -> set[Value]:
    one, other = node.args[:2]
    if _axis(one) == 1 and _axis(other) == 0:
        return set(node.results)
    if (_axis(one), _axis(other)) not in ((0, None), (None, 1)):
        refuse(node, "multiplies them with each other")
    return set()


def _bmm(node: Node) -> set[Value]:
    one, other = (_axis(value) for value in node.args[:2])
    if one == 2 and other == 1:
        return set(node.results)
    if (one, other) not in ((0, 0), (1, None), (None, 2)):
        refuse(node, "multiplies them with each other")
    return set()


def _trailing(node: Node) -> None:
    """Works on the last dimensions; the batch axis must come before them."""
    source = node.values[0]
    shape = node.arg("normalized_shape")
    if source.row_axis is None or source.row_axis >= len(source.shape) - len(shape):
        refuse(node, "works along them")


def _trailing_backward(node: Node) -> set[Value]:
    _trailing(node)
    # torch assumes contiguous means and deviations, and those of one step are not unless rows come first.
    if any(value.row_axis not in (None, 0) for value in node.values):
        raise Uncompilable(f"rows do not come first in {node.title}")
    return {value for value in node.results if not value.has_rows}


def _embedding(node: Node) -> None:
    if node.arg("weight").has_rows:
        refuse(node, "looks rows up in each other")


def _embedding_backward(node: Node) -> set[Value]:
    if node.arg("scale_grad_by_freq"):
        refuse(node, "counts how often a row of the table is looked up")
    return set(node.results)


def _convolution(node: Node) -> None:
    if node.arg("input").row_axis != 0 or node.arg("weight").has_rows:
        refuse(node, "works along them")


def _convolution_backward(node: Node) -> set[Value]:
    if node.arg("grad_output").row_axis != 0 or node.arg("input").row_axis != 0 or node.arg("weight").has_rows:
        refuse(node, "works along them")
    return {value for value in node.results if not value.has_rows}


def _gather(node: Node) -> None:
    """`gather` and `scatter`: all operands have the same batch axis, and the dimension is another."""
    dim = _dim(node, node.result)
    for value in node.values:
        if value.row_axis is None or value.row_axis == dim or value.row_axis != node.result.row_axis:
            refuse(node, "picks values out of other rows")


def _index(node: Node) -> None:
    """Constant indices along other dimensions than the batch axis, or indices of rows into a value without rows."""
    source, indices = node.args[0], node.args[1]
    given = [index for index in indices if index is not None]
    if not source.has_rows and (len(given) == 1 or _is_aligned(given)):
        return
    for dim, index in enumerate(indices):
        if index is not None and (index.has_rows or dim == source.row_axis or index.dtype == torch.bool):
            refuse(node, "picks values out of other rows")
    if node.result.row_axis is None:
        refuse(node, "moves them away")


def _is_aligned(indices: list[Value]) -> bool:
    """Whether several indices, which broadcast with each other, have the same batch axis."""
    places = {len(index.shape) - index.row_axis for index in indices if index.row_axis is not None}
    return len(places) == 1 and all(index.dtype != torch.bool for index in indices)


def _scatter_into(node: Node) -> None:
    """`slice_scatter` and `select_scatter` along another dimension than the batch axis."""
    whole, piece = node.args[:2]
    dim = _dim(node, whole)
    if not (whole.has_rows and piece.has_rows) or whole.row_axis == dim:
        refuse(node, "writes over some of them")


def _index_put(node: Node) -> set[Value]:
    """Constant indices along other dimensions than the batch axis, or a sum over the rows of indexed values."""
    whole, indices, piece = node.args[:3]
    if not whole.has_rows and piece.has_rows and node.arg("accumulate"):
        return set(node.results)
    for dim, index in enumerate(indices):
        if index is not None and (index.has_rows or dim == whole.row_axis or index.dtype == torch.bool):
            refuse(node, "writes over some of them")
    # If rows come first and all indices follow directly, rows stay first.
    if whole.row_axis != 0 or piece.row_axis != 0 or None in indices[1:]:
        refuse(node, "writes over some of them")
    return set()


def _index_fill(node: Node) -> None:
    if node.arg("index").has_rows or node.arg("self").row_axis in (None, _dim(node, node.arg("self"))):
        refuse(node, "writes over some of them")
    if isinstance(node.arg("value"), Value) and node.arg("value").has_rows:
        refuse(node, "writes over some of them")


def _index_add(node: Node) -> None:
    whole, piece = node.arg("self"), node.arg("source")
    if node.arg("index").has_rows or whole.row_axis != piece.row_axis or whole.row_axis in (None, _dim(node, whole)):
        refuse(node, "writes over some of them")


def _planes(node: Node) -> None:
    """Works on the last two dimensions; the batch axis must come before them."""
    for value in node.values:
        if value.row_axis is None or value.row_axis >= len(value.shape) - 2:
            refuse(node, "works along them")


def _bucketize(node: Node) -> None:
    if node.arg("boundaries").has_rows:
        refuse(node, "looks rows up in each other")


def _pad(node: Node) -> None:
    source = node.values[0]
    padded = len(node.arg("pad")) // 2
    if source.row_axis is not None and source.row_axis >= len(source.shape) - padded:
        refuse(node, "works along them")


ROW_RULES: dict[str, RowRule] = {
    "along_dim": _along("dim"),
    "along_dimension": _along("dimension"),
    "along_dims": _along("dims"),
    "bmm": _bmm,
    "bucketize": _bucketize,
    "cat": _cat,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "embedding": _embedding,
    "embedding_backward": _embedding_backward,
    "free": _free,
    "gather": _gather,
    "index": _index,
    "index_add": _index_add,
    "index_fill": _index_fill,
    "index_put": _index_put,
    "mm": _mm,
    "pad": _pad,
    "permute": _permute,
    "planes": _planes,
    "pointwise": _pointwise,
    "reduce": _reduce,
    "repeat": _repeat,
    "reshape": _reshape,
    "scatter_into": _scatter_into,
    "slice": _slice,
    "stack": _stack,
    "trailing": _trailing,
    "trailing_backward": _trailing_backward,
}
"""By the name that the `rows` column of the operation table has."""
