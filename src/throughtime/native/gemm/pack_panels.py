"""Matrices into panels: [panels, K, columns of a panel], the last panel filled up with zeros."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence

from throughtime.native.toolchain.llvm_builder import SIZES, Builder, LlvmValue, constant, integer, module, vector

PACK = (("source", "ptr noalias"), ("down", "i64"), ("across", "i64"), ("rows", "i64"), ("columns", "i64"),
        ("out", "ptr noalias"))  # fmt: skip
"""`down` and `across` are the bytes from a row and from a column of the matrix to the next."""

Job = tuple[int, ...]
"""A matrix to be packed: the address of one of the functions here, and its arguments."""

_TOGETHER = 8
"""Panels that are packed together: rows of a large matrix are pages apart, and a page should be seen few times."""


def job_list(jobs: Sequence[Job]) -> array[int]:
    """The list that `pack_all` takes."""
    return array("q", (len(jobs), *itertools.chain.from_iterable(jobs)))


def pack_all(linkage: str = "") -> Builder:
    """The function that packs all matrices of a list: how many there are, and for each a job."""
    b = Builder("pack_all", [("list", "ptr")], linkage=linkage)
    names = ["function", *(name for name, _ in PACK)]
    pointers = frozenset({"function", "source", "out"})
    first = b.advance(b.parameters["list"], 8)
    with b.loop(b.load("i64", b.parameters["list"]), stem="job", may_be_none=True) as (job, _):
        given = b.arguments(b.advance(first, job.index, 8 * len(names)), names, pointers)
        arguments = ", ".join(str(given[name]) for name in names[1:])
        b.void(f"call void {given['function'].text}({arguments})")
    return b


def pack_module(element: str, width: int) -> str:
    """The module with `pack_any`, and with `pack_rows` and `pack_columns` for contiguous rows or columns."""
    return module([_pack_any(element, width), _pack_rows(element, width), _pack_columns(element, width)])


def _pack_any(element: str, width: int) -> Builder:
    """One number after another, a row of a panel at a time."""
    b = Builder("pack_any", PACK)
    panels = b.binary("sdiv", b.binary("add", b.parameters["columns"], integer(width - 1)), integer(width))
    with b.loop(panels, stem="panel", may_be_none=True) as (panel, _):
        _pack_lines(b, b.binary("mul", panel.index, integer(width)), integer(0), element, width)
    return b


def _pack_lines(b: Builder, first: LlvmValue, start: LlvmValue, element: str, width: int) -> None:
    """The panel that starts at column `first`, from row `start` on, one number after another."""
    p, size = b.parameters, SIZES[element]
    here, there = _panel(b, first, size)
    left = b.binary("sub", p["rows"], start)
    with b.when(b.compare("sgt", left, integer(0))), b.loop(left, stem="row") as (counter, _):
        row = b.binary("add", start, counter.index)
        line = b.advance(here, b.binary("mul", row, p["down"]))
        _pack_line(b, line, b.advance(there, row, width * size), first, element, width)


def _panel(b: Builder, first: LlvmValue, size: int) -> tuple[LlvmValue, LlvmValue]:
    """Where the panel that starts at column `first` comes from, and where it goes."""
    p = b.parameters
    here = b.advance(p["source"], b.binary("mul", first, p["across"]))
    return here, b.advance(p["out"], b.binary("mul", first, p["rows"]), size)


def _pack_line(b: Builder, line: LlvmValue, out: LlvmValue, first: LlvmValue, element: str, width: int) -> None:
    p, size = b.parameters, SIZES[element]
    with b.loop(integer(width), stem="one") as (column, _):
        target = b.advance(out, column.index, size)
        b.store(constant(element, 0.0), target)
        inside = b.compare("slt", b.binary("add", first, column.index), p["columns"])
        with b.when(inside):
            number = b.load(element, b.advance(line, b.binary("mul", column.index, p["across"])))
            b.store(number, target)


def _pack_rows(element: str, width: int) -> Builder:
    """A vector of a panel's width at a time, where `across` is the size of a number."""
    b = Builder("pack_rows", PACK)
    p, size = b.parameters, SIZES[element]
    whole, step = b.binary("sdiv", p["columns"], integer(width)), width * size
    panel_bytes = b.binary("mul", p["rows"], integer(step))
    with b.loop(whole, _TOGETHER, stem="group", may_be_none=True) as (group, _):
        here, there = _panel(b, b.binary("mul", group.index, integer(width)), size)
        panels = b.intrinsic("smin", b.binary("sub", whole, group.index), integer(_TOGETHER))
        with b.loop(p["rows"], stem="row", may_be_none=True) as (row, _):
            line, out = b.advance(here, b.binary("mul", row.index, p["down"])), b.advance(there, row.index, step)
            with b.loop(panels, stem="panel") as (panel, _):
                part = b.load(vector(width, element), b.advance(line, panel.index, step), size)
                b.store(part, b.advance(out, b.binary("mul", panel.index, panel_bytes)))
    _pack_last(b, whole, element, width)
    return b


def _pack_last(b: Builder, whole: LlvmValue, element: str, width: int) -> None:
    """The panel that the columns do not fill."""
    first = b.binary("mul", whole, integer(width))
    with b.when(b.compare("slt", first, b.parameters["columns"])):
        _pack_lines(b, first, integer(0), element, width)


def _pack_columns(element: str, width: int) -> Builder:
    """A square of numbers at a time, transposed in registers, where `down` is the size of a number."""
    b = Builder("pack_columns", PACK)
    p, size, side = b.parameters, SIZES[element], width // 2
    whole = b.binary("sdiv", p["columns"], integer(width))
    squares = b.binary("sdiv", p["rows"], integer(side))
    done = b.binary("mul", squares, integer(side))
    with b.when(b.compare("sgt", whole, integer(0))), b.loop(whole, stem="panel") as (panel, _):
        first = b.binary("mul", panel.index, integer(width))
        here, there = _panel(b, first, size)
        with b.when(b.compare("sgt", squares, integer(0))), b.loop(done, side, stem="square") as (row, _):
            source, out = b.advance(here, row.index, size), b.advance(there, row.index, width * size)
            for half in (0, side):
                starts = [
                    b.advance(source, b.binary("mul", p["across"], integer(half + place))) for place in range(side)
                ]
                lines = _transposed(b, [b.load(vector(side, element), start) for start in starts])
                for place, line in enumerate(lines):
                    b.store(line, b.advance(out, place * width + half, size))
        _pack_lines(b, first, done, element, width)
    _pack_last(b, whole, element, width)
    return b


def _transposed(b: Builder, lines: list[LlvmValue]) -> list[LlvmValue]:
    """A square of lines, transposed: shuffled like two halves of a pack of cards, as often as it can be halved."""
    side = len(lines)
    low = [lane for pair in range(side // 2) for lane in (pair, pair + side)]
    high = [lane + side // 2 for lane in low]
    for _ in range(side.bit_length() - 1):
        pairs = zip(lines[: side // 2], lines[side // 2 :], strict=True)
        lines = [b.shuffle(left, right, lanes) for left, right in pairs for lanes in (low, high)]
    return lines
