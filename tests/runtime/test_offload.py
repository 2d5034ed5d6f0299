"""Compiled unrolls whose memory is swapped: what blocks keep waits on the host, and nothing else changes.

On a CPU swapping is of no use, so it is made to look useful here, with blocks so small that everything travels. The bus
copies as late as it may: a read that comes too early finds NaN.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

import throughtime as tt
from backends import REFUSED
from compare import check_same, measure
from descriptors import BY_NAME, Case, random_inputs, settled
from throughtime._lru import LruCache
from throughtime.runtime import explanation
from throughtime.runtime.offload import plan, tensor_pages, transfers
from throughtime.runtime.offload.transfers import IN_FLIGHT, OffloadQueue, prefetch
from throughtime.unroll import _call_cache
from unrolls import COMPILED, dynamic, on, to_jagged, to_packed

pytestmark = pytest.mark.covers("memory")

HERE = Path(__file__).parents[1] / "support"
F64 = torch.float64
LENGTHS = [9, 0, 1, 8, 5, 9]
CPU = torch.device("cpu")


class LateBus:
    """A bus that copies nothing before its copy is awaited, and then only what it must.

    Waiting is the device's business: the host itself sees what has arrived after `finish`, and not before.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[Tensor, weakref.ref[Tensor]]] = deque()
        self.begun = 0
        self.out_bytes = self.back_bytes = 0
        # By address in host memory: the memory, and what the device has written there.
        self._hosts: dict[int, tuple[StorageWeakRef, Tensor | None]] = {}

    def is_away(self, tensor: Tensor) -> bool:
        address = tensor.data_ptr()
        return address in self._hosts and not self._hosts[address][0].expired()

    def out(self, tensor: Tensor) -> Tensor:
        host = poison(tensor)
        self._hosts[host.data_ptr()] = (StorageWeakRef(host.untyped_storage()), None)
        self.out_bytes += host.nbytes
        return host

    def back(self, tensor: Tensor) -> Tensor:
        self.back_bytes += tensor.nbytes
        return poison(tensor)

    def copy(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> int:
        for there, here in pairs:
            assert here.is_contiguous()
            self.waiting.append((there, weakref.ref(here)))
        self.begun += len(pairs)
        return self.begun

    def wait_for(self, done: int | None) -> None:
        while done is not None and self.begun - len(self.waiting) < done:
            there, here = self.waiting.popleft()
            source = here()
            assert source is not None, "memory was let go before its copy was done"
            if self.is_away(there):
                self._hosts[there.data_ptr()] = (self._hosts[there.data_ptr()][0], source.clone())
            else:
                written = self._hosts[source.data_ptr()][1]
                assert written is not None, "it comes back before it has left"
                there.copy_(written)

    def finish(self) -> None:
        self.wait_for(self.begun)
        for address, (host, written) in self._hosts.items():
            if written is not None and not host.expired():
                ctypes.memmove(address, written.data_ptr(), written.nbytes)


def poison(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan if tensor.is_floating_point() else 0)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> LateBus:
    """The CPU in the part of a card: two or three steps of most cells make a block, the last of which stays."""
    late = LateBus()
    monkeypatch.setattr(transfers, "_transfers", lambda _: late)
    for module in (plan, tensor_pages, explanation):
        monkeypatch.setattr(module, "is_apart", lambda _: True)
    monkeypatch.setattr(plan, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(plan, "RESIDENT_BYTES", 1024)
    monkeypatch.setattr(_call_cache, "_CALLS", LruCache(512))
    return late


def run_both(
    case: Case, lengths: Any, run: Callable[..., Any] = dynamic, backend: str = "aten", **options: Any
) -> None:
    """Fail unless a swapped run gives what a plain one does."""
    runs = [on(backend, run, **more) for more in (options, {**options, "swap_memory": True})]
    measured = [
        measure(lambda cell, x, state, one=one: one(cell, x, lengths, state, case.dtype), *case[:3]) for one in runs
    ]
    check_same(*measured)


def time_major(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    return tt.dynamic_rnn(cell, x.transpose(0, 1), lengths, state, dtype, swap_memory=swap_memory, time_major=True)


def packed(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    outputs, final = tt.dynamic_rnn(cell, to_packed(x, lengths), None, state, dtype, swap_memory=swap_memory)
    return outputs.data, final


def jagged(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    outputs, final = tt.dynamic_rnn(cell, to_jagged(x, lengths), None, state, dtype, swap_memory=swap_memory)
    return outputs.values(), final


def both(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    return tt.bidirectional_dynamic_rnn(cell, cell, x, lengths, state, state, dtype, swap_memory=swap_memory)


class Gambling(tt.RNNCell):
    """What it draws depends on the state: such numbers cannot be drawn ahead, nor a second time."""

    state_size = output_size = 6

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(9, 6, dtype=F64)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.mix(torch.cat([inputs, h], 1)))
        return h, h * torch.bernoulli(torch.sigmoid(h.detach()))


def lstm(units: int = 8) -> Case:
    return case_of(lambda: tt.LSTMCell(units))


@pytest.mark.parametrize("name", [name for name in BY_NAME if ("aten", name) not in REFUSED])
def test_every_cell(name: str, bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that keep everything and blocks that are computed again take turns."""
    monkeypatch.setattr(plan.OffloadPlanner, "share_sent", lambda *_: 0.5)
    monkeypatch.setattr(plan, "BLOCK_BYTES", 256)
    monkeypatch.setattr(plan, "RESIDENT_BYTES", 256)
    case = BY_NAME[name].case(6, 9)
    # A random state is no state of an NTM.
    run_both(case._replace(state=None) if name == "NTM" else case, LENGTHS)
    assert not bus.waiting


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("lengths", [None, LENGTHS, [8] * 6, [9, 8, 8, 1, 1, 1], [1] * 6], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"all_states": True}, {"checkpoint_every": 4}, {"parallel_iterations": 1}, {"parallel_iterations": 4}],
    ids=str,
)
def test_lengths_and_options(
    options: dict[str, Any],
    lengths: Any,
    share: float,
    backend: str,
    bus: LateBus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan.OffloadPlanner, "share_sent", lambda *_: share)
    run_both(lstm(), lengths, backend=backend, **options)
    assert not bus.waiting
    assert bus.out_bytes or lengths == [1] * 6
    # A block that is recomputed sends what it keeps twice, and the first copy is never read.
    assert bus.out_bytes == bus.back_bytes * (2 if "checkpoint_every" in options else 1)


DROPPED = {
    "drawn ahead": lambda: tt.DropoutWrapper(tt.LSTMCell(6), 0.7, 0.7, 0.7),
    "the same at every step": lambda: tt.DropoutWrapper(
        tt.LSTMCell(6), 0.7, 0.7, 0.7, variational_recurrent=True, input_size=3, dtype=F64
    ),
    "seeded": lambda: tt.DropoutWrapper(tt.GRUCell(6), 0.7, 0.7, 0.7, seed=3),
    "within a step": Gambling,
}


@pytest.mark.parametrize("name", DROPPED)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
def test_random_numbers(name: str, lengths: Any, bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whether memory is swapped or not. A seeded cell goes on drawing, so each run has one of its own."""
    monkeypatch.setattr(plan.OffloadPlanner, "share_sent", lambda *_: 0.0)
    found = []
    for swap in (False, True):
        torch.manual_seed(0)
        case = case_of(DROPPED[name])
        run = on("aten", dynamic, swap_memory=swap)
        found.append(measure(lambda cell, x, state, run=run: run(cell, x, lengths, state, F64), *case[:3]))
    check_same(*found)
    assert bus.out_bytes


def case_of(make: Callable[[], Any]) -> Case:
    """Six sequences of nine steps for a cell."""
    cell = settled(make(), random_inputs(3, 1, 1, F64), F64)
    return Case(cell, random_inputs(3, 6, 9, F64), pytree.tree_map(torch.randn_like, cell.zero_state(6, F64)), F64)


@pytest.mark.parametrize("run", [time_major, packed, jagged, both], ids=lambda run: run.__name__)
@pytest.mark.parametrize("lengths", [[9, 3, 1, 8, 5, 9], [9] * 6], ids=["ragged", "dense"])
def test_forms(run: Any, lengths: list[int], bus: LateBus) -> None:
    run_both(lstm(), lengths, run)
    assert bus.out_bytes


def test_several_layers_and_several_calls(bus: LateBus) -> None:
    run_both(
        case_of(lambda: tt.MultiRNNCell([tt.LSTMCell(6), tt.ResidualWrapper(tt.GRUCell(6)), tt.LSTMCell(4)])), LENGTHS
    )

    def twice(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, **options: Any) -> Any:
        outputs, final = tt.dynamic_rnn(cell, x, lengths, state, dtype, **options)
        return tt.dynamic_rnn(cell, outputs, lengths, final, dtype, **options)

    run_both(case_of(lambda: tt.LSTMCell(3)), LENGTHS, twice)


def swapped_outputs(case: Case, lengths: Any = None) -> tuple[Tensor, Tensor]:
    x = case.inputs.clone().requires_grad_()
    with tt.backend("aten"):
        return x, tt.dynamic_rnn(case.cell, x, lengths, case.state, F64, swap_memory=True)[0]


def test_what_waits_on_the_host_is_a_fraction_where_blocks_are_computed_again(
    bus: LateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    for share in (1.0, 0.0):
        monkeypatch.setattr(plan.OffloadPlanner, "share_sent", lambda *_, share=share: share)
        bus.out_bytes = 0
        swapped_outputs(lstm(32))
        sent.append(bus.out_bytes)
    # Of an LSTM four gates and c, or c alone; and both states at the start of every block.
    assert 0 < sent[1] < sent[0] / 2


def test_kernels_in_the_interpreter() -> None:
    """Whatever a card computes again; in a process of its own: Triton decides at its import whether it interprets."""
    pytest.importorskip("triton")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "triton_interpreter_offload.py",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=HERE)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]


def test_a_graph_can_be_walked_twice(bus: LateBus) -> None:
    x, outputs = swapped_outputs(lstm(), LENGTHS)
    first, second = (torch.autograd.grad(outputs.square().sum(), x, retain_graph=keep)[0] for keep in (True, False))
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(outputs.square().sum(), x)


def test_host_memory_is_let_go_with_the_graph(bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[torch.UntypedStorage]] = []
    out = LateBus.out

    def noted(self: LateBus, tensor: Tensor) -> Tensor:
        host = out(self, tensor)
        made.append(StorageWeakRef(host.untyped_storage()))
        return host

    monkeypatch.setattr(LateBus, "out", noted)
    x, outputs = swapped_outputs(lstm())
    assert made
    assert not any(reference.expired() for reference in made)
    outputs.sum().backward()
    assert x.grad is not None
    assert all(reference.expired() for reference in made), "as soon as the backward pass is over, outputs or not"
    made.clear()
    x, outputs = swapped_outputs(lstm())
    del x, outputs
    gc.collect()
    assert all(reference.expired() for reference in made)


def test_hooks_of_others_find_what_was_kept(bus: LateBus) -> None:
    """A hook that packs saved tensors reads them, so it must wait for copies that have not finished."""
    case = lstm()
    (want,) = torch.autograd.grad((result := swapped_outputs(case))[1].sum(), result[0])
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor):
        x, outputs = swapped_outputs(case)
    (got,) = torch.autograd.grad(outputs.sum(), x)
    torch.testing.assert_close(got, want)


def test_second_derivatives(bus: LateBus) -> None:
    case = lstm()
    found = []
    for swap in (False, True):
        x = case.inputs.clone().requires_grad_()
        with tt.backend("aten"):
            outputs, _ = tt.dynamic_rnn(case.cell, x, LENGTHS, case.state, F64, swap_memory=swap)
        (first,) = torch.autograd.grad(outputs.square().sum(), x, create_graph=True)
        found.append([first, *torch.autograd.grad(first.square().sum(), [x, *case.cell.parameters()])])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_what_goes_wrong_leaves_no_copy_behind(when: str, bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a copy still goes to or comes from must not be given to others, whatever happens."""
    case = lstm()
    with tt.backend("aten"):
        executable = tt.explain(case.cell, case.inputs.clone().requires_grad_(), None, case.state, F64).executable
    x, outputs = swapped_outputs(case)
    calls = itertools.count()
    loop = executable.loops[when == "backward"]
    run = loop.run

    def fails(*arguments: Any) -> None:
        if next(calls) == 2:
            raise MemoryError("no room")
        run(*arguments)

    monkeypatch.setattr(loop, "run", fails)
    with pytest.raises(MemoryError, match="no room"):
        swapped_outputs(case) if when == "forward" else outputs.sum().backward(retain_graph=True)
    assert not bus.waiting
    (got,) = torch.autograd.grad(outputs.sum(), x)
    monkeypatch.undo()
    (want,) = torch.autograd.grad(tt.dynamic_rnn(case.cell, x, None, case.state, F64)[0].sum(), x)
    torch.testing.assert_close(got, want)


def test_without_gradients_nothing_is_swapped(bus: LateBus) -> None:
    case = lstm()
    with torch.no_grad(), tt.backend("aten"):
        tt.dynamic_rnn(case.cell, case.inputs, LENGTHS, case.state, F64, swap_memory=True)
    assert not bus.begun


def test_what_is_small_stays(bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "RESIDENT_BYTES", 2**20)
    run_both(lstm(), LENGTHS)
    assert not bus.begun


def test_explain_says_what_is_swapped(bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    case = lstm()

    def explained(backend: str = "aten", **options: Any) -> str:
        with tt.backend(backend):
            return str(tt.explain(case.cell, case.inputs, None, case.state, F64, **options))

    monkeypatch.setattr(plan.OffloadPlanner, "share_sent", lambda *_: 0.5)
    assert "memory" not in explained()
    text = explained(swap_memory=True)
    said = "memory: 8 of 9 blocks of steps wait on the host, 320 bytes a step and row"
    assert f"{said}; 4 of them with 64, and the rest is computed again, for all steps at once\n" in text
    monkeypatch.setattr(plan.OffloadPlanner, "share_sent", lambda *_: 1.0)
    assert f"{said}\n" in explained(swap_memory=True)
    monkeypatch.setattr(plan, "RESIDENT_BYTES", 2**30)
    text = explained(swap_memory=True)
    assert "memory: nothing waits on the host, so little is kept for the backward pass" in text
    text = explained("reference", swap_memory=True)
    assert "memory: what each step saves waits on the host" in text


def test_explain_on_a_cpu() -> None:
    text = str(tt.explain(tt.LSTMCell(3), torch.randn(2, 3, 4), swap_memory=True))
    assert "memory: not swapped, since the tensors are on cpu" in text


def test_a_known_call_is_swapped_too(bus: LateBus) -> None:
    case = lstm()
    sent = []
    for _ in range(2):
        bus.out_bytes = 0
        swapped_outputs(case)
        sent.append(bus.out_bytes)
    assert sent[0] == sent[1] > 0


@pytest.mark.parametrize(("seconds", "share"), [(1.0, 1.0), (None, 1.0), (0.0, 0.0), (1e-6, 0.5)])
def test_blocks_keep_what_the_bus_carries_while_steps_run(
    seconds: float | None, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that cannot be told are slow ones, run from Python."""
    case = lstm()
    with tt.backend("aten"):
        executable = tt.explain(case.cell, case.inputs.clone().requires_grad_(), None, case.state, F64).executable
    loops = [SimpleNamespace(on_gpu=True, seconds=lambda *_: seconds)] * 2
    keeping = plan.OffloadPlanner(executable.program, loops, executable.kept, [], is_random=False)
    most, least = keeping.most.row_bytes, keeping.least.row_bytes
    assert most > least
    monkeypatch.setattr(plan, "EXACT_FLOPS", math.inf)
    # As fast as the bus is for the mean of both, if it could be relied on.
    monkeypatch.setattr(plan, "BUS_BYTES", (most + least) / 2 / (plan.RELIED_ON * 1e-6))
    assert keeping.share_sent(1, CPU) == pytest.approx(share)


def test_departures_and_arrivals(bus: LateBus) -> None:
    """At no time are more than a few blocks on their way, and the others come in the order asked for."""
    blocks = [[torch.full((3,), float(index)), torch.full((2,), -float(index))] for index in range(6)]
    with OffloadQueue(CPU) as departures:
        hosts = []
        for block in blocks:
            hosts.append(departures.send(block))
            assert len(bus.waiting) <= 2 * IN_FLIGHT
    assert not bus.waiting
    begun = bus.begun
    for index, block in enumerate(prefetch(hosts, CPU)):
        assert [float(tensor[0]) for tensor in block] == [index, -index]
        assert bus.begun - begun == 2 * min(6, index + 1 + IN_FLIGHT)
    coming = prefetch(hosts, CPU)
    next(coming)
    assert bus.waiting
    coming.close()
    assert not bus.waiting
