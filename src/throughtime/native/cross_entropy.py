"""The cross-entropy of classes over the real steps of padded sequences, and its gradient, as machine code.

Forwards a row of scores is read once and leaves two numbers, by which their exponentials add up to one. Backwards it is
read once more and its gradient written: nothing as large as the scores is stored in between.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from throughtime.native.threads.team import run_frames
from throughtime.native.toolchain.llvm import Host, host
from throughtime.native.toolchain.llvm_builder import (
    SIZES,
    Builder,
    LlvmValue,
    constant,
    integer,
    module,
    suffix,
    vector,
)
from throughtime.native.toolchain.module_loader import load
from throughtime.native.toolchain.vector_math import VectorMath

FRAME = ("batch", "time", "columns", "lengths", "scores", "classes", "norms", "facts", "slopes", "factor")
"""What a call is told: one 64-bit number or address each.

Scores are [batch, time, columns], lengths [batch], classes [batch, time]. `norms` are [batch, time, 2]: the largest
score, and the logarithm of the sum beside it; added up they would lose what large scores differ by. `facts` are the sum
of the losses, how many there are, and how many classes have no score. The gradient goes to `slopes`, which are like the
scores, times `factor`.
"""
SCORED = {torch.float32: "float", torch.float64: "double"}
"""The dtypes of scores that there is machine code for."""
_POINTERS = frozenset({"lengths", "scores", "classes", "norms", "facts", "slopes", "factor"})


def cross_entropy(dtype: torch.dtype, frames: Sequence[array[int]]) -> None:
    """Fill in the facts and norms of all frames, each in a thread of its own."""
    _run("losses", dtype, frames)


def cross_entropy_gradient(dtype: torch.dtype, frames: Sequence[array[int]]) -> None:
    """Write the slopes of all frames; those of padding are zeros."""
    _run("slopes", dtype, frames)


def _run(name: str, dtype: torch.dtype, frames: Sequence[array[int]]) -> None:
    run_frames(*_code(name, dtype), frames, len(frames))


@functools.cache
def _code(name: str, dtype: torch.dtype) -> tuple[Callable[..., None], int]:
    write = {"losses": _losses, "slopes": _slopes}[name]
    library = load(module([write(SCORED[dtype], host())]))
    return library.function(name, ctypes.c_void_p), library.address(name)


class _Row:
    """One row of scores, in vectors: whole ones, and at the end one of which some lanes count."""

    def __init__(self, b: Builder, element: str, lanes: int, start: LlvmValue, columns: LlvmValue) -> None:
        self.b, self.start, self._lanes, self._size = b, start, lanes, SIZES[element]
        self.kind, self._truth = vector(lanes, element), vector(lanes, "i1")
        self._rest = b.binary("urem", columns, integer(lanes))
        self._whole = b.binary("sub", columns, self._rest)
        numbers = LlvmValue(vector(lanes, "i64"), f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>")
        self._counts = b.compare("slt", numbers, b.splat(self._rest, lanes))

    def fold(self, first: float, step: Callable[[LlvmValue, LlvmValue], LlvmValue]) -> LlvmValue:
        """`step(so far, scores)` for all of them, from `first` in every lane; what does not count changes nothing."""
        b, start = self.b, constant(self.kind, first)
        with b.loop(self._whole, self._lanes, carry=[start], may_be_none=True) as (loop, (so_far,)):
            scores = b.load(self.kind, b.advance(self.start, loop.index, self._size))
            loop.feed(so_far, step(so_far, scores))
        (so_far,) = loop.results
        return b.select(self._counts, step(so_far, self._tail()), so_far)

    def write(self, target: LlvmValue, function: Callable[[LlvmValue], LlvmValue]) -> None:
        """Write a function of the scores to another row."""
        b = self.b
        with b.loop(self._whole, self._lanes, may_be_none=True) as (loop, _):
            scores = b.load(self.kind, b.advance(self.start, loop.index, self._size))
            b.store(function(scores), b.advance(target, loop.index, self._size))
        name = f"@llvm.masked.store.{suffix(self.kind)}.p0"
        b.declarations[name] = f"declare void {name}({self.kind}, ptr, i32, {self._truth})"
        end = b.advance(target, self._whole, self._size)
        b.void(f"call void {name}({function(self._tail())}, {end}, i32 {self._size}, {self._counts})")

    def _tail(self) -> LlvmValue:
        """The last scores: a read beyond the end of memory would be a fault."""
        b, name = self.b, f"@llvm.masked.load.{suffix(self.kind)}.p0"
        b.declarations[name] = f"declare {self.kind} {name}(ptr, i32, {self._truth}, {self.kind})"
        end, nothing = b.advance(self.start, self._whole, self._size), constant(self.kind, 0.0)
        return b.let(self.kind, f"call {self.kind} {name}({end}, i32 {self._size}, {self._counts}, {nothing})")


def _over_lanes(b: Builder, value: LlvmValue, combine: Callable[[LlvmValue, LlvmValue], LlvmValue]) -> LlvmValue:
    """All lanes of a vector in one, by halves."""
    lanes = value.lanes
    while lanes > 1:
        lanes //= 2
        halves = [b.shuffle(value, value, range(start, start + lanes)) for start in (0, lanes)]
        value = combine(*halves)
    return b.let(value.element, f"extractelement {value}, i64 0")


def _row_at(b: Builder, p: dict[str, LlvmValue], name: str, place: LlvmValue, size: int) -> LlvmValue:
    return b.advance(p[name], b.binary("mul", place, p["columns"]), size)


def _frame(name: str) -> tuple[Builder, dict[str, LlvmValue]]:
    b = Builder(name, [("frame", "ptr noalias")])
    return b, b.arguments(b.parameters["frame"], FRAME, _POINTERS)


@contextmanager
def _sequences(b: Builder, p: dict[str, LlvmValue]) -> Iterator[tuple[LlvmValue, LlvmValue]]:
    """For every sequence: the number of its first row, and how many of its rows are real."""
    with b.loop(p["batch"], stem="sequence", may_be_none=True) as (sequence, _):
        length = b.load("i64", b.advance(p["lengths"], sequence.index, 8))
        length = b.intrinsic("smin", b.intrinsic("smax", length, integer(0)), p["time"])
        yield b.binary("mul", sequence.index, p["time"]), length


def _losses(element: str, machine: Host) -> Builder:
    b, p = _frame("losses")
    size, lanes = SIZES[element], machine.lanes(SIZES[element])
    mathematics, (total, count, wrong) = VectorMath(b), (b.advance(p["facts"], fact, 8) for fact in range(3))
    for fact, nothing in ((total, constant("double", 0.0)), (count, integer(0)), (wrong, integer(0))):
        b.store(nothing, fact)

    def largest(left: LlvmValue, right: LlvmValue) -> LlvmValue:
        return b.select(b.compare("ogt", right, left), right, left)

    def added(left: LlvmValue, right: LlvmValue) -> LlvmValue:
        return b.binary("fadd", left, right)

    with _sequences(b, p) as (start, length):
        b.store(b.binary("add", b.load("i64", count), length), count)
        with b.loop(length, stem="step", may_be_none=True) as (step, _):
            place = b.binary("add", start, step.index)
            row = _Row(b, element, lanes, _row_at(b, p, "scores", place, size), p["columns"])
            # NaN is no maximum, but in the sum.
            most = _over_lanes(b, row.fold(float("-inf"), largest), largest)
            powers = row.fold(0.0, partial(_add_power, b, b.splat(most, lanes)))
            above = mathematics.log(_over_lanes(b, powers, added))
            norms = b.advance(p["norms"], place, 2 * size)
            b.store(most, norms)
            b.store(above, b.advance(norms, 1, size))
            number = b.load("i64", b.advance(p["classes"], place, 8))
            # Without a sign, negative numbers are the largest.
            is_class = b.compare("ult", number, p["columns"])
            off = b.convert("zext", b.negated(is_class), "i64")
            b.store(b.binary("add", b.load("i64", wrong), off), wrong)
            own = b.load(element, b.advance(row.start, b.select(is_class, number, integer(0)), size))
            loss = b.binary("fadd", above, b.binary("fsub", most, own))
            loss = loss if element == "double" else b.convert("fpext", loss, "double")
            b.store(added(b.load("double", total), loss), total)
    return b


def _add_power(b: Builder, most: LlvmValue, so_far: LlvmValue, scores: LlvmValue) -> LlvmValue:
    return b.binary("fadd", so_far, VectorMath(b).exp(b.binary("fsub", scores, most)))


def _slopes(element: str, machine: Host) -> Builder:
    b, p = _frame("slopes")
    size, lanes = SIZES[element], machine.lanes(SIZES[element])
    factor = b.load(element, p["factor"])
    factors = b.splat(factor, lanes)
    b.declarations["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    with _sequences(b, p) as (start, length):
        with b.loop(length, stem="step", may_be_none=True) as (step, _):
            place = b.binary("add", start, step.index)
            norms = b.advance(p["norms"], place, 2 * size)
            most, above = (b.splat(b.load(element, b.advance(norms, which, size)), lanes) for which in range(2))
            row = _Row(b, element, lanes, _row_at(b, p, "scores", place, size), p["columns"])
            slopes = _row_at(b, p, "slopes", place, size)
            row.write(slopes, partial(_slope, b, most, above, factors))
            own = b.advance(slopes, b.load("i64", b.advance(p["classes"], place, 8)), size)
            b.store(b.binary("fsub", b.load(element, own), factor), own)
        padding = _row_at(b, p, "slopes", b.binary("add", start, length), size)
        left = b.binary("mul", b.binary("sub", p["time"], length), b.binary("mul", p["columns"], integer(size)))
        b.void(f"call void @llvm.memset.p0.i64({padding}, i8 0, {left}, i1 false)")
    return b


def _slope(b: Builder, most: LlvmValue, above: LlvmValue, factors: LlvmValue, scores: LlvmValue) -> LlvmValue:
    below = b.binary("fsub", b.binary("fsub", scores, most), above)
    return b.binary("fmul", VectorMath(b).exp(below), factors)
