"""Loops in recorded blocks of steps, as on a GPU, but on the CPU: the recorder here only remembers what to call.

`tests/gpu/test_graphs.py` holds the same with real graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from backends import check_on, lengths_for
from descriptors import BY_NAME, Descriptor
from remembered_graphs import CELLS, REMEMBERED, Remembering
from throughtime.backends.aten.chunk_buffers import Chunk, ChunkShape, Tables, TimeGrid, capacity_for
from throughtime.backends.aten.graph_policy import graph_policy
from throughtime.compiler import ROWS
from throughtime.layout.step_layout import StepLayout
from unrolls import both_packed, packed, time_major
from user_cells import USER_CELLS

pytestmark = pytest.mark.covers("kernels")

FEW = [
    *map(BY_NAME.get, ["LSTM", "GRU", "integer counters", "dict state", "Conv2DLSTM", "Dropout variational"]),
    *(listed.descriptor for listed in USER_CELLS if listed.descriptor.name in ("two swapped", "attention to a memory")),
]


@pytest.fixture(autouse=True)
def recorders() -> Iterator[list[Remembering]]:
    """Blocks of 3 and 2 steps, so that short sequences have many."""
    Remembering.made.clear()
    with graph_policy.use(REMEMBERED):
        yield Remembering.made


def ids(descriptor: Descriptor) -> str:
    return descriptor.name


@pytest.mark.parametrize("descriptor", CELLS, ids=ids)
def test_every_cell(descriptor: Descriptor) -> None:
    """Values, final states, and gradients of inputs, weights and the initial state."""
    case = descriptor.case(6, 6)
    # A random state is no state of an NTM.
    case = case._replace(state=None) if descriptor.name == "NTM" else case
    check_on("aten", case, [6, 0, 1, 5, 3, 6])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("descriptor", FEW, ids=ids)
def test_every_dtype(descriptor: Descriptor, dtype: torch.dtype) -> None:
    check_on("aten", descriptor.case(5, 8, dtype), [8, 3, 0, 7, 5])


@pytest.mark.parametrize("batch", [1, 2, 9, 33])
@pytest.mark.parametrize("time", [3, 7, 14])
def test_every_size(batch: int, time: int) -> None:
    for ends in (None, [time - 1] * batch, lengths_for(batch, time)):
        check_on("aten", BY_NAME["GRU"].case(batch, time), ends)


@pytest.mark.parametrize("unroll", [time_major, packed, both_packed])
def test_every_layout(unroll: Any) -> None:
    check_on("aten", BY_NAME["LSTM"].case(6, 13), [13, 2, 1, 12, 7, 13], unroll)
    check_on("aten", BY_NAME["LSTM"].case(6, 13), [13] * 6, unroll)


def test_both_directions_of_a_dense_batch() -> None:
    def both(cell: Any, inputs: Tensor, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
        return tt.bidirectional_dynamic_rnn(cell, cell, inputs, lengths, state, state, dtype)

    for ends in (None, [13, 0, 1, 12, 7, 13]):
        check_on("aten", BY_NAME["GRU"].case(6, 13), ends, both)


@pytest.mark.parametrize(
    "options", [{"parallel_iterations": 4}, {"checkpoint_every": 6}, {"all_states": True}], ids=str
)
def test_every_option(options: dict[str, Any]) -> None:
    for ends in (None, [13, 0, 1, 12, 7, 13]):
        check_on("aten", BY_NAME["LSTM"].case(6, 13), ends, **options)


def test_lengths_batch_and_time_change_from_call_to_call(recorders: list[Remembering]) -> None:
    """One compiled cell, its weights changed in place and replaced on the way."""
    case = Descriptor("own", lambda units: tt.LSTMCell(units, use_peepholes=True)).case(1, 1, units=11)
    for turn, (batch, time) in enumerate([(6, 13), (5, 13), (6, 20), (2, 4), (6, 13), (33, 9), (6, 13)]):
        new = Descriptor("own", tt.LSTMCell).case(batch, time)
        with torch.no_grad():
            for weight in case.cell.parameters():
                weight.mul_(1.1)
                if turn % 2:
                    weight.data = weight.data.clone()
        state = case.cell.zero_state(batch, torch.float64)
        check_on("aten", case._replace(inputs=new.inputs, state=state), lengths_for(batch, time, seed=turn))
    assert len(recorders) == 2, "one recorder for each direction"
    assert all(recorder.replays > recorder.turns / 2 for recorder in recorders)


def test_a_block_is_recorded_the_second_time_it_is_wanted(recorders: list[Remembering]) -> None:
    cell, x = tt.GRUCell(23, input_size=3), torch.randn(4, 3, 3)
    replays = []
    for _ in range(4):
        with torch.no_grad(), tt.backend("aten"):
            tt.dynamic_rnn(cell, x, dtype=torch.float32)
        replays.append(recorders[0].replays)
    assert replays == [0, 1, 2, 3]


def test_inference_mode_leaves_blocks_that_training_can_use() -> None:
    cell, x = tt.GRUCell(29, input_size=3), torch.randn(4, 9, 3)
    with tt.backend("aten"):
        with torch.inference_mode():
            want = tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]
        with torch.no_grad():
            assert torch.equal(tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], want)
        with torch.inference_mode():
            assert torch.equal(tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], want)


def test_autocast_is_a_part_of_the_program() -> None:
    cell, x = tt.GRUCell(8, input_size=3), torch.randn(4, 13, 3, requires_grad=True)
    found = {}
    for backend, _ in itertools.product(("reference", "aten"), range(2)):
        with tt.backend(backend), torch.autocast("cpu", torch.bfloat16):
            outputs = tt.dynamic_rnn(cell, x, [13, 2, 0, 9], dtype=torch.float32)[0]
        found[backend] = (outputs.detach(), *torch.autograd.grad(outputs.sum(), [x, *cell.parameters()]))
    for got, want in zip(found["aten"], found["reference"], strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.float(), want.float(), atol=5e-2, rtol=5e-2)


def test_few_blocks_are_kept() -> None:
    with graph_policy.change(most_chunks=2):
        check_on("aten", Descriptor("own", tt.GRUCell).case(6, 23, units=13), [23, 20, 3, 15, 9, 1])


def test_threads_take_turns() -> None:
    cell, x = tt.GRUCell(31, input_size=3), torch.randn(4, 30, 3)
    with tt.backend("aten"), torch.no_grad():
        want = tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]

    def work(_: int) -> bool:
        with tt.backend("aten"), torch.no_grad():
            return all(torch.equal(tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], want) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_what_cannot_be_recorded_runs_step_by_step(recorders: list[Remembering]) -> None:
    cell, x = tt.GRUCell(37, input_size=3), torch.randn(4, 12, 3)
    with tt.backend("reference"), torch.no_grad():
        want = tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]

    class Failing(Remembering):
        def record(self, walk: Callable[[], None]) -> Callable[[], None]:
            self.failure = "it does not want to"
            return walk

    with graph_policy.change(recorders={"cpu": Failing}), tt.backend("aten"), torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], want)
    assert recorders[0].turns == 1


class Rolls(tt.RNNCell):
    """Draws numbers that depend on its state."""

    state_size = output_size = 4

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.bernoulli(torch.sigmoid(inputs + state))
        return state, state


def test_loops_that_draw_are_not_recorded(recorders: list[Remembering]) -> None:
    with tt.backend("aten"), torch.no_grad():
        tt.dynamic_rnn(Rolls(), torch.zeros(2, 9, 4), dtype=torch.float32)
    assert not recorders


def test_large_steps_and_single_steps_are_not_recorded(recorders: list[Remembering]) -> None:
    check_on("aten", BY_NAME["LSTM"].case(3, 2), None)
    with graph_policy.change(most_bytes=1):
        check_on("aten", BY_NAME["LSTM"].case(3, 9), None)
    assert not recorders


@pytest.mark.parametrize("name", ["empty pieces", "constant state"])
def test_what_a_program_makes_up_is_where_its_tensors_are(name: str) -> None:
    """Zeros of a program that was traced on a CPU, on another device."""
    case = next(listed.descriptor for listed in USER_CELLS if listed.descriptor.name == name).case(3, 4)
    with tt.backend("aten"):
        plan = tt.explain(case.cell, case.inputs, None, case.state, case.dtype)
    assert "device=device" in plan.source
    for loop in plan.executable.loops:
        shapes = [[3 if size is ROWS else size for size in value.shape] for value in loop._function.takes]
        given = [torch.empty(shape, device="meta") for shape in shapes]
        assert {result.device.type for result in loop._function(3, None, *given)} == {"meta"}


@pytest.mark.parametrize("most", [1, 2, 5, 8, 9, 33, 64, 100, 1000])
def test_blocks_have_few_sizes_and_room_enough(most: int) -> None:
    rooms = [capacity_for(rows, most) for rows in range(1, most + 1)]
    assert all(room >= rows for rows, room in enumerate(rooms, 1))
    assert all(room < 2 * rows for rows, room in enumerate(rooms, 1) if 2 * rows <= rooms[-1])
    assert max(rooms) <= 1.25 * most
    assert len(set(rooms)) <= most.bit_length() + 1


def walk_of(*counts: int, reverse: bool = False) -> tuple[TimeGrid, list[Chunk]]:
    active = torch.tensor(counts)
    grid = TimeGrid(StepLayout(active, active.cumsum(0) - active, 1, counts[0]), reverse=reverse)
    return grid, list(grid.pieces(3))


@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_cover_a_walk_once_in_order(reverse: bool) -> None:
    counts = [9, 9, 8, 8, 8, 7, 5, 4, 4, 2, 1, 1, 1]
    grid, pieces = walk_of(*counts, reverse=reverse)
    places = [place for piece in pieces for place in range(piece.first, piece.last)[:: -1 if reverse else 1]]
    assert places == list(range(13))[:: -1 if reverse else 1]
    assert [piece.last - piece.first for piece in pieces] == [3, 3, 3, 3, 1]
    for piece in pieces:
        assert piece.kind.rows >= counts[piece.first]
        assert piece.kind.downwards == reverse
        filled = [slot for slot, alive in enumerate(grid.alive(piece)) if alive]
        assert filled == list(range(piece.kind.steps)[piece.slots])


def test_tables_say_where_rows_come_from_and_go_to() -> None:
    grid, pieces = walk_of(3, 3, 1, 1, reverse=True)
    tables = Tables(grid, pieces, lagged=True, device=torch.device("cpu"))
    whole, rest = pieces
    assert (whole.first, whole.last, rest.first, rest.last) == (1, 4, 0, 1)
    assert whole.kind == ChunkShape(3, 3, masked=True, downwards=True)
    assert tables["sources", whole].tolist() == [3, 4, 5, 6, 6, 6, 7, 7, 7]
    assert tables["lagged", whole].tolist() == [0, 1, 2, 3, 3, 3, 6, 6, 6]
    assert tables["targets", whole].tolist() == [0, 1, 2, 3, 6]
    assert tables["alive", whole].tolist() == [3, 1, 1]
    # A walk downwards fills a block from its end.
    assert tables["targets", rest].tolist() == [3, 4, 5]
    assert tables["alive", rest].tolist() == [0, 3]
