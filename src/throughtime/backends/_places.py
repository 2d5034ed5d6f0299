"""Where the values that a kernel reads lie in the tensors of a cell: known once, as long as those lie as they do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from throughtime.backends._torch_code import Env
from throughtime.compiler import Value


class Place(NamedTuple):
    """A part of one of the tensors of a cell: which one, bytes from its beginning, and strides."""

    tensor: int
    offset: int
    strides: tuple[int, ...]


def find_places(wanted: Sequence[Value], env: Env, tensors: Sequence[Tensor]) -> dict[Value, Place] | None:
    """Where in the cell's tensors the wanted values lie; None if one of them lies elsewhere."""
    places: dict[Value, Place] = {}
    for value in wanted:
        found = env.get(value)
        index = None if found is None else _owner(found, tensors)
        if found is None or index is None or (found.ndim != 2 and not found.is_contiguous()):
            return None
        places[value] = Place(index, found.data_ptr() - tensors[index].data_ptr(), found.stride())
    return places


Strides = list[tuple[int, tuple[int, ...]]]
"""Of some of the cell's tensors."""


def strides_of(places: Iterable[Place], tensors: Sequence[Tensor]) -> Strides:
    """What must stay as it is for these places to be right."""
    return [(index, tensors[index].stride()) for index in sorted({place.tensor for place in places})]


def are_strides(strides: Strides, tensors: Sequence[Tensor]) -> bool:
    """Whether tensors lie in memory as those did, and with their signs."""
    for index, stride in strides:  # noqa: SIM110 (at every call)
        if tensors[index].stride() != stride or tensors[index].is_neg():
            return False
    return True


def _owner(part: Tensor, tensors: Sequence[Tensor]) -> int | None:
    storage = part.untyped_storage().data_ptr()
    owners = [index for index, tensor in enumerate(tensors) if tensor.untyped_storage().data_ptr() == storage]
    # Several tensors on one storage may part ways.
    return owners[0] if len(owners) == 1 else None
