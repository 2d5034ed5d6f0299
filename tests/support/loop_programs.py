"""Loop programs for tests of kernels: an interpreter in plain torch, programs made by hand, programs made at random."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from throughtime.compiler.ir.loop_ir import (
    BINARY,
    REDUCTIONS,
    Ahead,
    Carry,
    LoopProgram,
    Matrix,
    Op,
    Operand,
    Row,
    verify_loop,
)
from throughtime.compiler.ir.strided_view import StridedView
from throughtime.layout.step_layout import StepLayout


@dataclass
class Arguments:
    """What a kernel runs on; `carried` and `stored` change."""

    streams: list[Tensor]
    lagged: list[tuple[Tensor, Tensor]]
    constants: list[Tensor]
    matrices: list[Tensor]
    carried: list[Tensor]
    stored: list[Tensor]

    def copy(self) -> Arguments:
        """The same, with results of its own."""
        results = [[tensor.clone() for tensor in tensors] for tensors in (self.carried, self.stored)]
        return Arguments(self.streams, self.lagged, self.constants, self.matrices, *results)

    def results(self) -> list[Tensor]:
        return [*self.carried, *self.stored]

    def every(self) -> list[Any]:
        """In the order in which a kernel takes them."""
        return [self.streams, self.lagged, self.constants, self.matrices, self.carried, self.stored]


def interpret(
    program: LoopProgram, given: Arguments, steps: StepLayout, first: int, last: int, origin: int = 0
) -> None:
    """Run the program as its documentation says, one step after another, all rows at once."""
    order = range(first, last)
    for t in reversed(order) if program.reverse else order:
        rows = torch.arange(int(steps.active[t]))
        here = steps.offset[t] + rows * steps.row_stride - origin
        known = _streams_of_a_step(program, given, here)
        for row, (stream, initial) in zip(program.lagged, given.lagged, strict=True):
            before = steps.offset[t - 1] + rows * steps.row_stride
            known[row.name] = initial[rows] if t == 0 else stream[before]
        for row, constant in zip(program.constants, given.constants, strict=False):
            known[row.name] = constant.expand(len(rows), -1)
        for matrix, value in zip(program.matrices, given.matrices, strict=False):
            known[matrix.name] = value
        for carry, value in zip(program.carried, given.carried, strict=True):
            known[carry.before.name] = value[rows]
        _compute(program, known)
        for row, stream in zip(program.stored, given.stored, strict=True):
            stream[here] = known[row.name]
        for carry, value in zip(program.carried, given.carried, strict=True):
            value[rows] = known[carry.after.name]


def _streams_of_a_step(program: LoopProgram, given: Arguments, here: Tensor) -> dict[str, Tensor]:
    """The rows of all streams at the places `here`; those that something feeds are computed."""
    if program.ahead is None:
        return {row.name: stream[here] for row, stream in zip(program.streams, given.streams, strict=True)}
    inner, feeds = program.ahead.program, program.ahead.feeds
    own = [row for index, row in enumerate(program.streams) if index not in feeds]
    known = {row.name: stream[here] for row, stream in zip(inner.streams, given.streams[len(own) :], strict=True)}
    constants = given.constants[len(program.constants) :]
    known |= {row.name: value.expand(len(here), -1) for row, value in zip(inner.constants, constants, strict=True)}
    known |= dict(zip((m.name for m in inner.matrices), given.matrices[len(program.matrices) :], strict=True))
    _compute(inner, known)
    fed = {program.streams[index].name: known[row.name] for index, row in zip(feeds, inner.stored, strict=True)}
    return fed | {row.name: stream[here] for row, stream in zip(own, given.streams, strict=False)}


def _compute(program: LoopProgram, known: dict[str, Tensor]) -> None:
    for op in program.body:
        args = [known[arg.name] if isinstance(arg, Row | Matrix) else arg for arg in op.args]
        known[op.result.name] = evaluate(op, args)


def evaluate(op: Op, args: list[Any]) -> Tensor:
    """One operation on all rows."""
    if op.kind in REDUCTIONS:
        dtype = {"dtype": op.result.dtype} if op.kind in {"sum", "prod"} else {}
        groups = args[0].unflatten(1, (-1, *op.group))
        return getattr(torch, op.kind)(groups, 2, **dtype).flatten(1)
    if op.kind in BINARY:
        # A number takes the dtype of the row it meets.
        args = [arg if isinstance(arg, Tensor) else torch.tensor(arg, dtype=op.rows[0].dtype) for arg in args]
    special: dict[str, Callable[..., Tensor]] = {
        "slice": lambda row, start, stop: row[:, start:stop],
        "strided": lambda row, axes: row[:, places_along(axes)],
        "cat": lambda *rows: torch.cat(rows, 1),
        "product": torch.matmul,
        "cast": lambda row: row.to(op.result.dtype),
    }
    return special.get(op.kind, getattr(torch, op.kind, None))(*args)


def places_along(axes: StridedView) -> Tensor:
    """Which features are read, one after another."""
    places = torch.tensor([axes.start])
    for size, stride in zip(axes.sizes, axes.strides, strict=True):
        places = (places.unsqueeze(1) + stride * torch.arange(size)).flatten()
    return places


class Writer:
    """Writes the body of a program: one method call, one operation."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.ops: list[Op] = []

    def row(self, name: str, width: int) -> Row:
        return Row(name, width, self.dtype)

    def __call__(self, kind: str, *args: Operand, width: int | None = None, dtype: torch.dtype | None = None) -> Row:
        rows = [arg for arg in args if isinstance(arg, Row)]
        width = width or (1 if kind in REDUCTIONS else max(row.width for row in rows))
        result = Row(f"t{len(self.ops)}", width, dtype or self.dtype)
        self.ops.append(Op(kind, result, args))
        return result

    def along(self, row: Row, *axes: tuple[int, int], start: int = 0) -> Row:
        """A row along axes of a size and a stride each."""
        wanted = StridedView(start, tuple(size for size, _ in axes), tuple(stride for _, stride in axes)).joined()
        if not wanted.is_contiguous:
            return self("strided", row, wanted, width=wanted.width, dtype=row.dtype)
        return self("slice", row, wanted.start, wanted.start + wanted.width, width=wanted.width, dtype=row.dtype)

    def reduced(self, kind: str, row: Row, count: int, inner: int) -> Row:
        """A row reduced in groups; to one number, if there is one group."""
        if count == 1:
            return row
        group = () if count == row.width else (count, inner)
        return self(kind, row, *group, width=row.width // count, dtype=row.dtype)

    def parts(self, row: Row, count: int) -> list[Row]:
        width = row.width // count
        return [self("slice", row, part * width, (part + 1) * width, width=width) for part in range(count)]


def make(
    w: Writer, name: str, *, reverse: bool = False, carried: list[Carry], stored: list[Row], **inputs: Any
) -> LoopProgram:
    """The program of a writer, checked."""
    groups = {key: tuple(inputs.get(key, ())) for key in ("streams", "lagged", "constants", "matrices")}
    program = LoopProgram(
        name=name, reverse=reverse, carried=tuple(carried), body=tuple(w.ops), stored=tuple(stored), **groups
    )
    verify_loop(program)
    return program


def lstm(units: int, dtype: torch.dtype) -> LoopProgram:
    """An LSTM whose input projection is a stream; in it are slices, all gates and two states."""
    w = Writer(dtype)
    x, c, h = w.row("x", 4 * units), w.row("c", units), w.row("h", units)
    kernel = Matrix("kernel", units, 4 * units, dtype)
    gates = w("add", w("product", h, kernel, width=4 * units), x)
    i, j, f, o = w.parts(gates, 4)
    forget = w("sigmoid", w("add", f, 1.0))
    new_c = w("add", w("mul", c, forget), w("mul", w("sigmoid", i), w("tanh", j)))
    new_h = w("mul", w("tanh", new_c), w("sigmoid", o))
    carried = [Carry(c, new_c), Carry(h, new_h)]
    return make(w, "lstm", streams=[x], matrices=[kernel], carried=carried, stored=[new_h, forget, gates])


def fed(program: LoopProgram, inputs: int, dtype: torch.dtype) -> LoopProgram:
    """The same loop with its first stream computed ahead of it, from a narrower one: a product, a sum, a function."""
    stream = program.streams[0]
    w = Writer(dtype)
    x, bias = w.row("narrow", inputs), w.row("bias", stream.width)
    kernel = Matrix("projection", inputs, stream.width, dtype)
    projected = w("add", w("product", x, kernel, width=stream.width), bias)
    out = w("tanh", w("mul", projected, 3.0))
    ahead = make(
        w, f"{program.name}, ahead", reverse=program.reverse, streams=[x], constants=[bias], matrices=[kernel],
        carried=[], stored=[out],
    )  # fmt: skip
    whole = dataclasses.replace(program, ahead=Ahead(ahead, (0,)))
    verify_loop(whole)
    return whole


def fed_lstm(units: int, dtype: torch.dtype) -> LoopProgram:
    """An LSTM with its input projection."""
    return fed(lstm(units, dtype), 5, dtype)


def fed_lstm_backward(units: int, dtype: torch.dtype) -> LoopProgram:
    """A loop that walks backwards, with something computed ahead, which here is behind."""
    return fed(lstm_backward(units, dtype), 5, dtype)


def lstm_backward(units: int, dtype: torch.dtype) -> LoopProgram:
    """What runs backwards for an LSTM: a lagged stream, a joined row that is stored and multiplied."""
    w = Writer(dtype)
    i, j, f, o, new_c, d_out, c = (w.row(name, units) for name in ("i", "j", "f", "o", "new_c", "d_out", "c"))
    d_c, d_h = w.row("d_c", units), w.row("d_h", units)
    kernel = Matrix("kernel_t", 4 * units, units, dtype)
    d = w("add", d_h, d_out)
    squashed = w("tanh", new_c)
    through = w("mul", w("mul", d, o), w("sub", 1.0, w("mul", squashed, squashed)))
    total = w("add", d_c, through)

    def gate(value: Row, grad: Row) -> Row:
        return w("mul", grad, w("mul", value, w("sub", 1.0, value)))

    d_j = w("mul", w("mul", total, i), w("sub", 1.0, w("mul", j, j)))
    pieces = gate(i, w("mul", total, j)), d_j, gate(f, w("mul", total, c)), gate(o, w("mul", d, squashed))
    d_gates = w("cat", *pieces, width=4 * units)
    carried = [Carry(d_c, w("mul", total, f)), Carry(d_h, w("product", d_gates, kernel, width=units))]
    streams = [i, j, f, o, new_c, d_out]
    return make(
        w,
        "lstm_backward",
        reverse=True,
        streams=streams,
        lagged=[c],
        matrices=[kernel],
        carried=carried,
        stored=[d_gates],
    )


def layer_norm(units: int, dtype: torch.dtype) -> LoopProgram:
    """Reductions, numbers for whole rows, constants, and a second product after them."""
    w = Writer(dtype)
    x, h, scale, shift = (w.row(name, units) for name in ("x", "h", "scale", "shift"))
    first, second = (Matrix(name, units, units, dtype) for name in ("first", "second"))
    y = w("add", w("product", h, first, width=units), x)
    centred = w("sub", y, w("mul", w("sum", y), 1 / units))
    deviation = w("rsqrt", w("add", w("mul", w("sum", w("mul", centred, centred)), 1 / units), 1e-3))
    normal = w("add", w("mul", w("mul", centred, deviation), scale), shift)
    new_h = w("add", w("tanh", normal), w("product", normal, second, width=units))
    return make(
        w, "layer_norm", streams=[x], constants=[scale, shift], matrices=[first, second], carried=[Carry(h, new_h)],
        stored=[new_h, deviation],
    )  # fmt: skip


def softmax(units: int, dtype: torch.dtype) -> LoopProgram:
    """Attention over the features: a maximum, a sum, a quotient, and a row joined from odd pieces."""
    w = Writer(dtype)
    x, h = w.row("x", units), w.row("h", units)
    scores = w("add", x, h)
    weights = w("exp", w("sub", scores, w("amax", scores)))
    shares = w("div", weights, w("sum", weights))
    front = w("slice", shares, 0, max(1, units // 3), width=max(1, units // 3))
    joined = w("cat", front, w("amin", x), shares, width=front.width + 1 + units)
    return make(w, "softmax", streams=[x], carried=[Carry(h, shares)], stored=[joined])


def counter(units: int, dtype: torch.dtype) -> LoopProgram:
    """Whole numbers and truth values: a count of steps, a value that stops growing."""
    w = Writer(torch.int64)
    x, total = Row("x", units, dtype), Row("total", units, dtype)
    count, odd = Row("count", 1, torch.int64), Row("odd", units, torch.bool)
    following = w("add", count, 1)
    even = w("eq", w("remainder", following, 2), 0, dtype=torch.bool)
    growing = w(
        "logical_and", w("lt", x, 0.5, dtype=torch.bool), w("logical_not", odd, dtype=torch.bool), dtype=torch.bool
    )
    new = w("where", growing, w("add", total, x, dtype=dtype), total, dtype=dtype)
    whole = w("cast", new, dtype=torch.int32)
    carried = [Carry(total, new), Carry(count, following), Carry(odd, w("logical_or", growing, even, dtype=torch.bool))]
    return make(w, "counter", streams=[x], carried=carried, stored=[new, following, growing, whole, odd])


def shifts(units: int, dtype: torch.dtype) -> LoopProgram:
    """States that take each other's place, and results that nothing computes."""
    w = Writer(dtype)
    x, before, fixed = w.row("x", units), w.row("before", units), w.row("fixed", units)
    a, b, c, d = (w.row(name, units) for name in "abcd")
    matrix = Matrix("matrix", units, units, dtype)
    late = w("mul", w("product", a, matrix, width=units), b)
    rotated = a
    if units > 1:
        tail, head = w("slice", c, 1, units, width=units - 1), w("slice", c, 0, 1, width=1)
        rotated = w("cat", tail, head, width=units)
    carried = [Carry(a, b), Carry(b, a), Carry(c, rotated), Carry(d, x)]
    inputs = {"streams": [x], "lagged": [before], "constants": [fixed], "matrices": [matrix]}
    return make(w, "shifts", carried=carried, stored=[late, a, before, fixed, d, d], **inputs)


def swap(units: int, dtype: torch.dtype) -> LoopProgram:
    """Two states that change places, through a product each: what the one reads, the other replaces."""
    w = Writer(dtype)
    left, right = w.row("left", units), w.row("right", units)
    matrices = [Matrix(name, units, units, dtype) for name in ("to_left", "to_right")]
    new_left, new_right = w("product", right, matrices[0], width=units), w("product", left, matrices[1], width=units)
    return make(
        w,
        "swap",
        carried=[Carry(left, new_left), Carry(right, new_right)],
        stored=[w("add", new_left, new_right)],
        streams=[],
        matrices=matrices,
    )


def attention(units: int, dtype: torch.dtype) -> LoopProgram:
    """A memory of five places that a state asks and changes: products of matrices of a row, sums along and across."""
    w, places = Writer(dtype), 5
    x, h, memory = w.row("x", units), w.row("h", units), w.row("memory", places * units)
    matrix = Matrix("matrix", units, units, dtype)
    asked = w("add", w("product", h, matrix, width=units), x)
    seen = w("mul", memory, w.along(asked, (places, 0), (units, 1)))
    scores = w.reduced("sum", seen, units, 1)
    raised = w("exp", w("sub", scores, w("amax", scores)))
    shares = w("div", raised, w("sum", raised))
    spread = w.along(shares, (places, 1), (units, 0))
    read = w.reduced("sum", w("mul", memory, spread), places, units)
    written = w("add", w("mul", memory, 0.9), w("mul", spread, w.along(x, (places, 0), (units, 1))))
    turned = w.along(written, (units, 1), (places, units))
    carried = [Carry(h, w("tanh", read)), Carry(memory, written)]
    stored = [read, shares, turned, w.reduced("amax", turned, places, 1)]
    return make(w, "attention", streams=[x], matrices=[matrix], carried=carried, stored=stored)


def turned(units: int, dtype: torch.dtype) -> LoopProgram:
    """A state that is replaced by itself in another order, and one of which another part is read than is written."""
    w = Writer(dtype)
    x, c, far = w.row("x", 3 * units), w.row("c", 3 * units), w.row("far", 6 * units)
    new_c = w("add", x, w.along(c, (units, 1), (3, units)))
    seen = w("tanh", w.along(far, (3 * units, 2)))
    new_far = w("cat", w("add", x, w("sum", seen)), seen, width=6 * units)
    return make(w, "turned", streams=[x], carried=[Carry(c, new_c), Carry(far, new_far)], stored=[seen])


def divided(units: int, dtype: torch.dtype) -> LoopProgram:
    """Twelve columns as 4 x 3 and as 3 x 4: in one operation, in one joined row, and in two sums of the same row."""
    w, wide = Writer(dtype), 12 * units
    x, c, d = w.row("x", wide), w.row("c", wide), w.row("d", 4 * units)
    new_c = w("add", w.along(x, (3, 1), (4 * units, 3)), w.along(c, (4, 1), (3 * units, 4)))
    joined = w("cat", w.along(x, (3, 1), (4 * units, 3)), x, width=2 * wide)
    squares = w("mul", x, x)
    sums = w("add", w.reduced("sum", squares, 3, 1), w.reduced("prod", squares, 3, 4 * units))
    new_d = w("add", sums, w("slice", joined, 1, 1 + 4 * units, width=4 * units))
    whole = w("cast", w("lt", x, 0.0, dtype=torch.bool), dtype=torch.int64)
    below = w("cast", w.along(w("lt", c, 0.0, dtype=torch.bool), (2, 1), (6 * units, 2)), dtype=torch.int32)
    counts = w.reduced("sum", whole, 4, 3 * units)
    stored = [joined, squares, counts, w.reduced("amax", below, 6, 1)]
    return make(w, "divided", streams=[x], carried=[Carry(c, new_c), Carry(d, new_d)], stored=stored)


PROGRAMS = (
    lstm,
    lstm_backward,
    fed_lstm,
    fed_lstm_backward,
    layer_norm,
    softmax,
    counter,
    shifts,
    swap,
    attention,
    turned,
    divided,
)


def random_program(seed: int, dtype: torch.dtype) -> LoopProgram:
    """A program of up to 25 operations on anything that fits."""
    rng = random.Random(seed)
    w = Writer(dtype)
    widths = rng.sample([1, 2, 3, 5, 8, 16, 17, 33, 40], rng.randint(1, 4))
    groups = [[w.row(f"{name}{n}", rng.choice(widths)) for n in range(rng.randint(1, 3))] for name in "slkc"]
    pool = [row for rows in groups for row in rows]
    matrices: list[Matrix] = []

    def product(row: Row) -> Row:
        matrices.append(Matrix(f"m{len(matrices)}", row.width, rng.choice(widths), dtype))
        return w("product", row, matrices[-1], width=matrices[-1].columns)

    for _ in range(rng.randint(3, 25)):
        row = rng.choice(pool[-6:] if rng.random() < 0.6 else pool)
        other = rng.choice([mate for mate in pool if mate.width in {1, row.width} or row.width == 1])
        start = rng.randrange(row.width)
        stop = rng.randint(start + 1, row.width)
        mates = rng.choices(pool, k=2)
        high = rng.choice([size for size in range(1, row.width + 1) if row.width % size == 0])
        low, times = row.width // high, rng.choice([1, 2, 3])
        count = rng.choice([size for size in range(1, low + 1) if low % size == 0])
        makers: list[Callable[[], Row]] = [
            lambda: w(rng.choice(["tanh", "sigmoid", "neg", "relu"]), row),  # noqa: B023
            lambda: w(rng.choice(["add", "sub", "mul", "maximum"]), row, other),  # noqa: B023
            lambda: w("sub", rng.choice([0.5, -1.0]), row),  # noqa: B023
            lambda: w("slice", row, start, stop, width=stop - start),  # noqa: B023
            lambda: w("cat", row, *mates, width=row.width + sum(mate.width for mate in mates)),  # noqa: B023
            lambda: product(row),  # noqa: B023
            lambda: w("add", other, product(row)) if other.width == 1 else product(row),  # noqa: B023
            lambda: w(rng.choice(["sum", "amax", "amin"]), row),  # noqa: B023
            lambda: w.reduced(rng.choice(["sum", "amax", "amin"]), row, count, low // count),  # noqa: B023
            lambda: w.along(row, (low, 1), (high, low)),  # noqa: B023
            lambda: w.along(row, (high, low), (times, 0), (low, 1)),  # noqa: B023
            lambda: w.along(row, (high, low), (-(-low // 2), 2)),  # noqa: B023
            lambda: w.along(row, (row.width, -1), start=row.width - 1),  # noqa: B023
            lambda: w("where", w("lt", row, other, dtype=torch.bool), row, other),  # noqa: B023
        ]
        made = rng.choice(makers)()
        pool += [made] if made.width <= 80 else []
        same = [mate for mate in pool if mate.width == made.width and mate != made]
        if w.ops and w.ops[-1].kind == "product" and same:
            pool.append(w("add", made, rng.choice(same)))
    carried = [Carry(row, rng.choice([mate for mate in pool if mate.width == row.width][-4:])) for row in groups[3]]
    stored = rng.choices(pool, k=rng.randint(1, 4))
    inputs = {"streams": groups[0], "lagged": groups[1], "constants": groups[2], "matrices": matrices}
    program = make(w, f"random {seed}", reverse=rng.random() < 0.5, carried=carried, stored=stored, **inputs)
    return fed(program, rng.choice(widths), dtype) if seed % 3 == 0 else program


def arguments(program: LoopProgram, steps: StepLayout, rows: int) -> Arguments:
    """Random values, some matrices transposed; what is not written stays NaN, or zero where there is no NaN."""

    def values(count: int, row: Row) -> Tensor:
        if row.dtype.is_floating_point:
            return torch.randn(count, row.width, dtype=row.dtype) / 2
        return torch.randint(0, 2, (count, row.width)).to(row.dtype)

    def matrix(value: Matrix, turned: bool) -> Tensor:
        shape = (value.columns, value.rows) if turned else (value.rows, value.columns)
        random_ = torch.randn(shape, dtype=value.dtype) / value.rows**0.5
        return random_.T if turned else random_

    return Arguments(
        streams=[values(rows, row) for row in program.given_streams],
        lagged=[(values(rows, row), values(steps.batch_size, row)) for row in program.lagged],
        constants=[values(1, row)[0] for row in program.given_constants],
        matrices=[matrix(value, bool(n % 2)) for n, value in enumerate(program.given_matrices)],
        carried=[values(steps.batch_size, carry.before) for carry in program.carried],
        stored=[
            torch.full((rows, row.width), torch.nan if row.dtype.is_floating_point else 0).to(row.dtype)
            for row in program.stored
        ],
    )


def packed(*active: int) -> tuple[StepLayout, int]:
    """Steps of packed rows, and how many rows there are."""
    counts = torch.tensor(active)
    return StepLayout(counts, torch.cumsum(counts, 0) - counts, 1, max(active)), int(counts.sum())


def batch_major(batch: int, time: int) -> tuple[StepLayout, int]:
    """Steps of a dense batch in which a sequence lies in one piece."""
    return StepLayout(torch.full((time,), batch), torch.arange(time), time, batch), batch * time
