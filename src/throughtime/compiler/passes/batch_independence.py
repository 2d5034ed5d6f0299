"""Proof that the rows of a batch do not meet: operation by operation, by rules that are known to hold.

Every operation that touches rows must have a rule here; one without is refused, so that a cell whose rows depend on
each other is never compiled. In the backward part, rows may be summed up: a gradient of a parameter is a total over
all rows, and from a total only what is linear in it may be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value


def check_batch_independence(graph: Graph, backward_start: int, gradients: Iterable[Value] = ()) -> None:
    """Raise `Uncompilable` unless rows are independent, and the `gradients` of parameters totals over rows."""
    # Zero is the total of any number of zeros.
    totals, zeros = set[Value](), set[Value]()
    for position, node in enumerate(graph.nodes):
        if not totals.isdisjoint(node.values):
            _check_linear(node, totals, zeros)
            totals.update(node.results)
        elif any(value.has_rows for value in (*node.values, *node.results)):
            summed = _apply_rule(node)
            if summed and (position < backward_start or (node.name == "index_put" and node.args[0] not in zeros)):
                _refuse(node, "adds them up or mixes them")
            totals.update(summed)
        elif _is_zero(node, zeros):
            zeros.update(node.results)
    for gradient in gradients:
        if gradient not in totals and gradient not in zeros:
            raise Uncompilable(f"its gradient of a parameter is not a sum over rows ({gradient.name})")


def _is_zero(node: Node, zeros: set[Value]) -> bool:
    """Whether something without rows is made of zeros, as where a function has no slope."""
    if node.name in ("full", "scalar_tensor"):
        return bool(node.arg("fill_value" if node.name == "full" else "s") == 0)
    moved = bool(node.values) and zeros.issuperset(node.values) and _is_linear(node, node.values, zeros)
    return node.name == "zeros" or moved


def check_random(graph: Graph, once: list[Value]) -> None:
    """Random numbers without rows are drawn at every step, unless somebody keeps them for the whole sequence."""
    kept = set(map(id, graph.needed_for(once)))
    for node in graph.nodes:
        if node.is_random and id(node) not in kept and not any(value.has_rows for value in node.results):
            raise Uncompilable(f"it draws random numbers at every step that all rows share (aten.{node.name})")


def _apply_rule(node: Node) -> set[Value]:
    """The results that are totals; all others have been shown to be independent from row to row."""
    if node.name not in _MAKES_ROWS and not any(value.has_rows for value in node.values):
        _refuse(node, "gives them what belongs to their places")
    if node.is_pointwise:
        _pointwise(node)
        return set()
    rule = RULES.get(node.name)
    if rule is None:
        raise Uncompilable(f"it uses aten.{node.name}, which is not known to treat the rows of a batch separately")
    return rule(node) or set()


# All rows of what these make are alike, or drawn each on its own.
_FACTORIES = ("zeros", "ones", "full", "empty", "rand", "randn")
_MAKES_ROWS = frozenset({*_FACTORIES, "expand", "repeat"})


_DRAWN = ("bernoulli", "uniform", "normal_functional", "exponential", "cauchy", "geometric", "log_normal")


def _refuse(node: Node, what: str) -> None:
    raise Uncompilable(f"the rows of a batch are not independent: aten.{node.name} {what}")


def _axis(value: Any) -> int | None:
    return value.row_axis if isinstance(value, Value) else None


def _dim(node: Node, value: Value, name: str = "dim") -> int:
    return int(node.arg(name)) % max(1, len(value.shape))


def _pointwise(node: Node) -> None:
    """Broadcasting aligns shapes at their ends, so rows stay apart if they lie at the same distance from the end."""
    places = {len(value.shape) - _axis(value) for value in node.values if value.has_rows}  # type: ignore[operator]
    for result in node.results:
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


def _repeat(node: Node) -> None:
    """Rows are not repeated, but anything else may be, once for each row as well."""
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
            _refuse(node, "cuts some of them out")


def _cat(node: Node) -> None:
    (result,) = node.results
    dim = _dim(node, result)
    for value in node.values:
        if value.row_axis != result.row_axis or value.row_axis == dim:
            _refuse(node, "joins them with others")


def _stack(node: Node) -> None:
    """Stacked in front of the rows, parts have their rows one axis earlier than the whole has."""
    dim, axis = _dim(node, node.result), node.result.row_axis
    if axis is None or any(value.row_axis != axis - (dim < axis) for value in node.values):
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
    # torch reads means and deviations as if they lay in order, and those of one step do not if rows come later.
    if any(value.row_axis not in (None, 0) for value in node.values):
        raise Uncompilable(f"rows do not come first in aten.{node.name}")
    return {value for value in node.results if not value.has_rows}


def _embedding(node: Node) -> None:
    if node.arg("weight").has_rows:
        _refuse(node, "looks rows up in each other")


def _embedding_backward(node: Node) -> set[Value]:
    if node.arg("scale_grad_by_freq"):
        _refuse(node, "counts how often a row of the table is looked up")
    return set(node.results)


def _convolution(node: Node) -> None:
    if node.arg("input").row_axis != 0 or node.arg("weight").has_rows:
        _refuse(node, "works along them")


def _convolution_backward(node: Node) -> set[Value]:
    if node.arg("grad_output").row_axis != 0 or node.arg("input").row_axis != 0 or node.arg("weight").has_rows:
        _refuse(node, "works along them")
    return {value for value in node.results if not value.has_rows}


def _gather(node: Node) -> None:
    """`gather` and `scatter`: all have rows, along the same axis, and nothing goes along it."""
    dim = _dim(node, node.result)
    for value in node.values:
        if value.row_axis is None or value.row_axis == dim or value.row_axis != node.result.row_axis:
            _refuse(node, "picks values out of other rows")


def _index(node: Node) -> None:
    """Picking by constant indices along dimensions that are not the rows', or for each row from what has none."""
    source, indices = node.args[0], node.args[1]
    given = [index for index in indices if index is not None]
    if not source.has_rows and (len(given) == 1 or _is_aligned(given)):
        return
    for dim, index in enumerate(indices):
        if index is not None and (index.has_rows or dim == source.row_axis or index.dtype == torch.bool):
            _refuse(node, "picks values out of other rows")
    if node.result.row_axis is None:
        _refuse(node, "moves them away")


def _is_aligned(indices: list[Value]) -> bool:
    """Whether several indices, which meet as in a pointwise operation, have their rows in the same place."""
    places = {len(index.shape) - index.row_axis for index in indices if index.row_axis is not None}
    return len(places) == 1 and all(index.dtype != torch.bool for index in indices)


def _scatter_into(node: Node) -> None:
    """`slice_scatter` and `select_scatter`: a piece written into a whole, along a dimension that is not the rows'."""
    whole, piece = node.args[:2]
    dim = _dim(node, whole)
    if not (whole.has_rows and piece.has_rows) or whole.row_axis == dim:
        _refuse(node, "writes over some of them")


def _index_put(node: Node) -> set[Value]:
    """Writing to constant places along dimensions that are not the rows', or adding up what each row picked."""
    whole, indices, piece = node.args[:3]
    if not whole.has_rows and piece.has_rows and node.arg("accumulate"):
        return set(node.results)
    for dim, index in enumerate(indices):
        if index is not None and (index.has_rows or dim == whole.row_axis or index.dtype == torch.bool):
            _refuse(node, "writes over some of them")
    # Where rows come first, and are followed by all indices at once, they stay first.
    if whole.row_axis != 0 or piece.row_axis != 0 or None in indices[1:]:
        _refuse(node, "writes over some of them")
    return set()


def _index_fill(node: Node) -> None:
    if node.arg("index").has_rows or node.arg("self").row_axis in (None, _dim(node, node.arg("self"))):
        _refuse(node, "writes over some of them")
    if isinstance(node.arg("value"), Value) and node.arg("value").has_rows:
        _refuse(node, "writes over some of them")


def _index_add(node: Node) -> None:
    whole, piece = node.arg("self"), node.arg("source")
    if node.arg("index").has_rows or whole.row_axis != piece.row_axis or whole.row_axis in (None, _dim(node, whole)):
        _refuse(node, "writes over some of them")


def _planes(node: Node) -> None:
    """Works on the last two dimensions, before which the rows must lie."""
    for value in node.values:
        if value.row_axis is None or value.row_axis >= len(value.shape) - 2:
            _refuse(node, "works along them")


def _bucketize(node: Node) -> None:
    if node.arg("boundaries").has_rows:
        _refuse(node, "looks rows up in each other")


def _pad(node: Node) -> None:
    source = node.values[0]
    padded = len(node.arg("pad")) // 2
    if source.row_axis is not None and source.row_axis >= len(source.shape) - padded:
        _refuse(node, "works along them")


RULES: dict[str, Callable[[Node], set[Value] | None]] = {
    **dict.fromkeys(("_to_copy", "clone", *_DRAWN), _pointwise),
    # Pointwise in fact, though torch does not say so.
    **dict.fromkeys(
        (
            "hardswish",
            "hardswish_backward",
            "mish",
            "mish_backward",
            "celu",
            "selu",
            "floor_divide",
        ),
        _pointwise,
    ),
    **dict.fromkeys(_FACTORIES, _free),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias"), _reshape),
    **dict.fromkeys(("t", "permute", "transpose", "unsqueeze", "squeeze"), _permute),
    "expand": _repeat,
    "repeat": _repeat,
    **dict.fromkeys(
        (
            "select",
            "_softmax",
            "_safe_softmax",
            "_log_softmax",
            "_softmax_backward_data",
            "_log_softmax_backward_data",
            "cumsum",
            "cumprod",
            "cummax",
            "cummin",
            "logcumsumexp",
            "sort",
            "topk",
            "kthvalue",
            "median",
            "nanmedian",
            "mode",
            "unfold_backward",
            "argmax",
            "argmin",
            "glu",
            "glu_backward",
            "index_select",
        ),
        _along(),
    ),
    **dict.fromkeys(("flip", "roll"), _along("dims")),
    "unfold": _along("dimension"),
    "slice": _slice,
    "cat": _cat,
    "stack": _stack,
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
    **dict.fromkeys(("gather", "scatter", "scatter_add"), _gather),
    "bucketize": _bucketize,
    "index_put": _index_put,
    **dict.fromkeys(("index_add", "index_copy"), _index_add),
    "index_fill": _index_fill,
    **dict.fromkeys(
        (
            "tril",
            "triu",
            "avg_pool2d",
            "avg_pool2d_backward",
            "max_pool2d_with_indices",
            "max_pool2d_with_indices_backward",
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool2d_backward",
        ),
        _planes,
    ),
    "index": _index,
    "slice_scatter": _scatter_into,
    "select_scatter": _scatter_into,
    "constant_pad_nd": _pad,
}


# What is linear in its one argument that is a total.
_LINEAR_IN_ONE = frozenset(
    "t permute transpose view _unsafe_view reshape expand unsqueeze squeeze slice select neg sum mm bmm mul clone "
    "_to_copy mean cumsum flip roll repeat tril triu diagonal".split()
)
# What is linear in all that it joins, and in the one whose place in the other is filled.
_LINEAR_IN_ALL = frozenset("add sub cat stack slice_scatter select_scatter index_put index_add".split())
# What is linear in its first argument, by factors that the others say.
_LINEAR_IN_FIRST = frozenset("div _softmax_backward_data _log_softmax_backward_data embedding_dense_backward".split())


def _check_linear(node: Node, totals: set[Value], zeros: set[Value]) -> None:
    """A function of a total must be linear: the total of all steps goes through it as each step's part would."""
    among = [value for value in node.values if value in totals]
    if any(value.has_rows for value in (*node.values, *node.results)):
        raise Uncompilable(f"aten.{node.name} joins a sum over rows with rows")
    if not _is_linear(node, among, totals | zeros) or not all(_is_continuous(value.dtype) for value in node.results):
        raise Uncompilable(f"its gradient is not a sum over rows (aten.{node.name} of one)")


def _is_linear(node: Node, among: list[Value], summed: set[Value]) -> bool:
    if node.name in _LINEAR_IN_ALL:
        parts = {"cat": node.args[0], "stack": node.args[0], "index_put": node.args[::2], "index_add": node.args[::3]}
        joined = parts.get(node.name, node.args[:2])
        return all(isinstance(part, Value) and part in summed for part in joined)
    if node.name == "where":
        return node.args[0] not in summed and all(part in summed for part in node.args[1:])
    if len(among) != 1:
        return False
    if node.name in _LINEAR_IN_FIRST or (node.is_pointwise and node.name.endswith("_backward")):
        rounds = "mode" in node.target._overloadname and node.arg("rounding_mode") is not None
        return node.args[0] is among[0] and not rounds
    return node.name in _LINEAR_IN_ONE


def _is_continuous(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
