"""Dropout on a cell: what is dropped, when, and whose random numbers say so."""

from __future__ import annotations

import copy
import itertools
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import throughtime as tt
from compare import check_same, measure
from descriptors import settled
from oracle import oracle

pytestmark = pytest.mark.covers("conformance")

F64 = torch.float64
B, T, SIZE = 3, 4, 50
ONES = torch.ones(B, T, SIZE)
WHERE = ["input", "output", "state"]


class Echo(tt.RNNCell):
    """Its output is its input and its state is what came in with it, so that masks can be seen."""

    def __init__(self, state_size: Any = SIZE) -> None:
        super().__init__()
        self.state_size, self.output_size = state_size, SIZE

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        return inputs, tt.LSTMStateTuple(inputs, inputs) if isinstance(self.state_size, tuple) else inputs


def unroll(cell: Any, **options: Any) -> tuple[Tensor, Any, Any]:
    """Outputs, last state and all states over ones."""
    return tt.dynamic_rnn(cell, ONES, dtype=torch.float32, all_states=True, **options)


def seen(cell: Any, where: str) -> Tensor:
    """The masks that an unroll over ones shows, [B, T, SIZE]."""
    outputs, _, states = unroll(cell)
    return states if where == "state" else outputs


def dropped(where: str, keep: float = 0.5, **options: Any) -> tt.DropoutWrapper:
    """Dropout on one part of an echo."""
    return tt.DropoutWrapper(Echo(), **{f"{where}_keep_prob": keep}, **options)


def frozen(where: str, **options: Any) -> tt.DropoutWrapper:
    """The same with variational masks."""
    return dropped(where, variational_recurrent=True, input_size=SIZE, dtype=torch.float32, **options)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_values_are_zero_or_divided_by_what_is_kept(where: str, keep: float) -> None:
    masks = seen(dropped(where, keep), where)
    assert set(masks.unique().tolist()) == {0.0, torch.tensor(1 / keep).item()}
    assert abs((masks > 0).float().mean().item() - keep) < 0.1


@pytest.mark.parametrize("where", WHERE)
def test_every_step_and_row_draws_anew(where: str) -> None:
    masks = seen(dropped(where), where).flatten(0, 1)
    assert not any(one.equal(other) for one, other in itertools.combinations(masks, 2))


@pytest.mark.parametrize("where", WHERE)
def test_variational_masks_are_one_for_all_steps_and_rows_of_an_unroll(where: str) -> None:
    cell = frozen(where)
    first, second = (seen(cell, where).flatten(0, 1) for _ in range(2))
    assert all(mask.equal(masks[0]) for masks in (first, second) for mask in masks)
    assert first[0].unique().tolist() == [0.0, 2.0]
    assert not first.equal(second)


def test_variational_masks_can_be_kept_or_redrawn_by_hand() -> None:
    cell, state = frozen("output"), torch.zeros(B, SIZE)
    first, again = (cell(ONES[:, 0], state)[0] for _ in range(2))
    cell.reset_masks()
    redrawn, _ = cell(ONES[:, 0], state)
    assert first.equal(again)
    assert not first.equal(redrawn)


def test_the_three_masks_are_independent() -> None:
    cell = tt.DropoutWrapper(Echo(), 0.5, 0.5, 0.5, variational_recurrent=True, input_size=SIZE, dtype=torch.float32)
    outputs, state, _ = unroll(cell)
    # The input mask is in both; the other two differ.
    assert ((outputs > 0) != (state > 0).unsqueeze(1)).any()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("make", [dropped, frozen])
def test_evaluation_drops_nothing_and_draws_nothing(where: str, make: Any) -> None:
    cell = make(where).eval()
    before = torch.get_rng_state()
    assert seen(cell, where).equal(ONES)
    assert torch.get_rng_state().equal(before)
    assert not seen(cell.train(), where).equal(ONES)


@pytest.mark.parametrize("keep", [1, 1.0, torch.tensor(1.0)], ids=["int", "float", "tensor"])
def test_keeping_everything_changes_nothing(keep: Any) -> None:
    outputs, state, _ = unroll(tt.DropoutWrapper(Echo(), keep, keep, keep))
    assert outputs.equal(ONES)
    assert state.equal(ONES[:, 0])


def test_the_probability_may_be_a_tensor_that_changes() -> None:
    keep = torch.tensor(0.5)
    cell = dropped("output", keep)
    assert seen(cell, "output").unique().tolist() == [0.0, 2.0]
    keep.fill_(0.25)
    assert seen(cell, "output").unique().tolist() == [0.0, 4.0]


def test_the_probability_may_be_learned() -> None:
    keep = torch.tensor(0.5, requires_grad=True)
    for options in ({}, {"checkpoint_every": 1}, {"checkpoint_every": 3}):
        outputs, *_ = unroll(dropped("output", keep, seed=1), **options)
        # Every kept value is 1 / keep, so that its derivative is minus the square of that.
        gradient = torch.autograd.grad(outputs.sum(), keep)[0]
        torch.testing.assert_close(gradient, -outputs.detach().square().sum())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_small_dtypes_drop_as_often_as_large_ones(dtype: torch.dtype) -> None:
    cell = dropped("output", 0.998)
    outputs, _ = tt.dynamic_rnn(cell, torch.ones(100, 20, SIZE, dtype=dtype), dtype=dtype)
    assert outputs.dtype is dtype
    assert 0.001 < (outputs == 0).double().mean().item() < 0.003


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("make", [dropped, frozen])
def test_a_seed_makes_masks_reproducible(where: str, make: Any) -> None:
    one, same, other = (make(where, seed=seed) for seed in (1, 1, 2))
    first, second = seen(one, where), seen(one, where)
    assert not first.equal(second)
    torch.manual_seed(99)
    assert seen(same, where).equal(first)
    assert seen(same, where).equal(second)
    assert not seen(other, where).equal(first)


def test_a_seed_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    seen(dropped("output", seed=1), "output")
    assert torch.get_rng_state().equal(before)


def test_a_copy_goes_on_where_the_original_was() -> None:
    cell = dropped("output", seed=1)
    seen(cell, "output")
    other = copy.deepcopy(cell)
    assert seen(cell, "output").equal(seen(other, "output"))


class TestStateFilter:
    def test_the_memory_of_an_lstm_is_never_dropped_by_default(self) -> None:
        cell = tt.DropoutWrapper(Echo(tt.LSTMStateTuple(SIZE, SIZE)), state_keep_prob=0.5)
        _, state, _ = unroll(cell)
        assert state.c.equal(ONES[:, 0])
        assert state.h.unique().tolist() == [0.0, 2.0]

    def test_not_even_inside_a_stack(self) -> None:
        inner = [Echo(tt.LSTMStateTuple(SIZE, SIZE)), Echo()]
        _, (first, second), _ = unroll(tt.DropoutWrapper(tt.MultiRNNCell(inner), state_keep_prob=0.5))
        assert first.c.equal(ONES[:, 0])
        assert first.h.unique().tolist() == second.unique().tolist() == [0.0, 2.0]

    @pytest.mark.parametrize(
        ("visitor", "c", "h"),
        [
            (lambda _: True, True, True),
            (lambda _: False, False, False),
            (lambda part: tt.LSTMStateTuple(True, False) if isinstance(part, tuple) else True, True, False),
            (lambda part: [False, True] if isinstance(part, tuple) else True, False, True),
        ],
        ids=["all", "nothing", "memory only", "output only"],
    )
    def test_a_visitor_decides(self, visitor: Any, c: bool, h: bool) -> None:
        echo = Echo(tt.LSTMStateTuple(SIZE, SIZE))
        cell = tt.DropoutWrapper(echo, state_keep_prob=0.5, dropout_state_filter_visitor=visitor)
        _, state, _ = unroll(cell)
        assert type(state) is tt.LSTMStateTuple
        assert [bool((leaf == 0).any()) for leaf in state] == [c, h]

    def test_integers_cannot_be_dropped_but_can_be_left_out(self) -> None:
        class Counter(Echo):
            def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
                return torch.zeros(batch_size, SIZE, dtype=torch.int64)

            def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
                return inputs, state + 1

        with pytest.raises(ValueError, match="dropout_state_filter_visitor"):
            unroll(tt.DropoutWrapper(Counter(), state_keep_prob=0.5))
        kept = tt.DropoutWrapper(Counter(), state_keep_prob=0.5, dropout_state_filter_visitor=lambda _: False)
        assert unroll(kept)[1].unique().tolist() == [T]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("checkpoint_every", [None, 2])
def test_one_sequence_draws_what_a_plain_loop_draws(seed: int | None, checkpoint_every: int | None) -> None:
    """On the reference, that is: compiled, the masks of all steps are drawn at once."""

    def cell() -> Any:
        torch.manual_seed(5)
        inner = settled(tt.LSTMCell(4), torch.ones(1, 1, 3, dtype=F64), F64)
        return tt.DropoutWrapper(inner, 0.6, 0.7, 0.8, seed=seed)

    def engine(cell: Any, inputs: Any, state: Any) -> Any:
        with tt.backend("reference"):
            return tt.dynamic_rnn(cell, inputs, [5], state, F64, checkpoint_every=checkpoint_every)

    def loop(cell: Any, inputs: Any, state: Any) -> Any:
        return oracle(cell, inputs, [5], state, F64)

    inputs, state = torch.randn(1, 6, 3, dtype=F64), tt.LSTMStateTuple(*torch.randn(2, 1, 4, dtype=F64))
    check_same(*(measure(run, cell(), inputs, state) for run in (loop, engine)))


def test_dropout_of_one_direction_is_not_that_of_the_other() -> None:
    cell = frozen("output")
    (forward, backward), _ = tt.bidirectional_dynamic_rnn(cell, cell, ONES, dtype=torch.float32)
    assert not forward.equal(backward)


def test_gradients_are_masked_as_values_are() -> None:
    cell = dropped("input")
    inputs = ONES.clone().requires_grad_()
    outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    assert torch.autograd.grad(outputs.sum(), inputs)[0].equal(outputs.detach())


def test_a_visitor_may_answer_with_a_dict_in_any_order() -> None:
    """Parts go by key, not by place."""

    class Keeps(tt.RNNCell):
        state_size: ClassVar = {"a": 3, "b": 3}
        output_size = 3

        def forward(self, inputs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return inputs, {"a": inputs, "b": inputs}

    def visitor(state: Any) -> Any:
        return {"b": False, "a": True} if isinstance(state, dict) else True

    cell = tt.DropoutWrapper(Keeps(), state_keep_prob=1e-9, dropout_state_filter_visitor=visitor)
    _, state = tt.dynamic_rnn(cell, torch.ones(2, 1, 3), dtype=torch.float32)
    assert not state["a"].any()
    assert state["b"].all()


def test_raw_rnn_draws_variational_masks_once_a_run() -> None:
    """The same mask at every step of a run, and another one in the next."""
    cell = tt.DropoutWrapper(
        tt.BasicRNNCell(64, input_size=3), output_keep_prob=0.5, variational_recurrent=True, dtype=torch.float32
    )

    def loop_fn(time: Tensor, output: Any, state: Any, _: Any) -> tuple[Any, Any, Any, Any, None]:
        state = cell.zero_state(2, torch.float32) if state is None else state
        return time >= 3, torch.ones(2, 3), state, output, None

    first, second = ((tt.raw_rnn(cell, loop_fn)[0].stack() == 0).flatten(0, 1) for _ in range(2))
    for dropped in (first, second):
        assert (dropped == dropped[0]).all()
    assert (first[0] != second[0]).any()


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_seed_of_its_own_inside_of_torchs_checkpoint(backend: str, reentrant: bool) -> None:
    """torch restores its own generator alone: without it, masks would be others in the backward pass."""
    x = torch.randn(2, 4, 3, requires_grad=True)
    for seed in (None, 5):
        cell = tt.DropoutWrapper(tt.GRUCell(4, input_size=3), output_keep_prob=0.5, seed=seed)

        def unroll(x: Tensor, cell: Any = cell) -> Tensor:
            with tt.backend(backend):
                return tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]

        loss = checkpoint(unroll, x, use_reentrant=reentrant).sum()
        if seed is None:
            loss.backward()
        else:
            with pytest.raises(RuntimeError, match=r"cannot draw the same numbers again.*Leave `seed` out"):
                loss.backward()
            # What it does by itself it can do again, and what draws nothing has nothing to repeat.
            tt.dynamic_rnn(cell, x, dtype=torch.float32, checkpoint_every=2)[0].sum().backward()
            cell.eval()
            checkpoint(unroll, x, use_reentrant=reentrant).sum().backward()


def test_a_state_without_parts_is_left_alone() -> None:
    class Stateless(tt.RNNCell):
        state_size, output_size = (), 3

        def forward(self, inputs: Any, state: Any) -> Any:
            return 2 * inputs, state

    cell = tt.DropoutWrapper(Stateless(), state_keep_prob=0.5)
    assert tt.dynamic_rnn(cell, torch.ones(2, 4, 3), dtype=torch.float32)[0].unique().tolist() == [2.0]


def test_input_sizes_go_by_key() -> None:
    class ByKey(tt.RNNCell):
        state_size = output_size = 3

        def forward(self, inputs: Any, state: Any) -> Any:
            return inputs["a"] + state, state

    options = {"variational_recurrent": True, "dtype": torch.float32, "input_size": {"a": 3, "b": 2}}
    cell = tt.DropoutWrapper(ByKey(), 0.5, **options)
    inputs = {"b": torch.ones(2, 4, 2), "a": torch.ones(2, 4, 3)}
    assert tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0].shape == (2, 4, 3)
