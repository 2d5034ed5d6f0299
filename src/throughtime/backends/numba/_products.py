"""Rows times a matrix, register-blocked: written once for each dtype and shared by all kernels.

A matrix is packed into panels of two vectors of columns, [panels, K, 2 lanes], filled up with zeros. A tile is a few
rows by one panel (or, for fewer than four rows, by several panels, so that there are enough independent sums to hide
the latency of a multiply-add) with all of its sums in registers. A panel stays in a near cache while all rows pass.
"""

from __future__ import annotations

from throughtime.backends.numba._ir import SIZES, Builder, Value, integer, module, vector

PANEL_VECTORS = 2
BLOCK = 320
"""Rows of a matrix that are worked off at a time where more than one tile of rows passes."""
_WIDE = {1: 4, 2: 2}
"""Panels at a time, for few rows."""
_TILE = (
    ("a", "ptr noalias"), ("a_row", "i64"), ("b", "ptr noalias"), ("b_panel", "i64"), ("depth", "i64"),
    ("x", "ptr"), ("x_row", "i64"), ("c", "ptr"), ("c_row", "i64"),
)  # fmt: skip
PRODUCT = (
    ("a", "ptr"), ("a_row", "i64"), ("b", "ptr"), ("depth", "i64"), ("columns", "i64"), ("x", "ptr"), ("x_row", "i64"),
    ("c", "ptr"), ("c_row", "i64"), ("rows", "i64"), ("edge", "ptr"),
)  # fmt: skip
"""`c = x + a @ b`. Every `_row` counts bytes; without `x` the sums start from zero; `edge` has room for one panel."""


def product_module(element: str, vector_bytes: int, tile_rows: int) -> str:
    """The module with the function `product` for one dtype."""
    lanes = vector_bytes // SIZES[element]
    tiles = {(rows, 1): None for rows in range(1, tile_rows + 1)} | dict.fromkeys(_WIDE.items())
    functions = [_tile(rows, panels, lanes, element) for rows, panels in tiles]
    functions.append(_panels(lanes, element, tile_rows))
    functions.append(_product(lanes, element, tile_rows))
    width = max(_WIDE.values()) * PANEL_VECTORS * lanes
    tables = [f"@zeros = internal constant [{width} x {element}] zeroinitializer, align 64"]
    names = [f"ptr @tile_{rows}_1" for rows in range(1, tile_rows + 1)]
    tables.append(f"@tiles = internal constant [{tile_rows} x ptr] [{', '.join(names)}]")
    names = [f"ptr @tile_{rows}_{wide}" for rows, wide in _WIDE.items()]
    tables.append(f"@wide = internal constant [{len(_WIDE)} x ptr] [{', '.join(names)}]")
    return module(functions, globals_=tables)


def _tile(rows: int, panels: int, lanes: int, element: str) -> Builder:
    """`rows` rows times `panels` panels of the matrix."""
    b = Builder(f"tile_{rows}_{panels}", _TILE, linkage="internal ")
    p = b.parameters
    kind, size = vector(lanes, element), SIZES[element]
    width = lanes * size
    vectors = range(PANEL_VECTORS * panels)
    offsets = [b.binary("mul", p["a_row"], integer(row)) for row in range(rows)]
    starts = [b.advance(p["x"], b.binary("mul", p["x_row"], integer(row))) for row in range(rows)]
    sums = [b.load(kind, b.advance(start, place * width)) for start in starts for place in vectors]
    sources = [b.advance(p["b"], b.binary("mul", p["b_panel"], integer(panel))) for panel in range(panels)]
    with b.loop(p["depth"], carry=[*sums, p["a"], *sources], stem="depth") as (counter, phis):
        totals, left, matrix = phis[: len(sums)], phis[len(sums)], phis[len(sums) + 1 :]
        right = [
            b.load(kind, b.advance(source, place * width), width) for source in matrix for place in range(PANEL_VECTORS)
        ]
        for row in range(rows):
            one = b.splat(b.load(element, b.advance(left, offsets[row])), lanes)
            for place in vectors:
                total = totals[row * len(vectors) + place]
                counter.feed(total, b.fma(one, right[place], total))
        counter.feed(left, b.advance(left, size))
        for source in matrix:
            counter.feed(source, b.advance(source, PANEL_VECTORS * width))
    for row in range(rows):
        out = b.advance(p["c"], b.binary("mul", p["c_row"], integer(row)))
        for place in vectors:
            b.store(counter.fed[phis[row * len(vectors) + place].text], b.advance(out, place * width))
    return b


_PANELS = (*_TILE, ("panels", "i64"), ("rows", "i64"), ("x_step", "i64"))


def _panels(lanes: int, element: str, tile_rows: int) -> Builder:
    """All rows times `panels` panels, `depth` rows of the matrix deep; `x_step` bytes from panel to panel of `x`."""
    b = Builder("panels", _PANELS, linkage="internal ")
    p = b.parameters
    step = PANEL_VECTORS * lanes * SIZES[element]
    few = b.compare("sle", p["rows"], integer(max(_WIDE)))
    place = b.binary("sub", b.select(few, p["rows"], integer(1)), integer(1))
    wide = b.load("ptr", b.advance(Value("ptr", "@wide"), place, 8))
    # 4 or 2 panels at a time for 1 or 2 rows: see _WIDE.
    single = b.compare("eq", p["rows"], integer(1))
    group = b.select(few, b.select(single, integer(_WIDE[1]), integer(_WIDE[2])), integer(1))
    groups = b.binary("sdiv", p["panels"], group)
    many = b.binary("and", few, b.compare("sgt", groups, integer(0)))
    with b.when(many), b.loop(groups, stem="group") as (counter, _):
        first = b.binary("mul", counter.index, group)
        _call_tile(b, wide, first, integer(0), step)
    done = b.select(few, b.binary("mul", groups, group), integer(0))
    left = b.binary("sub", p["panels"], done)
    # Rows in tiles of nearly the same height: 7 rows are 4 and 3, not 6 and 1.
    blocks = b.binary("sdiv", b.binary("add", p["rows"], integer(tile_rows - 1)), integer(tile_rows))
    height, extra = b.binary("sdiv", p["rows"], blocks), b.binary("srem", p["rows"], blocks)
    with b.when(b.compare("sgt", left, integer(0))), b.loop(left, stem="panel") as (panel, _):
        number = b.binary("add", panel.index, done)
        with b.loop(blocks, carry=[integer(0)], stem="block") as (block, (row,)):
            taller = b.convert("zext", b.compare("slt", block.index, extra), "i64")
            here = b.binary("add", height, taller)
            tile = b.load("ptr", b.advance(Value("ptr", "@tiles"), b.binary("sub", here, integer(1)), 8))
            _call_tile(b, tile, number, row, step)
            block.feed(row, b.binary("add", row, here))
    return b


def _call_tile(b: Builder, tile: Value, panel: Value, row: Value, step: int) -> None:
    p = b.parameters

    def moved(name: str, panel_step: Value) -> Value:
        across = b.advance(p[name], b.binary("mul", panel, panel_step))
        return b.advance(across, b.binary("mul", row, p[f"{name}_row"]))

    arguments = (
        b.advance(p["a"], b.binary("mul", row, p["a_row"])), p["a_row"],
        b.advance(p["b"], b.binary("mul", panel, p["b_panel"])), p["b_panel"], p["depth"],
        moved("x", p["x_step"]), p["x_row"], moved("c", integer(step)), p["c_row"],
    )  # fmt: skip
    b.void(f"call void {tile.text}({', '.join(map(str, arguments))})")


def _product(lanes: int, element: str, tile_rows: int) -> Builder:
    """The whole product, in blocks of the matrix that a near cache can hold."""
    b = Builder("product", PRODUCT)
    p = b.parameters
    size = SIZES[element]
    width = PANEL_VECTORS * lanes
    panels, rest = b.binary("sdiv", p["columns"], integer(width)), b.binary("srem", p["columns"], integer(width))
    b_panel = b.binary("mul", p["depth"], integer(width * size))
    blocks = b.binary("sdiv", b.binary("add", p["depth"], integer(BLOCK - 1)), integer(BLOCK))
    blocks = b.select(b.compare("sle", p["rows"], integer(tile_rows)), integer(1), blocks)
    block = b.binary("sdiv", b.binary("sub", b.binary("add", p["depth"], blocks), integer(1)), blocks)
    none = b.compare("eq", p["x"], Value("ptr", "null"))
    origin = b.select(none, Value("ptr", "@zeros"), p["x"])
    origin_row = b.select(none, integer(0), p["x_row"])
    origin_step = b.select(none, integer(0), integer(width * size))
    tail = b.binary("mul", panels, integer(width * size))
    whole, edge = b.compare("sgt", panels, integer(0)), b.compare("sgt", rest, integer(0))
    edge_row = integer(width * size)
    with b.when(edge):
        clean = b.binary("mul", p["rows"], integer(width * size))
        b.declarations["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        b.void(f"call void @llvm.memset.p0.i64({p['edge']}, i8 0, {clean}, i1 false)")
        with b.when(b.compare("ne", p["x"], Value("ptr", "null"))):
            _copy_block(b, b.advance(p["x"], tail), p["x_row"], p["edge"], edge_row, rest, element)
    with b.loop(p["depth"], block, stem="deep") as (deep, _):
        left = b.binary("sub", p["depth"], deep.index)
        depth = b.select(b.compare("slt", left, block), left, block)
        first = b.compare("eq", deep.index, integer(0))
        a = b.advance(p["a"], deep.index, size)
        matrix = b.advance(p["b"], deep.index, width * size)
        x, x_row = b.select(first, origin, p["c"]), b.select(first, origin_row, p["c_row"])
        x_step = b.select(first, origin_step, integer(width * size))
        with b.when(whole):
            _call_panels(b, a, matrix, b_panel, depth, (x, x_row), (p["c"], p["c_row"]), panels, x_step)
        with b.when(edge):
            last, here = b.advance(matrix, b.binary("mul", panels, b_panel)), (p["edge"], edge_row)
            _call_panels(b, a, last, b_panel, depth, here, here, integer(1), integer(0))
    with b.when(edge):
        _copy_block(b, p["edge"], edge_row, b.advance(p["c"], tail), p["c_row"], rest, element)
    return b


def _call_panels(
    b: Builder,
    a: Value,
    matrix: Value,
    b_panel: Value,
    depth: Value,
    x: tuple[Value, Value],
    c: tuple[Value, Value],
    panels: Value,
    x_step: Value,
) -> None:
    p = b.parameters
    arguments = (a, p["a_row"], matrix, b_panel, depth, *x, *c, panels, p["rows"], x_step)
    b.void(f"call void @panels({', '.join(map(str, arguments))})")


def _copy_block(
    b: Builder, source: Value, source_row: Value, out: Value, out_row: Value, columns: Value, element: str
) -> None:
    """The columns of the last panel that the matrix really has, for all rows."""
    size = SIZES[element]
    with b.loop(b.parameters["rows"], stem="copied") as (row, _):
        here = b.advance(source, b.binary("mul", row.index, source_row))
        there = b.advance(out, b.binary("mul", row.index, out_row))
        with b.loop(columns, stem="one") as (column, _):
            number = b.load(element, b.advance(here, column.index, size))
            b.store(number, b.advance(there, column.index, size))
