"""Lowering: the nodes of a loop as a loop program in the closed vocabulary of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from throughtime.compiler._composites import (
    ALONG_FEATURES,
    COMPOSITES,
    Formula,
    layer_norm,
    layer_norm_backward,
)
from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._graph import ROWS, Node, Value
from throughtime.compiler._loop import (
    BINARY,
    COMPARISONS,
    DTYPES,
    UNARY,
    Ahead,
    Carry,
    LoopProgram,
    Matrix,
    Op,
    Operand,
    Row,
    check_loop,
)
from throughtime.compiler._sections import Loop


class Lowered:
    """A loop program, and which values its streams, constants and matrices are.

    Nodes that can run `ahead` of the loop, from streams alone, become a part of the program of their own.
    """

    def __init__(self, loop: Loop, lagged: set[Value], ahead: Sequence[Node] = ()) -> None:
        lowering = _Lowering(loop, lagged)
        self.streams, self.lagged = lowering.streams, lowering.lagged
        self.constants, self.matrices = lowering.constants, lowering.matrices
        # Rows of numbers that the program itself brings along, such as zeros.
        self.fills = lowering.fills
        self.rows, self.stored = {value: lowering.row(value) for value in lowering.streams}, loop.stored
        self.program = lowering.program
        self.ahead: Lowered | None = None
        made = {value for node in ahead for value in node.results}
        fed = [value for value in self.streams if value in made]
        if fed:
            self.ahead = Lowered(Loop(f"{loop.name}, ahead", list(ahead), loop.reverse, [], fed), set())
            feeds = tuple(map(self.streams.index, fed))
            self.program = replace(self.program, ahead=Ahead(self.ahead.program, feeds))
            self.streams = [value for value in self.streams if value not in made]
        check_loop(self.program)


def is_lowerable(node: Node) -> bool:
    """Whether row programs have words for a node; its shapes and dtypes may still be beyond them."""
    known = node.name in RULES or node.name in UNARY or node.name in BINARY
    return known and all(value.row_axis == 0 for value in node.results)


class _Lowering:
    def __init__(self, loop: Loop, lagged: set[Value]) -> None:
        self.streams: list[Value] = []
        self.lagged: list[Value] = []
        self.constants: list[Value] = []
        self.matrices: list[Value] = []
        self.fills: list[tuple[Row, float | int | bool]] = []
        self._may_lag = lagged
        self._rows: dict[Value, Row] = {}
        self._matrix: dict[Value, Matrix] = {}
        self._names: set[str] = set()
        self._body: list[Op] = []
        self._found = {before: self._row(before) for before, _ in loop.carried}
        self._rows.update(self._found)
        for node in loop.nodes:
            self._lower(node)
        carried = tuple(Carry(self._found[before], self.row(after)) for before, after in loop.carried)
        stored = tuple(self.row(value) for value in loop.stored)
        self.program = LoopProgram(
            name=loop.name,
            reverse=loop.reverse,
            streams=tuple(self._rows[value] for value in self.streams),
            lagged=tuple(self._rows[value] for value in self.lagged),
            constants=(*(self._rows[value] for value in self.constants), *(row for row, _ in self.fills)),
            matrices=tuple(self._matrix[value] for value in self.matrices),
            carried=carried,
            body=tuple(self._body),
            stored=stored,
        )

    def _unique(self, name: str) -> str:
        count, unique = 1, name
        while unique in self._names:
            count += 1
            unique = f"{name}_{count}"
        self._names.add(unique)
        return unique

    def _row(self, value: Value) -> Row:
        if value.dtype not in DTYPES:
            raise Uncompilable(f"{value.name} has dtype {str(value.dtype).removeprefix('torch.')}")
        if value.has_rows and value.row_axis != 0:
            raise Uncompilable(f"the rows of {value.name} do not come first")
        if not value.row_size:
            raise Uncompilable(f"a row of {value.name} is empty")
        return Row(self._unique(value.name), value.row_size, value.dtype)

    def row(self, value: Value) -> Row:
        """The row that a value is; one from outside is a stream, or a constant if it has no rows."""
        if value not in self._rows:
            self._rows[value] = self._row(value)
            if value in self._may_lag:
                self.lagged.append(value)
            elif value.has_rows:
                self.streams.append(value)
            else:
                self.constants.append(value)
        return self._rows[value]

    def fill(self, like: Row, number: float) -> Row:
        """A constant row of one number."""
        row = Row(self._unique("fill"), like.width, like.dtype)
        self.fills.append((row, number))
        return row

    def emit(self, kind: str, *args: Operand, width: int, dtype: torch.dtype, name: str = "") -> Row:
        """Add an operation."""
        if not width:
            raise Uncompilable("a row is empty")
        result = Row(self._unique(name or kind), width, dtype)
        self._body.append(Op(kind, result, args))
        return result

    def cast(self, operand: Operand, dtype: torch.dtype) -> Operand:
        """A row in another dtype; numbers have none."""
        if not isinstance(operand, Row) or operand.dtype == dtype:
            return operand
        return self.emit("cast", operand, width=operand.width, dtype=dtype)

    def pointwise(self, kind: str, *args: Operand, dtype: torch.dtype, name: str = "") -> Row:
        """A pointwise operation, as wide as its widest row."""
        width = max((arg.width for arg in args if isinstance(arg, Row)), default=1)
        return self.emit(kind, *args, width=width, dtype=dtype, name=name)

    def operand(self, arg: Any) -> Operand:
        """A value or a number as an argument."""
        return self.row(arg) if isinstance(arg, Value) else arg

    def _lower(self, node: Node) -> None:
        rule = RULES.get(node.name)
        if rule is None and (node.name in UNARY or node.name in BINARY):
            rule = _same_name
        if rule is None:
            raise Uncompilable(f"aten.{node.name} is not in the vocabulary of row programs")
        results = rule(self, node)
        for value, row in zip(node.results, results if isinstance(results, tuple) else (results,), strict=False):
            if row is not None:
                if row.width != value.row_size or row.dtype != value.dtype:
                    raise Uncompilable(f"aten.{node.name} broadcasts within a row")
                self._rows[value] = row

    def matrix(self, value: Value) -> Matrix:
        """A matrix without rows, from outside."""
        if value not in self._matrix:
            rows, columns = value.shape
            assert isinstance(rows, int)
            assert isinstance(columns, int)
            self._matrix[value] = Matrix(self._unique(value.name), rows, columns, value.dtype)
            self.matrices.append(value)
        return self._matrix[value]


Rule = Callable[[_Lowering, Node], Row | tuple[Row | None, ...]]


def _check_flat(node: Node) -> None:
    """Within a row, shapes must be equal or single numbers: a row is a vector here."""
    shapes = {value.shape[1:] if value.has_rows else value.shape for value in node.values}
    result = node.results[0]
    full = [shape for shape in shapes if math.prod(shape) != 1]  # type: ignore[arg-type]
    wide = {tuple(size for size in shape) for shape in full}
    expected = result.shape[1:]
    if any(_squeezed(shape) != _squeezed(expected) for shape in wide):
        raise Uncompilable(f"aten.{node.name} broadcasts within a row ({', '.join(v.described for v in node.values)})")


def _squeezed(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """A shape without leading ones."""
    first = next((index for index, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def _computing_dtype(node: Node) -> torch.dtype:
    """The dtype in which a comparison is made."""
    # torch knows: a tensor without dimensions counts for less than others, a number for less still.
    compared = [
        torch.empty([0] * len(arg.shape), dtype=arg.dtype) if isinstance(arg, Value) else arg for arg in node.args
    ]
    return torch.result_type(*compared[:2]) if len(compared) > 1 else compared[0].dtype


def _same_name(lowering: _Lowering, node: Node) -> Row:
    """One pointwise operation for one."""
    _check_flat(node)
    _check_real(node)
    dtype = node.result.dtype
    count = 2 if node.name in BINARY else 1
    within = _computing_dtype(node) if node.name in COMPARISONS else dtype
    if node.name in ("logical_and", "logical_or", "logical_not"):
        within = torch.bool
    args = [lowering.cast(lowering.operand(arg), within) for arg in node.args[:count]]
    for option in node.target._schema.arguments[count:]:
        # Whatever else an operation can be told, such as how to round, is beyond the words of row programs.
        if node.arg(option.name) != option.default_value:
            raise Uncompilable(f"aten.{node.name} has {option.name}={node.arg(option.name)}")
    return lowering.pointwise(node.name, *args, dtype=dtype, name=node.result.name)


def _check_real(node: Node) -> None:
    for value in node.values:
        if value.dtype.is_complex:
            raise Uncompilable("it computes with complex numbers")


def _scaled_sum(lowering: _Lowering, node: Node) -> Row:
    """`add` and `sub`, which may scale their second argument."""
    _check_flat(node)
    dtype, alpha = node.result.dtype, node.arg("alpha")
    one, other = (lowering.cast(lowering.operand(arg), dtype) for arg in node.args[:2])
    if alpha != 1:
        other = lowering.pointwise("mul", other, alpha, dtype=dtype) if isinstance(other, Row) else other * alpha
    return lowering.pointwise(node.name, one, other, dtype=dtype, name=node.result.name)


def _mm(lowering: _Lowering, node: Node) -> Row:
    left, right = node.args
    if right.has_rows or not left.has_rows or left.row_axis != 0:
        raise Uncompilable("a product is not of rows with a constant matrix")
    if not left.dtype.is_floating_point:
        raise Uncompilable(f"a product is in {str(left.dtype).removeprefix('torch.')}")
    matrix = lowering.matrix(right)
    return lowering.emit(
        "product", lowering.row(left), matrix, width=matrix.columns, dtype=left.dtype, name=node.result.name
    )


def _slice(lowering: _Lowering, node: Node) -> Row:
    source, result = lowering.row(node.args[0]), node.result
    shape = node.args[0].shape
    dim = node.arg("dim") % len(shape)
    if node.arg("step") != 1 or any(size != 1 for size in shape[1:dim]) or dim == 0:
        raise Uncompilable("a slice is not of neighbouring features")
    inner = math.prod(shape[dim + 1 :])
    start, stop, size = node.arg("start") or 0, node.arg("end"), shape[dim]
    stop = size if stop is None else min(stop, size)
    return lowering.emit(
        "slice", source, start * inner, stop * inner, width=result.row_size, dtype=source.dtype, name=result.name
    )


def _select(lowering: _Lowering, node: Node) -> Row:
    source, shape = lowering.row(node.args[0]), node.args[0].shape
    dim = node.arg("dim") % len(shape)
    if dim == 0 or any(size != 1 for size in shape[1:dim]):
        raise Uncompilable("a selection is not of neighbouring features")
    inner = math.prod(shape[dim + 1 :])
    index = node.arg("index") % shape[dim]
    return lowering.emit(
        "slice", source, index * inner, (index + 1) * inner, width=inner, dtype=source.dtype, name=node.result.name
    )


def _cat(lowering: _Lowering, node: Node) -> Row:
    dim = node.arg("dim") % len(node.result.shape)
    if dim == 0 or any(size != 1 for size in node.result.shape[1:dim]):
        raise Uncompilable("values are not joined along their features")
    rows = [lowering.row(value) for value in node.args[0] if value.row_size]
    cast = [lowering.cast(row, node.result.dtype) for row in rows]
    return lowering.emit("cat", *cast, width=node.result.row_size, dtype=node.result.dtype, name=node.result.name)


def _view(lowering: _Lowering, node: Node) -> Row:
    """The same features in the same order: nothing to do."""
    source = node.args[0]
    if source.row_axis != 0 or node.result.row_axis != 0 or source.row_size != node.result.row_size:
        raise Uncompilable(f"aten.{node.name} moves or repeats features")
    return lowering.row(source)


def _expand(lowering: _Lowering, node: Node) -> Row:
    source, result = lowering.row(node.args[0]), node.result
    if source.width == result.row_size:
        return source
    if source.width != 1:
        raise Uncompilable("aten.expand repeats features")
    # A zero that leaves the sign of another alone.
    zero = -0.0 if result.dtype.is_floating_point else 0
    zeros = lowering.fill(Row("", result.row_size, result.dtype), zero)
    return lowering.pointwise("add", zeros, source, dtype=result.dtype, name=result.name)


def _cast(lowering: _Lowering, node: Node) -> Row:
    source = lowering.row(node.args[0])
    if source.dtype == node.result.dtype:
        return source
    return lowering.emit("cast", source, width=source.width, dtype=node.result.dtype, name=node.result.name)


def _made_up(lowering: _Lowering, node: Node) -> Row:
    result = node.result
    number = {"zeros": 0, "ones": 1}.get(node.name)
    return lowering.fill(Row("", result.row_size, result.dtype), node.arg("fill_value") if number is None else number)


def _reduced_axes(node: Node) -> None:
    """Reductions go over all features of a row."""
    source = node.args[0]
    dims = node.arg("dim")
    axes = range(len(source.shape)) if not dims and dims != 0 else [dims] if isinstance(dims, int) else dims
    reduced = {axis % len(source.shape) for axis in axes}
    if any(axis not in reduced and size not in (1, ROWS) for axis, size in enumerate(source.shape)) or 0 in reduced:
        raise Uncompilable(f"aten.{node.name} is over a part of the features")


def _reduction(lowering: _Lowering, node: Node) -> Row:
    _reduced_axes(node)
    result = node.result
    source = lowering.cast(lowering.row(node.args[0]), result.dtype)
    return lowering.emit(node.name, source, width=1, dtype=result.dtype, name=result.name)


def _mean_of(lowering: _Lowering, source: Row, name: str = "mean") -> Row:
    total = lowering.emit("sum", source, width=1, dtype=source.dtype)
    return lowering.pointwise("mul", total, 1.0 / source.width, dtype=source.dtype, name=name)


def _mean(lowering: _Lowering, node: Node) -> Row:
    _reduced_axes(node)
    source = lowering.cast(lowering.row(node.args[0]), node.result.dtype)
    assert isinstance(source, Row)
    return _mean_of(lowering, source, node.result.name)


def _var(lowering: _Lowering, node: Node) -> Row:
    _reduced_axes(node)
    source, dtype = lowering.row(node.args[0]), node.result.dtype
    correction = node.arg("correction") if node.has_arg("correction") else int(node.arg("unbiased"))
    correction = 1 if correction is None else correction
    apart = lowering.pointwise("sub", source, _mean_of(lowering, source), dtype=dtype)
    total = lowering.emit("sum", lowering.pointwise("mul", apart, apart, dtype=dtype), width=1, dtype=dtype)
    count = source.width - correction
    scale = 1.0 / count if count > 0 else math.inf
    result = lowering.pointwise("mul", total, scale, dtype=dtype, name=node.result.name)
    return lowering.pointwise("sqrt", result, dtype=dtype, name=node.result.name) if node.name == "std" else result


def _where(lowering: _Lowering, node: Node) -> Row:
    _check_flat(node)
    condition, one, other = (lowering.operand(arg) for arg in node.args)
    dtype = node.result.dtype
    args = (condition, lowering.cast(one, dtype), lowering.cast(other, dtype))
    return lowering.pointwise("where", *args, dtype=dtype, name=node.result.name)


def _composite(lowering: _Lowering, node: Node) -> Row:
    """A formula over rows, see `COMPOSITES`."""
    if node.name in ALONG_FEATURES:
        if len(node.args[0].shape) != 2 or node.args[0].dtype != node.result.dtype:
            raise Uncompilable(f"aten.{node.name} is over a part of the features")
    else:
        _check_flat(node)
    dtype = node.result.dtype
    args = [_as_formula(lowering, arg, dtype) for arg in node.args]
    options = {key: _as_formula(lowering, arg, dtype) for key, arg in node.kwargs.items()}
    return COMPOSITES[node.name](*args, **options).row


def _as_formula(lowering: _Lowering, arg: Any, dtype: torch.dtype) -> Any:
    if not isinstance(arg, Value):
        return arg
    row = lowering.cast(lowering.row(arg), dtype)
    assert isinstance(row, Row)
    return Formula(lowering, row)


def _power(lowering: _Lowering, node: Node) -> Row:
    base, exponent = node.args[:2]
    if isinstance(base, Value) and exponent in (1, 2) and base.dtype == node.result.dtype:
        row = lowering.row(base)
        return row if exponent == 1 else lowering.pointwise("mul", row, row, dtype=row.dtype, name=node.result.name)
    return _same_name(lowering, node)


def _layer_norm(lowering: _Lowering, node: Node) -> tuple[Row | None, ...]:
    source, shape, weight, bias, eps = node.args
    if math.prod(shape) != source.row_size:
        raise Uncompilable("aten.native_layer_norm is over a part of the features")
    x, gain, shift = (_as_formula(lowering, value, source.dtype) for value in (source, weight, bias))
    results = (result.row for result in layer_norm(x, gain, shift, eps))
    # On a GPU, mean and scale of half-precision rows are float32.
    cast = (lowering.cast(row, value.dtype) for row, value in zip(results, node.results, strict=True))
    return tuple(row for row in cast if isinstance(row, Row))


def _layer_norm_backward(lowering: _Lowering, node: Node) -> tuple[Row | None, ...]:
    gradient, source, shape, mean, scale, weight, _bias, mask = node.args
    if math.prod(shape) != source.row_size or any(mask[1:]):
        raise Uncompilable("the gradient of a layer norm is not only that of its input")
    values = (gradient, source, mean, scale, weight)
    return layer_norm_backward(*(_as_formula(lowering, value, source.dtype) for value in values)).row, None, None


RULES: dict[str, Rule] = {
    **dict.fromkeys(COMPOSITES, _composite),
    "add": _scaled_sum,
    "sub": _scaled_sum,
    "mm": _mm,
    "slice": _slice,
    "select": _select,
    "cat": _cat,
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), _view),
    "expand": _expand,
    **dict.fromkeys(("_to_copy", "clone"), _cast),
    **dict.fromkeys(("zeros", "ones", "full"), _made_up),
    **dict.fromkeys(("sum", "amax", "amin", "prod"), _reduction),
    "mean": _mean,
    **dict.fromkeys(("var", "std"), _var),
    "where": _where,
    "pow": _power,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
}
