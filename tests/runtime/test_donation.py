"""Donation: the backward pass overwrites saved buffers, never too early, and never a tensor held elsewhere."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
import user_cells
from bound_call_cases import CELLS, LENGTHS, inputs
from loop_programs import PROGRAMS, Arguments, Writer, arguments, batch_major, make, packed, random_program
from throughtime.backends.cpu import bound_backward, compile_loop
from throughtime.backends.step_buffers import StepBuffers
from throughtime.compiler import LoopProgram
from throughtime.compiler.ir.loop_ir import Carry, Matrix
from throughtime.compiler.passes.pack_saved_values import pack_saved_values, spendable
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import REUSE
from throughtime.runtime.donation import DonationLock

pytestmark = [pytest.mark.covers("kernels"), pytest.mark.covers("memory")]
tree_leaves = torch.utils._pytree.tree_leaves


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each backward pass that allocates, how many streams took a place."""
    counts: list[int] = []
    plain = StepBuffers.make

    def noted(self: Any, *args: Any, **options: Any) -> list[Tensor]:
        counts.append(sum(place is not None for place in options.get("donated") or ()))
        return plain(self, *args, **options)

    monkeypatch.setattr(StepBuffers, "make", noted)
    return counts


OVERWRITING = {"LSTM", "peepholes", "projection", "stack", "layer norm"}


def gradients(cell: Any, x: Tensor, lengths: Any, *, retain: bool) -> list[Tensor]:
    outputs, state = tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)
    results = [outputs, *tree_leaves(state)]
    loss = sum(result.sin().sum() for result in results if result.is_floating_point())
    parameters = cell.parameters() if isinstance(cell, torch.nn.Module) else ()
    wanted = [x, *(parameter for parameter in parameters if parameter.requires_grad)]
    return [g for g in torch.autograd.grad(loss, wanted, retain_graph=retain, allow_unused=True) if g is not None]


@pytest.mark.parametrize("lengths", [None, LENGTHS, [5] * 6], ids=["T", "mixed", "alike"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_changes_no_bit(name: str, dtype: torch.dtype, lengths: Any, taken: list[int]) -> None:
    cell, x = CELLS[name]().to(dtype), inputs(dtype=dtype)
    # The first call goes the general way, the others the direct one.
    for _ in range(3):
        want = gradients(cell, x, lengths, retain=True)
        assert not sum(taken)
        got = gradients(cell, x, lengths, retain=False)
        assert all(map(torch.equal, got, want))
        # The others read what would fit once more after a product.
        assert (sum(taken) > 0) == (name in OVERWRITING)
        taken.clear()


@pytest.mark.parametrize("listed", user_cells.USER_CELLS, ids=lambda listed: listed.descriptor.name)
def test_changes_no_bit_of_cells_of_users(listed: user_cells.Listed) -> None:
    case = listed.case(6, 5)
    x = case.inputs
    assert isinstance(x, Tensor)
    x = x.detach().requires_grad_()
    for lengths in (None, [2, 0, 5, 1, 4, 5]):
        for _ in range(2):
            want, got = (gradients(case.cell, x, lengths, retain=retain) for retain in (True, False))
            assert all(map(torch.equal, got, want))


def test_a_graph_that_is_kept_can_be_gone_through_again(taken: list[int]) -> None:
    cell, x = CELLS["LSTM"]().double(), inputs()
    for _ in range(2):
        outputs = tt.dynamic_rnn(cell, x, LENGTHS, dtype=x.dtype)[0]
        found = [torch.autograd.grad(outputs.sum(), x, retain_graph=again)[0] for again in (True, True, False)]
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(outputs.sum(), x)
    # One stream in the last pass of each way, the general one and the direct one.
    assert sum(taken) == 2


def test_nothing_that_anybody_sees_is_changed(taken: list[int]) -> None:
    for make_cell in CELLS.values():
        cell, x = make_cell().double(), inputs()
        for _ in range(2):
            start = cell.zero_state(len(x), x.dtype)
            seen = [x, *cell.parameters(), *tree_leaves(start)]
            before = [tensor.detach().clone() for tensor in seen]
            outputs, state, states = tt.dynamic_rnn(cell, x, LENGTHS, start, all_states=True)
            results = [outputs, *tree_leaves(state), *tree_leaves(states)]
            copies = [result.detach().clone() for result in results]
            sum(result.sum() for result in results).backward()
            assert all(map(torch.equal, [*seen, *results], [*before, *copies]))
    assert sum(taken) > 0


def test_what_hooks_hand_out_is_theirs() -> None:
    cell, x = CELLS["LSTM"]().double(), inputs()
    want = gradients(cell, x, LENGTHS, retain=True)
    for _ in range(2):
        held: list[Tensor] = []
        copies: list[Tensor] = []

        def pack(tensor: Tensor, held: list[Tensor] = held, copies: list[Tensor] = copies) -> int:
            held.append(tensor.detach())
            copies.append(tensor.detach().clone())
            return len(held) - 1

        with torch.autograd.graph.saved_tensors_hooks(pack, held.__getitem__):
            got = gradients(cell, x, LENGTHS, retain=False)
        assert all(map(torch.equal, got, want))
        assert all(map(torch.equal, held, copies))


def test_what_failed_while_it_wrote_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = CELLS["LSTM"]().double(), inputs()
    want = gradients(cell, x, LENGTHS, retain=True)

    def fails(*_: Any) -> Any:
        raise MemoryError("there is none left")

    def fail(outputs: Tensor, where: Any, name: str, *, retain: bool) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fails)
            with pytest.raises(MemoryError):
                torch.autograd.grad(outputs.sum(), x, retain_graph=retain)

    outputs = tt.dynamic_rnn(cell, x, LENGTHS, dtype=x.dtype)[0]
    fail(outputs, bound_backward.PreviousStep, "of", retain=False)
    with pytest.raises(RuntimeError, match="has been written over by another one"):
        torch.autograd.grad(outputs.sum(), x)
    # Before anything is written, and in a graph that is kept, nothing is lost.
    for where, name, retain in (
        (bound_backward, "own_state", False),
        (bound_backward.PreviousStep, "of", True),
    ):
        outputs = tt.dynamic_rnn(cell, x, LENGTHS, dtype=x.dtype)[0]
        fail(outputs, where, name, retain=retain)
        torch.autograd.grad(outputs.sum(), x)
    assert all(map(torch.equal, gradients(cell, x, LENGTHS, retain=False), want))


def test_threads_in_one_graph() -> None:
    """All of them keep it: torch itself may crash if one does not."""
    cell, x = tt.LSTMCell(64, input_size=5), torch.randn(16, 100, 5, requires_grad=True)
    want = torch.autograd.grad(tt.dynamic_rnn(cell, x, dtype=x.dtype)[0].sum(), x, retain_graph=True)[0]
    loss = tt.dynamic_rnn(cell, x, dtype=x.dtype)[0].sum()

    def back(_: int) -> bool:
        return torch.equal(torch.autograd.grad(loss, x, retain_graph=True)[0], want)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(back, range(30)))
    assert torch.equal(torch.autograd.grad(loss, x)[0], want)


def test_claims() -> None:
    claim = DonationLock()
    with claim, claim:
        assert not claim.take()
    with claim:
        assert claim.take()
        with pytest.raises(RuntimeError, match="written over"), claim:
            raise AssertionError
    with pytest.raises(RuntimeError, match="retain_graph=True"), claim:
        raise AssertionError


def pairs(program: LoopProgram) -> list[tuple[int, int]]:
    """Stored rows, and given streams whose places they may take."""
    fed = set() if program.ahead is None else set(program.ahead.feeds)
    own = [row.name for index, row in enumerate(program.streams) if index not in fed]
    found = compile_loop(program).replaceable
    return [(stored, own.index(name)) for stored, name in sorted(found) if name in own]


def check_in_place(program: LoopProgram, steps: StepLayout, rows: int) -> int:
    """Run a kernel apart and, for each pair, in place: the results are the same to the bit. How many pairs."""
    apart, kernel, last = arguments(program, steps, rows), compile_loop(program), len(steps.active)
    streams = [stream.clone() for stream in apart.streams]
    together = apart.copy()
    kernel.run(*apart.every(), steps, 0, last, 2)
    found = pairs(program)
    for stored, stream in found:
        own = [tensor.clone() for tensor in streams]
        results = together.copy()
        results.stored[stored] = own[stream]
        given = Arguments(own, apart.lagged, apart.constants, apart.matrices, results.carried, results.stored)
        kernel.run(*given.every(), steps, 0, last, 2)
        for got, want in zip(given.results(), apart.results(), strict=True):
            assert torch.equal(got.nan_to_num(), want.nan_to_num())
    return len(found)


BATCHES = [packed(5, 5, 3, 1), batch_major(4, 3)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_kernels_in_place(program: Any) -> None:
    for dtype, units, (steps, rows) in itertools.product((torch.float32, torch.float64), (5, 16, 33), BATCHES):
        check_in_place(program(units, dtype), steps, rows)


def test_random_kernels_in_place() -> None:
    found = [check_in_place(random_program(seed, torch.float64), *BATCHES[seed % 2]) for seed in range(150)]
    # Enough of them to mean something.
    assert sum(count > 0 for count in found) > 40


def test_who_reads_too_late_keeps_its_place() -> None:
    """A stream that is read again after a product, or in columns that were written before."""
    w = Writer(torch.float64)
    x, y, z, h = w.row("x", 8), w.row("y", 8), w.row("z", 8), w.row("h", 8)
    matrix = Matrix("matrix", 8, 8, torch.float64)
    early = w("mul", x, y)
    shifted = w("cat", w("slice", z, 2, 8, width=6), w("slice", z, 0, 2, width=2), width=8)
    late = w("add", w("product", w("add", early, h), matrix, width=8), y)
    program = make(
        w, "late", streams=[x, y, z], matrices=[matrix], carried=[Carry(h, late)], stored=[early, shifted]
    )  # fmt: skip
    assert pairs(program) == [(0, 0)]
    check_in_place(program, *BATCHES[0])


def test_columns_that_change_places_do_so_at_once() -> None:
    w = Writer(torch.float64)
    x, h = w.row("x", 32), w.row("h", 32)
    turned = w("cat", w("slice", x, 16, 32, width=16), w("slice", x, 0, 16, width=16), width=32)
    program = make(w, "turned", streams=[x], carried=[Carry(h, w("add", h, turned))], stored=[turned])
    assert pairs(program) == [(0, 0)]
    check_in_place(program, *BATCHES[0])


def program_of(cell: Any, width: int = 3) -> Any:
    with tt.backend("aten"):
        return tt.explain(cell, torch.zeros(2, 5, width)).program


def test_kept_values_are_joined_to_what_is_stored() -> None:
    program = program_of(tt.LSTMCell(20, input_size=3))
    joined = pack_saved_values(program)
    assert [value.row_size for value in spendable(program)] == [20] * 5
    assert [(value.name, value.row_size) for value in spendable(joined)] == [("saved", 80), ("sigmoid", 20)]
    assert [value.row_size for value in joined.adjoint.loop.stored] == [80]
    # The other is as it was: backends share it.
    assert [value.row_size for value in spendable(program)] == [20] * 5


@pytest.mark.parametrize("cell", [tt.GRUCell(20, input_size=3), tt.BasicRNNCell(20, input_size=3)], ids=["GRU", "RNN"])
def test_what_fits_already_or_not_at_all_is_left_alone(cell: Any) -> None:
    program = program_of(cell)
    assert pack_saved_values(program) is program


def test_the_peak_of_memory_is_lower() -> None:
    """A backward pass that overwrites asks for no stream of its own."""
    cell = tt.LSTMCell(128, input_size=16)
    x = torch.randn(32, 100, 16)

    def peak(retain: bool) -> int:
        gradients_of = list(cell.parameters())
        outputs = tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]
        REUSE.clear()
        held = REUSE._used_bytes
        torch.autograd.grad(outputs.sum(), gradients_of, retain_graph=retain)
        return REUSE._most_bytes - held

    peak(True)
    gates = 32 * 100 * 4 * 128 * 4
    assert peak(True) >= gates
    assert peak(False) < gates
