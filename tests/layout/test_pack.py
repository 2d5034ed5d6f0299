"""Rows between padded sequences and steps: machine code against torch's own indexing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

import throughtime as tt
from kernel_checks import thread_count
from throughtime.layout.length_sort import LengthSort
from throughtime.layout.previous_step import by_kernel
from throughtime.layout.step_layout import StepLayout
from throughtime.native.pack_rows import thread_bytes
from throughtime.unroll._batch_format import Padded
from throughtime.unroll._schedule import Ragged

pytestmark = pytest.mark.covers("kernels")

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=7)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


def leaf_of(schedule: Ragged, form: Padded, width: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    shape = (form.max_time, form.batch_size) if form.time_major else (form.batch_size, form.max_time)
    return (torch.randn(*shape, *width) * 3).to(dtype)


class Seen(TorchFunctionMode):
    """A mode that is to see every operation: rows are moved by operations of torch then."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def by_torch(form: Padded, lengths: list[int], reverse: bool, leaf: Tensor) -> tuple[Tensor, Tensor]:
    with Seen():
        schedule = Ragged(form, lengths, reverse)
        assert schedule.packing([leaf]) is None
        rows = schedule.rows(leaf)
        return rows, schedule.restore(rows)


@settings(max_examples=60)
@given(lengths=LENGTHS, time_major=st.booleans(), reverse=st.booleans(), dtype=st.sampled_from(DTYPES), data=st.data())
def test_like_indexing(lengths: list[int], time_major: bool, reverse: bool, dtype: torch.dtype, data: Any) -> None:
    width = data.draw(st.sampled_from([(), (1,), (3,), (2, 5)]))
    form = Padded(len(lengths), 6, time_major)
    schedule = Ragged(form, lengths, reverse)
    leaf = leaf_of(schedule, form, width, dtype)
    rows, restored = by_torch(form, lengths, reverse, leaf)
    assert schedule.packing([leaf]) is not None
    assert torch.equal(schedule.rows(leaf), rows)
    assert torch.equal(schedule.restore(rows), restored)


@settings(max_examples=40)
@given(lengths=LENGTHS, dtype=st.sampled_from(DTYPES), width=st.sampled_from([(), (3,), (2, 5)]))
def test_rows_and_states_at_once(lengths: list[int], dtype: torch.dtype, width: tuple[int, ...]) -> None:
    """As one after the other; what is not there stays away."""
    form = Padded(len(lengths), 6, time_major=False)
    schedule = Ragged(form, lengths, reverse=False)
    leaf, state = leaf_of(schedule, form, width, dtype), (torch.randn(len(lengths), *width) * 3).to(dtype)
    packing = schedule.packing([leaf])
    assert packing is not None
    rows, (inside, nothing) = packing.pack([leaf, None], [state, None])
    assert torch.equal(rows[0], schedule.rows(leaf))
    assert torch.equal(inside, packing.order.sort(state))
    padded, (outside,) = packing.unpack(rows, [inside])
    assert torch.equal(padded[0], schedule.restore(rows[0]))
    assert torch.equal(outside, state)
    assert (rows[1], nothing, padded[1]) == (None, None, None)


@given(lengths=st.lists(st.integers(-2, 9), max_size=9), most=st.integers(0, 7))
def test_the_order_of_a_batch(lengths: list[int], most: int) -> None:
    quick, slow = (LengthSort(lengths, most, by_native_code=quick) for quick in (True, False))
    for name in ("rows", "back", "length", "active", "offset"):
        assert getattr(quick, name).tolist() == getattr(slow, name).tolist(), name
    assert (quick.total, quick.longest, quick.is_sorted) == (slow.total, slow.longest, slow.is_sorted)
    clipped = [min(max(length, 0), most) for length in lengths]
    assert slow.length.tolist() == sorted(clipped, reverse=True)
    assert [clipped[row] for row in slow.rows.tolist()] == slow.length.tolist()
    assert slow.active.tolist() == [sum(length > step for length in clipped) for step in range(max(clipped, default=0))]


def test_lengths_beyond_any_machine_number() -> None:
    for quick in (True, False):
        assert LengthSort([10**30, -(10**30), 3], 5, by_native_code=quick).length.tolist() == [5, 3, 0]


def test_on_several_threads() -> None:
    lengths = torch.randint(0, 40, (33,)).tolist()
    form = Padded(33, 40, time_major=False)
    schedule = Ragged(form, lengths, reverse=False)
    leaf = torch.randn(33, 40, 7)
    rows, restored = by_torch(form, lengths, False, leaf)
    with thread_bytes.use(64), thread_count(3):
        assert torch.equal(schedule.rows(leaf), rows)
        assert torch.equal(schedule.restore(rows), restored)


@pytest.mark.parametrize("time_major", [False, True])
def test_gradients_of_gradients(time_major: bool) -> None:
    form = Padded(3, 4, time_major)
    schedule = Ragged(form, [2, 0, 4], reverse=True)
    leaf = leaf_of(schedule, form, (2,), torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(schedule.rows, [leaf])
    assert torch.autograd.gradgradcheck(lambda x: schedule.restore(schedule.rows(x) ** 3), [leaf])


def test_inputs_that_do_not_lie_side_by_side() -> None:
    schedule = Ragged(Padded(3, 4, time_major=False), [2, 1, 4], reverse=False)
    wide = torch.randn(3, 4, 10)
    assert torch.equal(schedule.rows(wide[..., ::2]), schedule.rows(wide[..., ::2].contiguous()))


def test_nothing_past_the_end_is_read_or_kept() -> None:
    """NaN in the padding stays there, and fresh memory full of NaN does not show."""
    schedule = Ragged(Padded(2, 5, time_major=False), [2, 4], reverse=False)
    leaf = torch.full((2, 5, 3), torch.nan)
    leaf[0, :2], leaf[1, :4] = 1.0, 2.0
    rows = schedule.rows(leaf)
    assert not rows.isnan().any()
    restored = schedule.restore(rows)
    assert torch.equal(restored, leaf.nan_to_num(0.0))


def test_the_rows_of_the_step_before() -> None:
    active = torch.tensor([4, 3, 3, 1])
    offset = active.cumsum(0) - active
    stream, initial = torch.randn(11, 2), torch.randn(4, 2)
    shifted = by_kernel(StepLayout(active, offset, 1, 4), stream, initial)
    assert shifted is not None
    want = torch.cat([initial, stream[:3], stream[4:7], stream[7:8]])
    assert torch.equal(shifted, want)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_somebody_who_wants_to_see_it_done() -> None:
    """Under a transform of torch the rows go through operations of torch."""
    x = torch.randn(2, 3, 4)
    cell = tt.BasicRNNCell(2, input_size=4)
    run = torch.func.vmap(lambda one: tt.dynamic_rnn(cell, one, sequence_length=[2, 3], dtype=torch.float32)[0])
    both = torch.stack([x, 2 * x])
    want = torch.stack([tt.dynamic_rnn(cell, one, sequence_length=[2, 3], dtype=torch.float32)[0] for one in both])
    torch.testing.assert_close(run(both), want)
