"""The states of grid LSTMs: named tuples whose fields follow from how a cell slices its features."""

from __future__ import annotations

import copyreg
from collections import namedtuple
from collections.abc import Iterable
from typing import Any

from throughtime._torch_internals import register_namedtuple

# One type for each way to slice: states of cells that are alike are alike, and torch must know a type only once.
_types: dict[tuple[tuple[str, ...], tuple[int, ...]], Any] = {}


def grid_state_type(directions: tuple[str, ...], blocks: tuple[int, ...]) -> Any:
    """The named tuple, with TensorFlow's names, for blocks of a number of slices."""
    known = _types.get((directions, blocks))
    if known is not None:
        return known
    fields = [
        f"{direction}state_f{index:02d}_b{block:02d}_{part}"
        for direction in directions
        for block, count in enumerate(blocks)
        for index in range(count)
        for part in "cm"
    ]
    new = namedtuple("GridLSTMStateTuple", fields)  # type: ignore[misc]  # noqa: PYI024
    # Another process does not have the type until it makes it: a pickle says how.
    copyreg.pickle(new, lambda state: (_restored, (directions, blocks, tuple(state))))
    chosen = _types.setdefault((directions, blocks), new)
    if chosen is new:
        layout = "_".join([*(direction.rstrip("_") for direction in directions), *map(str, blocks)])
        # Programs that torch.export saves may return one.
        register_namedtuple(new, serialized_type_name=f"throughtime.GridLSTMStateTuple.{layout}")
    return chosen


def _restored(directions: tuple[str, ...], blocks: tuple[int, ...], parts: Iterable[Any]) -> Any:
    return grid_state_type(directions, blocks)._make(parts)
