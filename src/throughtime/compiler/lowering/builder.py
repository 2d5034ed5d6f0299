"""The builder of loop programs: rows for values, and operations in order."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Argument, Value
from throughtime.compiler.ir.loop_ir import DTYPES, Carry, LoopProgram, Matrix, Op, Operand, Row
from throughtime.compiler.ir.sections import Loop
from throughtime.compiler.ir.strided_view import StridedView
from throughtime.compiler.lowering.decompositions import Decomposition


class Lowering:
    """Appends operations, and collects the values that are streams, constants and matrices."""

    def __init__(self, loop: Loop, lagged: set[Value]) -> None:
        self.streams: list[Value] = []
        self.lagged: list[Value] = []
        self.constants: list[Value] = []
        self.matrices: list[Value] = []
        # Constant rows that the program itself defines, such as zeros.
        self.fills: list[tuple[Row, float | int | bool]] = []
        self._loop, self._may_lag = loop, lagged
        self._rows: dict[Value, Row] = {}
        self._matrix: dict[Value, Matrix] = {}
        self._names: set[str] = set()
        self._body: list[Op] = []
        # Rows that are views of others: which, and along which axes.
        self._views: dict[Row, tuple[Row, StridedView]] = {}
        self._found = {before: self._row(before) for before, _ in loop.carried}
        self._rows.update(self._found)

    def program(self) -> LoopProgram:
        """The program so far."""
        loop = self._loop
        carried = tuple(Carry(self._found[before], self.row(after)) for before, after in loop.carried)
        stored = tuple(self.row(value) for value in loop.stored)
        return LoopProgram(
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
        """A row for an input or a carried value, contiguous in memory."""
        _check_dtype(value.name, value.dtype)
        if not value.row_size:
            raise Uncompilable(f"a row of {value.name} is empty")
        return Row(self._unique(value.name), value.row_size, value.dtype)

    def row(self, value: Value) -> Row:
        """The row of a value; inputs become streams, or constants if they have no rows."""
        if value not in self._rows:
            self._rows[value] = self._row(value)
            if value in self._may_lag:
                self.lagged.append(value)
            elif value.has_rows:
                self.streams.append(value)
            else:
                self.constants.append(value)
        return self._rows[value]

    def has(self, values: Iterable[Value]) -> bool:
        """Whether there is a row for each of the values already."""
        return all(value in self._rows for value in values)

    def define(self, value: Value, row: Row) -> None:
        """Let `row` be the row of a value."""
        self._rows[value] = row

    def matrix(self, value: Value) -> Matrix:
        """An input matrix without rows."""
        if value not in self._matrix:
            rows, columns = value.shape
            assert isinstance(rows, int)
            assert isinstance(columns, int)
            self._matrix[value] = Matrix(self._unique(value.name), rows, columns, value.dtype)
            self.matrices.append(value)
        return self._matrix[value]

    def fill(self, like: Row, number: float) -> Row:
        """A constant row filled with one number."""
        row = Row(self._unique("fill"), like.width, like.dtype)
        self.fills.append((row, number))
        return row

    def emit(self, kind: str, *args: Operand, width: int, dtype: torch.dtype, name: str = "") -> Row:
        """Add an operation."""
        if not width:
            raise Uncompilable("a row is empty")
        _check_dtype(name or kind, dtype)
        result = Row(self._unique(name or kind), width, dtype)
        self._body.append(Op(kind, result, args))
        return result

    def cast(self, operand: Operand, dtype: torch.dtype) -> Operand:
        """A row in another dtype; numbers stay as they are."""
        return self.cast_row(operand, dtype) if isinstance(operand, Row) else operand

    def cast_row(self, row: Row, dtype: torch.dtype, name: str = "") -> Row:
        """A row in another dtype."""
        return row if row.dtype == dtype else self.emit("cast", row, width=row.width, dtype=dtype, name=name)

    def pointwise(self, kind: str, *args: Operand, dtype: torch.dtype, name: str = "") -> Row:
        """A pointwise operation, as wide as its widest row."""
        width = max((arg.width for arg in args if isinstance(arg, Row)), default=1)
        return self.emit(kind, *args, width=width, dtype=dtype, name=name)

    def axes(self, row: Row, shape: Sequence[int]) -> tuple[Row, StridedView]:
        """The row that the features of `row` are read from, and the view of it."""
        root, axes = self._views.get(row, (row, StridedView.of((row.width,))))
        shaped = axes.shaped(shape)
        return (row, StridedView.of(shape)) if shaped is None else (root, shaped)

    def strided(self, row: Row, axes: StridedView, name: str = "") -> Row:
        """A view of a row."""
        axes = axes.joined()
        if not axes.width:
            raise Uncompilable("a row is empty")
        if not axes.is_contiguous:
            result = self.emit("strided", row, axes, width=axes.width, dtype=row.dtype, name=name)
            self._views[result] = (row, axes)
            return result
        if axes.width == row.width:
            return row
        bounds = (axes.start, axes.start + axes.width)
        return self.emit("slice", row, *bounds, width=axes.width, dtype=row.dtype, name=name)

    def broadcast(self, row: Row, shape: Sequence[int], wanted: Sequence[int], name: str = "") -> Row:
        """A row broadcast to the `wanted` shape; width 1 stays as it is."""
        if row.width in (1, math.prod(wanted)):
            return row
        root, axes = self.axes(row, shape)
        return self.strided(root, axes.broadcast(wanted), name)

    def reduce(self, kind: str, row: Row, shape: Sequence[int], axes: Collection[int], name: str = "") -> Row:
        """A row of some shape reduced over some of its axes."""
        sizes = list(shape)
        reduced = sorted((axis for axis in axes if sizes[axis] > 1), reverse=True)
        while reduced:
            last = first = reduced.pop(0)
            while reduced and math.prod(sizes[reduced[0] + 1 : first]) == 1:
                first = reduced.pop(0)
            count, inner = math.prod(sizes[first : last + 1]), math.prod(sizes[last + 1 :])
            sizes[first : last + 1] = [1] * (last + 1 - first)
            width = math.prod(sizes)
            group = () if width == 1 else (count, inner)
            row = self.emit(kind, row, *group, width=width, dtype=row.dtype, name="" if reduced else name)
        return row

    def operand(self, arg: Argument, like: Value, dtype: torch.dtype) -> Operand:
        """A value or a number as an argument of a pointwise operation that gives `like`."""
        if not isinstance(arg, Value):
            number: float = arg
            return number
        return self.broadcast(self.cast_row(self.row(arg), dtype), shape_in(arg, like), like.row_shape)

    def formula(self, arg: Argument, dtype: torch.dtype, shape: Sequence[int] | None = None) -> Argument:
        """A value as an operand of formulas, in its own shape or another."""
        if not isinstance(arg, Value):
            return arg
        return Decomposition(
            self, self.cast_row(self.row(arg), dtype), tuple(arg.row_shape if shape is None else shape)
        )


def _check_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise Uncompilable(f"{name} has dtype {str(dtype).removeprefix('torch.')}")


def shape_in(value: Value, like: Value) -> tuple[int, ...]:
    """The shape of a row of `value` as it broadcasts to `like`: without rows it may have an axis in their place."""
    if value.has_rows or like.row_axis is None:
        return value.row_shape
    place = len(value.shape) - len(like.shape) + like.row_axis
    return value.row_shape if place < 0 else (*value.row_shape[:place], *value.row_shape[place + 1 :])
