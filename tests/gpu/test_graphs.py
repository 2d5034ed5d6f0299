"""Loops as CUDA graphs on a card: what `triton` refuses. Skipped where there is none.

`tests/backends/aten/test_cuda_graphs.py` compares chunks of steps with the reference on any machine.
"""

from __future__ import annotations

import copy
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from backends import lengths_for
from descriptors import BY_NAME, Case, Descriptor
from gpu_matrix import TOLERANCE, check_case
from throughtime.backends.aten import chunk_buffers
from throughtime.compiler.passes.merge_matmuls import deep_bytes
from user_cells import USER_CELLS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PLAIN = ("LSTM", "GRU", "LSTM projection", "Multi", "nests", "dict state", "matrix rows", "Conv2DLSTM")
CELLS = {
    **{name: BY_NAME[name] for name in (*PLAIN, "GridLSTM", "Attention", "integer counters")},
    **{listed.descriptor.name: listed.descriptor for listed in USER_CELLS if listed.backend == "aten"},
    "two swapped": next(listed.descriptor for listed in USER_CELLS if listed.descriptor.name == "two swapped"),
}
TIME = 75
"""Two long blocks, and two short ones that are not filled."""


@pytest.fixture(autouse=True)
def _exact() -> Any:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def check(case: Case, lengths: Any, **options: Any) -> None:
    """Graphs against the reference in float64 on the CPU."""
    check_case(case, lengths, "aten", "cuda", **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str, dtype: torch.dtype) -> None:
    check(CELLS[name].case(7, TIME, dtype), [TIME, 0, 1, TIME - 1, 40, 33, 5])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    check(CELLS[name].case(7, 35, dtype), [35, 0, 1, 34, 30, 33, 5])


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_rows_of_several_blocks_of_threads(name: str, dtype: torch.dtype) -> None:
    check(BY_NAME[name].case(33, 35, dtype, units=520), lengths_for(33, 35))


def test_long_rows_that_are_reduced() -> None:
    check(BY_NAME["LayerNormLSTM"].case(33, 35, torch.float32, units=520), lengths_for(33, 35))


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("lengths", ["dense", "ragged"])
def test_deep_products_in_parts(dtype: torch.dtype, lengths: str) -> None:
    ends = lengths_for(33, 35) if lengths == "ragged" else None
    with deep_bytes.use(0):
        check(Descriptor("own", tt.LSTMCell).case(33, 35, dtype, units=72), ends)


@pytest.mark.parametrize("batch", [1, 5, 33, 100])
@pytest.mark.parametrize("lengths", ["dense", "ragged"])
@pytest.mark.parametrize("options", [{}, {"all_states": True}, {"parallel_iterations": 20}, {"checkpoint_every": 37}])
def test_sizes_and_options(batch: int, lengths: str, options: dict[str, Any]) -> None:
    ends = lengths_for(batch, TIME) if lengths == "ragged" else None
    check(CELLS["LSTM"].case(batch, TIME, units=19), ends, **options)


def test_lengths_batch_time_and_weights_change_from_call_to_call() -> None:
    cell = Descriptor("own", tt.LSTMCell).case(1, 1, units=21).cell
    for turn, (batch, time) in enumerate([(6, 75), (5, 75), (6, 130), (2, 4), (6, 75), (40, 20), (6, 75)]):
        new = Descriptor("own", tt.LSTMCell).case(batch, time, units=21)
        with torch.no_grad():
            for weight in cell.parameters():
                weight.mul_(1.05)
                if turn % 2:
                    weight.data = weight.data.clone()
        check(new._replace(cell=cell), lengths_for(batch, time, seed=turn))


class Rolls(tt.RNNCell):
    """Draws numbers that depend on its state."""

    state_size = output_size = 4

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.bernoulli(torch.sigmoid(inputs + state))
        return state, state


def small(units: int = 16) -> tuple[tt.RNNCell, Tensor]:
    """In float64, which `triton` refuses."""
    return tt.GRUCell(units, input_size=8).to("cuda", torch.float64), torch.randn(9, 45, 8).to("cuda", torch.float64)


def run(cell: tt.RNNCell, x: Tensor, backend: str = "auto", lengths: Any = None) -> Tensor:
    with tt.backend(backend):
        return tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)[0]


def test_auto_takes_graphs_and_says_why_not_the_kernels() -> None:
    plan = tt.explain(*small(), dtype=torch.float64)
    assert plan.backend == "aten"
    assert "there are no fast products of float64 on a GPU" in plan.reasons["triton"]
    plan = tt.explain(Rolls().cuda(), torch.zeros(2, 9, 4, device="cuda"), dtype=torch.float32)
    assert plan.backend == "reference"
    assert "its loop draws random numbers" in plan.reasons["aten"]


@pytest.fixture
def _as_tf32() -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("_as_tf32")
def test_auto_takes_fused_steps_where_matrices_do_not_stay_on_chip() -> None:
    cell, x = tt.LSTMCell(2048, input_size=8).cuda(), torch.randn(128, 12, 8, device="cuda")
    assert tt.explain(tt.LSTMCell(256, input_size=8).cuda(), x, dtype=torch.float32).backend == "triton"
    with tt.backend("triton"):
        assert tt.explain(cell, x, dtype=torch.float32).backend == "triton"
    plan = tt.explain(cell, x, dtype=torch.float32)
    assert plan.backend == "aten"
    assert "µs as kernels one after another" in plan.reasons["triton"]
    assert plan.source.count("@triton.jit") == 2, "one fused kernel forward, one backward"
    want = run(cell, x, "reference")
    wanted = torch.autograd.grad(want.square().sum(), list(cell.parameters()))
    for _ in range(3):
        found = run(cell, x)
        torch.testing.assert_close(found, want, atol=1e-3, rtol=1e-2)
        for got, one in zip(torch.autograd.grad(found.square().sum(), list(cell.parameters())), wanted, strict=True):
            assert float((got - one).norm() / one.norm()) < 5e-3


def test_streams_other_than_the_default() -> None:
    cell, x = small()
    with torch.no_grad():
        want = run(cell, x, "reference")
        streams = [torch.cuda.Stream() for _ in range(3)]
        for turn in range(30):
            # The memory of the blocks is the same on all streams, which do not wait for each other here.
            stream = streams[turn % 3]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found = run(cell, x)
            torch.cuda.current_stream().wait_stream(stream)
            found.record_stream(torch.cuda.current_stream())
            torch.testing.assert_close(found, want)


def test_threads() -> None:
    cell, x = small()

    def work(seed: int) -> float:
        factor = 1 + seed
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            found = [run(cell, factor * x) for _ in range(10)]
            torch.cuda.current_stream().synchronize()
            expected = run(cell, factor * x, "reference")
            return max(float((one - expected).abs().max()) for one in found)

    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < 1e-9


@pytest.mark.parametrize("lengths", [None, [45, 0, 3, 44, 10, 11, 1, 30, 45]], ids=["dense", "ragged"])
def test_a_graph_that_the_user_captures(lengths: Any) -> None:
    cell, x = small()
    with torch.no_grad():
        run(cell, x, "aten", lengths)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run(cell, x, "aten", lengths)
        for factor in (2.0, -0.5):
            x.mul_(factor)
            graph.replay()
            torch.testing.assert_close(captured, run(cell, x, "reference", lengths))


def test_autocast() -> None:
    cell, x = tt.cells.Conv1DLSTMCell((16, 4), 8, (3,)).cuda(), torch.randn(5, 40, 16, 4, device="cuda")
    found = {}
    for backend in ("reference", "aten", "aten", "aten"):
        with torch.autocast("cuda", torch.bfloat16):
            outputs = run(cell, x, backend)
        gradients = torch.autograd.grad(outputs.float().sum(), list(cell.parameters()))
        found[backend] = (outputs.detach(), *gradients)
    for got, want in zip(found["aten"], found["reference"], strict=True):
        assert got.dtype == want.dtype
        assert float((got.float() - want.float()).norm() / want.float().norm()) < 5e-2


def test_what_cannot_be_recorded_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = small(units=24)
    walk = chunk_buffers.ChunkBuffers.walk

    def waits(self: chunk_buffers.ChunkBuffers) -> None:
        walk(self)
        # A wait for the GPU cannot be recorded.
        self.carried[0].sum().item()

    with torch.no_grad():
        want = run(cell, x, "reference")
        with monkeypatch.context() as patch:
            patch.setattr(chunk_buffers.ChunkBuffers, "walk", waits)
            with pytest.warns(RuntimeWarning, match="step by step: a CUDA graph"):
                found = run(cell, x, "aten")
            torch.testing.assert_close(found, want)
            torch.testing.assert_close(run(cell, x, "aten"), want)
        # Random numbers, memory and recordings are as they were.
        torch.manual_seed(3)
        drawn = torch.randn(1000, device="cuda")
        torch.manual_seed(3)
        assert torch.equal(drawn, torch.randn(1000, device="cuda"))
        torch.testing.assert_close(run(cell, x, "aten"), want)
        other, y = small(units=25)
        expected = run(other, y, "reference")
        for _ in range(3):
            torch.testing.assert_close(run(other, y, "aten"), expected)


@pytest.mark.parametrize("options", [{}, {"swap_memory": True}, {"checkpoint_every": 7}], ids=str)
@pytest.mark.parametrize("lengths", [None, [40, 0, 13, 39, 1]], ids=["dense", "lengths"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
def test_a_second_device(dtype: torch.dtype, lengths: list[int] | None, options: dict[str, Any]) -> None:
    """Whichever device is the current one: a call belongs to that of its inputs."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    cell, x = tt.LSTMCell(70, input_size=8, dtype=dtype), torch.randn(5, 40, 8, dtype=dtype)

    def train(device: str, backend: str) -> list[Tensor]:
        own, inputs = copy.deepcopy(cell).to(device), x.to(device).requires_grad_()
        with tt.backend(backend):
            outputs, state = tt.dynamic_rnn(own, inputs, lengths, dtype=dtype, **options)
        found = torch.autograd.grad([outputs.sum(), state.c.sum()], [inputs, *own.parameters()])
        return [leaf.cpu() for leaf in (outputs, *state, *found)]

    want = train("cpu", "reference")
    for current, device in itertools.product((0, 1), ("cuda:1", "cuda:0")):
        with torch.cuda.device(current):
            torch.testing.assert_close(train(device, "auto"), want)


# torch uses what it has deprecated, and gives advice.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
def test_torch_compile_sees_one_operator(dtype: torch.dtype) -> None:
    cell, x = tt.LSTMCell(16, input_size=8).to("cuda", dtype), torch.randn(5, 40, 8).to("cuda", dtype)
    head = torch.nn.Linear(16, 3).to("cuda", dtype)

    def model(inputs: Tensor) -> Tensor:
        return head(tt.dynamic_rnn(cell, inputs, dtype=dtype)[0]).square().mean()

    torch.set_deterministic_debug_mode("default")
    compiled = torch.compile(model, fullgraph=True)
    parameters = [*cell.parameters(), *head.parameters()]
    with tt.backend("reference"):
        wanted = torch.autograd.grad(model(x), parameters)
    for _ in range(3):
        for got, want in zip(torch.autograd.grad(compiled(x), parameters), wanted, strict=True):
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
def test_running_out_of_memory_leaves_the_process_usable(dtype: torch.dtype) -> None:
    cell = tt.LSTMCell(64, input_size=8).to("cuda", dtype)
    x = torch.randn(16, 40, 8).to("cuda", dtype)
    want = run(cell, x)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    allowed = torch.cuda.memory_reserved() + 2**28
    torch.cuda.set_per_process_memory_fraction(allowed / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            run(cell, torch.zeros(64, 20000, 8, device="cuda", dtype=dtype))
        torch.testing.assert_close(run(cell, x), want)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.testing.assert_close(run(cell, x), want)
    assert run(cell, torch.zeros(64, 200, 8, device="cuda", dtype=dtype)).isfinite().all()
