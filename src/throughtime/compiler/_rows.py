"""Proof that the rows of a batch do not meet: operation by operation, by rules that are known to hold.

Every operation that touches rows must have a rule here; one without is refused, so that a cell whose rows depend on
each other is never compiled. In the backward part, rows may be summed up: a gradient of a parameter is a total over
all rows, and from a total only what is linear in it may be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._graph import ROWS, Graph, Node, Value


def check_rows(graph: Graph, backward_start: int) -> set[Value]:
    """Raise `Uncompilable` unless rows are independent; the values that are totals over rows."""
    totals: set[Value] = set()
    for position, node in enumerate(graph.nodes):
        if not totals.isdisjoint(node.values):
            _check_linear(node, totals)
            totals.update(node.results)
            continue
        touched = [value for value in (*node.values, *node.results) if value.has_rows]
        if not touched:
            continue
        summed = _apply_rule(node)
        if summed and position < backward_start:
            _refuse(node, "adds them up or mixes them")
        totals.update(summed)
    return totals


def check_random(graph: Graph, once: list[Value]) -> None:
    """Random numbers without rows are drawn at every step, unless somebody keeps them for the whole sequence."""
    kept = set(map(id, graph.needed_for(once)))
    for node in graph.nodes:
        if node.is_random and id(node) not in kept and not any(value.has_rows for value in node.results):
            raise Uncompilable(f"it draws random numbers at every step that all rows share (aten.{node.name})")


def _apply_rule(node: Node) -> set[Value]:
    """The results that are totals; all others have been shown to be independent from row to row."""
    if node.is_pointwise:
        _pointwise(node)
        return set()
    rule = RULES.get(node.name)
    if rule is None:
        raise Uncompilable(f"it uses aten.{node.name}, which is not known to treat the rows of a batch separately")
    return rule(node) or set()


def _refuse(node: Node, what: str) -> None:
    raise Uncompilable(f"the rows of a batch are not independent: aten.{node.name} {what}")


def _axis(value: Any) -> int | None:
    return value.row_axis if isinstance(value, Value) else None


def _dim(node: Node, value: Value, name: str = "dim") -> int:
    return int(node.arg(name)) % max(1, len(value.shape))


def _pointwise(node: Node) -> None:
    """Broadcasting aligns shapes at their ends, so rows stay apart if they lie at the same distance from the end."""
    (result,) = node.results
    places = {len(value.shape) - _axis(value) for value in node.values if value.has_rows}  # type: ignore[operator]
    expected = None if result.row_axis is None else len(result.shape) - result.row_axis
    if places != {expected}:
        _refuse(node, "meets rows along different axes")


def _free(node: Node) -> None:
    """Made from shapes alone: every row is like every other, or drawn on its own."""


def _reshape(node: Node) -> None:
    source, result = node.values[0], node.result
    if source.row_axis is None or result.row_axis is None:
        _refuse(node, "folds them into another dimension")
    assert source.row_axis is not None
    assert result.row_axis is not None
    if math.prod(source.shape[: source.row_axis]) != math.prod(result.shape[: result.row_axis]):  # type: ignore[arg-type]
        _refuse(node, "folds them into another dimension")


def _permute(node: Node) -> None:
    if not node.result.has_rows:
        _refuse(node, "moves them away")


def _expand(node: Node) -> None:
    source, result = node.values[0], node.result
    if source.row_axis is None:
        return
    if result.row_axis is None or len(result.shape) - result.row_axis != len(source.shape) - source.row_axis:
        _refuse(node, "moves them away")


def _along(name: str = "dim") -> Callable[[Node], None]:
    """Works along some dimensions, which must not be that of the rows."""

    def rule(node: Node) -> None:
        for value in node.values:
            if value.has_rows and value.row_axis in _axes(node, value, name):
                _refuse(node, "works along them")

    return rule


def _axes(node: Node, value: Value, name: str = "dim") -> set[int]:
    """The dimensions that an operation names; all of them if it names none."""
    named = any(argument.name == name for argument in node.target._schema.arguments)
    dims = node.arg(name) if named else None
    if dims is None or dims == []:
        return set(range(len(value.shape)))
    return {dim % len(value.shape) for dim in ([dims] if isinstance(dims, int) else dims)}


def _slice(node: Node) -> None:
    source = node.values[0]
    if source.has_rows and _dim(node, source) == source.row_axis:
        start, end, step = node.arg("start"), node.arg("end"), node.arg("step")
        whole = start in (None, 0) and (end is None or end is ROWS or end >= 2**62) and step == 1
        if not whole:
            _refuse(node, "cuts some of them out")


def _cat(node: Node) -> None:
    (result,) = node.results
    dim = _dim(node, result)
    for value in node.values:
        if value.row_axis != result.row_axis or value.row_axis == dim:
            _refuse(node, "joins them with others")


def _reduce(node: Node) -> set[Value]:
    source = node.values[0]
    if source.row_axis in _axes(node, source):
        if node.name != "sum":
            _refuse(node, "works along them")
        return set(node.results)
    return set()


def _mm(node: Node) -> set[Value]:
    one, other = node.args[:2]
    if _axis(one) == 1 and _axis(other) == 0:
        return set(node.results)
    if (_axis(one), _axis(other)) not in ((0, None), (None, 1)):
        _refuse(node, "multiplies them with each other")
    return set()


def _bmm(node: Node) -> set[Value]:
    one, other = (_axis(value) for value in node.args[:2])
    if one == 2 and other == 1:
        return set(node.results)
    if (one, other) not in ((0, 0), (1, None), (None, 2)):
        _refuse(node, "multiplies them with each other")
    return set()


def _trailing(node: Node) -> None:
    """Works on the last dimensions, before which the rows must lie."""
    source = node.values[0]
    shape = node.arg("normalized_shape")
    if source.row_axis is None or source.row_axis >= len(source.shape) - len(shape):
        _refuse(node, "works along them")


def _trailing_backward(node: Node) -> set[Value]:
    _trailing(node)
    return {value for value in node.results if not value.has_rows}


def _embedding(node: Node) -> None:
    if node.arg("weight").has_rows:
        _refuse(node, "looks rows up in each other")


def _embedding_backward(node: Node) -> set[Value]:
    return set(node.results)


def _convolution(node: Node) -> None:
    if node.arg("input").row_axis != 0 or node.arg("weight").has_rows or node.arg("transposed") not in (False, True):
        _refuse(node, "works along them")


def _convolution_backward(node: Node) -> set[Value]:
    if node.arg("grad_output").row_axis != 0 or node.arg("input").row_axis != 0 or node.arg("weight").has_rows:
        _refuse(node, "works along them")
    return {value for value in node.results if not value.has_rows}


def _gather(node: Node) -> None:
    dim = _dim(node, node.result)
    for value in node.values:
        if value.row_axis is None or value.row_axis == dim or value.row_axis != node.result.row_axis:
            _refuse(node, "picks values out of other rows")


def _index(node: Node) -> None:
    """Picking by constant indices along dimensions that are not the rows'."""
    source, indices = node.args[0], node.args[1]
    for dim, index in enumerate(indices):
        if index is not None and (index.has_rows or dim == source.row_axis or index.dtype == torch.bool):
            _refuse(node, "picks values out of other rows")
    if node.result.row_axis is None:
        _refuse(node, "moves them away")


def _scatter_into(node: Node) -> None:
    """`slice_scatter` and `select_scatter`: a piece written into a whole, along a dimension that is not the rows'."""
    whole, piece = node.args[:2]
    dim = _dim(node, whole)
    if not (whole.has_rows and piece.has_rows) or whole.row_axis == dim:
        _refuse(node, "writes over some of them")


def _pad(node: Node) -> None:
    source = node.values[0]
    padded = len(node.arg("pad")) // 2
    if source.row_axis is not None and source.row_axis >= len(source.shape) - padded:
        _refuse(node, "works along them")


RULES: dict[str, Callable[[Node], set[Value] | None]] = {
    **dict.fromkeys(("_to_copy", "clone", "bernoulli", "uniform", "normal_functional"), _pointwise),
    # Pointwise in fact, though torch does not say so.
    **dict.fromkeys(
        ("hardswish", "hardswish_backward", "mish", "mish_backward", "celu", "selu", "floor_divide"), _pointwise
    ),
    **dict.fromkeys(("zeros", "ones", "full", "empty", "rand", "randn"), _free),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias"), _reshape),
    **dict.fromkeys(("t", "permute", "transpose", "unsqueeze", "squeeze"), _permute),
    **dict.fromkeys(("expand",), _expand),
    **dict.fromkeys(
        (
            "select",
            "_softmax",
            "_log_softmax",
            "_softmax_backward_data",
            "_log_softmax_backward_data",
            "cumsum",
            "cumprod",
            "sort",
            "topk",
            "argmax",
            "argmin",
            "glu",
            "glu_backward",
            "index_select",
        ),
        _along(),
    ),
    "flip": _along("dims"),
    "slice": _slice,
    "cat": _cat,
    "stack": _cat,
    **dict.fromkeys(
        (
            "sum",
            "mean",
            "amax",
            "amin",
            "var",
            "std",
            "prod",
            "any",
            "all",
            "var_mean",
            "logsumexp",
            "linalg_vector_norm",
        ),
        _reduce,
    ),
    **dict.fromkeys(("max", "min"), _reduce),
    "mm": _mm,
    "bmm": _bmm,
    "native_layer_norm": _trailing,
    "native_layer_norm_backward": _trailing_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "gather": _gather,
    "index": _index,
    "slice_scatter": _scatter_into,
    "select_scatter": _scatter_into,
    "constant_pad_nd": _pad,
}


# What is linear in its one argument that is a total.
_LINEAR_IN_ONE = frozenset(
    "t permute transpose view _unsafe_view reshape expand unsqueeze squeeze slice select neg sum mm bmm mul div clone "
    "_to_copy select_scatter slice_scatter mean".split()
)
_LINEAR_IN_ALL = frozenset("add sub cat stack".split())
# With the result y of the forward step as second argument, these are products with a factor known beforehand.
_LINEAR_IN_FIRST = frozenset("sigmoid_backward tanh_backward threshold_backward".split())


def _check_linear(node: Node, totals: set[Value]) -> None:
    """A function of a total must be linear: the total of all steps goes through it as each step's part would."""
    among = [value for value in node.values if value in totals]
    others = [value for value in node.values if value not in totals]
    if any(value.has_rows for value in others):
        raise Uncompilable(f"aten.{node.name} joins a sum over rows with rows")
    if node.name in _LINEAR_IN_ALL:
        linear = not others and len(among) == len([arg for arg in _flat(node.args[:2]) if not isinstance(arg, int)])
    elif node.name in _LINEAR_IN_FIRST:
        linear = len(among) == 1 and node.args[0] is among[0]
    elif node.name == "div":
        linear = len(among) == 1 and node.args[0] is among[0] and node.arg("self") is not None
    elif node.name in ("select_scatter", "slice_scatter"):
        linear = len(among) == 1 and node.args[1] is among[0]
    else:
        linear = node.name in _LINEAR_IN_ONE and len(among) == 1
    if not linear:
        raise Uncompilable(f"its gradient is not a sum over rows (aten.{node.name} of one)")


def _flat(args: tuple[Any, ...]) -> list[Any]:
    return [part for arg in args for part in (arg if isinstance(arg, list | tuple) else [arg])]
