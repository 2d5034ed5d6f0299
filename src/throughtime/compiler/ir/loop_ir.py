"""The loop program: what one row computes in one step of the loop. Plain data, independent of any backend.

A row is a vector of features. A step reads rows of streams (one for each step of each sequence), constants (one for
all) and carried values (from the previous step), computes with a closed set of operations, stores rows to streams, and
hands carried values to the next step. `verify_loop` verifies a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from throughtime.compiler.errors import VerificationError
from throughtime.compiler.ir.strided_view import StridedView

UNARY = frozenset(
    "abs acos asin atan bitwise_not ceil cos cosh erf exp expm1 floor isnan log log10 log1p log2 logical_not neg "
    "reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc".split()
)
BINARY = frozenset(
    "add atan2 bitwise_and bitwise_or bitwise_xor div eq floor_divide ge gt le logical_and logical_or lt maximum "
    "minimum mul ne pow remainder sub".split()
)
COMPARISONS = frozenset("eq ge gt isnan le logical_and logical_not logical_or lt ne".split())
"""Pointwise operations whose result is boolean."""
POINTWISE = UNARY | BINARY | {"where", "cast"}
REDUCTIONS = frozenset("amax amin prod sum".split())
"""From a row to one element, or to one for each of its groups."""
LAYOUT = frozenset(["slice", "cat", "strided"])
VOCABULARY = POINTWISE | REDUCTIONS | LAYOUT | {"product"}

DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "bool",
}


@dataclass(frozen=True)
class Row:
    """A value of one row: a vector of `width` features. Width 1 broadcasts to any width in a pointwise op."""

    name: str
    width: int
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name}: {DTYPES[self.dtype]}[{self.width}]"


@dataclass(frozen=True)
class Matrix:
    """A constant matrix [rows, columns]: a row of `rows` features times it is a row of `columns` features."""

    name: str
    rows: int
    columns: int
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name}: {DTYPES[self.dtype]}[{self.rows}, {self.columns}]"


Operand = Row | Matrix | StridedView | float | int | bool


@dataclass(frozen=True)
class Op:
    """`result = kind(args)`.

    Pointwise: rows of the width of the result or of width 1, and numbers. `cast` converts to the dtype of the result.
    A reduction has one row and a result of width 1; (row, count, inner) reduces groups of `count` features with stride
    `inner` to one element each. `slice` is (row, start, stop); `strided` is (row, axes); `cat` concatenates rows;
    `product` is (row, matrix).
    """

    kind: str
    result: Row
    args: tuple[Operand, ...]

    def __str__(self) -> str:
        shown = ", ".join(arg.name if isinstance(arg, Row | Matrix) else repr(arg) for arg in self.args)
        return f"{self.result} = {self.kind}({shown})"

    @property
    def rows(self) -> tuple[Row, ...]:
        """The arguments that are rows."""
        return tuple(arg for arg in self.args if isinstance(arg, Row))

    @property
    def group(self) -> tuple[int, int]:
        """Of a reduction: the number of features of a group, and their stride."""
        match self.args:
            case (_, int(count), int(inner)):
                return count, inner
        return self.rows[0].width, 1

    @property
    def is_in_groups(self) -> bool:
        """Whether it reduces a row to more than one element."""
        return self.kind in REDUCTIONS and len(self.args) > 1


@dataclass(frozen=True)
class Carry:
    """A value that steps carry: a step reads `before`, and the next step reads its `after`."""

    before: Row
    after: Row


@dataclass(frozen=True)
class LoopProgram:
    """One step of the loop, for one row.

    `streams` are read at the current step, `lagged` streams at the previous step in time, where the first step reads an
    initial row. `reverse` iterates from the last step to the first. Streams that `ahead` feeds are not inputs: they are
    computed for some steps at a time.
    """

    name: str
    reverse: bool
    streams: tuple[Row, ...]
    lagged: tuple[Row, ...]
    constants: tuple[Row, ...]
    matrices: tuple[Matrix, ...]
    carried: tuple[Carry, ...]
    body: tuple[Op, ...]
    stored: tuple[Row, ...]
    ahead: Ahead | None = None

    @property
    def given_streams(self) -> tuple[Row, ...]:
        """The input streams: those of the loop itself, then those of the part that runs ahead of it."""
        if self.ahead is None:
            return self.streams
        fed = set(self.ahead.feeds)
        own = tuple(row for index, row in enumerate(self.streams) if index not in fed)
        return own + self.ahead.program.streams

    @property
    def given_constants(self) -> tuple[Row, ...]:
        """All constants, in the same order."""
        return self.constants + (() if self.ahead is None else self.ahead.program.constants)

    @property
    def given_matrices(self) -> tuple[Matrix, ...]:
        """All matrices, in the same order."""
        return self.matrices + (() if self.ahead is None else self.ahead.program.matrices)

    def __str__(self) -> str:
        before = [] if self.ahead is None else [str(self.ahead.program)]
        return "\n".join([*before, *self._lines()])

    def _lines(self) -> Iterator[str]:
        yield f"loop {self.name}{' (backwards)' if self.reverse else ''}:"
        for title, values in (
            ("stream", self.streams),
            ("lagged", self.lagged),
            ("constant", self.constants),
            ("matrix", self.matrices),
            ("carried", [carry.before for carry in self.carried]),
        ):
            yield from (f"  {title:<8} {value}" for value in values)
        yield from (f"    {op}" for op in self.body)
        yield from (f"  store    {value.name}" for value in self.stored)
        yield from (f"  carry    {carry.before.name} <- {carry.after.name}" for carry in self.carried)


@dataclass(frozen=True)
class Ahead:
    """The state-independent part: `program` carries nothing, and stores the streams of the loop at indices `feeds`."""

    program: LoopProgram
    feeds: tuple[int, ...]


def verify_loop(program: LoopProgram) -> None:
    """Raise a `VerificationError` unless the program is valid."""
    if program.ahead is not None:
        _check_ahead(program, program.ahead)
    known: dict[str, Row | Matrix] = {}
    for row in (*program.streams, *program.lagged, *program.constants, *(carry.before for carry in program.carried)):
        _define(known, row)
    for matrix in program.matrices:
        _define(known, matrix)
    for op in program.body:
        _check_op(op, known)
        _define(known, op.result)
    for value in (*program.stored, *(carry.after for carry in program.carried)):
        _check_known(known, value, "a stored or carried value")
    for carry in program.carried:
        if (carry.before.width, carry.before.dtype) != (carry.after.width, carry.after.dtype):
            raise VerificationError(f"{carry.before} is carried on as {carry.after}: width or dtype differ")


def _check_ahead(program: LoopProgram, ahead: Ahead) -> None:
    inner = ahead.program
    verify_loop(inner)
    if inner.carried or inner.lagged or inner.ahead is not None or inner.reverse != program.reverse:
        raise VerificationError(f"what runs ahead of {program.name} depends on other steps than its own")
    if len(ahead.feeds) != len(inner.stored) or len(set(ahead.feeds)) != len(ahead.feeds):
        raise VerificationError(f"what runs ahead of {program.name} does not store one row for each stream it feeds")
    for index, row in zip(ahead.feeds, inner.stored, strict=True):
        fed = program.streams[index] if 0 <= index < len(program.streams) else None
        if fed is None or (fed.width, fed.dtype) != (row.width, row.dtype):
            raise VerificationError(f"what runs ahead of {program.name} feeds {row} to {fed}")


def _define(known: dict[str, Row | Matrix], value: Row | Matrix) -> None:
    if value.name in known:
        raise VerificationError(f"{value.name} is defined twice")
    if value.dtype not in DTYPES:
        raise VerificationError(f"{value.name} has dtype {value.dtype}, which no loop program has")
    known[value.name] = value


def _check_known(known: dict[str, Row | Matrix], value: Row | Matrix, where: str) -> None:
    if value.name not in known:
        raise VerificationError(f"{value.name} is used by {where} before it is defined")
    if known[value.name] != value:
        raise VerificationError(f"{where} takes {value.name} for {value}, but it is {known[value.name]}")


def _check_op(op: Op, known: dict[str, Row | Matrix]) -> None:
    if op.kind not in VOCABULARY:
        raise VerificationError(f"{op.kind} is not in the vocabulary")
    for arg in op.args:
        if isinstance(arg, Row | Matrix):
            _check_known(known, arg, str(op))
    if op.kind == "product":
        _check_product(op)
    elif op.kind == "slice":
        _check_slice(op)
    elif op.kind == "cat":
        if op.rows != op.args or sum(row.width for row in op.rows) != op.result.width:
            raise VerificationError(f"`{op}` does not join rows to the width of its result")
        _check_dtypes(op)
    elif op.kind == "strided":
        _check_strided(op)
    elif op.kind in REDUCTIONS:
        _check_reduction(op)
    else:
        _check_pointwise(op)


def _check_product(op: Op) -> None:
    match op.args:
        case (Row(width=width, dtype=left), Matrix(rows=rows, columns=columns, dtype=right)):
            if (width, op.result.width) != (rows, columns):
                raise VerificationError(
                    f"`{op}`: a row of {width} times [{rows}, {columns}] is no row of {op.result.width}"
                )
            if not left == right == op.result.dtype or not left.is_floating_point:
                raise VerificationError(f"`{op}` mixes dtypes")
        case _:
            raise VerificationError(f"`{op}` is not a row times a matrix")


def _check_slice(op: Op) -> None:
    match op.args:
        case (Row(width=width), int(start), int(stop)):
            if not 0 <= start < stop <= width or stop - start != op.result.width:
                raise VerificationError(f"`{op}` does not cut {op.result.width} features out of {width}")
            _check_dtypes(op)
        case _:
            raise VerificationError(f"`{op}` is not a row with a start and a stop")


def _check_strided(op: Op) -> None:
    match op.args:
        case (Row(width=width), StridedView() as axes):
            low, high = axes.bounds
            if len(axes.sizes) != len(axes.strides) or axes.width != op.result.width or low < 0 or high >= width:
                raise VerificationError(f"`{op}` does not read {op.result.width} features out of {width}")
            if axes != axes.joined() or axes.is_contiguous:
                raise VerificationError(f"`{op}` has more axes than it needs, or is a slice")
            _check_dtypes(op)
        case _:
            raise VerificationError(f"`{op}` is not a row with axes")


def _check_reduction(op: Op) -> None:
    match op.args:
        case (Row(),):
            if op.result.width != 1:
                raise VerificationError(f"`{op}` does not reduce one row to one number")
        case (Row(width=width), int(count), int(inner)):
            groups = width // count if count > 1 and inner > 0 and width % (count * inner) == 0 else 0
            if groups < 2 or op.result.width != groups:
                raise VerificationError(f"`{op}` does not reduce groups of {count} out of {width} to {op.result.width}")
        case _:
            raise VerificationError(f"`{op}` does not reduce a row, or its groups")


def _check_dtypes(op: Op) -> None:
    if any(row.dtype != op.result.dtype for row in op.rows):
        raise VerificationError(f"`{op}` changes the dtype")


def _check_pointwise(op: Op) -> None:
    count = 3 if op.kind == "where" else 2 if op.kind in BINARY else 1
    if len(op.args) != count or any(isinstance(arg, Matrix | StridedView) for arg in op.args):
        raise VerificationError(f"`{op}` does not take {count} rows or numbers")
    if not op.rows:
        raise VerificationError(f"`{op}` has no row")
    if any(row.width not in (1, op.result.width) for row in op.rows):
        raise VerificationError(f"`{op}`: a row has neither the width of the result nor width 1")
    if op.result.width != max(row.width for row in op.rows):
        raise VerificationError(f"`{op}` makes a row wider")
    if op.kind in COMPARISONS:
        if op.result.dtype != torch.bool:
            raise VerificationError(f"`{op}` is a truth value, but not of dtype bool")
        return
    values = op.rows[1:] if op.kind == "where" and isinstance(op.args[0], Row) else op.rows
    if op.kind == "where" and (not isinstance(op.args[0], Row) or op.args[0].dtype != torch.bool):
        raise VerificationError(f"the condition of `{op}` is no truth value")
    if op.kind != "cast" and any(row.dtype != op.result.dtype for row in values):
        raise VerificationError(f"`{op}` mixes dtypes without a cast")
