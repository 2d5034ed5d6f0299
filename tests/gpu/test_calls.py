"""What calls keep on a card from one to the next: lengths, zeros, rooms to exchange rows. `make test-gpu`."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import throughtime as tt
from throughtime.backends import _zeros
from throughtime.backends.triton import _launch

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
        launch, left = _launch.Launcher.__call__, [1]

        def fail(self: Any, *args: Any, **options: Any) -> None:
            if not left.pop():
                raise RuntimeError("somebody pulled the plug")
            left.append(0)
            launch(self, *args, **options)

        monkeypatch.setattr(_launch.Launcher, "__call__", fail)
        with pytest.raises(RuntimeError, match="pulled the plug"):
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
                    for leaf in torch.utils._pytree.tree_leaves(last):
                        leaf.add_(1)
    assert _zeros._KEPT
    assert not any(bool(zeros.any()) for zeros in _zeros._KEPT.values())
