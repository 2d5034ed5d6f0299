"""Compiled unrolls whose memory is swapped: what blocks keep waits on the host, and nothing else changes.

On a CPU swapping is of no use, so it is made to look useful here, with blocks so small that everything travels. The bus
copies as late as it may: a read that comes too early finds NaN.
"""

from __future__ import annotations

import gc
import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from backends import REFUSED
from compare import check_same, measure
from descriptors import BY_NAME, Case
from late_bus import F64, LENGTHS, LateBus, both, case_of, offloading, run_both
from throughtime.runtime.offload import plan
from throughtime.runtime.offload.policy import offload_policy
from throughtime.runtime.offload.transfers import IN_FLIGHT, OffloadQueue, prefetch
from unrolls import COMPILED, dynamic, on, to_jagged, to_packed

pytestmark = pytest.mark.covers("memory")

HERE = Path(__file__).parents[1] / "support"
CPU = torch.device("cpu")


@pytest.fixture
def bus() -> Iterator[LateBus]:
    with offloading() as late:
        yield late


def time_major(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    return tt.dynamic_rnn(cell, x.transpose(0, 1), lengths, state, dtype, swap_memory=swap_memory, time_major=True)


def packed(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    outputs, final = tt.dynamic_rnn(cell, to_packed(x, lengths), None, state, dtype, swap_memory=swap_memory)
    return outputs.data, final


def jagged(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    outputs, final = tt.dynamic_rnn(cell, to_jagged(x, lengths), None, state, dtype, swap_memory=swap_memory)
    return outputs.values(), final


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
def test_every_cell(name: str, bus: LateBus) -> None:
    """Blocks that keep everything and blocks that are computed again take turns."""
    case = BY_NAME[name].case(6, 9)
    with offload_policy.change(share_sent=0.5, block=256, resident=256):
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
) -> None:
    with offload_policy.change(share_sent=share):
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
def test_random_numbers(name: str, lengths: Any, bus: LateBus) -> None:
    """The same whether memory is swapped or not. A seeded cell goes on drawing, so each run has one of its own."""
    found = []
    for swap in (False, True):
        torch.manual_seed(0)
        case = case_of(DROPPED[name])
        run = on("aten", dynamic, swap_memory=swap)
        with offload_policy.change(share_sent=0.0):
            found.append(measure(lambda cell, x, state, run=run: run(cell, x, lengths, state, F64), *case[:3]))
    check_same(*found)
    assert bus.out_bytes


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


def test_what_waits_on_the_host_is_a_fraction_where_blocks_are_computed_again(bus: LateBus) -> None:
    sent = []
    for share in (1.0, 0.0):
        bus.out_bytes = 0
        with offload_policy.change(share_sent=share):
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


def test_host_memory_is_let_go_with_the_graph(bus: LateBus) -> None:
    x, outputs = swapped_outputs(lstm())
    made = bus.made
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


def test_what_is_small_stays(bus: LateBus) -> None:
    with offload_policy.change(resident=2**20):
        run_both(lstm(), LENGTHS)
    assert not bus.begun


def test_explain_says_what_is_swapped(bus: LateBus) -> None:
    case = lstm()

    def explained(backend: str = "aten", policy: dict[str, Any] | None = None, **options: Any) -> str:
        with tt.backend(backend), offload_policy.change(**(policy or {})):
            return str(tt.explain(case.cell, case.inputs, None, case.state, F64, **options))

    half, all_of_it = {"share_sent": 0.5}, {"share_sent": 1.0}
    assert "memory" not in explained(policy=half)
    text = explained(policy=half, swap_memory=True)
    said = "memory: 8 of 9 blocks of steps wait on the host, 320 bytes a step and row"
    assert f"{said}; 4 of them with 64, and the rest is computed again, for all steps at once\n" in text
    assert f"{said}\n" in explained(policy=all_of_it, swap_memory=True)
    text = explained(policy={"resident": 2**30}, swap_memory=True)
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
