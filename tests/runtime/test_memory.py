"""`swap_memory` and `checkpoint_every`: other memory, same numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from throughtime.runtime.offload import tensor_pages
from throughtime.runtime.offload.policy import offload_policy

pytestmark = pytest.mark.covers("memory")

gpu = pytest.mark.gpu
LENGTHS = [9, 0, 1, 8, 5]
CELLS = {
    "rnn": lambda: tt.BasicRNNCell(33),
    "lstm": lambda: tt.LSTMCell(33, use_peepholes=True, num_proj=17, cell_clip=0.5),
    "stack": lambda: tt.MultiRNNCell([tt.GRUCell(24), tt.ResidualWrapper(tt.LSTMCell(24))]),
    "dropout": lambda: tt.DropoutWrapper(tt.GRUCell(24), 0.7, 0.7, 0.7, seed=5),
}


def results(cell: Any, x: Tensor, lengths: Any = None, **options: Any) -> list[Tensor]:
    """Outputs, final state and all gradients of one unroll."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    outputs, state = tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype, **options)
    leaves = [outputs, *torch.utils._pytree.tree_leaves(state)]
    loss = sum(
        (leaf.square() * torch.linspace(-1, 1, leaf.numel(), device=x.device).view_as(leaf)).sum() for leaf in leaves
    )
    return [*leaves, *torch.autograd.grad(loss, [x, *cell.parameters()])]


def twins(kind: str, x: Tensor) -> list[Any]:
    """Two built cells with the same weights and the same noise to come."""
    cells = [CELLS[kind](), CELLS[kind]()]
    for cell in cells:
        torch.manual_seed(0)
        cell.build(x.shape, dtype=x.dtype, device=x.device)
    return cells


@contextlib.contextmanager
def bytes_saved() -> Iterator[dict[int, int]]:
    """How many bytes autograd keeps for the backward pass of what runs inside, by where they are: views share them."""
    kept: list[Tensor] = []
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield sizes


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("every", [1, 2, 4, 9, 100])
def test_recomputing_changes_no_result(kind: str, every: int) -> None:
    x = torch.randn(5, 9, 24)
    plain, recomputing = twins(kind, x)
    for want, got in zip(
        results(plain, x, LENGTHS), results(recomputing, x, LENGTHS, checkpoint_every=every), strict=True
    ):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", ["reference", "aten", "cpu"])
def test_recomputing_keeps_less(backend: str) -> None:
    """With blocks of k steps only the states between blocks stay; what a step saves is recomputed."""
    x = torch.randn(4, 64, 24)
    cell = tt.LSTMCell(24, input_size=24)
    given = {tensor.untyped_storage().data_ptr() for tensor in (x, *cell.parameters())}
    kept = {}
    for every in (None, 8):
        with bytes_saved() as sizes, tt.backend(backend):
            tt.dynamic_rnn(cell, x, dtype=torch.float32, checkpoint_every=every)
        kept[every] = sum(size for place, size in sizes.items() if place not in given)
    # Compiled, a step saves little to begin with, and blocks of steps keep the inputs in their own order.
    assert kept[8] < kept[None] / (10 if backend == "reference" else 5)


def test_swapping_on_a_cpu_does_nothing() -> None:
    """Host memory is where the tensors are: no hook is installed, and the numbers are the same to the bit."""
    x = torch.randn(5, 9, 24)
    plain, swapping = twins("lstm", x)
    assert isinstance(tensor_pages.swapping(True, swapping, x), contextlib.nullcontext)
    for want, got in zip(results(plain, x, LENGTHS), results(swapping, x, LENGTHS, swap_memory=True), strict=True):
        assert torch.equal(got, want)


class Stream:
    """A stream that has always caught up, to run the pages of a swap without a GPU."""

    stream_id = 0

    def wait_stream(self, _: Any) -> None: ...
    def wait_event(self, _: Any) -> None: ...


class Event:
    """An event that has always happened."""

    def record(self, _: Any) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True


class NoStreams:
    """CUDA's streams, where there is no GPU."""

    event = Event

    def stream(self, _: Any) -> Stream:
        return Stream()

    current = stream
    running = staticmethod(contextlib.nullcontext)

    def pinned(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def record(self, tensor: Tensor, stream: Any) -> None: ...


@pytest.fixture
def small_pages() -> Iterator[None]:
    """Pages and windows so small that everything travels."""
    with offload_policy.change(smallest_tensor=1, page=4096, window=8192):
        yield


def paged(resident: Iterable[Tensor]) -> tensor_pages.PagedOffload:
    """Pages of the CPU, in the part of a card."""
    return tensor_pages.PagedOffload(torch.device("cpu"), resident, NoStreams())


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("kind", CELLS)
def test_pages_bring_back_what_was_saved(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What autograd saved comes back the same, after its place on the card has been given to others."""
    x = torch.randn(5, 9, 24)
    plain, swapping = twins(kind, x)
    with tt.backend("reference"):
        want = results(plain, x, LENGTHS)
        swap = paged([x, *swapping.parameters()])
        monkeypatch.setattr("throughtime.unroll._engine.swapping", lambda *_: tensor_pages._swap_to_host(swap))
        got = results(swapping, x, LENGTHS)
    for one, other in zip(want, got, strict=True):
        assert torch.equal(one, other)
    assert len(swap._pages) > 2
    assert all(page.on_host is not None for page in swap._pages)
    assert all(page.on_device is None for page in swap._pages), "every page was asked for as often as it was saved"
    assert swap._fetched_bytes == 0


@pytest.mark.usefixtures("small_pages")
def test_weights_that_nobody_announced_stop_travelling() -> None:
    """Those of a body's closure, say, or of a cell built in its first step: they are found to outlive the loop."""
    weight = (torch.randn(64, 64) / 8).requires_grad_()
    start = torch.randn(8, 64)
    swap = paged([])

    def run() -> Tensor:
        y = start
        for _ in range(200):
            y = torch.tanh(y @ weight)
        return y

    plain = run()
    with tensor_pages._swap_to_host(swap):
        swapped = run()
    want, got = (torch.autograd.grad(y.sum(), weight)[0] for y in (plain, swapped))
    assert want.isfinite().all()
    assert torch.equal(got, want)
    nbytes = weight.numel() * weight.element_size()
    sent = [saved for page in swap._pages for saved in page.saved if saved.shape.numel() * 4 == nbytes]
    assert 0 < len(sent) <= tensor_pages.LONG_LIVED_PAGES + 1


@pytest.mark.usefixtures("small_pages")
def test_a_graph_can_be_walked_twice_through_pages() -> None:
    x = torch.randn(5, 9, 24, requires_grad=True)
    cell = tt.LSTMCell(24, input_size=24)
    plain, _ = tt.dynamic_rnn(cell, x, LENGTHS, dtype=torch.float32)
    with tensor_pages._swap_to_host(paged(cell.parameters())):
        outputs, _ = tt.dynamic_rnn(cell, x, LENGTHS, dtype=torch.float32)
    (want,) = torch.autograd.grad(plain.sum(), x)
    for _ in range(2):
        (got,) = torch.autograd.grad(outputs.sum(), x, retain_graph=True)
        assert torch.equal(got, want)


@gpu
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "lengths"])
@pytest.mark.parametrize("every", [None, 4])
def test_swapping_changes_no_result(kind: str, lengths: Any, every: int | None) -> None:
    """Everything travels, through a window so small that both directions must wait."""
    x = torch.randn(5, 9, 24, device="cuda")
    plain, swapping = twins(kind, x)
    with offload_policy.change(smallest_tensor=1, page=8192, window=16384):
        swapped = results(swapping, x, lengths, swap_memory=True, checkpoint_every=every)
    for want, got in zip(results(plain, x, lengths), swapped, strict=True):
        torch.testing.assert_close(got, want)


@gpu
def test_swapping_lowers_the_peak() -> None:
    x = torch.randn(64, 600, 256, device="cuda")
    cell = tt.LSTMCell(512, input_size=256).cuda()
    peaks = {}
    for swap in (False, True):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32, swap_memory=swap)
        outputs.sum().backward()
        peaks[swap] = torch.cuda.max_memory_allocated() - before
        del outputs
    assert peaks[True] < peaks[False] / 2


@gpu
def test_swapping_and_double_backward() -> None:
    """A retained graph is walked twice, and its gradient differentiated."""
    x = torch.randn(5, 9, 24, device="cuda", dtype=torch.float64)
    found = []
    for cell, swap in zip(twins("lstm", x), (False, True), strict=True):
        inputs = x.clone().requires_grad_()
        outputs, _ = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float64, swap_memory=swap)
        (first,) = torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)
        (again,) = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)
        found.append([first, again, *torch.autograd.grad(again.square().sum(), [inputs, *cell.parameters()])])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


@gpu
def test_swapping_on_another_stream_and_in_other_loops() -> None:
    x = torch.randn(5, 9, 24, device="cuda")
    plain, swapping = twins("stack", x)
    want = results(plain, x, LENGTHS)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = results(swapping, x, torch.tensor(LENGTHS, device="cuda"), swap_memory=True)
    torch.cuda.current_stream().wait_stream(stream)
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one)

    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    start = torch.randn(64, 64, device="cuda")
    grads = []
    for swap in (False, True):
        _, y = tt.while_loop(
            lambda i, y: i < 10,
            lambda i, y: (i + 1, torch.tanh(y @ weight)),
            (torch.tensor(0), start),
            swap_memory=swap,
        )
        grads.append(torch.autograd.grad(y.sum(), weight)[0])
    torch.testing.assert_close(grads[1], grads[0])


@gpu
def test_a_lazy_cell_is_built_where_its_inputs_are() -> None:
    cell = tt.MultiRNNCell([tt.LSTMCell(4), tt.OutputProjectionWrapper(tt.GRUCell(4), 3)])
    outputs, state = tt.dynamic_rnn(
        cell, torch.randn(2, 3, 5, device="cuda"), torch.tensor([1, 3]), dtype=torch.float32
    )
    assert {
        tensor.device.type for tensor in (outputs, *torch.utils._pytree.tree_leaves(state), *cell.parameters())
    } == {"cuda"}


@gpu
def test_a_cell_on_a_device_of_its_own() -> None:
    """Inputs come over, parameters, state and outputs are there, and the gradient finds its way back."""
    cell = tt.DeviceWrapper(tt.GRUCell(4), "cuda")
    x = torch.randn(2, 3, 5, requires_grad=True)
    outputs, state = tt.dynamic_rnn(cell, x, [3, 1], dtype=torch.float32)
    outputs.sum().backward()
    assert outputs.is_cuda
    assert state.is_cuda
    assert x.grad is not None
    assert x.grad.device.type == "cpu"
    want, _ = tt.dynamic_rnn(cell.cell.cpu(), x, [3, 1], dtype=torch.float32)
    torch.testing.assert_close(outputs.cpu(), want)


@gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype: torch.dtype) -> None:
    """Autocast changes dtypes inside a step; state and outputs keep theirs."""
    x = torch.randn(5, 9, 24, device="cuda")
    cell = tt.MultiRNNCell([tt.BasicRNNCell(8), tt.LSTMCell(8)])
    with torch.autocast("cuda", dtype=dtype):
        outputs, state = tt.dynamic_rnn(cell, x, LENGTHS, dtype=torch.float32, swap_memory=True)
    outputs.sum().backward()
    assert outputs.dtype == state[0].dtype == torch.float32
    torch.testing.assert_close(outputs, tt.dynamic_rnn(cell, x, LENGTHS, dtype=torch.float32)[0], rtol=0.05, atol=0.05)
