"""Numbers of objects: one each, never given twice, and no object stays alive for its number."""

from __future__ import annotations

import copy
import gc

import pytest

import throughtime as tt
from throughtime._object_registry import find_object, object_number
from throughtime.cells._base import find_cell

pytestmark = pytest.mark.covers("memory")


class Thing:
    """An object with weak references."""


def test_an_object_has_one_number() -> None:
    first, second = Thing(), Thing()
    assert object_number(first) == object_number(first) != object_number(second)
    number = object_number(second)
    assert number is not None
    assert find_object(number) is second


def test_a_number_is_not_given_again() -> None:
    seen: set[int | None] = set()
    for _ in range(100):
        # A new object often has the id of the one before.
        number = object_number(Thing())
        assert number not in seen
        seen.add(number)


def test_an_object_is_not_kept_alive() -> None:
    thing = Thing()
    number = object_number(thing)
    assert number is not None
    del thing
    gc.collect()
    assert find_object(number) is None


def test_objects_without_weak_references_have_none() -> None:
    assert object_number([]) is None


def test_a_copy_of_a_cell_has_a_number_of_its_own() -> None:
    cell = tt.GRUCell(2)
    twin = copy.deepcopy(cell)
    assert cell.number != twin.number
    assert find_cell(cell.number) is cell
    assert find_cell(twin.number) is twin


def test_only_cells_are_found_as_cells() -> None:
    thing = Thing()
    number = object_number(thing)
    assert number is not None
    assert find_cell(number) is None
