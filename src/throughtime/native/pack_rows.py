"""Rows between padded sequences and the packed rows of steps, as machine code: one copy a row, no tables of places."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Sequence

from throughtime._setting import Setting
from throughtime.native.threads.team import run_frames
from throughtime.native.toolchain.llvm import NativeModule
from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, integer, module
from throughtime.native.toolchain.module_loader import load

MOVE = ("packed", "padded", "offset", "rows", "length", "backwards", "row_step", "time_step", "time", "row_first",
        "row_last", "size", "unpack")  # fmt: skip
"""What a move is told: one 64-bit number or address each.

Row r of step t is number `offset[t] + r` of the packed rows, and number `rows[r] * row_step + t * time_step` of the
padded ones, if it is not counted `backwards` from the end of its sequence. Unpacked rows past the `length[r]` of a
sequence are zeros. A row has `size` bytes. With a `time` of 0 it is a state, which has one row for each sequence.
"""
SHIFT = ("stream", "initial", "out", "offset", "active", "steps", "size")
"""`out` has for each row of each step the row of the step before, and for those of the first step `initial`."""
BEFORE = ("out", "offset", "active", "steps", "row_stride")
"""`out` has for each row of each step where the row of the step before lies, and `~r` for row r of the first step."""
_POINTERS = frozenset({"packed", "padded", "offset", "rows", "length", "stream", "initial", "out", "active"})
thread_bytes = Setting(1 << 18)
"""Bytes that are worth a thread of their own."""


def pack_rows(frames: Sequence[array[int]], threads: int) -> None:
    """Run some moves on a number of threads."""
    _run("move", frames, threads)


def shift(frame: array[int]) -> None:
    """Run a shift."""
    _run("shift", [frame], 1)


def before(frame: array[int]) -> None:
    """Find out where the rows of the steps before lie."""
    _run("before", [frame], 1)


def _run(name: str, frames: Sequence[array[int]], threads: int) -> None:
    run_frames(*_code(name), frames, threads)


@functools.cache
def _code(name: str) -> tuple[Callable[..., None], int]:
    library = _library()
    return library.function(name, ctypes.c_void_p), library.address(name)


@functools.cache
def _library() -> NativeModule:
    return load(module([_move(), _shift(), _before()]))


def _entry(b: Builder, table: LlvmValue, place: LlvmValue) -> LlvmValue:
    return b.load("i64", b.advance(table, place, 8))


def _row(b: Builder, base: LlvmValue, place: LlvmValue, size: LlvmValue) -> LlvmValue:
    return b.advance(base, b.binary("mul", place, size))


def _copy(b: Builder, target: LlvmValue, source: LlvmValue, size: LlvmValue) -> None:
    b.declarations["memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    b.void(f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, {size}, i1 false)")


def _clear(b: Builder, target: LlvmValue, size: LlvmValue) -> None:
    b.declarations["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    b.void(f"call void @llvm.memset.p0.i64({target}, i8 0, {size}, i1 false)")


def _move() -> Builder:
    b = Builder("move", [("frame", "ptr noalias")])
    p = b.arguments(b.parameters["frame"], MOVE, _POINTERS)
    zero = integer(0)
    unpack = b.compare("ne", p["unpack"], zero)
    is_state = b.compare("eq", p["time"], zero)
    count = b.binary("sub", p["row_last"], p["row_first"])
    with b.when(b.compare("sgt", count, zero)), b.loop(count, stem="row") as (rows, _):
        row = b.binary("add", rows.index, p["row_first"])
        begin = b.binary("mul", _entry(b, p["rows"], row), p["row_step"])
        length = b.select(is_state, integer(1), _entry(b, p["length"], row))
        last = b.binary("mul", b.binary("sub", length, integer(1)), p["time_step"])
        back = b.compare("ne", p["backwards"], zero)
        first = b.binary("add", begin, b.select(back, last, zero))
        step = b.select(back, b.binary("sub", zero, p["time_step"]), p["time_step"])
        with b.when(b.compare("sgt", length, zero)), b.loop(length, stem="time") as (time, _):
            place = b.binary("add", b.select(is_state, zero, _entry(b, p["offset"], time.index)), row)
            packed = _row(b, p["packed"], place, p["size"])
            padded = _row(b, p["padded"], b.binary("add", first, b.binary("mul", time.index, step)), p["size"])
            _copy(b, b.select(unpack, padded, packed), b.select(unpack, packed, padded), p["size"])
        left = b.binary("sub", p["time"], length)
        with b.when(b.binary("and", unpack, b.compare("sgt", left, zero))):
            end = b.binary("add", begin, b.binary("mul", length, p["time_step"]))
            # Side by side, or a step of all rows apart.
            together = b.compare("eq", p["time_step"], integer(1))
            pieces = b.select(together, integer(1), left)
            size = b.select(together, b.binary("mul", left, p["size"]), p["size"])
            with b.loop(pieces, stem="rest") as (rest, _):
                place = b.binary("add", end, b.binary("mul", rest.index, p["time_step"]))
                _clear(b, _row(b, p["padded"], place, p["size"]), size)
    return b


def _shift() -> Builder:
    b = Builder("shift", [("frame", "ptr noalias")])
    p = b.arguments(b.parameters["frame"], SHIFT, _POINTERS)
    first = b.binary("mul", _entry(b, p["active"], integer(0)), p["size"])
    _copy(b, _row(b, p["out"], _entry(b, p["offset"], integer(0)), p["size"]), p["initial"], first)
    count = b.binary("sub", p["steps"], integer(1))
    with b.when(b.compare("sgt", count, integer(0))), b.loop(count, stem="step") as (steps, _):
        here = b.binary("add", steps.index, integer(1))
        size = b.binary("mul", _entry(b, p["active"], here), p["size"])
        source = _row(b, p["stream"], _entry(b, p["offset"], steps.index), p["size"])
        _copy(b, _row(b, p["out"], _entry(b, p["offset"], here), p["size"]), source, size)
    return b


def _before() -> Builder:
    b = Builder("before", [("frame", "ptr noalias")])
    p = b.arguments(b.parameters["frame"], BEFORE, _POINTERS)
    stride = p["row_stride"]
    # Row r of the step before, as `begin + r * by`: `~r` is `-1 - r`.
    with b.loop(p["steps"], carry=[integer(-1), integer(-1)], stem="step") as (step, (begin, by)):
        start = _entry(b, p["offset"], step.index)
        with b.loop(_entry(b, p["active"], step.index), stem="row", may_be_none=True) as (row, _):
            place = b.binary("add", start, b.binary("mul", row.index, stride))
            found = b.binary("add", begin, b.binary("mul", row.index, by))
            b.store(found, _row(b, p["out"], place, integer(8)))
        step.feed(begin, start)
        step.feed(by, stride)
    return b
