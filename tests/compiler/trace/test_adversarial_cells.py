"""Cells made to deceive the compiler: each must be refused, or give what the reference gives."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from backends import check_on, compiled_backends, plan_of
from descriptors import Case, Descriptor
from user_cells import Step, weight

pytestmark = pytest.mark.covers("compiler")

LENGTHS = [2, 5, 0, 1, 4]
Function = Callable[..., Any]


def case_of(step: Function, *more: int, batch: int = 5) -> Case:
    """A step of inputs, state, two weights and perhaps a third as a case."""
    weights = [weight(3, 4), weight(4, 4), *([weight(*more)] if more else [])]
    return Descriptor("a step", lambda _: Step(step, 4, 4, *weights)).case(batch, 5)


def new(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return torch.tanh(x @ w + h @ u)


def twice(step: Function) -> Function:
    """A step whose output is its state."""

    def run(*args: Any) -> tuple[Tensor, Tensor]:
        made = step(*args)
        return made, made

    return run


class WithConstant(torch.autograd.Function):
    """The identity, with a gradient of a parameter that is no sum over rows."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (v,) = ctx.saved_tensors
        return gradient, 0.1 * v


class WithOffset(WithConstant):
    """The same, with a sum over rows and a number added to it at every step."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, gradient.sum(0) + 1


class WithClamp(WithConstant):
    """The same, with a sum over rows that is cut off at every step."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, gradient.sum(0).clamp(-0.1, 0.1)


def through_data(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    made = new(x, h, w, u)
    made.data.clamp_(-0.1, 0.1)
    return made


def through_view(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    made = x @ w
    made.view(-1, 2, 2).add_(h.view(-1, 2, 2))
    return torch.tanh(made @ u)


def numbered(x: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return new(x, h, w, u) + torch.exp(v.detach()[: len(x)])


# Rows that meet, or steps that depend on how many there are. No backend may compile any of them.
COUPLED: dict[str, tuple[Function, tuple[int, ...]]] = {
    "a table cut to the batch": (numbered, (9, 4)),
    "a table at the size of the batch": (lambda x, h, w, u, v: new(x, h, w, u) + v.detach()[len(x)], (80, 4)),
    "a literal of the batch": (lambda x, h, w, u: new(x, h, w, u) / torch.tensor(float(len(x))), ()),
    "a new tensor of the batch": (lambda x, h, w, u: new(x, h, w, u) / h.new_tensor(len(x)), ()),
    "one row is more": (lambda x, h, w, u: new(x, h, w, u) * (3.0 if len(x) == 1 else 2.0), ()),
    "folded by reshape": (lambda x, h, w, u: new(x, h, w, u) + h.reshape(4, -1).t(), ()),
    "normalised along rows": (lambda x, h, w, u: functional.layer_norm(new(x, h, w, u).t(), (len(x),)).t(), ()),
    "rows by index": (lambda x, h, w, u: new(x, h, w, u) + h[torch.zeros(len(x), dtype=torch.long)], ()),
    "a row written over": (lambda x, h, w, u: torch.select_scatter(new(x, h, w, u), u[0], 0, 0), ()),
    "rows looked up": (
        lambda x, h, w, u: new(x, h, w, u) + functional.embedding(torch.zeros(len(x), dtype=torch.long), h),
        (),
    ),
    "a constant gradient": (lambda x, h, w, u, v: WithConstant.apply(new(x, h, w, u), v), (4,)),
    "a gradient and a number": (lambda x, h, w, u, v: WithOffset.apply(new(x, h, w, u), v), (4,)),
    "a gradient cut off": (lambda x, h, w, u, v: WithClamp.apply(new(x, h, w, u), v), (4,)),
}


@pytest.mark.parametrize("name", COUPLED)
def test_what_must_not_be_compiled(name: str) -> None:
    step, more = COUPLED[name]
    case = case_of(twice(step), *more)
    assert plan_of(case, LENGTHS).backend == "reference"
    check_on("auto", case, LENGTHS)


@pytest.mark.parametrize("name", [name for name in COUPLED if "gradient" not in name])
def test_what_must_not_be_compiled_without_gradients(name: str) -> None:
    step, more = COUPLED[name]
    with torch.no_grad():
        assert plan_of(case_of(twice(step), *more)).backend == "reference"


@pytest.mark.parametrize("step", [through_data, through_view])
def test_changes_in_place_are_seen_by_everybody(step: Function) -> None:
    check_on("auto", case_of(twice(step)), LENGTHS)


HEADS: dict[str, Function] = {
    "reshape": lambda h: h.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4),
    "contiguous": lambda h: h.view(-1, 2, 2).transpose(1, 2).contiguous().view(-1, 4),
    "expand": lambda h: h[:, :2, None].expand(-1, 2, 2).reshape(-1, 4),
    "interleave": lambda h: h[:, :2].repeat_interleave(2, 1),
}


LAID_OUT = [*((name, "state") for name in HEADS), *(("reshape", where) for where in ("inputs", "outputs", "weights"))]


@pytest.mark.parametrize(("name", "where"), LAID_OUT)
def test_rows_laid_out_anew(name: str, where: str) -> None:
    turn = HEADS[name]
    steps: dict[str, Function] = {
        "state": twice(lambda x, h, w, u: new(x, turn(h), w, u)),
        "inputs": twice(lambda x, h, w, u: torch.tanh(turn(x @ w) + h @ u)),
        "outputs": lambda x, h, w, u: (turn(h), new(x, h, w, u)),
        "weights": twice(lambda x, h, w, u: new(x, h, w, turn(u))),
    }
    case = case_of(steps[where])
    assert plan_of(case).backend != "reference"
    check_on("auto", case, LENGTHS)


@compiled_backends
def test_a_state_made_of_inputs(backend: str) -> None:
    check_on(backend, case_of(lambda x, h, w, u: (new(x, h, w, u), torch.cat([x, x[:, :1]], 1))), LENGTHS)


@compiled_backends
def test_states_called_like_words_of_python(backend: str) -> None:
    class Cell(tt.RNNCell):
        def __init__(self) -> None:
            super().__init__()
            self.state_size, self.output_size = {"global": 4, "pass": 4}, 4
            self.w, self.u = weight(3, 4), weight(4, 4)

        def forward(self, x: Tensor, state: Any) -> Any:
            made = new(x, state["global"], self.w, self.u)
            return made, {"global": made, "pass": state["pass"] + made}

    check_on(backend, Descriptor("words", lambda _: Cell()).case(5, 5), LENGTHS)


@dataclass(slots=True)
class Option:
    scale: float


class Scaled(tt.RNNCell):
    """A cell with an option in an object of any kind."""

    def __init__(self, option: Any, read: Function) -> None:
        super().__init__()
        self.state_size = self.output_size = 4
        self.w, self.u = weight(3, 4), weight(4, 4)
        self.option, self.read = option, read

    def forward(self, x: Tensor, h: Tensor) -> Any:
        made = new(x, h, self.w, self.u) * self.read(self.option)
        return made, made


def change_slots(option: Option) -> None:
    option.scale = 2.0


def change_bytes(option: bytearray) -> None:
    option[0] = 2


OPTIONS: dict[str, tuple[Function, Function, Function]] = {
    "slots": (lambda: Option(1.0), lambda option: option.scale, change_slots),
    "bytes": (lambda: bytearray([1]), lambda option: option[0], change_bytes),
    "a list of slots": (lambda: [Option(1.0)], lambda option: option[0].scale, lambda o: change_slots(o[0])),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_changed_in_place_are_noticed(name: str, grad: bool) -> None:
    make, read, change = OPTIONS[name]
    case = Descriptor("scaled", lambda _: Scaled(make(), read)).case(5, 5)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)
        change(case.cell.option)
        outputs = tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)[0]
        with tt.backend("reference"):
            expected = tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)[0]
    torch.testing.assert_close(outputs, expected)


class Mode:
    """An object that is what it is, and nothing else."""

    def __init__(self, weight: Tensor | None = None) -> None:
        self.weight = weight


class Modes:
    FAST, SLOW = Mode(), Mode()


FAST, SLOW = Mode(), Mode()
SPACE = types.SimpleNamespace(fast=Mode(), slow=Mode())
TABLE = {"fast": [Mode()], "slow": [Mode()]}
WITH_TENSORS = Mode(torch.ones(4, dtype=torch.float64)), Mode(torch.ones(4, dtype=torch.float64))
GAIN = 2.0


def closed_over() -> tuple[Mode, Mode, Function]:
    fast, slow = Mode(), Mode()
    return fast, slow, lambda mode: 2.0 if mode is fast else -1.0


def is_fast(mode: Mode) -> bool:
    return mode is FAST


# Two objects that are alike, and what a step does if it has the first.
IDENTITIES: dict[str, tuple[Any, Any, Function]] = {
    "a global": (FAST, SLOW, lambda mode: 2.0 if mode is FAST else -1.0),
    "not a global": (FAST, SLOW, lambda mode: 2.0 if mode is not SLOW else -1.0),
    "a class attribute": (Modes.FAST, Modes.SLOW, lambda mode: 2.0 if mode is Modes.FAST else -1.0),
    "a namespace": (SPACE.fast, SPACE.slow, lambda mode: 2.0 if mode is SPACE.fast else -1.0),
    "a table": (TABLE["fast"][0], TABLE["slow"][0], lambda mode: 2.0 if mode is TABLE["fast"][0] else -1.0),
    "a function": (FAST, SLOW, lambda mode: 2.0 if is_fast(mode) else -1.0),
    "a closure": closed_over(),
    "in a list": ([FAST], [SLOW], lambda modes: 2.0 if modes[0] is FAST else -1.0),
    "in a collection": ((FAST,), (SLOW,), lambda modes: 2.0 if FAST in modes else -1.0),
    "with tensors": (*WITH_TENSORS, lambda mode: 2.0 if mode is WITH_TENSORS[0] else -1.0),
    "sentinels": (object(), object(), lambda mode, usual=FAST: 2.0 if mode is usual else -1.0),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_object_is_itself_while_a_step_is_traced(name: str) -> None:
    fast, slow, read = IDENTITIES[name]
    case = Descriptor("scaled", lambda _: Scaled(fast, read)).case(5, 5)
    found = []
    for mode in (fast, slow, fast, copy.deepcopy(fast)):
        case.cell.option = mode
        check_on("auto", case, LENGTHS)
        found.append(tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)[0])
        check_on("auto", Descriptor("scaled", lambda _, mode=mode: Scaled(mode, read)).case(5, 5), LENGTHS)
    assert torch.equal(found[0], found[2])
    assert name == "sentinels" or not torch.allclose(found[0], found[1])
    if name != "with tensors":
        assert plan_of(case, LENGTHS).backend == "cpu"


def regain(gain: float) -> None:
    """Rebind the global."""
    global GAIN  # noqa: PLW0603
    GAIN = gain


def test_a_global_number_in_a_comprehension_is_watched() -> None:
    case = case_of(twice(lambda x, h, w, u: sum([GAIN * new(x, h, w, u) for _ in range(2)])))
    for gain in (1.0, -3.0, GAIN):
        regain(gain)
        check_on("auto", case, LENGTHS)


def counts_in_closure() -> tuple[Function, Function]:
    count = 0

    def advance(_: Any) -> float:
        nonlocal count
        count += 1
        return float(count)

    return advance, lambda: count


class Counter:
    count = 0
    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}


def counts_in_class(counter: Counter) -> float:
    Counter.count += 1
    return float(Counter.count)


def counts_in_slots(counter: Counter) -> float:
    counter.seen[len(counter.seen)] = 1
    return float(len(counter.seen))


def test_looking_at_a_step_changes_nothing_that_it_sees() -> None:
    advance, counted = counts_in_closure()
    counter = Counter()
    listed: list[int] = []
    reads: tuple[Function, ...] = (advance, counts_in_class, counts_in_slots, lambda _: listed.append(0) or 1.0)
    for read in reads:
        case = Descriptor("scaled", lambda _, read=read: Scaled(counter, read)).case(5, 5)
        before = (counted(), Counter.count, len(counter.seen), len(listed))
        plan = plan_of(case)
        assert plan.backend == "reference"
        assert "a step changes the cell itself" in plan.reasons["aten"]
        assert (counted(), Counter.count, len(counter.seen), len(listed)) == before


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_a_weight_that_was_frozen_from_the_start_is_set_free(lengths: Any) -> None:
    # A structure that no other test has: one compiled with all weights free would hide a mistake.
    case = case_of(twice(lambda x, h, w, u, v: torch.tanh(x @ w + h @ u) * torch.cos(v)), 4)
    frozen = list(case.cell.parameters())[1].requires_grad_(False)

    def step() -> Tensor | None:
        frozen.grad = None
        tt.dynamic_rnn(case.cell, case.inputs, lengths, case.state, case.dtype)[0].sum().backward()
        return frozen.grad

    assert [step() for _ in range(3)] == [None] * 3
    frozen.requires_grad_(True)
    found = step()
    with tt.backend("reference"):
        torch.testing.assert_close(found, step())


def test_weights_with_a_sign_that_waits() -> None:
    case = case_of(twice(new))
    parameters = list(case.cell.parameters())
    parameters[1].data = torch._neg_view(parameters[1].data.clone())
    with torch.no_grad():
        for _ in range(3):
            outputs = tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)[0]
        with tt.backend("reference"):
            expected = tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)[0]
    torch.testing.assert_close(outputs, expected)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", ["generator", "noise_state"])
def test_attributes_with_names_of_ours(name: str) -> None:
    case = case_of(twice(new))
    setattr(case.cell, name, nn.Linear(2, 2))
    assert plan_of(case).backend == "cpu"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("dynamic", [None, True])
def test_torch_compile_takes_any_batch_and_time(dynamic: bool | None) -> None:
    torch._dynamo.reset()
    cell = tt.GRUCell(4, input_size=3)
    unroll = lambda x, lengths: tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)[0]  # noqa: E731
    compiled = torch.compile(unroll, backend="eager", fullgraph=True, dynamic=dynamic)
    torch._dynamo.utils.counters.clear()
    for batch, time in ((5, 6), (7, 9), (3, 50), (9, 11), (6, 13)):
        x, lengths = torch.randn(batch, time, 3), torch.randint(0, time + 1, (batch,))
        torch.testing.assert_close(compiled(x, lengths), unroll(x, lengths))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    torch._dynamo.reset()
