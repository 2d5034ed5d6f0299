"""`swap_memory` through the kernels of a card: other memory, same gradients. Skipped where there is no card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils import _pytree as pytree

import throughtime as tt
from gpu_cases import CELLS
from throughtime.runtime.offload.policy import offload_policy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("memory"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = [33, 0, 1, 32, 17, 33, 5]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2}
"""Of the norm of each gradient: what is computed again is rounded otherwise."""


@pytest.fixture
def small_blocks() -> Iterator[None]:
    """A few steps make a block, and hardly anything stays on the card."""
    with offload_policy.change(block=2**14, resident=2**14):
        yield


@pytest.fixture(params=[0.0, 0.5, 1.0], ids=["least waits", "half waits", "most waits"])
def share(request: pytest.FixtureRequest) -> Iterator[float]:
    """How many blocks keep all that only a product would lead to."""
    with offload_policy.change(share_sent=request.param):
        yield request.param


def gradients(cell: Any, x: Tensor, lengths: Any, *, swap: bool, **options: Any) -> list[Tensor]:
    """Outputs, final state and the gradients of everything."""
    torch.manual_seed(0)
    x = x.detach().clone().requires_grad_()
    outputs, *state = tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype, swap_memory=swap, **options)
    leaves = [outputs, *pytree.tree_leaves(state)]
    weights = [torch.linspace(-1, 1, leaf.shape[-1], device=x.device, dtype=x.dtype) for leaf in leaves]
    loss = sum((leaf.square() * weight).sum() for leaf, weight in zip(leaves, weights, strict=True))
    return [*(leaf.detach() for leaf in leaves), *torch.autograd.grad(loss, [x, *cell.parameters()])]


def check(got: list[Tensor], want: list[Tensor]) -> None:
    for one, other in zip(got, want, strict=True):
        error = (one.double() - other.double()).norm() / other.double().norm().clamp_min(1e-3)
        assert float(error) <= TOLERANCE[one.dtype]


def built(make: Callable[[int], Any], units: int, dtype: torch.dtype = torch.float32) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    cell, x = make(units), torch.randn(7, 33, 4)
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    return cell.to("cuda", dtype), x.to("cuda", dtype)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.usefixtures("small_blocks", "share")
def test_every_cell(name: str, lengths: Any) -> None:
    cell, x = built(CELLS[name], 72)
    assert tt.explain(cell, x, lengths, swap_memory=True).backend == "triton"
    check(gradients(cell, x, lengths, swap=True), gradients(cell, x, lengths, swap=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint_every": 9},
        {"all_states": True},
        {"parallel_iterations": 2},
        {"time_major": True},
        {"checkpoint_every": 20, "parallel_iterations": 3},
    ],
    ids=str,
)
@pytest.mark.usefixtures("small_blocks", "share")
def test_options(options: dict[str, Any], dtype: torch.dtype) -> None:
    cell, x = built(tt.LSTMCell, 72, dtype)
    if "time_major" in options:
        x = x.transpose(0, 1)
    check(gradients(cell, x, LENGTHS, swap=True, **options), gradients(cell, x, LENGTHS, swap=False, **options))


@pytest.mark.usefixtures("small_blocks")
def test_packed_sequences_both_directions_and_dropout() -> None:
    cell, x = built(lambda units: tt.DropoutWrapper(tt.LSTMCell(units), 0.8, 0.8, 0.8), 40)
    lengths = [max(1, length) for length in LENGTHS]
    found = []
    for swap in (False, True):
        torch.manual_seed(0)
        inputs = x.clone().requires_grad_()
        packed = pack_padded_sequence(inputs, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        (fw, bw), _ = tt.bidirectional_dynamic_rnn(cell, cell, packed, dtype=x.dtype, swap_memory=swap)
        loss = fw.data.square().sum() + bw.data.sum()
        found.append([fw.data.detach(), *torch.autograd.grad(loss, [inputs, *cell.parameters()])])
    check(*found)


@pytest.mark.usefixtures("small_blocks", "share")
def test_a_graph_can_be_walked_twice_and_differentiated_twice() -> None:
    cell, x = built(tt.LSTMCell, 40)
    found = []
    for swap in (False, True):
        inputs = x.clone().requires_grad_()
        outputs, _ = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=x.dtype, swap_memory=swap)
        (first,) = torch.autograd.grad(outputs.square().sum(), inputs, retain_graph=True)
        (again,) = torch.autograd.grad(outputs.square().sum(), inputs, retain_graph=True)
        assert torch.equal(first, again)
        (second,) = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)
        found.append([first, *torch.autograd.grad(second.square().sum(), [inputs, *cell.parameters()])])
    check(*found)


@pytest.mark.usefixtures("small_blocks", "share")
def test_hooks_of_others() -> None:
    """Hooks that read what is saved, at once, find it on the host."""
    cell, x = built(tt.LSTMCell, 256)
    want = gradients(cell, x, LENGTHS, swap=False)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        torch.cuda._sleep(10_000_000)
        got = gradients(cell, x, LENGTHS, swap=True)
    check(got, want)


@pytest.mark.usefixtures("small_blocks", "share")
def test_another_stream() -> None:
    """Copies follow the stream that computes, and what comes after waits for neither more nor less than before."""
    cell, x = built(tt.LSTMCell, 256)
    want = gradients(cell, x, LENGTHS, swap=False)
    stream = torch.cuda.Stream()
    for _ in range(20):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Something to keep the stream busy, so that a copy that does not wait for it comes too early.
            torch.cuda._sleep(2_000_000)
            got = gradients(cell, x, LENGTHS, swap=True)
        torch.cuda.current_stream().wait_stream(stream)
        check(got, want)


@pytest.mark.usefixtures("small_blocks", "share")
def test_memory_is_not_given_to_others_too_early() -> None:
    """Others allocate, write and let go of memory of the same sizes, while the host is far ahead of the card."""
    cell, x = built(tt.LSTMCell, 256)
    want = gradients(cell, x, None, swap=False)
    noise = [torch.full((2**12,), torch.nan, device="cuda") for _ in range(64)]
    for _ in range(20):
        noise = [torch.full_like(one, torch.nan) for one in noise]
        check(gradients(cell, x, None, swap=True), want)


@pytest.fixture
def capped() -> Iterator[Callable[[int], None]]:
    """Caps what torch may allocate beyond what it has, in bytes, until the test is over."""
    total = torch.cuda.get_device_properties(0).total_memory

    def cap(nbytes: int) -> None:
        torch.cuda.empty_cache()
        # Graphs of other tests have memory that they keep, allocated or not.
        nbytes += torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction(min(1.0, nbytes / total))

    yield cap
    torch.cuda.set_per_process_memory_fraction(1.0)


def peak_of(run: Callable[[], Any]) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def step(cell: Any, x: Tensor, **options: Any) -> list[Tensor]:
    """The gradients of one training step; its loss sees the final state alone."""
    _, state = tt.dynamic_rnn(cell, x, dtype=x.dtype, time_major=True, **options)
    loss = sum(leaf.square().sum() for leaf in pytree.tree_leaves(state))
    return list(torch.autograd.grad(loss, list(cell.parameters())))


def test_ten_times_the_memory(capped: Any) -> None:
    """Training that needs ten times the memory allowed trains, and its gradients are those of the plain run."""
    cell, _ = built(CELLS["stack"], 256)
    x = torch.randn(8000, 32, 4, device="cuda")
    want = step(cell, x)
    plain = peak_of(lambda: step(cell, x))
    with offload_policy.change(block=2**23, resident=2**23):
        assert peak_of(lambda: step(cell, x, swap_memory=True)) < plain / 4
        capped(plain // 10 + 2**26)
        with pytest.raises(torch.OutOfMemoryError):
            step(cell, x)
        check(step(cell, x, swap_memory=True), want)
