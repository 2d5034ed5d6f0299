"""Products that sum over rows, `aᵀ @ g`, as gradients of matrices are, and sums of `g` or of `a`, for the bias.

The columns of `g` are packed into panels of two vectors, some rows at a time, and a group of panels is in a near cache
while all `a` pass. A tile is a few features by one panel, all of its sums in registers. An `a` is read where it lies.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from throughtime.native.caching_allocator import Scratch
from throughtime.native.gemm.micro_kernel import PANEL_VECTORS, UNROLL, multiply
from throughtime.native.gemm.policy import gemm_policy
from throughtime.native.threads.team import team
from throughtime.native.toolchain.llvm import host
from throughtime.native.toolchain.llvm_builder import (
    SIZES,
    Builder,
    LlvmValue,
    constant,
    element_of,
    integer,
    lanes_of,
    module,
    vector,
)
from throughtime.native.toolchain.module_loader import ELEMENTS, load

DEPTH = 192
"""Rows at a time: so much of a panel is a third of the nearest cache."""
GROUP = 8
"""Panels at a time: what they are summed up to stays in a near cache from block to block of rows."""
WIDEST = 192
"""Features of a part at a time, for the same reason."""

FRAME = ("count", "columns", "out", "out_row", "sums", "beside", "scratch", "joined", "lagged", "features", "pieces",
         "g_table", "parts", "a_table")  # fmt: skip
"""What a call is told: `count` rows, `columns` of `g` in `pieces` side by side, and the `features` of all `parts`.

`out` has the products one below the other, `sums` the sums of the columns of `g`, `beside` those of all `a`, unless it
is null; every `_row` counts bytes. Each table has an entry for each piece or part. Some rows at a time are put together
where they are `joined` from pieces of `g`, and where a part of them is `lagged`.
"""
ENTRY = ("start", "row", "width", "first", "places", "initial")
"""`width` numbers a row, the first of which is column `first` of `g`, or row `first` of `out`."""
_TABLES = FRAME.index("g_table"), FRAME.index("a_table")
_NULL = LlvmValue("ptr", "null")
_POINTERS = frozenset(
    {"out", "sums", "beside", "scratch", "joined", "lagged", "g_table", "a_table", "start", "places", "initial"}
)


class StridedRows(NamedTuple):
    """Where the first row lies, the bytes from row to row, and how many numbers a row has.

    With a table of `places`, row n is row `places[n]` of these, or row `~places[n]` of `initial` if that is negative.
    """

    start: int
    row: int
    width: int
    places: int = 0
    initial: int = 0

    def part(self, first: int, last: int, size: int) -> StridedRows:
        """A range of the columns of each row, of `size` bytes each."""
        initial = self.initial and self.initial + first * size
        return StridedRows(self.start + first * size, self.row, last - first, self.places, initial)


def weight_gradient(
    dtype: torch.dtype,
    count: int,
    g: Sequence[StridedRows],
    parts: Sequence[StridedRows],
    out: int,
    *,
    sums: int = 0,
    beside: int = 0,
) -> None:
    """Write `aᵀ @ g` of every part to `out`, one below the other, and where it is wanted the sum of `g` and of all `a`.

    The pieces of `g` lie side by side. There is at least one row, one column and one feature.
    """
    size, columns, features = dtype.itemsize, sum([piece.width for piece in g]), sum([part.width for part in parts])
    width = PANEL_VECTORS * host().lanes(size)
    # Panels are multiplied whole.
    worth = count * features * -(-columns // width) * width // gemm_policy.value.thread
    shares = _shares(columns, features, max(1, min(torch.get_num_threads(), worth)), width)
    tall = max([last - first for _, _, first, last in shares])
    panels_bytes = (GROUP * DEPTH + tall) * width * size + GROUP * width * 8
    joined_bytes = DEPTH * size * (columns if len(g) > 1 or g[0].places else 0)
    room = panels_bytes + joined_bytes + DEPTH * size * max([part.width for part in parts if part.places], default=0)
    sums_bytes = -(-columns * size // 64) * 64
    room += sums_bytes
    call, address = _code(dtype)
    with Scratch(len(shares) * room) as scratch:
        frames = []
        for place, (start, end, first, last) in zip(itertools.count(scratch, room), shares, strict=False):
            own_g = g if (start, end) == (0, columns) else _between(g, start, end, size)
            own_parts = parts if (first, last) == (0, features) else _between(parts, first, last, size)
            # Sums of `g` are taken by those who begin with the first features, sums of `a` by those who have the last
            # columns; the others have room for theirs.
            total = sums + start * size if sums and not first else place + room - sums_bytes
            head = (count, end - start, out + (first * columns + start) * size, columns * size, total)
            gathered = place + panels_bytes, place + panels_bytes + joined_bytes
            tail = (beside + first * size if beside and end == columns else 0, place, *gathered, last - first)
            frames.append(_frame(head + tail, _entries(own_g), _entries(_narrowed(own_parts, size))))
        starts = [frame.buffer_info()[0] for frame in frames]
        if len(starts) > 1:
            team().run(address, starts)
        else:
            call(starts[0])


def _shares(columns: int, features: int, threads: int, width: int) -> list[tuple[int, int, int, int]]:
    """For each thread its columns of `g` and its features of `a`, both from and up to.

    Who shares columns packs no `g` twice; but panels are whole, and where they are few, one thread has more of them.
    """
    panels = -(-columns // width)
    by_columns, by_features = panels / -(-panels // threads), min(threads, features // width)
    if by_features > 1.15 * by_columns:
        cuts = itertools.pairwise(features * thread // by_features for thread in range(by_features + 1))
        return [(0, columns, *cut) for cut in cuts]
    threads = min(threads, panels)
    ends = [min(width * (panels * thread // threads), columns) for thread in range(threads + 1)]
    return [(*cut, 0, features) for cut in itertools.pairwise(ends)]


def _frame(head: tuple[int, ...], pieces: list[int], parts: list[int]) -> array[int]:
    """The frame of a call, with both of its tables behind it."""
    counts = len(pieces) // len(ENTRY), len(parts) // len(ENTRY)
    frame = array("q", (*head, counts[0], 0, counts[1], 0, *pieces, *parts))
    frame[_TABLES[0]] = frame.buffer_info()[0] + 8 * len(FRAME)
    frame[_TABLES[1]] = frame[_TABLES[0]] + 8 * len(pieces)
    return frame


def _entries(rows: Sequence[StridedRows]) -> list[int]:
    """A table of parts or pieces, each beginning where the one before ends."""
    first, numbers = 0, list[int]()
    for start, row, width, places, initial in rows:
        numbers += (start, row, width, first, places, initial)
        first += width
    return numbers


def _narrowed(parts: Sequence[StridedRows], size: int) -> list[StridedRows]:
    """The same parts, none of them wider than a near cache likes, and none without any width."""
    narrow: list[StridedRows] = []
    for part in parts:
        if 0 < part.width <= WIDEST:
            narrow.append(part)
            continue
        pieces = -(-part.width // WIDEST)
        cuts = [part.width * piece // pieces for piece in range(pieces + 1)] if pieces else []
        narrow += [part.part(start, end, size) for start, end in itertools.pairwise(cuts)]
    return narrow


def _between(pieces: Sequence[StridedRows], start: int, end: int, size: int) -> list[StridedRows]:
    """What lies between two columns of pieces side by side."""
    before, between = 0, list[StridedRows]()
    for piece in pieces:
        first, last = max(start - before, 0), min(end - before, piece.width)
        if first < last:
            between.append(piece.part(first, last, size))
        before += piece.width
    return between


@functools.cache
def _code(dtype: torch.dtype) -> tuple[Callable[..., None], int]:
    machine = host()
    library = load(over_rows_module(ELEMENTS[dtype], machine.vector_bytes, machine.tile_rows))
    return library.function("over_rows", ctypes.c_void_p), library.address("over_rows")


def over_rows_module(element: str, vector_bytes: int, tile_rows: int) -> str:
    """The module with the function `over_rows` for one dtype."""
    lanes = vector_bytes // SIZES[element]
    width = PANEL_VECTORS * lanes
    heights = range(1, tile_rows + 1)
    names = {"tiles": PANEL_VECTORS, "narrow": 1}
    functions = [_tile(f"{name}_{height}", height, lanes, element, names[name]) for name in names for height in heights]
    functions += [_pack(width, element), _part(element, tile_rows), _gather(lanes, element), _over_rows(width, element)]
    tables = [f"@zeros = internal constant [{width} x {element}] zeroinitializer, align 64"]
    for name in names:
        entries = ", ".join(f"ptr @{name}_{height}" for height in heights)
        tables.append(f"@{name} = internal constant [{tile_rows} x ptr] [{entries}]")
    return module(functions, globals_=tables)


def _tile(name: str, height: int, lanes: int, element: str, vectors: int) -> Builder:
    """`height` features of some rows, times some vectors of a panel: `c = x + aᵀ @ panel`.

    Rows are summed up by themselves first: many small numbers added to a large sum one by one would be lost.
    """
    b = Builder(
        name,
        [("a", "ptr noalias"), ("a_row", "i64"), ("panel", "ptr noalias"), ("depth", "i64"), ("x", "ptr"),
         ("x_row", "i64"), ("c", "ptr"), ("c_row", "i64")],
        linkage="internal ",
    )  # fmt: skip
    p, kind, size = b.parameters, vector(lanes, element), SIZES[element]
    places, step = [place * lanes * size for place in range(vectors)], PANEL_VECTORS * lanes * size
    values = [*[constant(kind, 0.0)] * (height * len(places)), p["a"], p["panel"]]
    below = [b.binary("mul", p["a_row"], integer(row)) for row in range(UNROLL + 1)]
    rest = b.binary("srem", p["depth"], integer(UNROLL))
    for depth, turn in ((b.binary("sub", p["depth"], rest), UNROLL), (rest, 1)):
        with b.loop(depth, turn, carry=values, stem="depth", may_be_none=True) as (counter, phis):
            *totals, a, panel = phis
            for row in range(turn):
                here = b.advance(a, below[row]) if row else a
                left = [b.advance(here, feature * size) for feature in range(height)]
                totals = multiply(b, left, [b.advance(panel, row * step)], totals, vectors)
            following = [*totals, b.advance(a, below[turn]), b.advance(panel, turn * step)]
            for phi, value in zip(phis, following, strict=True):
                counter.feed(phi, value)
        values = counter.results
    for feature in range(height):
        before, out = (b.advance(p[name], b.binary("mul", p[f"{name}_row"], integer(feature))) for name in "xc")
        for index, place in enumerate(places):
            total = b.binary("fadd", b.load(kind, b.advance(before, place)), values[feature * len(places) + index])
            b.store(total, b.advance(out, place))
    return b


def _part(element: str, tile_rows: int) -> Builder:
    """All features of a part, by tiles of nearly the same height, times a panel; the `first` time from zero on."""
    b = Builder(
        "part",
        [("a", "ptr"), ("a_row", "i64"), ("width", "i64"), ("panel", "ptr"), ("depth", "i64"), ("first", "i1"),
         ("c", "ptr"), ("c_row", "i64"), ("tiles", "ptr")],
        linkage="internal ",
    )  # fmt: skip
    p, one = b.parameters, integer(1)
    tiles = b.binary("sdiv", b.binary("add", p["width"], integer(tile_rows - 1)), integer(tile_rows))
    height, taller = b.binary("sdiv", p["width"], tiles), b.binary("srem", p["width"], tiles)
    with b.loop(tiles, carry=[integer(0)], stem="tile") as (tile, (feature,)):
        here = b.select(b.compare("slt", tile.index, taller), b.binary("add", height, one), height)
        function = b.load("ptr", b.advance(p["tiles"], b.binary("sub", here, one), 8))
        c = b.advance(p["c"], b.binary("mul", feature, p["c_row"]))
        x, x_row = b.select(p["first"], LlvmValue("ptr", "@zeros"), c), b.select(p["first"], integer(0), p["c_row"])
        a = b.advance(p["a"], feature, SIZES[element])
        _call(b, function.text, a, p["a_row"], p["panel"], p["depth"], x, x_row, c, p["c_row"])
        tile.feed(feature, b.binary("add", feature, here))
    return b


def _pack(width: int, element: str) -> Builder:
    """One panel, filled up with one column of ones and with zeros; its sums, the `first` time from zero on.

    They are `exact` until all rows are in: float32 would lose what is small beside them.
    """
    b = Builder(
        "pack",
        [("g", "ptr"), ("g_row", "i64"), ("depth", "i64"), ("columns", "i64"), ("panel", "ptr noalias"),
         ("sums", "ptr"), ("exact", "ptr"), ("first", "i1")],
        linkage="internal ",
    )  # fmt: skip
    p, size = b.parameters, SIZES[element]
    with b.when(b.compare("sge", p["columns"], integer(width))):
        _copy_and_sum(b, vector(width, element), p["g"], p["panel"], width * size, p["sums"], p["exact"])
    with b.when(b.compare("slt", p["columns"], integer(width))), b.loop(integer(width), stem="column") as (column, _):
        g, panel, sums = (b.advance(p[name], column.index, size) for name in ("g", "panel", "sums"))
        # Whatever is multiplied with ones is summed up.
        is_next = b.compare("eq", column.index, p["columns"])
        filling = b.select(is_next, constant(element, 1.0), constant(element, 0.0))
        with b.loop(p["depth"], stem="row") as (row, _):
            b.store(filling, b.advance(panel, row.index, width * size), size)
        with b.when(b.compare("slt", column.index, p["columns"])):
            _copy_and_sum(b, element, g, panel, width * size, sums, b.advance(p["exact"], column.index, 8))
    return b


def _copy_and_sum(
    b: Builder, kind: str, g: LlvmValue, panel: LlvmValue, panel_row: int, sums: LlvmValue, exact: LlvmValue
) -> None:
    """Numbers of type `kind` from every row into the panel, and their sum."""
    p, element = b.parameters, element_of(kind)
    wide = vector(lanes_of(kind), "double") if kind.startswith("<") else "double"
    before = b.select(p["first"], constant(wide, 0.0), b.load(wide, exact, 8))
    with b.loop(p["depth"], carry=[before], stem="row") as (row, (total,)):
        numbers = b.load(kind, b.advance(g, b.binary("mul", row.index, p["g_row"])), SIZES[element])
        b.store(numbers, b.advance(panel, row.index, panel_row), SIZES[element])
        row.feed(total, b.binary("fadd", total, numbers if kind == wide else b.convert("fpext", numbers, "double")))
    found = row.fed[total.text]
    b.store(found, exact, 8)
    b.store(found if kind == wide else b.convert("fptrunc", found, element), sums, SIZES[element])


_GATHER = (
    *((name, "ptr" if name in _POINTERS else "i64") for name in ENTRY if name != "first"),
    ("begin", "i64"), ("count", "i64"), ("out", "ptr noalias"), ("out_row", "i64"),
)  # fmt: skip


def _gather(lanes: int, element: str) -> Builder:
    """`count` rows from row `begin` on to `out`, each from its place in the table, or from where it is without one."""
    b = Builder("gather", _GATHER, linkage="internal ")
    p, size = b.parameters, SIZES[element]
    rest = b.binary("srem", p["width"], integer(lanes))
    whole = b.binary("sub", p["width"], rest)
    plain = b.compare("eq", p["places"], _NULL)
    # Somewhere to read from, whether it is used or not.
    table, step = b.select(plain, LlvmValue("ptr", "@zeros"), p["places"]), b.select(plain, integer(0), integer(8))
    with b.loop(p["count"], stem="row") as (row, _):
        number = b.binary("add", p["begin"], row.index)
        found = b.load("i64", b.advance(table, b.binary("mul", number, step)))
        place = b.select(plain, number, found)
        is_first = b.compare("slt", place, integer(0))
        place = b.select(is_first, b.binary("xor", place, integer(-1)), place)
        source = b.advance(b.select(is_first, p["initial"], p["start"]), b.binary("mul", place, p["row"]))
        out = b.advance(p["out"], b.binary("mul", row.index, p["out_row"]))
        for kind, count, begin, turn in ((vector(lanes, element), whole, integer(0), lanes), (element, rest, whole, 1)):
            with b.loop(count, turn, stem="number", may_be_none=True) as (counter, _):
                here = b.binary("add", begin, counter.index)
                b.store(b.load(kind, b.advance(source, here, size), size), b.advance(out, here, size), size)
    return b


def _over_rows(width: int, element: str) -> Builder:
    """Groups of panels one after another, each through all rows; what a matrix ends with may be less than a panel."""
    b = Builder("over_rows", [("frame", "ptr noalias")])
    p, size = b.arguments(b.parameters["frame"], FRAME, _POINTERS), SIZES[element]
    # Sums of a panel that is not whole lie behind the panels until they are complete, and exact ones of columns there.
    edge, edge_row = b.advance(p["scratch"], GROUP * DEPTH * width * size), integer(width * size)
    all_exact = b.advance(edge, p["features"], width * size)
    has_beside = b.compare("ne", p["beside"], _NULL)
    wanted = b.binary("add", p["columns"], b.convert("zext", has_beside, "i64"))
    panels = b.binary("sdiv", b.binary("add", wanted, integer(width - 1)), integer(width))
    with b.loop(panels, GROUP, stem="group") as (group, _):
        here = _least(b, b.binary("sub", panels, group.index), GROUP)
        with b.loop(p["count"], DEPTH, stem="deep") as (deep, _):
            depth = _least(b, b.binary("sub", p["count"], deep.index), DEPTH)
            first = b.compare("eq", deep.index, integer(0))
            g, g_row = _rows_of_g(b, p, deep.index, depth, size)
            with b.loop(here, stem="panel") as (panel, _):
                column = b.binary("mul", b.binary("add", group.index, panel.index), integer(width))
                packed = b.advance(p["scratch"], panel.index, DEPTH * width * size)
                left, sums = b.binary("sub", p["columns"], column), b.advance(p["sums"], column, size)
                exact = b.advance(all_exact, panel.index, width * 8)
                _call(b, "@pack", b.advance(g, column, size), g_row, depth, left, packed, sums, exact, first)
            with b.loop(p["parts"], stem="part") as (part, _):
                q = b.arguments(b.advance(p["a_table"], part.index, 8 * len(ENTRY)), ENTRY, _POINTERS)
                a, a_row = _rows_of_part(b, q, deep.index, depth, p["lagged"], size)
                with b.loop(here, stem="panel") as (panel, _):
                    column = b.binary("mul", b.binary("add", group.index, panel.index), integer(width))
                    is_whole = b.compare("sge", b.binary("sub", p["columns"], column), integer(width))
                    is_narrow = b.compare("sle", b.binary("sub", wanted, column), integer(width // PANEL_VECTORS))
                    tiles = b.select(is_narrow, LlvmValue("ptr", "@narrow"), LlvmValue("ptr", "@tiles"))
                    c_row = b.select(is_whole, p["out_row"], edge_row)
                    c = b.select(is_whole, b.advance(p["out"], column, size), edge)
                    c = b.advance(c, b.binary("mul", q["first"], c_row))
                    packed = b.advance(p["scratch"], panel.index, DEPTH * width * size)
                    _call(b, "@part", a, a_row, q["width"], packed, depth, first, c, c_row, tiles)
    _leave_edge(b, p, edge, has_beside, width, element)
    return b


def _rows_of_g(
    b: Builder, p: dict[str, LlvmValue], begin: LlvmValue, count: LlvmValue, size: int
) -> tuple[LlvmValue, LlvmValue]:
    """Where some rows of `g` begin, and the bytes from one to the next: side by side, they are where they are."""
    only = b.arguments(p["g_table"], ENTRY, _POINTERS)
    is_one, is_plain = b.compare("eq", p["pieces"], integer(1)), b.compare("eq", only["places"], _NULL)
    in_place, joined_row = b.binary("and", is_one, is_plain), b.binary("mul", p["columns"], integer(size))
    with b.when(b.negated(in_place)), b.loop(p["pieces"], stem="piece") as (piece, _):
        q = b.arguments(b.advance(p["g_table"], piece.index, 8 * len(ENTRY)), ENTRY, _POINTERS)
        _call_gather(b, q, begin, count, b.advance(p["joined"], q["first"], size), joined_row)
    there = b.advance(only["start"], b.binary("mul", begin, only["row"]))
    return b.select(in_place, there, p["joined"]), b.select(in_place, only["row"], joined_row)


def _rows_of_part(
    b: Builder, entry: dict[str, LlvmValue], begin: LlvmValue, count: LlvmValue, gathered: LlvmValue, size: int
) -> tuple[LlvmValue, LlvmValue]:
    """The same for a part."""
    in_place, own_row = b.compare("eq", entry["places"], _NULL), b.binary("mul", entry["width"], integer(size))
    with b.when(b.negated(in_place)):
        _call_gather(b, entry, begin, count, gathered, own_row)
    there = b.advance(entry["start"], b.binary("mul", begin, entry["row"]))
    return b.select(in_place, there, gathered), b.select(in_place, entry["row"], own_row)


def _call_gather(
    b: Builder, entry: dict[str, LlvmValue], begin: LlvmValue, count: LlvmValue, out: LlvmValue, out_row: LlvmValue
) -> None:
    given = {**entry, "begin": begin, "count": count, "out": out, "out_row": out_row}
    _call(b, "@gather", *(given[name] for name, _ in _GATHER))


def _leave_edge(
    b: Builder, p: dict[str, LlvmValue], edge: LlvmValue, has_beside: LlvmValue, width: int, element: str
) -> None:
    """The sums of the last panel, if it is not whole, to where they belong: its columns, and beside them the ones."""
    size, rest = SIZES[element], b.binary("srem", p["columns"], integer(width))
    with b.loop(p["features"], stem="feature") as (feature, _):
        source = b.advance(edge, feature.index, width * size)
        out = b.advance(p["out"], b.binary("sub", p["columns"], rest), size)
        out = b.advance(out, b.binary("mul", feature.index, p["out_row"]))
        with b.when(b.compare("sgt", rest, integer(0))), b.loop(rest, stem="number") as (number, _):
            b.store(b.load(element, b.advance(source, number.index, size)), b.advance(out, number.index, size))
        with b.when(has_beside):
            b.store(b.load(element, b.advance(source, rest, size)), b.advance(p["beside"], feature.index, size))


def _least(b: Builder, value: LlvmValue, most: int) -> LlvmValue:
    return b.select(b.compare("slt", value, integer(most)), value, integer(most))


def _call(b: Builder, function: str, *arguments: LlvmValue) -> None:
    b.void(f"call void {function}({', '.join(map(str, arguments))})")
