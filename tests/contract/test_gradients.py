"""Gradients against finite differences, to second order; and what must never reach one: padding."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import measure, weights
from descriptors import BY_NAME, DESCRIPTORS, Case, Descriptor, poisoned, random_inputs
from unrolls import EVERY_UNROLL, Unroll, dynamic, each_unroll

pytestmark = pytest.mark.covers("gradients")

LENGTHS = [2, 0, 3]
PACKABLE = [2, 1, 3]
SMOOTH = [descriptor for descriptor in DESCRIPTORS if descriptor.name != "BasicRNN relu"]

every_cell = pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
every_smooth_cell = pytest.mark.parametrize("descriptor", SMOOTH, ids=lambda descriptor: descriptor.name)
# torch's own way from a jagged NestedTensor to its rows has no second derivative.
every_unroll, every_unroll_twice = each_unroll(), each_unroll(but="jagged")


def sources(case: Case) -> list[Tensor]:
    """Everything a gradient can be asked of: inputs, initial state, weights."""
    leaves = [leaf for leaf in pytree.tree_leaves((case.inputs, case.state)) if leaf.is_floating_point()]
    return [leaf.requires_grad_() for leaf in leaves] + weights(case.cell)


def as_function(case: Case, unroll: Any, lengths: list[int] | None) -> Any:
    """An unroll as a function of its sources, which gradcheck changes in place."""

    def function(*_sources: Tensor) -> tuple[Tensor, ...]:
        # The same dropout masks every time.
        torch.manual_seed(0)
        results = unroll(case.cell, case.inputs, lengths, case.state, case.dtype)
        return tuple(leaf for leaf in pytree.tree_leaves(results) if leaf.is_floating_point())

    return function


def lengths_for(unroll: Unroll) -> list[int]:
    """Lengths that this unroll takes."""
    return LENGTHS if unroll.empty_sequences else PACKABLE


@every_smooth_cell
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck], ids=["first", "second"])
def test_every_cell(descriptor: Descriptor, check: Any) -> None:
    case = descriptor.case(3, 3, units=2)
    assert check(as_function(case, dynamic, LENGTHS), sources(case), fast_mode=True)


@every_unroll
@pytest.mark.parametrize("name", ["LSTM full", "nests", "scalar state"])
def test_every_unroll(unroll: Unroll, name: str) -> None:
    case = BY_NAME[name].case(3, 3, units=2)
    assert gradcheck(as_function(case, unroll.run, lengths_for(unroll)), sources(case), fast_mode=True)


@every_unroll_twice
def test_every_unroll_to_second_order(unroll: Unroll) -> None:
    case = BY_NAME["LSTM full"].case(3, 3, units=2)
    assert gradgradcheck(as_function(case, unroll.run, lengths_for(unroll)), sources(case), fast_mode=True)


def test_the_slow_way_once() -> None:
    case = BY_NAME["GRU"].case(2, 2, units=1)
    assert gradcheck(as_function(case, dynamic, [2, 1]), sources(case))
    assert gradgradcheck(as_function(case, dynamic, [2, 1]), sources(case))


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck], ids=["first", "second"])
def test_all_states(check: Any) -> None:
    case = BY_NAME["LSTM"].case(3, 3, units=2)
    assert check(as_function(case, partial(dynamic, all_states=True), LENGTHS), sources(case), fast_mode=True)


def poison_case(case: Case, lengths: list[int], poison: float) -> Case:
    """A case with `poison` in the padding."""
    return case._replace(inputs=poisoned(case.inputs, lengths, poison))


@every_cell
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_poison_in_the_padding_reaches_no_gradient(descriptor: Descriptor, poison: float) -> None:
    torch.manual_seed(1)
    clean = descriptor.case(3, 4)
    run = lambda cell, inputs, state: dynamic(cell, inputs, LENGTHS, state, clean.dtype)  # noqa: E731
    bad = poison_case(clean, LENGTHS, poison)
    want, got = (measure(run, case.cell, case.inputs, case.state) for case in (clean, bad))
    assert all(torch.equal(*pair) for pair in zip(*map(pytree.tree_leaves, (want, got)), strict=True))


@every_unroll_twice
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_poison_in_the_padding_reaches_no_second_gradient(unroll: Unroll, poison: float) -> None:
    lengths = lengths_for(unroll)
    case = poison_case(BY_NAME["LSTM full"].case(3, 4), lengths, poison)
    wanted = sources(case)
    results = as_function(case, unroll.run, lengths)()
    first = torch.autograd.grad(sum(leaf.square().sum() for leaf in results), wanted, create_graph=True)
    second = torch.autograd.grad(sum(leaf.square().sum() for leaf in first), wanted)
    assert all(leaf.isfinite().all() for leaf in (*results, *first, *second))
    assert all(leaf.any() for leaf in second)
    past = ~(torch.arange(4) < torch.tensor(lengths)[:, None])
    assert not first[0][past].any()
    assert not second[0][past].any()


@every_unroll
def test_poisoned_cotangents_of_the_padding_reach_nothing(unroll: Unroll) -> None:
    """A loss that is NaN where there is no output, as a masked loss that divides by the mask, changes no gradient."""
    lengths = lengths_for(unroll)
    case = BY_NAME["GRU"].case(3, 4)
    wanted = sources(case)
    outputs, _ = unroll.run(case.cell, case.inputs, lengths, case.state, case.dtype)
    leaves = pytree.tree_leaves(outputs)
    pulls = poisoned([torch.ones_like(leaf) for leaf in leaves], lengths)
    assert all(leaf.isfinite().all() for leaf in torch.autograd.grad(leaves, wanted, pulls, allow_unused=True))


@pytest.mark.parametrize("time", [0, 3])
def test_the_state_of_an_empty_sequence_is_passed_on_whole(time: int) -> None:
    case = BY_NAME["LSTM"].case(2, time)
    sources(case)
    _, final = tt.dynamic_rnn(case.cell, case.inputs, [0, 0], case.state)
    pulls = pytree.tree_map(torch.randn_like, final)
    found = torch.autograd.grad(list(final), list(case.state), list(pulls))
    assert all(torch.equal(*pair) for pair in zip(found, pulls, strict=True))


@every_cell
def test_only_the_final_state_is_used(descriptor: Descriptor) -> None:
    check_part(descriptor, lambda outputs, final: final)


@every_cell
def test_only_the_outputs_are_used(descriptor: Descriptor) -> None:
    check_part(descriptor, lambda outputs, final: outputs)


@every_cell
def test_only_one_step_is_used(descriptor: Descriptor) -> None:
    check_part(descriptor, lambda outputs, final: pytree.tree_map(lambda leaf: leaf[:, 1], outputs))


@every_cell
def test_only_one_leaf_is_used(descriptor: Descriptor) -> None:
    check_part(descriptor, lambda outputs, final: pytree.tree_leaves(outputs)[-1])


def check_part(descriptor: Descriptor, part: Any) -> None:
    """The gradient of a part of the results is that of the oracle."""
    unroll = EVERY_UNROLL["dynamic"]
    chosen = unroll._replace(
        run=lambda *problem: part(*unroll.run(*problem)), reference=lambda *problem: part(*unroll.reference(*problem))
    )
    chosen.check(descriptor.case(3, 3), LENGTHS)


@every_unroll
def test_frozen_weights_get_nothing_and_stop_nothing(unroll: Unroll) -> None:
    case = BY_NAME["LSTM"].case(3, 3)
    case.cell.kernel.requires_grad_(False)
    unroll.check(case, lengths_for(unroll))
    case.cell.requires_grad_(False)
    unroll.check(case, lengths_for(unroll))


@every_unroll
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(unroll: Unroll, mode: Any) -> None:
    case = BY_NAME["LSTM"].case(3, 3)
    run = partial(unroll.run, case.cell, case.inputs, lengths_for(unroll), case.state, case.dtype)
    with mode():
        quiet = run()
    recorded = pytree.tree_leaves(run())
    for leaf, usual in zip(pytree.tree_leaves(quiet), recorded, strict=True):
        assert not leaf.requires_grad
        assert usual.requires_grad
        torch.testing.assert_close(leaf, usual.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("time", [0, 3])
def test_a_cell_built_without_gradients_still_learns(mode: Any, time: int) -> None:
    cell = tt.LSTMCell(4, num_proj=2)
    with mode():
        tt.dynamic_rnn(cell, torch.ones(2, time, 3), dtype=torch.float32)
    outputs, _ = tt.dynamic_rnn(cell, torch.ones(2, 3, 3), dtype=torch.float32)
    outputs.sum().backward()
    assert all(parameter.grad is not None for parameter in cell.parameters())


@pytest.mark.parametrize(("batch", "time"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "nests", "Embedding"])
def test_gradients_of_nothing_are_zeros(name: str, batch: int, time: int) -> None:
    case = BY_NAME[name].case(batch, time)
    run = lambda cell, inputs, state: dynamic(cell, inputs, None, state, case.dtype)  # noqa: E731
    measured = measure(run, case.cell, case.inputs, case.state)
    assert not any(gradient.any() for key, gradient in measured.gradients.items() if key.startswith("weights"))


def test_gradients_flow_into_what_made_the_inputs_and_the_state() -> None:
    """An encoder below, a learned initial state beside: the unroll is one part of a larger graph."""
    cell, below, start = tt.GRUCell(4, input_size=3), torch.nn.Linear(2, 3), torch.nn.Parameter(torch.zeros(4))
    outputs, _ = tt.dynamic_rnn(cell, below(random_inputs(2, 3, 4, torch.float32)), LENGTHS, start.expand(3, 4))
    outputs.square().sum().backward()
    assert all(weight.grad.any() for weight in (below.weight, start, *cell.parameters()))


def test_a_second_backward_pass_needs_no_second_forward() -> None:
    case = BY_NAME["LSTM"].case(3, 4)
    wanted = sources(case)
    for options in ({}, {"checkpoint_every": 2}):
        outputs, _ = dynamic(case.cell, case.inputs, LENGTHS, case.state, case.dtype, **options)
        once = torch.autograd.grad(outputs.sum(), wanted, retain_graph=True)
        again = torch.autograd.grad(outputs.sum(), wanted)
        assert all(torch.equal(*pair) for pair in zip(once, again, strict=True))


@pytest.mark.parametrize("noise", [{}, {"seed": 3}], ids=["unseeded", "seeded"])
def test_recomputed_dropout_keeps_its_masks_for_every_backward_pass(noise: dict[str, int]) -> None:
    cell = tt.DropoutWrapper(tt.GRUCell(4, input_size=3, dtype=torch.float64), 0.5, 0.5, 0.5, **noise)
    inputs = random_inputs(3, 3, 4, torch.float64).requires_grad_()
    outputs, _ = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float64, checkpoint_every=2)
    once = torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)[0]
    tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float64, checkpoint_every=2)
    again = torch.autograd.grad(outputs.sum(), inputs)[0]
    assert once.any()
    assert torch.equal(once, again)


@pytest.mark.parametrize("name", ["LSTM", "nests", "Dropout variational"])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_second_gradients_through_recomputation(name: str, every: int) -> None:
    case = BY_NAME[name].case(3, 4)
    wanted = sources(case)

    def second(**options: Any) -> Any:
        results = as_function(case, partial(dynamic, **options), LENGTHS)()
        first = torch.autograd.grad(sum(leaf.square().sum() for leaf in results), wanted, create_graph=True)
        return torch.autograd.grad(sum(leaf.square().sum() for leaf in first), wanted)

    for usual, recomputed in zip(second(), second(checkpoint_every=every), strict=True):
        torch.testing.assert_close(usual, recomputed)
