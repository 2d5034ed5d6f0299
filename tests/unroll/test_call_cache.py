"""Calls that are known go a shorter way: what it must not do to states, cells and threads on the way."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from compare import check_close
from throughtime.cells._base import starts_from_zeros
from throughtime.compiler import GuardCache
from throughtime.unroll import _engine

pytestmark = pytest.mark.covers("compiler")

X = torch.randn(3, 4, 2)


class LearnedStart(tt.GRUCell):
    """A cell whose first state is a parameter."""

    def __init__(self, *, expand: bool) -> None:
        super().__init__(5, input_size=2)
        self.start = nn.Parameter(torch.zeros(1 if expand else 3, 5))

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Tensor:
        return self.start.expand(batch_size, -1)


class Counted(tt.RNNCell):
    """A cell with a number in its state that belongs to no row."""

    state_size, output_size = (2, torch.Size([])), 2

    def forward(self, inputs: Tensor, state: Any) -> Any:
        h, count = state
        return torch.tanh(inputs + h) * (count + 1), (torch.tanh(inputs + h), count + 1)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        return torch.zeros(batch_size, 2, dtype=dtype), torch.zeros((), dtype=dtype)


def runs(cell: Any, count: int = 4, **options: Any) -> list[list[Tensor]]:
    """The same call again and again, without gradients, so that it is known from the second one on."""
    with torch.no_grad():
        found = [tt.dynamic_rnn(cell, X, dtype=torch.float32, **options) for _ in range(count)]
    return [torch.utils._pytree.tree_leaves(one) for one in found]


@pytest.mark.parametrize("expand", [False, True])
def test_a_state_that_belongs_to_the_cell_is_not_written_to(expand: bool) -> None:
    cell = LearnedStart(expand=expand)
    with tt.backend("reference"):
        (want,) = runs(cell, 1)
    for found in runs(cell):
        check_close("a call", want, found)
    assert not cell.start.any()


def test_a_given_state_is_not_written_to() -> None:
    cell, state = tt.GRUCell(5, input_size=2), torch.zeros(1, 5).expand(3, 5)
    first, *others = runs(cell, initial_state=state)
    assert not state.any()
    assert all(torch.equal(*pair) for other in others for pair in zip(first, other, strict=True))


def test_a_state_without_rows() -> None:
    with tt.backend("reference"):
        (want,) = runs(Counted(), 1)
    for found in runs(Counted()):
        check_close("a call", want, found)


def test_a_part_of_the_state_without_a_size() -> None:
    """`()` takes anything: here a counter for each row, which the cell makes."""

    class Counting(tt.RNNCell):
        state_size, output_size = (3, ()), 3

        def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
            return torch.zeros(batch_size, 3, dtype=dtype), torch.zeros(batch_size, dtype=torch.long)

        def forward(self, inputs: Tensor, state: Any) -> Any:
            return inputs, (state[0] + inputs, state[1] + 1)

    cell, inputs = Counting(), torch.randn(2, 4, 3)
    for lengths in (None, [4, 1]):
        for _ in range(3):
            _, (_, count) = tt.dynamic_rnn(cell, inputs, lengths, dtype=torch.float32)
            assert count.tolist() == (lengths or [4, 4])


def test_a_state_made_by_a_method_of_the_cell_alone() -> None:
    cell: Any = tt.GRUCell(5, input_size=2)
    cell.zero_state = lambda batch_size, dtype, device=None: torch.ones(batch_size, 5, dtype=dtype)
    cell.get_initial_state = lambda inputs=None, batch_size=None, dtype=None: cell.zero_state(batch_size, dtype)
    first, *others = runs(cell)
    assert all(torch.equal(*pair) for other in others for pair in zip(first, other, strict=True))


def test_a_cell_dies_with_its_last_name() -> None:
    cell = tt.LSTMCell(5, input_size=2)
    runs(cell)
    tt.dynamic_rnn(cell, X, dtype=torch.float32)
    last = weakref.ref(cell), weakref.ref(cell.kernel)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del cell
        assert [name() for name in last] == [None, None]
    finally:
        if enabled:
            gc.enable()


def test_threads_that_meet_a_changed_cell() -> None:
    cell: Any = tt.LSTMCell(5, input_size=2)
    runs(cell)
    failed: list[Exception] = []

    def call() -> None:
        try:
            runs(cell, 1)
        except Exception as error:
            failed.append(error)

    for number in range(20):
        cell.forget_bias = float(number)
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


@pytest.mark.parametrize("lengths", [None, [4, 1, 0]])
def test_another_default_device(lengths: list[int] | None) -> None:
    cell = tt.LSTMCell(5, input_size=2)
    want = runs(cell, sequence_length=lengths)[-1]
    with torch.device("meta"):
        found = runs(cell, sequence_length=lengths)[-1]
    check_close("under another default device", want, found)


@pytest.mark.parametrize("lengths", [None, [4, 1, 0]])
def test_inputs_with_a_sign_that_waits(lengths: list[int] | None) -> None:
    cell = tt.LSTMCell(5, input_size=2)
    with torch.no_grad():
        found = [
            tt.dynamic_rnn(cell, torch._neg_view(X), sequence_length=lengths, dtype=torch.float32)[0] for _ in range(2)
        ]
        want = tt.dynamic_rnn(cell, -X, sequence_length=lengths, dtype=torch.float32)[0]
    check_close("negated", [want, want], found)


def trained(cell: Any, x: Tensor, lengths: list[int] | None, change: Any = None) -> list[Tensor]:
    """Outputs, state, and all gradients of a call; `change` may do something to the outputs."""
    outputs, state = tt.dynamic_rnn(cell, x, sequence_length=lengths, dtype=torch.float32)
    changed = outputs if change is None else change(outputs)
    leaves = torch.utils._pytree.tree_leaves(state)
    loss = (changed * torch.arange(changed.numel()).view_as(changed)).sum() + sum(leaf.cos().sum() for leaf in leaves)
    return [changed, *leaves, *torch.autograd.grad(loss, [x, *cell.parameters()])]


CELLS = [tt.LSTMCell(5, input_size=2), tt.BasicRNNCell(5, input_size=2), tt.GRUCell(5, input_size=2)]


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, [4, 1, 0]])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_with_gradients(cell: Any, lengths: list[int] | None, time_major: bool) -> None:
    """The first call and the known ones after it, from zeros and from a state, with gradients of gradients."""
    x = X.clone().requires_grad_()
    inputs = x.transpose(0, 1).contiguous() if time_major else x
    start = torch.utils._pytree.tree_map(
        lambda leaf: torch.rand_like(leaf).requires_grad_(), cell.zero_state(3, X.dtype)
    )

    def run(given: Any) -> list[Tensor]:
        outputs, state = tt.dynamic_rnn(cell, inputs, lengths, given, torch.float32, time_major=time_major)
        leaves = torch.utils._pytree.tree_leaves((outputs, state))
        wanted = [x, *cell.parameters(), *([] if given is None else torch.utils._pytree.tree_leaves(given))]
        first = torch.autograd.grad(sum((leaf**3).sum() for leaf in leaves), wanted, create_graph=True)
        second = torch.autograd.grad(sum((leaf**2).sum() for leaf in first), wanted, allow_unused=True)
        return [*leaves, *first, *(leaf for leaf in second if leaf is not None)]

    for given in (None, start):
        with tt.backend("reference"):
            want = run(given)
        for _ in range(3):
            check_close("a call", want, run(given))


@pytest.mark.parametrize("lengths", [None, [4, 1, 0]])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_outputs_are_their_owners_to_change(cell: Any, lengths: list[int] | None) -> None:
    x = X.clone().requires_grad_()
    want = trained(cell, x, lengths, lambda outputs: outputs * 2)
    for _ in range(3):
        check_close("changed in place", want, trained(cell, x, lengths, lambda outputs: outputs.mul_(2)))


@pytest.mark.parametrize("lengths", [None, [4, 1, 0]])
def test_what_a_call_keeps_goes_with_its_outputs(lengths: list[int] | None) -> None:
    cell = tt.LSTMCell(5, input_size=2)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(3):
            outputs, state = tt.dynamic_rnn(cell, X, lengths, dtype=torch.float32)
            last = weakref.ref(outputs.grad_fn)
            del outputs, state
            assert last() is None
    finally:
        if enabled:
            gc.enable()


def test_a_stack_begins_with_zeros_only_if_all_its_cells_do() -> None:
    plain, strange = tt.LSTMCell(3, input_size=3), tt.cells.SLSTMCell(3, input_size=3)
    wrapped = tt.ResidualWrapper(tt.DropoutWrapper(tt.GRUCell(3, input_size=3)))
    assert starts_from_zeros(tt.MultiRNNCell([plain, wrapped]))
    assert not starts_from_zeros(strange)
    assert not starts_from_zeros(tt.MultiRNNCell([plain, tt.ResidualWrapper(strange)]))
    assert not starts_from_zeros(LearnedStart(expand=True))
    assert not starts_from_zeros(tt.ResidualWrapper(LearnedStart(expand=True)))


def test_a_cell_with_dropout_is_known_at_a_glance() -> None:
    cell = tt.DropoutWrapper(tt.LSTMCell(2, input_size=2), output_keep_prob=0.5)
    for _ in range(2):
        tt.dynamic_rnn(cell, X, dtype=torch.float32)
    assert GuardCache.last(cell) is not None


@pytest.mark.parametrize("lengths", [None, [4, 1, 2]])
@pytest.mark.parametrize("backend", ["reference", "aten", "cpu"])
def test_batches_of_gradients(backend: str, lengths: list[int] | None) -> None:
    """Many gradients at once, for a Jacobian: torch gives tensors that stand for all of them and have no memory."""
    cell, x = tt.GRUCell(2, input_size=2), X.clone().requires_grad_()
    # The second time the call is known.
    for _ in range(2):
        with tt.backend(backend):
            outputs, _ = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
        wanted, directions = [x, *cell.parameters()], torch.randn(3, *outputs.shape)
        together = torch.autograd.grad(outputs, wanted, directions, is_grads_batched=True, retain_graph=True)
        single = [torch.autograd.grad(outputs, wanted, one, retain_graph=True) for one in directions]
        for many, ones in zip(together, zip(*single, strict=True), strict=True):
            torch.testing.assert_close(many, torch.stack(ones))


def doubled() -> Any:
    """The class of a cell's helper, with a method of every kind; a new one each time, to be changed."""

    class Doubled:
        @property
        def factor(self) -> float:
            return 2.0

        @staticmethod
        def scaled(x: Tensor, by: float = 2.0) -> Tensor:
            return by * x

    return Doubled


class Helped(tt.RNNCell):
    state_size = output_size = 2

    def __init__(self, helper: Any) -> None:
        super().__init__()
        self.helper = helper

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(self.helper.scaled(inputs) + self.helper.factor * state)
        return new, new


def replaced_property(helper: Any) -> None:
    helper.factor = property(lambda _: -1.0)


def replaced_staticmethod(helper: Any) -> None:
    helper.scaled = staticmethod(lambda x: -x)


def changed_default(helper: Any) -> None:
    helper.scaled.__defaults__ = (-3.0,)


@pytest.mark.parametrize("change", [replaced_property, replaced_staticmethod, changed_default])
def test_methods_of_other_kinds_are_watched(change: Any) -> None:
    helper = doubled()
    cell = Helped(helper())
    before = runs(cell)[-1]
    change(helper)
    after = runs(cell)[-1]
    with tt.backend("reference"):
        check_close("changed", runs(cell, 1)[0], after)
    assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("backend", ["cpu", "aten"])
@pytest.mark.parametrize("time_major", [False, True])
def test_outputs_that_are_changed_in_place_are_computed_again(backend: str, time_major: bool) -> None:
    """They are no views of something else, and the backward pass reads them as they were."""
    cell, x = tt.GRUCell(5, input_size=2), X.clone().requires_grad_()

    def gradient(change: Callable[[Tensor], Tensor]) -> Tensor:
        with tt.backend(backend):
            outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32, time_major=time_major)
        return torch.autograd.grad(change(outputs).square().sum(), x)[0]

    for _ in range(3):
        assert torch.equal(gradient(lambda outputs: outputs.add_(1)), gradient(lambda outputs: outputs + 1))


class Echo(tt.RNNCell):
    """A cell that gives its inputs back, twice."""

    state_size, output_size = 2, (2, 2)

    def forward(self, inputs: Tensor, state: Tensor) -> Any:
        return (inputs, inputs), torch.tanh(inputs + state)


@pytest.mark.parametrize("backend", ["cpu", "aten"])
def test_outputs_that_are_the_inputs_are_tensors_of_their_own(backend: str) -> None:
    x = X.clone().requires_grad_()
    for _ in range(3):
        with tt.backend(backend):
            (one, other), _ = tt.dynamic_rnn(Echo(), x, dtype=torch.float32)
        one.mul_(2)
        assert torch.equal(x, X)
        assert torch.equal(other, X)
        (gradient,) = torch.autograd.grad((one + 3 * other).sum(), x)
        assert torch.equal(gradient, torch.full_like(X, 5))


@pytest.mark.parametrize("lengths", [None, [4, 1, 2]])
def test_gradients_that_nobody_gave_belong_to_nobody(lengths: list[int] | None) -> None:
    """Zeros that stand for them are shared by all calls: what a user does to a gradient must not reach them."""
    for cell in (Echo(), tt.LSTMCell(3, input_size=2)):
        found = []
        for _ in range(4):
            x = X.clone().requires_grad_()
            _, state = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
            final = state if isinstance(state, Tensor) else state.c
            final.sum().backward()
            assert x.grad is not None
            found.append(x.grad.clone())
            x.grad.fill_(torch.nan)
        assert all(torch.equal(gradient, found[0]) for gradient in found)
        assert not found[0].isnan().any()


class Looking(tt.RNNCell):
    """A cell whose branch depends on values: only the reference runs it."""

    state_size = output_size = 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, inputs: torch.Tensor, state: torch.Tensor) -> Any:
        state = self.scale * (inputs + state) if inputs.sum() > 0 else inputs - state
        return state, state


def test_calls_on_the_reference_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = Looking(), torch.randn(3, 5, 2)
    lengths = [None, [5, 2, 0]]
    with tt.backend("reference"):
        expected = [tt.dynamic_rnn(cell, x, length, dtype=torch.float32) for length in lengths]
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    monkeypatch.setattr(_engine, "choose", None)
    again = [tt.dynamic_rnn(cell, x, length, dtype=torch.float32) for length in lengths]
    check_close("results", expected, again)


def test_a_hook_on_the_cell_sees_every_step_of_the_reference() -> None:
    cell, x = Looking(), torch.randn(3, 5, 2)
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    seen: list[Any] = []
    cell.register_forward_hook(lambda *call: seen.append(call))
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    assert len(seen) == 5


def test_a_step_that_goes_wrong_late_is_named() -> None:
    class Growing(Looking):
        def forward(self, inputs: torch.Tensor, state: torch.Tensor) -> Any:
            output, state = super().forward(inputs, state)
            return output, state.double() if inputs[0, 0] == 9 else state

    x = torch.ones(3, 5, 2)
    x[0, 3] = 9
    with pytest.raises(TypeError, match="the state of the cell Growing has another dtype"):
        tt.dynamic_rnn(Growing(), x, dtype=torch.float32)
