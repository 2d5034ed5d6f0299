"""What calls keep on a card from one to the next: lengths, zeros, rooms to exchange rows. `make test-gpu`.

And what becomes of it when whole training steps are recorded, or when memory runs out in the middle of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils import _pytree as pytree

import throughtime as tt
from throughtime.backends.triton import launch as triton_launch
from throughtime.layout import shared_zeros
from throughtime.runtime.offload.policy import offload_policy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def packed(x: Tensor, lengths: list[int]) -> PackedSequence:
    return pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)


def trained(cell: Any, given: PackedSequence) -> list[Tensor]:
    data = given.data.detach().requires_grad_()
    inputs = PackedSequence(data, given.batch_sizes, given.sorted_indices, given.unsorted_indices)
    outputs, last = tt.dynamic_rnn(cell, inputs, dtype=data.dtype)
    gradients = torch.autograd.grad(outputs.data.square().sum() + last.c.sum(), [data, *cell.parameters()])
    return [outputs.data.detach(), last.c.detach(), last.h.detach(), *gradients]


def check(cell: Any, given: PackedSequence) -> None:
    found = trained(cell, given)
    with tt.backend("reference"):
        wanted = trained(cell, given)
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        error = float((got - want).norm() / want.norm().clamp_min(1e-6))
        assert error <= 1e-4, f"tensor {place}: {error:.1e}"


def test_lengths_orders_and_weights_that_change_from_call_to_call() -> None:
    cell, x = tt.LSTMCell(70, input_size=8).cuda(), torch.randn(5, 9, 8, device="cuda")
    for lengths in ([9, 2, 5, 1, 5], [1, 5, 2, 9, 5], [9, 9, 1, 1, 2], [3, 3, 3, 3, 3], [9, 2, 5, 1, 5]):
        check(cell, packed(x, lengths))
        cell.kernel.data.mul_(-0.9)
        check(cell, packed(x, lengths))


# torch notes that the nodes of the parameters belong to another stream.
@pytest.fixture
def small_blocks() -> Iterator[None]:
    """A few steps make a block, and hardly anything stays on the card."""
    with offload_policy.change(block=2**14, resident=2**14):
        yield


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_two_streams_at_once_and_threads_on_one() -> None:
    cell, x = tt.LSTMCell(256, input_size=8).cuda(), torch.randn(40, 60, 8, device="cuda")
    given = packed(x, [1 + (7 * row) % 60 for row in range(40)])
    want = trained(cell, given)
    torch.cuda.synchronize()
    found: list[list[Tensor]] = []

    def run(stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            found.extend(trained(cell, given) for _ in range(20))

    aside, other = torch.cuda.Stream(), torch.cuda.Stream()
    threads = [threading.Thread(target=run, args=[stream]) for stream in (aside, other, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert len(found) == 60
    for results in found:
        assert all(torch.equal(*pair) for pair in zip(results[:3], want[:3], strict=True))


def test_graphs_of_packed_calls_and_calls_between_their_replays() -> None:
    cell, x = tt.LSTMCell(256, input_size=8).cuda(), torch.randn(9, 12, 8, device="cuda")
    given = packed(x, [12, 3, 1, 7, 1, 11, 12, 5, 2])
    with torch.no_grad():
        for _ in range(3):
            tt.dynamic_rnn(cell, given, dtype=torch.float32)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = [tt.dynamic_rnn(cell, given, dtype=torch.float32) for _ in range(2)]
        for turn in range(3):
            given.data.mul_(1.5)
            for _ in range(turn):
                tt.dynamic_rnn(cell, packed(x, [1 + turn] * 9), dtype=torch.float32)
            graph.replay()
            want, (c, h) = tt.dynamic_rnn(cell, given, dtype=torch.float32)
            for outputs, last in captured:
                assert torch.equal(outputs.data, want.data)
                assert torch.equal(last.c, c)
                assert torch.equal(last.h, h)


def test_a_launch_that_fails_leaves_no_room_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several launches take a batch that is too large for one: if the second fails, the first has counted already."""
    cell, x = tt.LSTMCell(512, input_size=8).cuda(), torch.randn(600, 5, 8, device="cuda")
    with torch.no_grad():
        want = tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]
        launch, left = triton_launch.Launcher.__call__, [1]

        def fail(self: Any, *args: Any, **options: Any) -> None:
            if not left.pop():
                raise RuntimeError("the power failed")
            left.append(0)
            launch(self, *args, **options)

        monkeypatch.setattr(triton_launch.Launcher, "__call__", fail)
        with pytest.raises(RuntimeError, match="the power failed"):
            tt.dynamic_rnn(cell, x, dtype=torch.float32)
        monkeypatch.undo()
        for _ in range(3):
            assert torch.equal(tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], want)


class Kept(tt.RNNCell):
    """A cell that leaves a part of its state as it was."""

    state_size, output_size = (4, 4), 4

    def forward(self, inputs: Tensor, state: Any) -> Any:
        first, second = state
        new = torch.tanh(inputs + first)
        return new, (new, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
def test_zeros_that_are_shared_stay_zeros(dtype: torch.dtype) -> None:
    x = torch.randn(5, 6, 4, device="cuda", dtype=dtype, requires_grad=True)
    for cell in (tt.LSTMCell(24, input_size=4), tt.GRUCell(24, input_size=4), Kept()):
        cell.to("cuda", dtype)
        for lengths in (None, [6, 1, 3, 2, 6]):
            for _ in range(4):
                outputs, last = tt.dynamic_rnn(cell, x, lengths, dtype=dtype)
                outputs.sum().backward()
                with torch.no_grad():
                    for leaf in pytree.tree_leaves(last):
                        leaf.add_(1)
    cached = [*map(shared_zeros._CACHE.lookup, shared_zeros._CACHE.keys())]
    assert cached
    assert not any(zeros is None or bool(zeros.any()) for zeros in cached)


LENGTHS = [12, 3, 0, 7, 1, 11, 12, 5, 2]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


def step(cell: Any, x: Tensor, lengths: Any = None, **options: Any) -> list[Tensor]:
    """A training step without its optimiser: outputs, states, all gradients."""
    leaves = pytree.tree_leaves(tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype, **options))
    gradients = torch.autograd.grad(sum(leaf.square().sum() for leaf in leaves), [x, *cell.parameters()])
    return [leaf.detach() for leaf in (*leaves, *gradients)]


def check_close(found: Any, wanted: Any) -> None:
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        error = float((got - want).norm() / want.norm().clamp_min(1e-6))
        assert error <= TOLERANCE[got.dtype], f"tensor {place}: {error:.1e}"


def case_of(units: int, dtype: torch.dtype, batch: int = 9, time: int = 12) -> tuple[Any, Tensor]:
    cell = tt.LSTMCell(units, input_size=8).to("cuda", dtype)
    return cell, torch.randn(batch, time, 8).to("cuda", dtype).requires_grad_()


# torch notes that the nodes of the parameters belong to another stream.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("swap", [False, True], ids=["plain", "swapped"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "lengths"])
@pytest.mark.parametrize(("units", "dtype"), [(150, torch.float32), (24, torch.float64)], ids=["kernels", "graphs"])
@pytest.mark.usefixtures("small_blocks")
def test_graphs_of_whole_training_steps(units: int, dtype: torch.dtype, lengths: Any, swap: bool) -> None:
    """Both passes in one graph, replayed on other numbers and weights; calls in between change nothing."""
    # What is recorded stays on the card.
    cell, x = case_of(units, dtype)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step(cell, x, lengths, swap_memory=swap)
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(cell, x, lengths, swap_memory=swap)
    for factor in (2.0, -0.5):
        with torch.no_grad():
            x.mul_(factor)
            cell.kernel.mul_(1.1)
        graph.replay()
        with tt.backend("reference"):
            check_close(captured, step(cell, x, lengths))
        step(cell, x, lengths, swap_memory=swap)


class Unrolled(nn.Module):
    """A module, as `make_graphed_callables` wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = tt.LSTMCell(70, input_size=8)

    def forward(self, x: Tensor) -> Tensor:
        return tt.dynamic_rnn(self.cell, x, LENGTHS, dtype=x.dtype)[0]


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
def test_make_graphed_callables(dtype: torch.dtype) -> None:
    model = Unrolled().to("cuda", dtype)
    x = torch.randn(9, 12, 8).to("cuda", dtype).requires_grad_()
    want = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn_like(x).requires_grad_(),))
    check_close(torch.autograd.grad(graphed(x).square().sum(), [x, *model.parameters()]), want)


@pytest.fixture
def allow() -> Iterator[Callable[[int], None]]:
    """Allow this number of bytes beyond what is in use."""

    def set_limit(more: int) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)

    yield set_limit
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("swap", [False, True], ids=["plain", "swapped"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
def test_memory_that_runs_out_in_the_backward_pass(
    dtype: torch.dtype, swap: bool, allow: Callable[[int], None]
) -> None:
    """Other calls work, and the same backward pass does when there is memory again."""
    cell, small = case_of(256, dtype, time=40)
    want = step(cell, small)
    x = case_of(256, dtype, batch=64, time=4000)[1]
    outputs = tt.dynamic_rnn(cell, x, dtype=dtype, swap_memory=swap)[0]
    loss = outputs.square().sum()
    allow(2**27)
    with pytest.raises(torch.OutOfMemoryError):
        torch.autograd.grad(loss, [x, *cell.parameters()], retain_graph=True)
    check_close(step(cell, small), want)
    torch.cuda.set_per_process_memory_fraction(1.0)
    found = torch.autograd.grad(loss, [x, *cell.parameters()])
    plain = tt.dynamic_rnn(cell, x, dtype=dtype)[0]
    check_close(found, torch.autograd.grad(plain.square().sum(), [x, *cell.parameters()]))


def test_memory_that_runs_out_while_blocks_are_sent(allow: Callable[[int], None]) -> None:
    cell, small = case_of(256, torch.float32, time=40)
    want = step(cell, small)
    x = case_of(256, torch.float32, batch=64, time=6000)[1]
    allow(2**28)
    with pytest.raises(torch.OutOfMemoryError):
        step(cell, x, swap_memory=True)
    torch.cuda.set_per_process_memory_fraction(1.0)
    check_close(step(cell, small), want)
    check_close(step(cell, x, swap_memory=True), step(cell, x))
