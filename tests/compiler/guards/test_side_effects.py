"""What a step sees, keeps or changes beyond its cell: noticed, or left to the reference, never part of a program."""

from __future__ import annotations

import enum
import functools
import gc
import itertools
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from pprint import pformat
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import throughtime as tt
from compare import check_close
from throughtime.compiler import CellFingerprint

pytestmark = pytest.mark.covers("compiler")


def helper(value: Tensor) -> Tensor:
    return torch.tanh(value)


def other_helper(value: Tensor) -> Tensor:
    return 100 * value


class Mode(enum.Enum):
    SLOW, FAST = 1, 2


SEEN: Any = None


def see(value: Any) -> None:
    """Rebind the global."""
    global SEEN  # noqa: PLW0603
    SEEN = value


class Log:
    steps = 0
    last: Any = None


log = Log()
cache: dict[int, Tensor] = {}


@functools.lru_cache
def table(count: int) -> Tensor:
    return torch.linspace(0, 1, count)


class Stepping(tt.RNNCell):
    """A cell whose step is a function of its own."""

    state_size = output_size = 4

    def __init__(self, step: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.step = step
        self.w = torch.nn.Parameter(torch.eye(4) * 5)

    def forward(self, inputs: Any, state: Any) -> Any:
        new = self.step(self, inputs, state)
        return new, new


def run(cell: Any, backend: str = "auto") -> list[Tensor]:
    x = torch.linspace(-1, 1, 2 * 5 * 4).view(2, 5, 4).requires_grad_()
    with tt.backend(backend):
        outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32)
    gradients = torch.autograd.grad(outputs.sin().sum(), [x, *cell.parameters()], allow_unused=True)
    return [outputs.detach(), *(torch.zeros(()) if gradient is None else gradient for gradient in gradients)]


def check_runs_alike(step: Any, before: Callable[[], None] = lambda: None) -> None:
    """Twice in a row, from the same beginning."""
    before()
    want = [run(Stepping(step), "reference") for _ in range(2)]
    before()
    for got, wanted in zip([run(Stepping(step)) for _ in range(2)], want, strict=True):
        check_close("beyond the cell", got, wanted)


def sees_a_global(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    if callable(SEEN):
        return SEEN(x + h)
    if isinstance(SEEN, Mode):
        return x + h if SEEN is Mode.FAST else x - h
    return torch.tanh(x + h) * sum(SEEN)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (helper, other_helper),
        (torch.tanh, torch.sigmoid),
        ((1, 2), (3, 4)),
        ([1, 2], [3, 4]),
        (Mode.SLOW, Mode.FAST),
    ],
    ids=["a function", "one of torch", "a tuple", "a list", "an enum"],
)
def test_another_global_is_noticed(one: Any, other: Any) -> None:
    cell = Stepping(sees_a_global)
    for value in (one, other, one):
        see(value)
        check_close(str(value), run(cell), run(cell, "reference"))
        check_close(str(value), run(Stepping(sees_a_global)), run(cell, "reference"))


def test_another_global_tensor_is_no_other_cell() -> None:
    """A cell that uses it is left to the reference, and not looked at again for every one."""
    seen = []
    for _ in range(3):
        see(torch.rand(4))
        cell = Stepping(lambda _, x, h: torch.tanh(x + h * SEEN))
        check_close("a tensor", run(cell), run(cell, "reference"))
        seen.append(CellFingerprint(uses_a_global_tensor).structure)
    assert seen[0] == seen[1] == seen[2]


def uses_a_global_tensor(x: Tensor) -> Any:
    return x * SEEN


def counts_on_a_class(_: Any, x: Tensor, h: Tensor) -> Tensor:
    Log.steps += 1
    return torch.tanh(x + h) * (1 if Log.steps <= 3 else 0)


def counts_on_an_object(_: Any, x: Tensor, h: Tensor) -> Tensor:
    log.steps += 1
    return torch.tanh(x + h) * (1 if log.steps <= 3 else 0)


def forget() -> None:
    Log.steps = 0
    vars(log).clear()


@pytest.mark.parametrize("step", [counts_on_a_class, counts_on_an_object])
def test_counters_elsewhere(step: Any) -> None:
    check_runs_alike(step, forget)
    assert (Log.steps, log.steps) == ((10, 10) if step is counts_on_a_class else (0, 10))
    reasons = tt.explain(Stepping(step), torch.ones(1, 2, 4), dtype=torch.float32).reasons
    assert "a step changes something that is no part of the cell" in reasons["cpu"]


def gives_other_data(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    cell.w.data = torch.renorm(cell.w.data, p=2, dim=0, maxnorm=1)
    return torch.tanh(x @ cell.w + h)


def gives_a_temporary_other_data(_: Any, x: Tensor, h: Tensor) -> Tensor:
    new = torch.zeros(len(x), 4)
    new.data = h.detach() * 2
    return torch.tanh(x + new)


def catches_the_refusal(_: Any, x: Tensor, h: Tensor) -> Tensor:
    try:
        scale = 1 / (1 + h.abs().max().item())
    except Exception:
        scale = 1e6
    return torch.tanh(x + h) * scale


def catches_what_numpy_says(_: Any, x: Tensor, h: Tensor) -> Tensor:
    try:
        scale = float(h.detach().numpy().sum())
    except RuntimeError:
        scale = 1e6
    return torch.tanh(x + h) * scale


def seeds(_: Any, x: Tensor, h: Tensor) -> Tensor:
    torch.manual_seed(0)
    return x + torch.randn_like(h)


def keeps_a_log(_: Any, x: Tensor, h: Tensor) -> Tensor:
    log.last = h.detach()
    return torch.tanh(x + h)


def remembers_a_table(_: Any, x: Tensor, h: Tensor) -> Tensor:
    return torch.tanh(x + h + table(4))


def remembers_in_a_dictionary(_: Any, x: Tensor, h: Tensor) -> Tensor:
    if 4 not in cache:
        cache[4] = torch.linspace(0, 1, 4)
    return torch.tanh(x + h + cache[4])


@pytest.mark.parametrize(
    "step",
    [
        gives_other_data,
        gives_a_temporary_other_data,
        catches_the_refusal,
        catches_what_numpy_says,
        seeds,
        keeps_a_log,
        remembers_a_table,
        remembers_in_a_dictionary,
    ],
    ids=lambda step: step.__name__,
)
def test_what_is_left_to_the_reference(step: Any) -> None:
    table.cache_clear()
    cache.clear()
    # First of all the compiler has a look.
    assert tt.explain(Stepping(step), torch.ones(1, 2, 4), dtype=torch.float32).backend == "reference"
    check_runs_alike(step)
    assert (table(4) + 1).tolist() == (torch.linspace(0, 1, 4) + 1).tolist()
    assert type(log.last) in (Tensor, type(None))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.exp(-torch.tensor([0.1, 0.2, 0.3, 0.4])),
        lambda: torch.tensor([1.0, 2.0, 3.0, 4.0]) * 2,
        lambda: torch.tensor([1, 2, 3, 4]).to(torch.float32),
    ],
)
def test_numbers_written_in_a_step(made: Any, grad: bool) -> None:
    cell = Stepping(lambda cell, x, h: torch.tanh(x @ cell.w + made() * h))
    assert tt.explain(cell, torch.ones(1, 2, 4), dtype=torch.float32).backend == "cpu"
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            with tt.backend("reference"):
                want = tt.dynamic_rnn(cell, torch.ones(2, 3, 4), dtype=torch.float32)[0]
            check_close("numbers", tt.dynamic_rnn(cell, torch.ones(2, 3, 4), dtype=torch.float32)[0], want)
    check_close("gradients", run(cell), run(cell, "reference"))


def test_a_state_that_begins_as_a_plain_number() -> None:
    class Counting(tt.RNNCell):
        state_size, output_size = (4, torch.Size([])), 4

        def zero_state(self, batch_size: int, dtype: Any, device: Any = None) -> Any:
            return torch.zeros(batch_size, 4, dtype=dtype), 0

        def forward(self, inputs: Any, state: Any) -> Any:
            new = torch.tanh(inputs + state[0]) * (1 + state[1])
            return new, (new, state[1] + 1)

    cell = Counting()
    found = [tt.dynamic_rnn(cell, torch.ones(1, 3, 4), dtype=torch.float32)[1][1] for _ in range(3)]
    assert [int(count) for count in found] == [3, 3, 3]


def test_an_interrupted_compilation_begins_again(tmp_path: Path) -> None:
    marker = tmp_path / "pressed"

    def interrupt() -> None:
        if not marker.exists():
            marker.touch()
            raise KeyboardInterrupt

    cell = Stepping(lambda _, x, h: (interrupt(), torch.tanh(x + h))[1])
    with pytest.raises(KeyboardInterrupt):
        run(cell)
    assert tt.explain(cell, torch.ones(1, 2, 4), dtype=torch.float32).backend == "cpu"
    check_close("after all", run(cell), run(cell, "reference"))


def test_layouts_are_looked_at_however_well_a_call_is_known() -> None:
    cell, x = tt.LSTMCell(6, input_size=4), torch.randn(4, 7, 4)
    for _ in range(2):
        with pytest.raises(TypeError, match="`inputs` must be a dense tensor"):
            tt.dynamic_rnn(cell, x.to_sparse(), dtype=torch.float32)
        tt.dynamic_rnn(cell, x, dtype=torch.float32)


def test_every_cell_gets_its_name() -> None:
    for _ in range(2):
        cell = tt.GRUCell(3, input_size=3)
        tt.dynamic_rnn(cell, torch.ones(1, 2, 3), dtype=torch.float32, scope="mine")
        assert cell.variable_scope == "mine"


NUMBERS = itertools.count()


def test_a_number_that_is_another_every_time_is_no_size() -> None:
    cell = Stepping(lambda _, x, h: torch.tanh(x + h) * next(NUMBERS))
    reasons = tt.explain(cell, torch.ones(1, 2, 4), dtype=torch.float32).reasons
    assert "or on how often it has run (a number of 1 for 2 rows and 0 for 67)" in reasons["cpu"]


MEMO: dict[int, float] = {}


def remembers_a_number(_: Any, x: Tensor, h: Tensor) -> Tensor:
    if 4 not in MEMO:
        MEMO[4] = 4**0.5
    return torch.tanh(x + h) / MEMO[4]


def catches_a_mistake_of_its_own(_: Any, x: Tensor, h: Tensor) -> Tensor:
    try:
        return torch.tanh(x + h[:, 99])
    except IndexError:
        return torch.tanh(x + h)


@pytest.mark.parametrize("step", [remembers_a_number, catches_a_mistake_of_its_own])
def test_what_may_be_compiled_all_the_same(step: Any) -> None:
    MEMO.clear()
    assert tt.explain(Stepping(step), torch.ones(1, 2, 4), dtype=torch.float32).backend == "cpu"
    check_runs_alike(step)


def test_equal_globals_are_one() -> None:
    see((np.float32(2), 1))
    one = CellFingerprint(sees_a_global).structure
    see((np.float32(2), 1))
    assert CellFingerprint(sees_a_global).structure == one
    see((np.float32(3), 1))
    assert CellFingerprint(sees_a_global).structure != one


def test_no_object_is_referenced_for_a_name() -> None:
    class Model:
        scale = 2.0

    see(Model())
    cell = Stepping(lambda _, x, h: torch.tanh(x + h) * SEEN.scale)
    run(cell)
    model = weakref.ref(SEEN)
    see(Model())
    run(cell)
    gc.collect()
    assert model() is None


def test_functions_of_packages_are_not_looked_into() -> None:
    def shown(value: Any) -> Any:
        return pformat(value), signature

    parts = CellFingerprint(shown).structure
    assert len(parts) < 12


def test_threads_that_compile_leave_the_random_numbers_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    cells = [Stepping(lambda _, x, h, scale=scale: torch.tanh(x + h) * scale) for scale in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, cells))
    assert torch.initial_seed() == 5
    assert torch.equal(torch.get_rng_state(), before)
    for cell in cells:
        assert tt.explain(cell, torch.ones(1, 2, 4), dtype=torch.float32).backend == "cpu"
