"""What must not be compiled: found out, with the reason, and run by the reference instead."""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import throughtime as tt
from backends import check_fallback, check_on, plan_of
from compare import check_close
from descriptors import Case, Descriptor
from user_cells import Step, weight

pytestmark = pytest.mark.covers("compiler")

LENGTHS = [2, 5, 3, 1, 4]
ROWS = "rows of a batch"
VALUES = "what it does depends on the values of tensors"
COUNT = "number of rows"
HIDDEN = torch.linspace(-1, 1, 4, dtype=torch.float64)


def case_of(step: Callable[..., Any], batch: int = 5) -> Case:
    """A step of inputs, state and two weights as a case."""
    cell = lambda _: Step(step, 4, 4, weight(3, 4), weight(4, 4))  # noqa: E731
    return Descriptor("a step", cell).case(batch, 5)


def new(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return torch.tanh(x @ w + h @ u)


def branching(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return new(x, h, w, u) if h.sum() > 0 else x @ w


def first_rows_differ(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    joined = new(x, h, w, u)
    return torch.cat([joined[:1] * 2, joined[1:]])


def attending_to_others(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(h, h, h) + new(x, h, w, u)


def convolved_along_rows(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    kernel = u.unsqueeze(2).expand(4, 4, 3)
    return torch.tanh(functional.conv1d(h.T.unsqueeze(0), kernel, padding=1).squeeze(0).T + x @ w)


# The name of each, the new state it computes, and what the reason must say.
COUPLED: dict[str, tuple[Callable[..., Tensor], str]] = {
    "mean over the batch": (lambda x, h, w, u: new(x, h, w, u) - h.mean(0), ROWS),
    "centred inputs": (lambda x, h, w, u: new(x - x.mean(0), h, w, u), ROWS),
    "softmax over the batch": (lambda x, h, w, u: torch.softmax(new(x, h, w, u), 0), ROWS),
    "shuffled rows": (lambda x, h, w, u: new(x[torch.randperm(len(x))], h, w, u), ROWS),
    "rows reversed": (lambda x, h, w, u: new(x.flip(0), h, w, u), ROWS),
    "rows rolled": (lambda x, h, w, u: new(x.roll(1, 0), h, w, u), ROWS),
    "rows added up": (lambda x, h, w, u: new(x.cumsum(0), h, w, u), ROWS),
    "rows sorted": (lambda x, h, w, u: new(x.sort(0).values, h, w, u), ROWS),
    "rows multiplied": (lambda x, h, w, u: torch.tanh(h @ h.T @ h + x @ w), ROWS),
    "rows by einsum": (lambda x, h, w, u: torch.tanh(torch.einsum("bi,ci,cj->bj", h, h, h) + x @ w), ROWS),
    "rows compared": (lambda x, h, w, u: new(x, h, w, u) + (h[:, None] - h[None]).mean(1), ROWS),
    "rows attended to": (attending_to_others, ROWS),
    "rows convolved": (convolved_along_rows, ROWS),
    "first row for all": (lambda x, h, w, u: new(x, h, w, u) + x[0] @ w, ROWS),
    "first row kept apart": (first_rows_differ, ROWS),
    "largest of all rows": (lambda x, h, w, u: new(x, h, w, u) - h.amax(0), ROWS),
    "largest of all": (lambda x, h, w, u: new(x, h, w, u) - h.max(), ROWS),
    "norm of all": (lambda x, h, w, u: new(x, h, w, u) / (1 + h.norm()), ROWS),
    "sum of all": (lambda x, h, w, u: new(x, h, w, u) / (1 + h.square().sum()), ROWS),
    "any of all": (lambda x, h, w, u: torch.where((h > 9).any(), x @ w, new(x, h, w, u)), ROWS),
    "normalised over the batch": (lambda x, h, w, u: new(x, functional.normalize(h, dim=0), w, u), ROWS),
    "picked from a row": (
        lambda x, h, w, u: new(x, h, w, u) + h.gather(0, torch.zeros_like(h, dtype=torch.long)),
        ROWS,
    ),
    "numbered rows": (lambda x, h, w, u: new(x, h, w, u) * torch.arange(len(x)).unsqueeze(1), ROWS),
    "batch in the features": (lambda x, h, w, u: torch.softmax(new(x, h, w, u).view(1, -1), 1).view(-1, 4), ROWS),
    "transposed and reshaped": (lambda x, h, w, u: new(x, h, w, u) + h.T.reshape(-1, 4), ROWS),
    "divided by the batch": (lambda x, h, w, u: new(x, h, w, u) / len(x), COUNT),
    "large batches differ": (lambda x, h, w, u: new(x, h, w, u) * (2.0 if len(x) > 64 else 1.0), COUNT),
    "small batches differ": (lambda x, h, w, u: x @ w if len(x) < 3 else new(x, h, w, u), COUNT),
    "single rows differ": (lambda x, h, w, u: x @ w if len(x) == 1 else new(x, h, w, u), COUNT),
    "a loop over rows": (lambda x, h, w, u: torch.stack(list(new(x, h, w, u))[::-1]), COUNT),
    "a single row takes another": (lambda x, h, w, u: new(x, x @ w if len(x) == 1 else h, w, u), COUNT),
    "a number for each row": (lambda x, h, w, u: new(x, h, w, u) * torch.tensor([[0.5]] * len(x)), COUNT),
    "the batch as a factor": (lambda x, h, w, u: torch.tanh(torch.add(x @ w, h, alpha=len(x))), COUNT),
    "rows repeated": (lambda x, h, w, u: new(x, h, w, u) + h.repeat(2, 1)[: len(x)], ROWS),
    "rows rolled as one": (lambda x, h, w, u: new(x, h, w, u) + h.roll(1), ROWS),
    "rows scattered": (
        lambda x, h, w, u: new(x, h, w, u) + torch.zeros_like(h).scatter(0, torch.zeros_like(h, dtype=torch.long), h),
        ROWS,
    ),
    "rows pooled": (lambda x, h, w, u: new(x, h, w, u) + functional.avg_pool1d(h.T[None], 3, 1, 1)[0].T, ROWS),
    "a triangle of rows": (lambda x, h, w, u: new(x, h, w, u).tril(), ROWS),
    "written over by number": (lambda x, h, w, u: h.index_add(0, torch.tensor([0]), u[:1]) + new(x, h, w, u), ROWS),
}
DATA_DEPENDENT: dict[str, tuple[Callable[..., Tensor], str]] = {
    "a branch": (branching, VALUES),
    "item": (lambda x, h, w, u: new(x, h, w, u) * h.sum().item(), VALUES),
    "float": (lambda x, h, w, u: new(x, h, w, u) * float(h[0, 0]), VALUES),
    "tolist": (lambda x, h, w, u: new(x, h, w, u) * h.tolist()[0][0], VALUES),
    "numpy": (lambda x, h, w, u: new(x, h, w, u) * float(h.detach().numpy().max()), VALUES),
    "nonzero": (lambda x, h, w, u: new(x, h, w, u) * len(h.nonzero()), VALUES),
    "an assertion": (lambda x, h, w, u: new(x, h, w, u) if h.isfinite().all() else x @ w, VALUES),
    "equal": (lambda x, h, w, u: new(x, h, w, u) * (2.0 if torch.equal(x, x) else 1.0), VALUES),
    "a tensor from outside": (lambda x, h, w, u: new(x, h, w, u) * HIDDEN, "is no attribute of it"),
}


def refused(table: dict[str, tuple[Callable[..., Tensor], str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("step", "reason"), table.values(), ids=table)


@refused(COUPLED)
def test_rows_that_meet(step: Callable[..., Tensor], reason: str) -> None:
    check_fallback(case_of(lambda x, h, w, u: (h, step(x, h, w, u))), reason, LENGTHS)


@refused(COUPLED)
def test_rows_that_meet_in_the_outputs_only(step: Callable[..., Tensor], reason: str) -> None:
    check_fallback(case_of(lambda x, h, w, u: (step(x, h, w, u), new(x, h, w, u))), reason)


@refused(COUPLED)
def test_rows_that_meet_without_a_gradient(step: Callable[..., Tensor], reason: str) -> None:
    with torch.no_grad():
        plan = plan_of(case_of(lambda x, h, w, u: (h, step(x, h, w, u))))
    assert plan.backend == "reference"
    assert all(reason in said for said in plan.reasons.values()), plan.reasons


# torch's own warning, about the user's own code, in a real step: the reference shows what a plain loop would.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@refused(DATA_DEPENDENT)
def test_steps_that_look_at_values(step: Callable[..., Tensor], reason: str) -> None:
    check_fallback(case_of(lambda x, h, w, u: (h, step(x, h, w, u))), reason, LENGTHS)


def test_a_single_row_that_is_squeezed() -> None:
    """`squeeze` takes the batch away from a batch of one; what is meant are the features."""

    def step(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
        joined = new(x, h, w, u).squeeze()
        return h, (joined if joined.ndim == 2 else 2 * joined.unsqueeze(0))

    check_on("auto", case_of(step), LENGTHS)


class Changing(tt.RNNCell):
    """A cell that a step changes."""

    state_size = output_size = 3

    def __init__(self, start: Callable[[], Any], advance: Callable[[Any], Any], *, buffer: bool = False) -> None:
        super().__init__()
        self.advance = advance
        if buffer:
            self.register_buffer("memory", start())
        else:
            self.memory = start()

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        scale = self.advance(self)
        return inputs * scale, state + inputs


class Holder:
    """An object of a user's own."""

    count = 0


class Slotted:
    """The same without a dictionary."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def count_up(cell: Changing) -> int:
    cell.memory = cell.memory + 1
    return cell.memory


def add_to_buffer(cell: Changing) -> Tensor:
    cell.memory += 1
    return cell.memory.clone()


def count_in_object(cell: Changing) -> int:
    cell.memory.count += 1
    return cell.memory.count


def count_in_array(cell: Changing) -> float:
    cell.memory[0] += 1
    return float(cell.memory[0])


CHANGING: dict[str, Callable[[], Changing]] = {
    "a number": lambda: Changing(lambda: 0, count_up),
    "a tensor": lambda: Changing(lambda: torch.zeros(()), count_up),
    "a tensor in place": lambda: Changing(lambda: torch.zeros(()), add_to_buffer),
    "a buffer": lambda: Changing(lambda: torch.zeros(()), count_up, buffer=True),
    "a buffer in place": lambda: Changing(lambda: torch.zeros(()), add_to_buffer, buffer=True),
    "a list": lambda: Changing(list, lambda cell: cell.memory.append(0) or len(cell.memory)),
    "a set": lambda: Changing(set, lambda cell: cell.memory.add(len(cell.memory)) or len(cell.memory)),
    "a deque": lambda: Changing(deque, lambda cell: cell.memory.append(0) or len(cell.memory)),
    "a dict": lambda: Changing(dict, lambda cell: cell.memory.setdefault(len(cell.memory), len(cell.memory) + 1)),
    "a dict in a list": lambda: Changing(lambda: [{}], lambda cell: cell.memory[0].setdefault(len(cell.memory[0]), 1)),
    "an array": lambda: Changing(lambda: np.zeros(1), count_in_array),
    "an object": lambda: Changing(Holder, count_in_object),
    "an object with slots": lambda: Changing(Slotted, count_in_object),
    "bytes": lambda: Changing(lambda: bytearray(1), count_in_array),
    "an iterator": lambda: Changing(itertools.count, lambda cell: next(cell.memory)),
    "dice of numpy": lambda: Changing(lambda: np.random.default_rng(0), lambda cell: float(cell.memory.random())),
    "dice of Python": lambda: Changing(lambda: random.Random(0), lambda cell: cell.memory.random()),
}


@pytest.mark.parametrize("make", CHANGING.values(), ids=CHANGING)
def test_a_step_that_changes_its_cell(make: Callable[[], Changing]) -> None:
    """Also: looking at it, to find that out, has changed nothing."""
    inputs = torch.randn(2, 4, 3)
    results = []
    for backend in ("reference", "auto"):
        cell = make()
        with tt.backend(backend):
            results.append([tt.dynamic_rnn(cell, inputs, dtype=torch.float32) for _ in range(2)])
    check_close("results", *results)
    assert tt.explain(make(), inputs).backend == "reference"


TOSSES = np.random.default_rng(0)


def counted_in_a_closure() -> Callable[..., Any]:
    seen: list[int] = []
    return lambda _: seen.append(0) or 1.0


def counted_on_a_function() -> Callable[..., Any]:
    def advance(_: Changing) -> float:
        vars(advance)["seen"] = vars(advance).get("seen", 0) + 1
        return 1.0

    return advance


# What a step advances, and what the reason must say.
ELSEWHERE: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {
    "a closure": (counted_in_a_closure, "a step changes the cell itself"),
    "a function": (counted_on_a_function, "a step changes the cell itself"),
    "a default": (lambda: lambda _, seen=[]: seen.append(0) or 1.0, "a step changes the cell itself"),
    "a global generator": (lambda: lambda _: float(TOSSES.random() < 2), "random numbers outside of torch"),
}


@pytest.mark.parametrize(("make", "reason"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_step_that_changes_what_its_functions_see(make: Callable[[], Callable[..., Any]], reason: str) -> None:
    plan = tt.explain(Changing(lambda: 0, make()), torch.randn(2, 4, 3))
    assert plan.backend == "reference"
    assert reason in plan.reasons["aten"]


class Doubling(Tensor):
    """A tensor whose products are twice those of others."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})
        made = made.as_subclass(Tensor) if isinstance(made, Tensor) else made
        return made * 2 if getattr(func, "__name__", "") in ("matmul", "__rmatmul__") else made


def test_tensors_of_a_class_of_their_own() -> None:
    """Also: the program of a cell of the same structure is not for it."""
    case = case_of(lambda x, h, w, u: (h, torch.tanh(x @ w + h)))
    assert plan_of(case).backend == "cpu"
    strange = case.cell.weights[0].detach().as_subclass(Doubling)
    strange.requires_grad_()
    case.cell.weights._parameters["0"] = strange
    check_fallback(case, "of a class of its own (Doubling)", LENGTHS)


class Sigmoids(TorchFunctionMode):
    """Sees every function, and takes another."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (torch.sigmoid if func is torch.tanh else func)(*args, **(kwargs or {}))


@pytest.mark.parametrize("first", [True, False], ids=["with it first", "without it first"])
def test_function_modes_see_every_step(first: bool) -> None:
    case = case_of(lambda x, h, w, u: (h, torch.tanh(x @ w + h @ u) * (3 if first else 5)))
    run = lambda: tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)  # noqa: E731
    results = {}
    with torch.no_grad():
        for backend in ("reference", "auto"):
            with tt.backend(backend):
                for within in (first, not first, first, not first):
                    with Sigmoids() if within else contextlib.nullcontext():
                        results[backend, within] = run()
    for within in (True, False):
        check_close("results", results["reference", within], results["auto", within])
    with torch.device("cpu"):
        assert plan_of(case).backend == "cpu", "a device context is no observer"


def test_scripted_modules_take_the_plain_road() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cell = Normalised(torch.jit.script(nn.Identity()))
    for _ in range(2):
        tt.dynamic_rnn(cell, torch.randn(2, 4, 3), dtype=torch.float32)
    assert "whose changes cannot be seen" in tt.explain(cell, torch.randn(2, 4, 3)).reasons["aten"]


class Normalised(tt.RNNCell):
    state_size = output_size = 4

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(7, 4), norm

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(self.norm(self.layer(torch.cat([inputs, state], 1))))
        return state, state


@pytest.mark.parametrize("tracked", [False, True])
def test_batch_norm_couples_rows(tracked: bool) -> None:
    torch.manual_seed(2)
    cell = Normalised(nn.BatchNorm1d(4, track_running_stats=tracked))
    inputs = torch.randn(6, 5, 3)
    plan = tt.explain(cell, inputs, dtype=torch.float32)
    assert ROWS in plan.reasons["cpu"]
    outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    if tracked:
        assert cell.norm.num_batches_tracked == 5, "once a step, and not for looking at it"
    assert not outputs[:3].allclose(tt.dynamic_rnn(cell, inputs[:3], dtype=torch.float32)[0])


def test_looking_at_a_batch_norm_leaves_its_statistics_alone() -> None:
    class Own(Normalised):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            made = self.layer(torch.cat([inputs, state], 1))
            return state, functional.batch_norm(made, self.mean, self.var, training=True)

    cell = Own(nn.Identity())
    cell.register_buffer("mean", torch.zeros(4))
    cell.register_buffer("var", torch.ones(4))
    assert ROWS in tt.explain(cell, torch.randn(6, 5, 3)).reasons["cpu"]
    assert torch.equal(cell.mean, torch.zeros(4))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4).eval(), nn.GroupNorm(2, 4), nn.LayerNorm(4)], ids=str)
def test_norms_that_do_not_couple_rows(norm: nn.Module) -> None:
    case = Descriptor("normalised", lambda _: Normalised(norm.double())).case(5, 5)
    assert plan_of(case).backend == "cpu"
    check_on("auto", case, LENGTHS)


def test_spectral_norm_moves_its_buffers_at_every_step() -> None:
    """In training mode each step improves an estimate; only the reference may do that."""
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))

    class Spectral(tt.RNNCell):
        state_size = output_size = 3

        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            state = torch.tanh(self.layer(state) + inputs)
            return state, state

    cell, inputs = Spectral(), torch.randn(2, 4, 3)
    assert tt.explain(cell, inputs).backend == "reference"
    assert tt.explain(cell.eval(), inputs).backend == "cpu"


@pytest.mark.parametrize("toss", [random.random, np.random.rand], ids=["random", "numpy"])
def test_chance_from_outside_of_torch(toss: Callable[[], float]) -> None:
    """A coin tossed once for all steps would be no coin: here heads are so rare that two tosses seldom differ."""
    seen = []

    def step(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
        seen.append(toss() < 0.05)
        return h, (h if seen[-1] else new(x, h, w, u))

    case = case_of(step)
    assert plan_of(case).backend == "reference"


@pytest.mark.parametrize("noise", ["weights", "features"])
def test_noise_that_all_rows_share_is_drawn_at_every_step(noise: str) -> None:
    def step(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
        drawn = functional.dropout(torch.ones_like(w), 0.5)[0] if noise == "weights" else torch.randn(4, dtype=h.dtype)
        return drawn.expand(len(x), 4), new(x, h, w, u)

    case = case_of(step)
    outputs, _ = tt.dynamic_rnn(case.cell, case.inputs.repeat(1, 8, 1), None, case.state, case.dtype)
    assert torch.equal(outputs, outputs[:1].expand_as(outputs)), "all rows share it"
    assert len(outputs[0].unique(dim=0)) > 4, "steps do not"


@pytest.mark.parametrize("where", ["cell", "inside", "backward"])
def test_hooks_see_every_step(where: str) -> None:
    cell, seen = Normalised(nn.Identity()), []
    if where == "backward":
        cell.layer.register_full_backward_hook(lambda *_: seen.append(1))
    else:
        (cell if where == "cell" else cell.layer).register_forward_hook(lambda *_: seen.append(1))
    outputs, _ = tt.dynamic_rnn(cell, torch.randn(2, 5, 3, requires_grad=True), dtype=torch.float32)
    outputs.sum().backward()
    assert len(seen) == 5


CALLS: list[int] = []


def test_refusals_are_remembered() -> None:
    """A cell that cannot be compiled is looked at once, not at every call."""

    def step(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
        CALLS.append(len(x))
        return h, new(x, h, w, u) - h.mean(0)

    case, counts = case_of(step), []
    for _ in range(3):
        tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)
        counts.append(len(CALLS))
        CALLS.clear()
    # Besides its step by itself, the case has looked at it too.
    assert counts[0] > counts[1] == counts[2] == case.inputs.shape[1]
