"""Cells that work in place: what a loop over copies gives, on every backend, and nothing of the caller's changes."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import throughtime as tt
from backends import COMPILED, EVERY_BACKEND, every_backend, plan_of, raises_refusal
from compare import check_close, check_same, measure
from descriptors import Case
from in_place_cells import IN_PLACE, InPlaceModules, Scribbling, added, inputs_changed
from oracle import oracle
from unrolls import both, dynamic, on
from user_cells import Listed, Step, step, weight

pytestmark = pytest.mark.covers("compiler")
T, B = 5, 4
LENGTHS = [2, 0, T, T - 1]
each_cell = pytest.mark.parametrize("listed", IN_PLACE, ids=lambda listed: listed.descriptor.name)


class OnCopies:
    """A cell whose every step has copies: the meaning of one that works in place."""

    def __init__(self, cell: Any) -> None:
        self.cell, self.output_size, self.zero_state = cell, cell.output_size, cell.zero_state

    def __call__(self, *arguments: Any) -> Any:
        return copied(self.cell(*map(copied, arguments)))


def named(name: str) -> Listed:
    return next(listed for listed in IN_PLACE if listed.descriptor.name == name)


def of_step(function: Any) -> Case:
    """A case of a cell with one weight."""
    return step(function.__name__, function, (3, 4)).case(B, T)


def copied(tree: Any) -> Any:
    return pytree.tree_map(torch.clone, tree)


def takes(listed: Listed, backend: str) -> bool:
    return EVERY_BACKEND.index(backend) <= EVERY_BACKEND.index(listed.backend)


def expected(cell: Any, inputs: Any, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
    return oracle(OnCopies(cell), inputs, lengths, state, dtype)


def check(backend: str, case: Case, lengths: Any, unroll: Any = dynamic, **options: Any) -> None:
    """The same as the oracle, values and all gradients, without gradients too; the caller's tensors are untouched."""
    run = on(backend, unroll, **options)
    given, kept = (case.inputs, case.state), copied((case.inputs, case.state))
    want = measure(lambda *problem: expected(*problem[:2], lengths, problem[2], case.dtype), *case[:3])
    found = measure(lambda *problem: run(*problem[:2], lengths, problem[2], case.dtype), *case[:3])
    check_same(want, found)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            results = run(case.cell, case.inputs, lengths, case.state, case.dtype)
            check_close(mode.__name__, pytree.tree_map(Tensor.detach, want.results), results)
    assert all(map(torch.equal, pytree.tree_leaves(given), pytree.tree_leaves(kept)))


@each_cell
def test_which_backend_runs_it(listed: Listed) -> None:
    plan = plan_of(listed.case(B, T), LENGTHS)
    assert plan.backend == listed.backend, plan.reasons
    assert all(listed.reason in reason for reason in plan.reasons.values())


@each_cell
@every_backend
@pytest.mark.parametrize("lengths", [None, [0] * B, LENGTHS], ids=["T", "0", "mixed"])
def test_a_loop_over_copies(listed: Listed, backend: str, lengths: list[int] | None) -> None:
    if takes(listed, backend) or lengths == [0] * B:
        check(backend, listed.case(B, T), lengths)
        return
    with raises_refusal(backend, listed.reason):
        check(backend, listed.case(B, T), lengths)


@each_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dtypes(listed: Listed, dtype: torch.dtype) -> None:
    case = listed.case(B, T, dtype)
    results = [
        on(backend, dynamic)(case.cell, case.inputs, LENGTHS, case.state, dtype) for backend in ("reference", "auto")
    ]
    check_close("results", *results)


@each_cell
@pytest.mark.parametrize("batch", [1, 2, 67])
def test_batches(listed: Listed, batch: int) -> None:
    check("auto", listed.case(batch, 3), [3, 1, *[2] * (batch - 2)][:batch])


@each_cell
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(
    "options",
    [{"checkpoint_every": 2}, {"parallel_iterations": 2}, {"swap_memory": True}],
    ids=lambda one: next(iter(one)),
)
def test_options(listed: Listed, backend: str, options: dict[str, Any]) -> None:
    check(backend, listed.case(B, T), LENGTHS, **options)


@each_cell
def test_all_states(listed: Listed) -> None:
    """Each step's own, whatever later steps have written."""
    case = listed.case(B, T)
    states = []
    for time in range(1, T + 1):
        part = pytree.tree_map(lambda leaf, t=time: leaf[:, :t], case.inputs)
        lengths = [min(length, time) for length in LENGTHS]
        states.append(expected(case.cell, part, lengths, case.state, case.dtype)[1])
    want = pytree.tree_map(lambda *leaves: torch.stack(leaves, 1), *states)
    for backend in ("reference", "auto"):
        found = on(backend, dynamic, all_states=True)(case.cell, case.inputs, LENGTHS, case.state, case.dtype)
        check_close(backend, want, found[2])


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_two_states_that_are_one_tensor(backend: str) -> None:
    case = named("same twice").case(B, T)
    check(backend, case._replace(state=(case.state[0], case.state[0])), LENGTHS)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_states_that_are_expanded_or_views(backend: str) -> None:
    case = named("chained").case(B, T)
    for state in (torch.ones(4).expand(B, 4), torch.randn(4, B).t(), torch.randn(B, 8)[:, ::2]):
        check(backend, case._replace(state=state.double()), LENGTHS)


@pytest.mark.parametrize("name", ["state added to", "columns written", "reshaped"])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_second_gradients(name: str, backend: str) -> None:
    case = named(name).case(3, 3)
    found = []
    for run in (expected, on(backend, dynamic)):
        x, h = (leaf.clone().requires_grad_() for leaf in (case.inputs, case.state))
        outputs, final = run(case.cell, x, [3, 1, 2], h, case.dtype)
        first = torch.autograd.grad(outputs.sin().sum() + final.sin().sum(), (x, h), create_graph=True)
        found.append(torch.autograd.grad(sum(one.square().sum() for one in first), (x, h)))
    check_close("second gradients", *found)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_stacks_and_wrappers(backend: str) -> None:
    """A cell inside of another has copies too: one changes its inputs, which are the state of the one below."""

    layers = [Step(added, 4, 4, weight(3, 4)), Step(inputs_changed, 4, 4, weight(4, 4)), InPlaceModules(4, 4)]
    cell = tt.MultiRNNCell([layers[0], tt.ResidualWrapper(layers[1]), tt.DropoutWrapper(layers[2])]).double()
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, std=0.5)

    def apart(inputs: Tensor, state: Any) -> Any:
        out, first = OnCopies(layers[0])(inputs, state[0])
        inner, second = OnCopies(layers[1])(out, state[1])
        top, third = OnCopies(layers[2])(out + inner, state[2])
        return top, (first, second, third)

    apart.output_size, apart.zero_state = 4, cell.zero_state
    x = torch.randn(B, T, 3).double()
    state = tuple(torch.randn(B, 4).double() for _ in range(3))
    want = measure(lambda _, inputs, start: oracle(apart, inputs, LENGTHS, start, torch.float64), cell, x, state)
    found = measure(
        lambda _, inputs, start: on(backend, dynamic)(cell, inputs, LENGTHS, start, torch.float64), cell, x, state
    )
    check_same(want, found)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_both_directions(backend: str) -> None:
    case = IN_PLACE[0].case(B, T)
    want, found = (
        measure(run, *case[:3])
        for run in (
            lambda cell, x, h: tuple(
                zip(
                    *(oracle(OnCopies(cell), x, LENGTHS, h, case.dtype, reverse=way) for way in (False, True)),
                    strict=True,
                )
            ),
            lambda cell, x, h: on(backend, both)(cell, x, LENGTHS, h, case.dtype),
        )
    )
    check_same(want, found)


def static(cell: Any, x: Tensor, state: Any) -> Any:
    outputs, final = tt.static_rnn(cell, list(x.unbind(1)), state)
    return torch.stack(outputs, 1), final


def raw(cell: Any, x: Tensor, state: Any) -> Any:
    def loop_fn(time: Any, output: Any, cell_state: Any, _: Any) -> Any:
        done = time >= x.shape[1]
        following = x[:, min(int(time), x.shape[1] - 1)]
        return done, following, state if output is None else cell_state, output, None

    arrays, final, _ = tt.raw_rnn(cell, loop_fn)
    return arrays.stack().transpose(0, 1), final


def decoded(cell: Any, x: Tensor, state: Any) -> Any:
    helper = tt.decode.TrainingHelper(x, torch.full((len(x),), x.shape[1]))

    class Decoder(tt.decode.BasicDecoder):
        """Not the very class that is run at once."""

    outputs, final, _ = tt.decode.dynamic_decode(Decoder(cell, helper, state))
    return outputs.rnn_output, final


@pytest.mark.parametrize("loop", [static, raw, decoded])
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("name", ["state added to", "inputs changed", "columns written"])
def test_other_loops(loop: Any, backend: str, name: str) -> None:
    case = named(name).case(B, T)
    kept = copied((case.inputs, case.state))
    want = measure(lambda cell, x, h: expected(cell, x, None, h, case.dtype), *case[:3])
    with tt.backend(backend):
        check_same(want, measure(loop, *case[:3]))
        loop(*case[:3])
    assert all(map(torch.equal, (case.inputs, case.state), kept))


def test_loop_variables() -> None:
    def body(count: Tensor, total: Tensor, history: Tensor) -> Any:
        count += 1
        total.add_(count)
        history[int(count) - 1] = total
        return count, total, history

    start = torch.tensor(0), torch.tensor(1.0), torch.zeros(3)
    final = tt.while_loop(lambda count, *_: count < 3, body, start)
    assert [leaf.tolist() for leaf in final] == [3, 7.0, [2.0, 4.0, 7.0]]
    assert [leaf.tolist() for leaf in start] == [0, 1.0, [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("form", ["compile", "export", "strict export"])
@pytest.mark.parametrize("name", ["state added to", "inputs changed", "reshaped"])
def test_under_the_compilers_of_torch(form: str, name: str) -> None:
    case = named(name).case(B, T)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = case.cell

        def forward(self, x: Tensor, state: Tensor) -> Any:
            return tt.dynamic_rnn(self.cell, x, None, state)

    kept = copied((case.inputs, case.state))
    want = expected(case.cell, case.inputs, None, case.state, case.dtype)
    if form == "compile":
        found = torch.compile(Model(), backend="aot_eager")(case.inputs, case.state)
    else:
        strict = form.startswith("strict")
        found = torch.export.export(Model(), (case.inputs, case.state), strict=strict).module()(case.inputs, case.state)
    check_close(form, want, found)
    assert all(map(torch.equal, (case.inputs, case.state), kept))


class Buffered(tt.RNNCell):
    """Writes every output into the same memory, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size = self.output_size = 3
        self.register_buffer("memory", torch.zeros(B, 3, dtype=torch.float64))

    def forward(self, inputs: Tensor, state: Tensor) -> Any:
        self.memory.copy_(inputs + state)
        return self.memory, self.memory


def test_results_that_a_cell_keeps() -> None:
    x, cell = torch.randn(B, T, 3).double(), Buffered()
    assert "a tensor of the cell in place" in str(tt.explain(cell, x).reasons)
    with torch.no_grad():
        outputs, final = tt.dynamic_rnn(cell, x, dtype=torch.float64)
        tt.dynamic_rnn(cell, 2 * x, dtype=torch.float64)
    check_close("outputs", x.cumsum(1), outputs)
    check_close("final", x.sum(1), final)


def resets(x: Tensor, h: Tensor, w: Tensor) -> Any:
    """Looks at values, so no backend takes it, and writes at some steps only."""
    if bool((x > 1.5).any()):
        h[(x > 1.5).any(1)] = 0.0
    return h + x @ w, torch.tanh(h + x @ w)


def test_writes_at_some_steps_only() -> None:
    case = step("resets", resets, (3, 4)).case(1, 30)
    assert not bool((case.inputs[:, 0] > 1.5).any())
    assert bool((case.inputs > 1.5).any())
    check("auto", case, None)


OPERATIONS = {"relu": torch.relu_}


def by_operator(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h = operator.iadd(h, torch.tanh(x @ w))
    return h, h


def by_table(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h = OPERATIONS["relu"](h) + x @ w
    return h, h


def of_many(x: Tensor, h: Tensor, w: Tensor) -> Any:
    torch._foreach_mul_([h], 0.5)
    return h + x @ w, h


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("function", [by_operator, by_table, of_many])
def test_writes_by_other_names(function: Any, backend: str) -> None:
    """Torch counts no versions in inference mode."""
    with torch.inference_mode(), tt.backend(backend):
        case, outputs = of_step(function), []
        x, h, before = case.inputs, case.state.clone(), case.inputs.clone()
        for step_inputs in x.unbind(1):
            output, h = copied(case.cell(step_inputs.clone(), h.clone()))
            outputs.append(output)
        for _ in range(2):
            found = dynamic(case.cell, x, None, case.state, case.dtype)
            check_close("other names", (torch.stack(outputs, 1), h), found)
            assert torch.equal(x, before)


def data_saved(x: Tensor, h: Tensor, w: Tensor) -> Any:
    """Behind the back of autograd: its gradient is of what is there when it runs."""
    y = x @ w + h
    z = y * y
    y.data.mul_(0.5)
    return z, torch.tanh(y)


def test_behind_the_back_of_autograd() -> None:
    case = of_step(data_saved)
    for backend in EVERY_BACKEND:
        want = measure(lambda cell, x, h: expected(cell, x, LENGTHS, h, case.dtype), *case[:3])
        found = measure(lambda cell, x, h, b=backend: on(b, dynamic)(cell, x, LENGTHS, h, case.dtype), *case[:3])
        check_same(want, found)


def outputs_given(x: Tensor, h: Tensor, w: Tensor) -> Any:
    torch.add(h, x @ w, out=h)
    torch.tanh(h, out=h)
    torch.mul(h[:, :2], 0.5, out=h[:, :2])
    return h, h


@every_backend
def test_results_written_where_asked(backend: str) -> None:
    """torch does this without gradients only."""
    with torch.no_grad():
        case = of_step(outputs_given)
        kept = case.state.clone()
        want = expected(case.cell, case.inputs, LENGTHS, case.state, case.dtype)
        check_close("results", want, on(backend, dynamic)(case.cell, case.inputs, LENGTHS, case.state, case.dtype))
    assert torch.equal(case.state, kept)


def chunks(x: Tensor, h: Tensor, w: Tensor) -> Any:
    one, other = h.chunk(2, 1)
    one += other
    for column in other.unbind(1):
        column.mul_(0.5)
    return h, h + x @ w


@every_backend
def test_pieces_written_to(backend: str) -> None:
    """Pieces of one call: torch writes to them without gradients only."""
    with torch.no_grad():
        case = of_step(chunks)
        want = expected(case.cell, case.inputs, LENGTHS, case.state, case.dtype)
        check_close("results", want, on(backend, dynamic)(case.cell, case.inputs, LENGTHS, case.state, case.dtype))


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a parameter": (lambda x, h, w: (w.mul_(0.9), (h, h))[1], "such as a parameter"),
    "a view of a parameter": (lambda x, h, w: (w[:, 0].mul_(0.9), (h, h))[1], "such as a parameter"),
    "a parameter without gradients": (
        lambda x, h, w: (w.data.mul_(0.9), (h @ w.t() @ w, h))[1],
        "a tensor of the cell in place",
    ),
    "rows": (lambda x, h, w: (h[0].zero_(), (h + x @ w, h))[1], "not independent"),
    "windows": (lambda x, h, w: (h.unfold(1, 2, 2).add_(1), (h, h))[1], "through a view of it (aten.unfold)"),
    "other memory": (lambda x, h, w: (h.resize_(len(h), 2), (h, h))[1], "cannot be traced"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_compiled(name: str) -> None:
    function, reason = REFUSED[name]
    plan = tt.explain(Step(function, 4, 4, weight(3, 4)), torch.randn(B, T, 3))
    assert plan.backend == "reference"
    assert all(reason in said for said in plan.reasons.values()), plan.reasons


def rows_or_copies(x: Tensor, h: Tensor, w: Tensor) -> Any:
    """For one row `reshape` gives a view, for many a copy: which of them is written to depends on the batch."""
    h.t().reshape(len(h), -1).add_(1)
    return h, h + x @ w


def test_views_that_depend_on_the_number_of_rows() -> None:
    plan = tt.explain(Step(rows_or_copies, 4, 4, weight(3, 4)), torch.randn(B, T, 3))
    assert plan.backend == "reference", plan


def numbers(x: Tensor, h: Tensor, w: Tensor) -> Any:
    return h * float(w.sum()) * int(w.sum()), h + x @ w


def test_no_warning_while_it_is_traced() -> None:
    cell = Step(numbers, 4, 4, weight(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = tt.explain(cell, torch.randn(B, T, 3))
    assert set(plan.reasons) == set(COMPILED)
    assert all("the values of tensors (float() of one)" in reason for reason in plan.reasons.values())


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    torch.manual_seed(seed)
    cell = Scribbling(seed).double()
    case = Case(cell, torch.randn(3, 3, 4).double(), torch.randn(3, 4).double(), torch.float64)
    for backend in EVERY_BACKEND:
        check(backend, case, [3, 1, 2])
