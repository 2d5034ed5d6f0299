"""`TensorArray`: reads and writes, versions that do not disturb each other, and gradients through all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import throughtime as tt

pytestmark = pytest.mark.covers("loops")

F32, F64 = torch.float32, torch.float64
ROWS = torch.arange(6.0).reshape(3, 2)


def array(size: int | None = 3, dtype: torch.dtype = F32, **options: Any) -> tt.TensorArray:
    """An array that can be read more than once, unless asked otherwise."""
    return tt.TensorArray(dtype, size, **{"clear_after_read": False, **options})


def full(value: float) -> Tensor:
    return torch.full((2,), float(value))


FILLED: dict[str, Callable[[], tt.TensorArray]] = {
    "write": lambda: array().write(0, ROWS[0]).write(1, ROWS[1]).write(2, ROWS[2]),
    "write in any order": lambda: array().write(2, ROWS[2]).write(0, ROWS[0]).write(1, ROWS[1]),
    "write at tensors": lambda: array().write(torch.tensor(1), ROWS[1]).scatter(torch.tensor([0, 2]), ROWS[[0, 2]]),
    "unstack": lambda: array().unstack(ROWS),
    "unstack an array": lambda: array().unstack(ROWS.numpy()),
    "unstack a list": lambda: array().unstack(ROWS.tolist()),
    "scatter": lambda: array().scatter([2, 0, 1], ROWS[[2, 0, 1]]),
    "split": lambda: array(element_shape=(1, 2)).split(ROWS, [1, 1, 1]),
    "growing": lambda: array(0, dynamic_size=True).unstack(ROWS),
    "growing from nothing": lambda: array(None, dynamic_size=True).write(1, ROWS[1]).scatter([0, 2], ROWS[[0, 2]]),
}


@pytest.mark.parametrize("make", FILLED.values(), ids=FILLED)
def test_every_way_in_and_every_way_out(make: Callable[[], tt.TensorArray]) -> None:
    filled = make()
    assert filled.size() == 3
    assert torch.equal(torch.stack([filled.read(index) for index in range(3)]).view(3, 2), ROWS)
    assert torch.equal(filled.stack().view(3, 2), ROWS)
    assert torch.equal(filled.gather([2, 0, 2]).view(3, 2), ROWS[[2, 0, 2]])
    assert torch.equal(filled.concat().view(-1), ROWS.view(-1))


@pytest.mark.parametrize("dtype", [F32, F64, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(), (2,), (2, 0), (1, 2, 3)], ids=str)
def test_elements_of_any_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.ones(3, *shape).to(dtype)
    stacked = array(dtype=dtype).unstack(value).stack()
    assert stacked.dtype == dtype
    assert torch.equal(stacked, value)


@pytest.mark.parametrize(
    ("dtype", "value"), [(F32, 1), (F32, [1, 2]), (F32, np.ones(2, np.float32)), (torch.int64, [1, 2])], ids=str
)
def test_numbers_lists_and_arrays_can_be_written(dtype: torch.dtype, value: Any) -> None:
    assert torch.equal(array(dtype=dtype).write(0, value).read(0), torch.as_tensor(value, dtype=dtype))


def test_pieces_of_different_lengths() -> None:
    pieces = array(2, infer_shape=False).split(torch.arange(5.0), [2, 3])
    assert [pieces.read(index).tolist() for index in range(2)] == [[0, 1], [2, 3, 4]]
    assert pieces.concat().tolist() == [0, 1, 2, 3, 4]


class TestUnwritten:
    @pytest.mark.parametrize(
        "blank", [array(element_shape=(2,)), array().write(1, full(1))], ids=["announced", "inferred"]
    )
    def test_slots_read_as_zeros_once_the_shape_is_known(self, blank: tt.TensorArray) -> None:
        assert blank.read(0).tolist() == [0, 0]
        assert blank.stack().shape == (3, 2)

    def test_slots_between_the_written_ones(self) -> None:
        assert array(0, dynamic_size=True).write(3, full(7)).stack()[:, 0].tolist() == [0, 0, 0, 7]

    def test_zeros_have_the_dtype_of_the_array(self) -> None:
        assert array(dtype=torch.int64, element_shape=()).read(0).dtype == torch.int64

    @pytest.mark.parametrize("shape", [(), (2,), (2, 3)], ids=str)
    def test_an_array_without_elements(self, shape: tuple[int, ...]) -> None:
        empty = array(0, element_shape=shape)
        assert empty.stack().shape == (0, *shape)
        assert array(element_shape=shape).gather([]).shape == (0, *shape)

    def test_an_open_dimension_is_known_after_a_write(self) -> None:
        half_known = array(element_shape=(None, 3)).write(1, torch.ones(2, 3))
        assert half_known.stack().shape == (3, 2, 3)


class TestSize:
    def test_writes_extend_a_dynamic_array(self) -> None:
        growing = array(1, dynamic_size=True)
        assert [growing.size(), growing.write(4, full(1)).size(), growing.size()] == [1, 5, 1]

    def test_reads_do_not(self) -> None:
        with pytest.raises(tt.InvalidArgumentError, match="out of bounds"):
            array(1, dynamic_size=True).read(3)

    def test_no_size_is_no_element(self) -> None:
        assert array(None).size() == 0


class TestVersions:
    """Every write gives a new array; the old one stays what it was."""

    def test_the_old_array_does_not_see_the_write(self) -> None:
        first = array().write(0, full(1))
        second = first.write(1, full(2))
        assert first.stack()[:, 0].tolist() == [1, 0, 0]
        assert second.stack()[:, 0].tolist() == [1, 2, 0]

    def test_two_arrays_may_branch_off_one(self) -> None:
        stem = array().write(0, full(1))
        left, right = stem.write(1, full(2)), stem.write(1, full(3))
        assert [branch.stack()[:, 0].tolist() for branch in (stem, left, right)] == [[1, 0, 0], [1, 2, 0], [1, 3, 0]]

    def test_branches_may_branch(self) -> None:
        stem = array(4).write(0, full(1))
        twigs = [branch.write(2, full(value + 10)) for value in (2, 3) for branch in (stem.write(1, full(value)),) * 2]
        assert [twig.stack()[:, 0].tolist() for twig in twigs] == [[1, 2, 12, 0]] * 2 + [[1, 3, 13, 0]] * 2

    def test_a_late_branch_of_the_first_version(self) -> None:
        versions = [array()]
        for step in range(3):
            versions.append(versions[-1].write(step, full(step + 1)))
        late = versions[0].write(2, full(9))
        assert late.stack()[:, 0].tolist() == [0, 0, 9]
        assert versions[3].stack()[:, 0].tolist() == [1, 2, 3]

    def test_each_slot_is_written_once_in_each_branch(self) -> None:
        branch = array().write(0, full(1)).write(1, full(2))
        with pytest.raises(tt.InvalidArgumentError, match="element 0 was written before"):
            branch.write(0, full(3))

    def test_the_shape_inferred_in_one_branch_does_not_bind_the_other(self) -> None:
        stem = array()
        stem.write(0, torch.ones(2))
        assert stem.write(0, torch.ones(3)).read(0).shape == (3,)

    def test_growing_in_one_branch_only(self) -> None:
        stem = array(1, dynamic_size=True)
        assert [stem.write(4, full(1)).size(), stem.write(2, full(1)).size(), stem.size()] == [5, 3, 1]

    def test_a_read_clears_an_element_for_all_versions(self) -> None:
        older = array(clear_after_read=True).write(0, full(1))
        newer = older.write(1, full(2))
        newer.read(0)
        with pytest.raises(tt.InvalidArgumentError, match="element 0 was read before"):
            older.read(0)

    def test_many_writes_cost_the_same_each(self) -> None:
        """Versions share their storage: a loop of writes copies nothing."""
        last = array(0, dynamic_size=True)
        for step in range(2000):
            last = last.write(step, torch.tensor(float(step)))
        assert last.stack().sum() == 1999 * 1000


def through_writes(x: Tensor) -> Tensor:
    filled = array(dtype=F64).write(0, x[0]).write(2, x[1] * x[2])
    return filled.stack()


def through_branches(x: Tensor) -> Tensor:
    stem = array(2, dtype=F64).write(0, x[0] ** 2)
    left, right = stem.write(1, x[1]), stem.write(1, x[2] ** 3)
    return left.stack() * right.stack()


def through_gather(x: Tensor) -> Tensor:
    return array(dtype=F64).unstack(x).gather([2, 0, 2]) ** 2


def through_scatter(x: Tensor) -> Tensor:
    return array(5, dtype=F64).scatter([4, 0, 2], x**2).stack()


def through_split_and_concat(x: Tensor) -> Tensor:
    return array(2, dtype=F64, infer_shape=False).split(x**3, [1, 2]).concat()


@pytest.mark.parametrize(
    "function", [through_writes, through_branches, through_gather, through_scatter, through_split_and_concat]
)
def test_gradients_of_both_orders(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(3, 2, dtype=F64, requires_grad=True)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


def test_what_is_never_read_has_no_gradient() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(array().unstack(x).gather([1]).sum(), x)
    assert gradient.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_it_says_what_it_is() -> None:
    assert repr(array(2, element_shape=(3,))) == "TensorArray(dtype=torch.float32, size=2, element_shape=(3,))"


def test_what_could_not_be_stacked_is_still_there() -> None:
    array = tt.TensorArray(torch.float32, 2, infer_shape=False).write(0, torch.ones(2)).write(1, torch.ones(3))
    with pytest.raises(ValueError, match="Use `concat`"):
        array.stack()
    with pytest.raises(tt.InvalidArgumentError, match="index out of bounds"):
        array.gather([0, 7])
    assert array.concat().shape == (5,)
    with pytest.raises(tt.InvalidArgumentError, match="was read before"):
        array.read(0)


def test_an_element_shape_holds_without_inference() -> None:
    array = tt.TensorArray(torch.float32, 1, element_shape=(3,), infer_shape=False)
    with pytest.raises(ValueError, match=r"got \(2,\), expected \(3,\)"):
        array.write(0, torch.ones(2))
