"""Dropout in compiled cells: masks for all steps at once, the right ones in the backward pass, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import throughtime as tt
from backends import check_on, compiled_backends, plan_of
from compare import check_same, measure
from descriptors import Case, random_inputs, settled
from unrolls import dynamic, on

pytestmark = pytest.mark.covers("compiler")

F64 = torch.float64
LENGTHS = [3, 0, 5, 1]


class Dropping(tt.RNNCell):
    """A cell with dropout of torch's own inside, by a module, by a function and by a mask of one's own."""

    state_size = output_size = 4

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.dropout = kind, nn.Dropout(0.4)
        self.layer = nn.Linear(7, 4)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([inputs, state], 1)
        if self.kind == "module":
            new = torch.tanh(self.layer(self.dropout(joined)))
        elif self.kind == "function":
            new = functional.dropout(torch.tanh(self.layer(joined)), 0.3, self.training)
        elif self.kind == "zoneout":
            new = torch.where(torch.rand_like(state) < 0.3, state, torch.tanh(self.layer(joined)))
        else:
            new = torch.tanh(self.layer(joined)) * torch.bernoulli(
                torch.full_like(state, 0.7)
            ) + 0.1 * torch.randn_like(state)
        return new, new


def residual_stack() -> Any:
    layers = [
        tt.ResidualWrapper(tt.DropoutWrapper(tt.GRUCell(3), 0.8, 0.8, 0.8)),
        tt.DropoutWrapper(tt.ResidualWrapper(tt.LSTMCell(3)), output_keep_prob=0.7, seed=4),
    ]
    return tt.MultiRNNCell(layers)


NOISY: dict[str, Callable[[], Any]] = {
    "wrapper": lambda: tt.DropoutWrapper(tt.LSTMCell(4), 0.7, 0.6, 0.8),
    "wrapper with a seed": lambda: tt.DropoutWrapper(tt.GRUCell(4), 0.7, 0.6, 0.8, seed=3),
    "variational": lambda: tt.DropoutWrapper(tt.LSTMCell(4), 0.7, 0.6, 0.8, True, 3, F64),
    "variational with a seed": lambda: tt.DropoutWrapper(tt.GRUCell(4), 0.7, 0.6, 0.8, True, 3, F64, seed=3),
    "residual stack": residual_stack,
    "module": lambda: Dropping("module"),
    "function": lambda: Dropping("function"),
    "zoneout": lambda: Dropping("zoneout"),
    "mask of one's own": lambda: Dropping("own"),
}
every_kind = pytest.mark.parametrize("kind", NOISY)


def noisy_case(kind: str, batch: int = 4, time: int = 5) -> Case:
    """The same weights, inputs and noise to come every time."""
    torch.manual_seed(7)
    cell = settled(NOISY[kind](), random_inputs(3, 1, 1, F64), F64)
    return Case(cell, random_inputs(3, batch, time, F64), None, F64)


def measured(kind: str, backend: str, lengths: Any = LENGTHS, **options: Any) -> Any:
    """Values and gradients from one seed."""
    case = noisy_case(kind)
    run = on(backend, dynamic, **options)
    return measure(lambda cell, inputs, state: run(cell, inputs, lengths, state, F64), case.cell, case.inputs, None)


@every_kind
def test_kernels_compile_it_and_draw_outside_of_the_loop(kind: str) -> None:
    plan = plan_of(noisy_case(kind))
    assert plan.backend == "cpu", plan.reasons
    drawn = [node for node in plan.program.random.nodes if node.is_random]
    assert drawn
    for section in (plan.program.before, plan.program.loop, plan.program.after, plan.program.adjoint.loop):
        assert not any(node.is_random for node in section.nodes)
    assert "drawn at random, for all steps at once" in str(plan) or "variational" in kind


@every_kind
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
def test_every_backend_draws_the_same(kind: str, lengths: Any) -> None:
    check_same(measured(kind, "aten", lengths), measured(kind, "cpu", lengths))


@every_kind
@pytest.mark.parametrize("options", [{"checkpoint_every": 2}, {"parallel_iterations": 2}], ids=["recomputed", "blocks"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
def test_blocks_draw_the_same(kind: str, lengths: Any, options: dict[str, int]) -> None:
    check_same(measured(kind, "auto", lengths), measured(kind, "auto", lengths, **options))


@every_kind
@compiled_backends
def test_a_seed_decides(kind: str, backend: str) -> None:
    case = noisy_case(kind)
    runs = []
    for seed in (1, 1, 2):
        case = noisy_case(kind)
        torch.manual_seed(seed)
        runs.append([on(backend, dynamic)(case.cell, case.inputs, LENGTHS, None, F64)[0] for _ in range(2)])
    assert all(torch.equal(*pair) for pair in zip(runs[0], runs[1], strict=True))
    assert not torch.equal(*runs[0]), "one unroll after the other draws something else"
    if "seed" not in kind:
        assert not torch.equal(runs[0][0], runs[2][0])


@every_kind
@compiled_backends
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck], ids=["first", "second"])
def test_gradients_are_those_of_the_masks_that_were_drawn(kind: str, backend: str, check: Any) -> None:
    case = noisy_case(kind, 2, 3)
    sources = [case.inputs.requires_grad_(), *case.cell.parameters()]

    def function(*_sources: Tensor) -> Tensor:
        # From the same seed each time; another unroll in between must not matter.
        torch.manual_seed(0)
        for module in case.cell.modules():
            if hasattr(module, "set_noise_state"):
                module.set_noise_state(noise[module])
        outputs, _ = on(backend, dynamic)(case.cell, case.inputs, [3, 2], None, F64)
        on(backend, dynamic)(case.cell, case.inputs.detach(), [1, 2], None, F64)
        return outputs

    noise = {module: module.noise_state() for module in case.cell.modules() if hasattr(module, "noise_state")}
    assert check(function, sources, fast_mode=True)


# A DropoutWrapper drops in evaluation too, as in TensorFlow.
@pytest.mark.parametrize("kind", ["module", "function"])
def test_evaluation_drops_nothing(kind: str) -> None:
    case = noisy_case(kind)
    case.cell.eval()
    check_on("auto", case, LENGTHS)
    first, second = (dynamic(case.cell, case.inputs, LENGTHS, None, F64)[0] for _ in range(2))
    assert torch.equal(first, second)


class Echo(tt.RNNCell):
    """Gives back what `step` makes of its inputs."""

    state_size = output_size = 64

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.step = step

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.step(inputs), state


MASKS: dict[str, tuple[float, Callable[[], Any]]] = {
    "module": (0.75, lambda: Echo(nn.Dropout(0.25))),
    "function": (0.5, lambda: Echo(functional.dropout)),
    "wrapper": (0.9, lambda: tt.DropoutWrapper(Echo(nn.Identity()), output_keep_prob=0.9)),
    "below": (0.6, lambda: tt.DropoutWrapper(Echo(nn.Identity()), 0.6)),
}


@compiled_backends
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("lengths", [None, [30, 17, 0, 30, 8]], ids=["dense", "ragged"])
def test_masks(kind: str, lengths: Any, backend: str) -> None:
    """Kept at the right rate and scaled up, anew for each feature, row and step; gradients are masked alike."""
    keep, make = MASKS[kind]
    inputs = torch.ones(5, 30, 64, requires_grad=True)
    outputs, _ = on(backend, dynamic)(make(), inputs, lengths, None, torch.float32)
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
    assert torch.equal(gradient, outputs.detach())
    alive = torch.arange(30) < torch.tensor(lengths or [30] * 5)[:, None]
    masks = outputs.detach()[alive]
    kept = masks != 0
    torch.testing.assert_close(masks[kept], torch.full_like(masks[kept], 1 / keep))
    rate, count = kept.float().mean().item(), kept.numel()
    assert abs(rate - keep) < 4 * (keep * (1 - keep) / count) ** 0.5
    assert len(kept.unique(dim=0)) == len(kept), "no two rows or steps have the same mask"
    # The features of a step say nothing about those of the next, nor about each other.
    centred = kept.float() - keep
    for one, other in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1])):
        assert abs((one * other).mean().item()) < 4 * keep * (1 - keep) / one.numel() ** 0.5
    assert not outputs[~alive].any()


@compiled_backends
@pytest.mark.parametrize("seed", [None, 3])
def test_variational_masks_stay_through_a_sequence(backend: str, seed: int | None) -> None:
    cell = tt.DropoutWrapper(Echo(nn.Identity()), 0.6, 1.0, 0.7, True, 64, torch.float32, seed=seed)
    runs = [on(backend, dynamic)(cell, torch.ones(3, 9, 64), [9, 4, 7], None, torch.float32)[0] for _ in range(2)]
    for outputs in runs:
        kept = outputs != 0
        for row, length in enumerate([9, 4, 7]):
            assert (kept[row, :length] == kept[row, 0]).all()
            assert 0.35 < kept[row, 0].float().mean() < 0.85
    assert not torch.equal(*runs), "the next sequence has masks of its own"


@compiled_backends
def test_two_masks_of_one_tensor_are_two(backend: str) -> None:
    """Equal operations on equal values are computed once; equal draws are not equal."""
    cell = Echo(lambda inputs: functional.dropout(inputs) + 10 * functional.dropout(inputs))
    outputs, _ = on(backend, dynamic)(cell, torch.ones(2, 9, 64), None, None, torch.float32)
    assert outputs.unique().tolist() == [0, 2, 20, 22]


@compiled_backends
def test_masks_of_the_forward_pass_wait_for_the_backward_pass(backend: str) -> None:
    cell = Echo(nn.Dropout(0.5))
    inputs = torch.ones(4, 9, 64, requires_grad=True)
    outputs = [on(backend, dynamic)(cell, inputs, None, None, torch.float32)[0] for _ in range(3)]
    for one in reversed(outputs):
        (gradient,) = torch.autograd.grad(one.sum(), inputs)
        assert torch.equal(gradient, one.detach())
