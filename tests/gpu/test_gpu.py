"""The conformance of kernels on a card: `make test-gpu`. Skipped where there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import throughtime as tt
from gpu_cases import CELLS, TF32_TOLERANCE, Batch, check, check_states

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [Batch(5, 6, 70), Batch(33, 9, 150), Batch(64, 5, 256, ragged=False)], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str, batch: Batch, dtype: torch.dtype) -> None:
    check(name, batch, dtype, "cuda")


@pytest.fixture
def _as_tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("batch", [Batch(5, 6, 70), Batch(33, 9, 150), Batch(64, 5, 257, ragged=False)], ids=str)
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.usefixtures("_as_tf32")
def test_products_in_tf32(name: str, batch: Batch) -> None:
    check(name, batch, torch.float32, "cuda", tolerance=TF32_TOLERANCE)


@pytest.mark.usefixtures("_as_tf32")
def test_tf32_is_what_the_kernels_multiply_in() -> None:
    """An error that exact products do not have: the setting has reached the kernels."""
    with pytest.raises(AssertionError, match="tensor"):
        check("LSTM", Batch(33, 9, 150), torch.float32, "cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "options", [{"parallel_iterations": 3}, {"checkpoint_every": 4}, {"all_states": True}], ids=str
)
def test_options(options: dict[str, object], dtype: torch.dtype) -> None:
    check("LSTM", Batch(7, 10, 72), dtype, "cuda", **options)


@pytest.mark.parametrize("form", ["lengths", "packed"])
def test_states_in_the_order_of_the_batch(form: str) -> None:
    # Once more with the same lengths in another order: what is kept about them is shared.
    for lengths in ([2, 5, 1, 5, 3], [5, 3, 2, 1, 5]):
        check_states(form, lengths, "cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_more_rows_than_fit_at_once_and_matrices_that_do_not_fit(dtype: torch.dtype) -> None:
    check("LSTM", Batch(300, 4, 512), dtype, "cuda")
    check("GRU", Batch(64, 4, 1100), dtype, "cuda")


def test_a_number_for_each_row_where_many_blocks_share_it() -> None:
    check("softmax", Batch(64, 5, 1024), torch.float32, "cuda")


def run_lstm(cell: tt.RNNCell, x: torch.Tensor) -> torch.Tensor:
    return tt.dynamic_rnn(cell, x, dtype=x.dtype)[0]


def test_another_stream_and_a_captured_graph() -> None:
    cell, x = tt.LSTMCell(64, input_size=8).cuda(), torch.randn(9, 12, 8, device="cuda")
    with torch.no_grad():
        want = run_lstm(cell, x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            aside = run_lstm(cell, x)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(aside, want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run_lstm(cell, x)
        x.mul_(2)
        graph.replay()
        assert torch.equal(captured, run_lstm(cell, x))


def test_a_captured_graph_over_lengths() -> None:
    """What the host says about lengths is a part of the graph."""
    cell, x = tt.LSTMCell(64, input_size=8).cuda(), torch.randn(9, 12, 8, device="cuda")
    lengths = [12, 3, 0, 7, 1, 11, 12, 5, 2]
    with torch.no_grad():
        tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)[0]
        # Other lengths in the memory that the host used.
        for other in ([1] * 9, [12] * 8 + [3]):
            tt.dynamic_rnn(cell, x, other, dtype=x.dtype)
        x.mul_(2)
        graph.replay()
        assert torch.equal(captured, tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)[0])


# torch says that it does not see every wait.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
@pytest.mark.parametrize("form", ["dense", "list", "tensor", "packed"])
def test_nobody_waits_for_the_card(form: str, dtype: torch.dtype) -> None:
    """Lengths on the host cause no synchronisation, nor does a `PackedSequence` that was made on the card."""
    cell, x = tt.LSTMCell(24, input_size=8).to("cuda", dtype), torch.randn(9, 45, 8).to("cuda", dtype)
    ends = [45, 3, 1, 44, 10, 11, 1, 30, 45]
    lengths = {"list": ends, "tensor": torch.tensor(ends)}.get(form)
    given = pack_padded_sequence(x, torch.tensor(ends), True, False) if form == "packed" else x
    data = (given.data if form == "packed" else given).requires_grad_()

    def train() -> None:
        outputs = tt.dynamic_rnn(cell, given, lengths, dtype=dtype)[0]
        outputs = outputs.data if form == "packed" else outputs
        torch.autograd.grad(outputs, [data, *cell.parameters()], torch.ones_like(outputs))

    for _ in range(4):
        train()
    try:
        torch.cuda.set_sync_debug_mode("error")
        train()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def waits(run: Callable[[], Any]) -> int:
    """How often something waits for the card, as far as torch sees it."""
    try:
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in seen)


UNROLLS: dict[str, Callable[..., Any]] = {
    "dynamic": lambda cells, x, lengths: tt.dynamic_rnn(cells[0], x, lengths, dtype=x.dtype)[0],
    "bidirectional": lambda cells, x, lengths: torch.cat(
        tt.bidirectional_dynamic_rnn(*cells[:2], x, lengths, dtype=x.dtype)[0], -1
    ),
    "stack": lambda cells, x, lengths: tt.stack_bidirectional_dynamic_rnn(
        cells[::2], cells[1::2], x, dtype=x.dtype, sequence_length=lengths
    )[0],
}


# torch says that it does not see every wait.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "graphs"])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.float32], ids=str)
@pytest.mark.parametrize("unroll", UNROLLS)
def test_lengths_on_the_card_are_waited_for_once(unroll: str, kind: torch.dtype, dtype: torch.dtype) -> None:
    """Whatever reads them: both directions, all layers, the backward pass."""
    sizes = (8, 8, 48, 48)
    cells = [tt.LSTMCell(24, input_size=size).to("cuda", dtype) for size in sizes]
    x = torch.randn(9, 45, 8).to("cuda", dtype).requires_grad_()
    ends = [45, 3, 1, 44, 10, 11, 1, 30, 45]

    def train(lengths: Any) -> None:
        outputs = UNROLLS[unroll](cells, x, lengths)
        torch.autograd.grad(outputs, x, torch.ones_like(outputs))

    there = torch.tensor(ends, dtype=kind, device="cuda")
    for _ in range(4):
        train(there)
        train(ends)
    assert waits(lambda: train(ends)) == 0
    assert waits(lambda: train(there)) == 1


# torch uses what it has deprecated, and gives advice.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_lengths_on_the_card_are_waited_for_once_under_torch_compile() -> None:
    cell, x = tt.LSTMCell(24, input_size=8).cuda(), torch.randn(9, 45, 8, device="cuda")
    there = torch.tensor([45, 3, 1, 44, 10, 11, 1, 30, 45], device="cuda")
    run = torch.compile(
        lambda x, lengths: tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)[0], backend="aot_eager", fullgraph=True
    )

    def train() -> list[torch.Tensor]:
        outputs = run(x, there)
        return [outputs.detach(), *torch.autograd.grad(outputs.square().sum(), list(cell.parameters()))]

    want = tt.dynamic_rnn(cell, x, there, dtype=x.dtype)[0]
    for _ in range(3):
        found = train()
    assert torch.equal(found[0], want)
    assert waits(train) == 1


def test_autocast_and_inputs_that_are_not_contiguous() -> None:
    cell, x = tt.LSTMCell(64, input_size=8).cuda(), torch.randn(12, 9, 16, device="cuda")[..., ::2].transpose(0, 1)
    want = run_lstm(cell, x)
    torch.testing.assert_close(want, run_lstm(cell, x.contiguous()))
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(run_lstm(cell, x).float(), want, atol=3e-2, rtol=3e-2)


def test_auto_takes_the_kernels_and_explain_shows_them() -> None:
    plan = tt.explain(tt.LSTMCell(64, input_size=8).cuda(), torch.randn(4, 5, 8, device="cuda"))
    assert plan.backend == "triton"
    assert "@triton.jit" in plan.source
    assert "meet(counter" in plan.source
