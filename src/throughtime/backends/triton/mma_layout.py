"""Rows and columns read the way the matrix units want them, so that nothing passes through shared memory.

The matrix units multiply 16 columns with 8 rows. For 16 features of half precision (8 of TF32) lane 4 g + t of a warp
gives four features of row g, not neighbours: 2 t, 2 t + 1 and the same eight later (of TF32 t and four later). A sum
does not care for the order of its terms, so features are renumbered, in rows and columns alike: what a lane gives is
then side by side in memory, and 16 bytes that it reads are its share of two products.

A compiler that knows nothing of this finds that the layout of the loads is that of the operands. The order of the axes
is for its sake: lanes along the last one as far as threads read side by side, then along the first, warps along the
second.
"""

from __future__ import annotations

LANE_BYTES = 16
"""What a lane reads at a time."""
SIDE_BY_SIDE = 4
"""Lanes that read side by side."""


def together(itemsize: int) -> int:
    """The features that the lanes beside each other read at a time: the least that a way can have."""
    return SIDE_BY_SIDE * LANE_BYTES // itemsize


def places(count: int, stride: int, ways: int, each: int, start: int, size: int, itemsize: int) -> str:
    """Where a chunk lies, from feature `start` on within each way: of `count` rows, or columns, `stride` apart."""
    few, wide = min(count, 8), together(itemsize)
    axes = [(few, stride), (ways, each), (count // few, few * stride), (size // wide, wide), (wide, 1)]
    terms = [str(start)] if start else []
    for axis, (length, step) in enumerate(axes):
        if length > 1:
            index = ", ".join(":" if place == axis else "None" for place in range(len(axes)))
            terms.append(f"tl.arange(0, {length})[{index}]" + (f" * {step}" if step > 1 else ""))
    return " + ".join(terms)


def operand(value: str, count: int, ways: int, size: int, itemsize: int, *, columns: bool) -> str:
    """What was read from these places as an operand: columns [ways, count, size] from the left, rows from the right."""
    few, lane = min(count, 8), LANE_BYTES // itemsize
    shape = [few, ways, count // few, size // together(itemsize), SIDE_BY_SIDE, *[2] * (lane.bit_length() - 1)]
    # Axes 5 on are the bits of a lane's own features, the lowest last; two neighbours of half precision are one.
    features = (3, 5, 6, 4, 7) if lane == 8 else (3, 5, 6, 4)
    order = (1, 2, 0, *features) if columns else (1, *features, 2, 0)
    becomes = [ways, count, size] if columns else [ways, size, count]
    return f"tl.reshape(tl.permute(tl.reshape({value}, {shape}), {order}), {becomes})"


def renumbered(size: int, itemsize: int) -> str:
    """The features of a chunk in the order in which operands have them."""
    number = f"tl.arange(0, {size})"
    if itemsize == 2:
        return f"({number} // 32 * 32 + {number} // 2 % 4 * 8 + {number} // 8 % 4 * 2 + {number} % 2)"
    return f"({number} // 16 * 16 + {number} % 4 * 4 + {number} // 4 % 4)"
