"""Matrices into panels: [panels, K, columns of a panel], the last panel filled up with zeros."""

from __future__ import annotations

from throughtime.backends.numba._ir import SIZES, Builder, Value, constant, integer, module, vector

PACK = (("source", "ptr noalias"), ("down", "i64"), ("across", "i64"), ("rows", "i64"), ("columns", "i64"),
        ("out", "ptr noalias"))  # fmt: skip
"""`down` and `across` are the bytes from a row and from a column of the matrix to the next."""


def pack_module(element: str, width: int) -> str:
    """The module with `pack_any`, and `pack_rows` for matrices whose rows are contiguous, into panels of `width`."""
    return module([_pack_any(element, width), _pack_rows(element, width)])


def _pack_any(element: str, width: int) -> Builder:
    """One number after another, a row of a panel at a time."""
    b = Builder("pack_any", PACK)
    p, size = b.parameters, SIZES[element]
    panels = b.binary("sdiv", b.binary("add", p["columns"], integer(width - 1)), integer(width))
    with b.loop(panels, stem="panel") as (panel, _):
        first = b.binary("mul", panel.index, integer(width))
        here, there = _panel(b, first, size)
        with b.loop(p["rows"], stem="row") as (row, _):
            line = b.advance(here, b.binary("mul", row.index, p["down"]))
            out = b.advance(there, row.index, width * size)
            _pack_line(b, line, out, first, element, width)
    return b


def _panel(b: Builder, first: Value, size: int) -> tuple[Value, Value]:
    """Where the panel that starts at column `first` comes from, and where it goes."""
    p = b.parameters
    here = b.advance(p["source"], b.binary("mul", first, p["across"]))
    return here, b.advance(p["out"], b.binary("mul", first, p["rows"]), size)


def _pack_line(b: Builder, line: Value, out: Value, first: Value, element: str, width: int) -> None:
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
    whole = b.binary("sdiv", p["columns"], integer(width))
    with b.when(b.compare("sgt", whole, integer(0))), b.loop(whole, stem="panel") as (panel, _):
        here, there = _panel(b, b.binary("mul", panel.index, integer(width)), size)
        with b.loop(p["rows"], stem="row") as (row, _):
            line = b.load(vector(width, element), b.advance(here, b.binary("mul", row.index, p["down"])), size)
            b.store(line, b.advance(there, row.index, width * size))
    first = b.binary("mul", whole, integer(width))
    with b.when(b.compare("slt", first, p["columns"])):
        here, there = _panel(b, first, size)
        with b.loop(p["rows"], stem="last") as (row, _):
            line = b.advance(here, b.binary("mul", row.index, p["down"]))
            _pack_line(b, line, b.advance(there, row.index, width * size), first, element, width)
    return b
