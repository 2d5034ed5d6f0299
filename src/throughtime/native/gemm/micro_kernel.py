"""Rows times a matrix, register-blocked: written once for each dtype and shared by all kernels.

A matrix is packed into panels of two vectors of columns, [panels, K, 2 lanes], filled up with zeros. A tile is a few
rows by one panel (or, for few rows, by several panels, so that there are enough independent sums to hide the latency of
a multiply-add) with all of its sums in registers. A panel stays in a near cache while all rows pass.
"""

from __future__ import annotations

import itertools

from throughtime.native.toolchain.llvm_builder import (
    SIZES,
    Builder,
    LlvmValue,
    element_of,
    integer,
    module,
    suffix,
    vector,
)

PANEL_VECTORS = 2
UNROLL = 4
"""Rows of a matrix for one turn of the innermost loop.

Its own instructions are then few beside those that multiply, which matters where something else wants its share of a
core: the other thread of it, most of all.
"""
_WHOLE, _WIDE_EDGE, _NARROW_EDGE = (LlvmValue("ptr", f"@{table}") for table in ("tiles", "wide_edge", "narrow_edge"))
_FEW = {1: 4, 2: 3, 3: 2}
"""Panels at a time, for few rows."""
_WIDE_FEW = {**_FEW, 4: 2}
"""The same where vectors have 64 bytes, of which there are twice as many registers: fewer loads for a product."""
_MOST = max(_FEW.values())
_TILE = (
    ("a", "ptr noalias"), ("a_row", "i64"), ("b", "ptr noalias"), ("b_panel", "i64"), ("depth", "i64"),
    ("x", "ptr"), ("x_row", "i64"), ("c", "ptr"), ("c_row", "i64"),
)  # fmt: skip
PRODUCT = (
    ("a", "ptr"), ("a_row", "i64"), ("b", "ptr"), ("depth", "i64"), ("columns", "i64"), ("x", "ptr"), ("x_row", "i64"),
    ("c", "ptr"), ("c_row", "i64"), ("rows", "i64"), ("back", "i64"),
)  # fmt: skip
"""`c = x + a @ b`. Every `_row` counts bytes; without `x` the sums start from zero.

If `back` is not 0, few rows take the panels from the last to the first, with the same result.
"""


def product_module(element: str, vector_bytes: int, tile_rows: int) -> str:
    """The module with the function `product` for one dtype."""
    lanes, most_panels = vector_bytes // SIZES[element], _WIDE_FEW if vector_bytes == 64 else _FEW
    few = [(rows, panels) for rows, most in most_panels.items() for panels in range(1, most + 1)]
    tiles = dict.fromkeys([*few, *((rows, 1) for rows in range(1, tile_rows + 1))])
    functions = [_tile(f"tile_{rows}_{panels}", rows, panels, lanes, element) for rows, panels in tiles]
    heights = range(1, tile_rows + 1)
    for name, vectors in (("wide_edge", PANEL_VECTORS), ("narrow_edge", 1)):
        functions += [
            _tile(f"{name}_{rows}", rows, 1, lanes, element, vectors=vectors, masked=True) for rows in heights
        ]
    functions.append(_panels(lanes, element, tile_rows, max(most_panels)))
    functions.append(_product(lanes, element, tile_rows))
    width = _MOST * PANEL_VECTORS * lanes
    tables = [f"@zeros = internal constant [{width} x {element}] zeroinitializer, align 64"]
    for table, name in (("tiles", "tile_{}_1"), ("wide_edge", "wide_edge_{}"), ("narrow_edge", "narrow_edge_{}")):
        names = [f"ptr @{name.format(rows)}" for rows in heights]
        tables.append(f"@{table} = internal constant [{tile_rows} x ptr] [{', '.join(names)}]")
    # A line for each number of rows, with room for as many panels as any of them takes.
    every = itertools.product(most_panels, range(1, _MOST + 1))
    names = [f"ptr @tile_{rows}_{panels}" if panels <= most_panels[rows] else "ptr null" for rows, panels in every]
    tables.append(f"@few = internal constant [{len(names)} x ptr] [{', '.join(names)}]")
    groups = [f"i64 {panels}" for panels in most_panels.values()]
    tables.append(f"@groups = internal constant [{len(groups)} x i64] [{', '.join(groups)}]")
    return module(functions, globals_=tables)


def _tile(
    name: str,
    rows: int,
    panels: int,
    lanes: int,
    element: str,
    *,
    vectors: int = PANEL_VECTORS,
    masked: bool = False,
) -> Builder:
    """`rows` rows times `panels` panels of the matrix, or some of the vectors of one.

    If `masked`, only `last` lanes of the last vector are columns of the matrix: others are neither read nor written.
    """
    b = Builder(name, (*_TILE, ("last", "i64")) if masked else _TILE, linkage="internal ")
    p = b.parameters
    kind, size = vector(lanes, element), SIZES[element]
    width = lanes * size
    places = range(vectors * panels)
    masks = {places[-1]: _first_lanes(b, p["last"], lanes)} if masked else {}
    starts = [b.advance(p["x"], b.binary("mul", p["x_row"], integer(row))) for row in range(rows)]
    sums = [_load(b, kind, b.advance(start, place * width), masks.get(place)) for start in starts for place in places]
    lefts = [b.advance(p["a"], b.binary("mul", p["a_row"], integer(row))) for row in range(rows)]
    rights = [b.advance(p["b"], b.binary("mul", p["b_panel"], integer(panel))) for panel in range(panels)]
    values = [*sums, *lefts, *rights]
    rest = b.binary("srem", p["depth"], integer(UNROLL))
    for depth, turn in ((b.binary("sub", p["depth"], rest), UNROLL), (rest, 1)):
        with b.loop(depth, turn, carry=values, stem="depth", may_be_none=True) as (counter, phis):
            totals, lefts, rights = phis[: len(sums)], phis[len(sums) : len(sums) + rows], phis[len(sums) + rows :]
            for deep in range(turn):
                left = [b.advance(place, deep * size) for place in lefts]
                right = [b.advance(place, deep * PANEL_VECTORS * width) for place in rights]
                totals = multiply(b, left, right, totals, vectors)
            moved = [b.advance(place, turn * size) for place in lefts]
            moved += [b.advance(place, turn * PANEL_VECTORS * width) for place in rights]
            for phi, following in zip(phis, [*totals, *moved], strict=True):
                counter.feed(phi, following)
        values = counter.results
    for row in range(rows):
        out = b.advance(p["c"], b.binary("mul", p["c_row"], integer(row)))
        for place in places:
            _store(b, values[row * len(places) + place], b.advance(out, place * width), masks.get(place))
    return b


def _first_lanes(b: Builder, count: LlvmValue, lanes: int) -> LlvmValue:
    """A mask of the first `count` lanes."""
    kind = vector(lanes, "i64")
    numbers = LlvmValue(kind, f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>")
    return b.compare("slt", numbers, b.splat(count, lanes))


def _load(b: Builder, kind: str, place: LlvmValue, mask: LlvmValue | None) -> LlvmValue:
    """A vector; zeros where the mask has none."""
    if mask is None:
        return b.load(kind, place)
    name = f"@llvm.masked.load.{suffix(kind)}.p0"
    b.declarations[name] = f"declare {kind} {name}(ptr, i32, {mask.type}, {kind})"
    return b.let(kind, f"call {kind} {name}({place}, i32 {SIZES[element_of(kind)]}, {mask}, {kind} zeroinitializer)")


def _store(b: Builder, value: LlvmValue, place: LlvmValue, mask: LlvmValue | None) -> None:
    """Write a vector, or what the mask has of it."""
    if mask is None:
        b.store(value, place)
        return
    name = f"@llvm.masked.store.{suffix(value.type)}.p0"
    b.declarations[name] = f"declare void {name}({value.type}, ptr, i32, {mask.type})"
    b.void(f"call void {name}({value}, {place}, i32 {SIZES[value.element]}, {mask})")


def multiply(
    b: Builder, left: list[LlvmValue], right: list[LlvmValue], totals: list[LlvmValue], vectors: int = PANEL_VECTORS
) -> list[LlvmValue]:
    """The sums, row by row, with one row of the matrix: a number of each row times the vectors of each panel."""
    kind, element = totals[0].type, totals[0].element
    lanes, width = totals[0].lanes, totals[0].lanes * SIZES[element]
    places = [b.advance(panel, place * width) for panel in right for place in range(vectors)]
    sums = dict(zip(itertools.product(range(len(left)), range(len(places))), totals, strict=True))
    # The fewer of both stay in registers while the others pass.
    if len(left) < len(places):
        ones = [b.splat(b.load(element, one), lanes) for one in left]
        for column, place in enumerate(places):
            numbers = b.load(kind, place, width)
            for row, one in enumerate(ones):
                sums[row, column] = b.fma(one, numbers, sums[row, column])
    else:
        held = [b.load(kind, place, width) for place in places]
        for row, place in enumerate(left):
            one = b.splat(b.load(element, place), lanes)
            for column, numbers in enumerate(held):
                sums[row, column] = b.fma(one, numbers, sums[row, column])
    return list(sums.values())


_PANELS = (*_TILE, ("panels", "i64"), ("rows", "i64"), ("x_step", "i64"), ("back", "i64"), ("tiles", "ptr"))


def _panels(lanes: int, element: str, tile_rows: int, few_rows: int) -> Builder:
    """All rows times `panels` panels by some tiles; `x_step` bytes from panel to panel of `x`."""
    b = Builder("panels", _PANELS, linkage="internal ")
    step = PANEL_VECTORS * lanes * SIZES[element]
    few = b.compare("sle", b.parameters["rows"], integer(few_rows))
    few = b.binary("and", few, b.compare("eq", b.parameters["tiles"], _WHOLE))
    with b.when(few):
        _few_rows(b, step)
    with b.when(b.negated(few)):
        _many_rows(b, tile_rows, step)
    return b


def _few_rows(b: Builder, step: int) -> None:
    """Groups of panels of nearly the same size, as many as there are sums for: 4 are 2 and 2, not 3 and 1."""
    p = b.parameters
    line = b.binary("sub", p["rows"], integer(1))
    tiles = b.advance(LlvmValue("ptr", "@few"), line, 8 * _MOST)
    groups, size, extra = _parts(b, p["panels"], b.load("i64", b.advance(LlvmValue("ptr", "@groups"), line, 8)))
    with b.loop(groups, stem="group") as (counter, _):
        group = _in_turn(b, counter.index, groups)
        first = b.binary("add", b.binary("mul", group, size), b.intrinsic("smin", group, extra))
        _call_tile(b, _tile_of(b, tiles, group, size, extra)[0], first, integer(0), step)


def _many_rows(b: Builder, tile_rows: int, step: int) -> None:
    """Panel by panel, in tiles of nearly the same height: 7 rows are 4 and 3, not 6 and 1."""
    p = b.parameters
    blocks, height, extra = _parts(b, p["rows"], integer(tile_rows))
    with b.loop(p["panels"], stem="panel") as (panel, _):  # noqa: SIM117 (one line is too long)
        with b.loop(blocks, carry=[integer(0)], stem="block") as (block, (row,)):
            tile, rows = _tile_of(b, p["tiles"], block.index, height, extra)
            _call_tile(b, tile, panel.index, row, step)
            block.feed(row, b.binary("add", row, rows))


def _parts(b: Builder, count: LlvmValue, most: LlvmValue) -> tuple[LlvmValue, LlvmValue, LlvmValue]:
    """The number of parts of a bounded size, the size of each, and the number of parts that have one more."""
    parts = b.binary("sdiv", b.binary("sub", b.binary("add", count, most), integer(1)), most)
    return parts, b.binary("sdiv", count, parts), b.binary("srem", count, parts)


def _tile_of(
    b: Builder, tiles: LlvmValue, part: LlvmValue, size: LlvmValue, extra: LlvmValue
) -> tuple[LlvmValue, LlvmValue]:
    """The tile for one of these parts, from a table that begins with the tile for one; and what the part has."""
    more = b.convert("zext", b.compare("slt", part, extra), "i64")
    here = b.binary("add", size, more)
    return b.load("ptr", b.advance(tiles, b.binary("sub", here, integer(1)), 8)), here


def _in_turn(b: Builder, index: LlvmValue, count: LlvmValue) -> LlvmValue:
    """Which of `count` groups comes at this place: the one from the end if the order is reversed.

    One row is as fast as the cache that the matrix comes from, and gains from what is still in a nearer one. Four rows
    do not wait for it while the prefetcher runs ahead, which processors do well in forward order only.
    """
    last = b.binary("sub", count, integer(1))
    goes_back = b.compare("ne", b.parameters["back"], integer(0))
    goes_back = b.binary("and", goes_back, b.compare("sle", b.parameters["rows"], integer(max(_FEW))))
    return b.select(goes_back, b.binary("sub", last, index), index)


def _call_tile(b: Builder, tile: LlvmValue, panel: LlvmValue, row: LlvmValue, step: int) -> None:
    p = b.parameters

    def moved(name: str, panel_step: LlvmValue) -> LlvmValue:
        across = b.advance(p[name], b.binary("mul", panel, panel_step))
        return b.advance(across, b.binary("mul", row, p[f"{name}_row"]))

    arguments = (
        b.advance(p["a"], b.binary("mul", row, p["a_row"])), p["a_row"],
        b.advance(p["b"], b.binary("mul", panel, p["b_panel"])), p["b_panel"], p["depth"],
        moved("x", p["x_step"]), p["x_row"], moved("c", integer(step)), p["c_row"],
    )  # fmt: skip
    b.void(f"call void {tile.text}({', '.join(map(str, arguments))})")


def _product(lanes: int, element: str, tile_rows: int) -> Builder:
    """The whole product: whole panels, then the columns that are left."""
    b = Builder("product", PRODUCT)
    p = b.parameters
    size = SIZES[element]
    width = PANEL_VECTORS * lanes
    panels, rest = b.binary("sdiv", p["columns"], integer(width)), b.binary("srem", p["columns"], integer(width))
    b_panel = b.binary("mul", p["depth"], integer(width * size))
    none = b.compare("eq", p["x"], LlvmValue("ptr", "null"))
    x = b.select(none, LlvmValue("ptr", "@zeros"), p["x"]), b.select(none, integer(0), p["x_row"])
    x_step = b.select(none, integer(0), integer(width * size))
    with b.when(b.compare("sgt", panels, integer(0))):
        _call_panels(b, p["b"], b_panel, x, (p["c"], p["c_row"]), panels, x_step, _WHOLE)
    with b.when(b.compare("sgt", rest, integer(0))):
        before = b.binary("mul", panels, integer(width * size))
        x = b.advance(x[0], b.binary("mul", panels, x_step)), x[1]
        out = b.advance(p["c"], before), p["c_row"]
        last = b.advance(p["b"], b.binary("mul", panels, b_panel))
        _edge(b, last, b_panel, x, out, rest, lanes, tile_rows)
    return b


def _edge(
    b: Builder,
    matrix: LlvmValue,
    b_panel: LlvmValue,
    x: _Rows,
    c: _Rows,
    columns: LlvmValue,
    lanes: int,
    tile_rows: int,
) -> None:
    """All rows times the columns that do not fill a panel, in tiles of nearly the same height."""
    p = b.parameters
    is_narrow = b.compare("sle", columns, integer(lanes))
    tiles = b.select(is_narrow, _NARROW_EDGE, _WIDE_EDGE)
    last = b.select(is_narrow, columns, b.binary("sub", columns, integer(lanes)))
    blocks, height, extra = _parts(b, p["rows"], integer(tile_rows))
    with b.loop(blocks, carry=[integer(0)], stem="edge") as (block, (row,)):
        tile, rows = _tile_of(b, tiles, block.index, height, extra)
        a, sums, out = (b.advance(start, b.binary("mul", row, step)) for start, step in ((p["a"], p["a_row"]), x, c))
        arguments = (a, p["a_row"], matrix, b_panel, p["depth"], sums, x[1], out, c[1], last)
        b.void(f"call void {tile.text}({', '.join(map(str, arguments))})")
        block.feed(row, b.binary("add", row, rows))


_Rows = tuple[LlvmValue, LlvmValue]
"""The address of the first row, and the bytes to the next."""


def _call_panels(
    b: Builder,
    matrix: LlvmValue,
    b_panel: LlvmValue,
    x: _Rows,
    c: _Rows,
    panels: LlvmValue,
    x_step: LlvmValue,
    tiles: LlvmValue,
) -> None:
    p = b.parameters
    arguments = (p["a"], p["a_row"], matrix, b_panel, p["depth"], *x, *c, panels, p["rows"], x_step, p["back"], tiles)
    b.void(f"call void @panels({', '.join(map(str, arguments))})")
