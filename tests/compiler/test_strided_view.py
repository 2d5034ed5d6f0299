"""How features are read along axes, against lists of places."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from throughtime.compiler.ir.strided_view import StridedView, contiguous

pytestmark = [pytest.mark.covers("compiler"), pytest.mark.covers("properties")]


def places(axes: StridedView) -> list[int]:
    """What is read, one after another."""
    steps = itertools.product(*map(range, axes.sizes))
    return [axes.start + sum(map(int.__mul__, step, axes.strides)) for step in steps]


sizes = st.lists(st.integers(1, 4), max_size=4)


@st.composite
def any_axes(draw: st.DrawFn) -> StridedView:
    """Repetitions, gaps and steps backwards among them; nothing before the first feature."""
    shape = draw(sizes)
    strides = draw(st.lists(st.sampled_from([0, 1, -1, 2, 3, -2, 4, 6, 12]), min_size=len(shape), max_size=len(shape)))
    axes = StridedView(0, tuple(shape), tuple(strides))
    return axes.moved(-axes.bounds[0])


@given(any_axes())
def test_fewer_axes_read_the_same(axes: StridedView) -> None:
    joined = axes.joined()
    assert places(joined) == places(axes)
    assert joined.joined() == joined
    assert axes.is_contiguous == (places(axes) == list(range(axes.start, axes.start + axes.width)))
    assert axes.bounds == (min(places(axes)), max(places(axes)))


@given(any_axes(), st.data())
def test_other_axes_read_the_same(axes: StridedView, data: st.DataObject) -> None:
    divisors = [size for size in range(1, axes.width + 1) if axes.width % size == 0]
    first = data.draw(st.sampled_from(divisors))
    second = data.draw(st.sampled_from([size for size in divisors if axes.width // first % size == 0]))
    shape = (first, second, axes.width // first // second)
    shaped = axes.shaped(shape)
    if shaped is not None:
        assert shaped.sizes == shape
        assert places(shaped) == places(axes)
        return
    # No strides would do: those that two neighbours have are not those of all.
    every = places(axes)
    steps = [every[apart] - every[0] if size > 1 else 0 for apart, size in zip(contiguous(shape), shape, strict=True)]
    assert places(StridedView(axes.start, shape, tuple(steps))) != every


@given(sizes, st.data())
def test_parts_and_orders(shape: list[int], data: st.DataObject) -> None:
    whole = torch.arange(math.prod(shape)).view(shape)
    axes = StridedView.of(shape)
    assert places(axes) == whole.flatten().tolist()
    if not shape:
        return
    axis = data.draw(st.integers(0, len(shape) - 1))
    start, stop, step = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4)), data.draw(st.integers(1, 3))
    stop = min(stop, shape[axis])
    cut = whole.movedim(axis, 0)[start:stop:step].movedim(0, axis)
    assert places(axes.sliced(axis, start, max(start, stop), step)) == cut.flatten().tolist()
    assert places(axes.flipped(axis)) == whole.flip(axis).flatten().tolist()
    order = data.draw(st.permutations(range(len(shape))))
    assert places(axes.permuted(order)) == whole.permute(order).flatten().tolist()
    times = data.draw(st.lists(st.integers(1, 3), min_size=len(shape), max_size=len(shape)))
    assert places(axes.repeated(times)) == whole.repeat(times).flatten().tolist()
    wider = [3, *(4 if size == 1 else size for size in shape)]
    assert places(axes.broadcast(wider)) == whole.expand(wider).flatten().tolist()
