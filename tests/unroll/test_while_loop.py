"""`while_loop`: values, structures, limits, and gradients through any number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import throughtime as tt

pytestmark = pytest.mark.covers("loops")

ZERO = torch.tensor(0)


class Point(NamedTuple):
    x: Any
    y: Any


def below(limit: int) -> Callable[..., Tensor]:
    """A condition on the first loop variable."""
    return lambda step, *_: step < limit


def count(step: Tensor) -> Tensor:
    return step + 1


def powers(base: Tensor, steps: int, **options: Any) -> Tensor:
    """`base ** (steps + 1)` by repeated products."""
    _, power = tt.while_loop(below(steps), lambda i, p: (i + 1, p * base), (ZERO, base), **options)
    return power


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_the_body_runs_while_the_condition_holds(steps: int) -> None:
    seen = []

    def body(step: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(int(step))
        return step + 1, total + step

    step, total = tt.while_loop(below(steps), body, (ZERO, ZERO))
    assert (int(step), int(total)) == (steps, sum(range(steps)))
    assert seen == list(range(steps))


def test_the_condition_is_asked_once_more_than_the_body_runs() -> None:
    asked = []
    tt.while_loop(lambda i: asked.append(int(i)) or i < 3, count, [ZERO])
    assert asked == [0, 1, 2, 3]


CONDITIONS = {
    "a bool": lambda i: bool(i < 3),
    "a bool tensor": lambda i: i < 3,
    "a numpy bool": lambda i: np.bool_(int(i) < 3),
    "a numpy array": lambda i: np.array(int(i) < 3),
}


@pytest.mark.parametrize("cond", CONDITIONS.values(), ids=CONDITIONS)
def test_conditions(cond: Callable[..., Any]) -> None:
    assert int(tt.while_loop(cond, count, [ZERO])) == 3


VARIABLES = {
    "a lone tensor": (ZERO, ZERO),
    "a lone number": (0, ZERO),
    "a list of one": ([ZERO], [ZERO]),
    "a tuple of one": ((ZERO,), (ZERO,)),
    "a dict of one": ({"i": ZERO}, {"i": ZERO}),
}


@pytest.mark.parametrize("variables", [given for given, _ in VARIABLES.values()], ids=VARIABLES)
def test_one_loop_variable_comes_back_by_itself(variables: Any) -> None:
    def body(step: Tensor) -> Any:
        return {"i": step + 1} if isinstance(variables, dict) else step + 1

    result = tt.while_loop(below(3), body, variables)
    assert isinstance(result, Tensor)
    assert int(result) == 3


@pytest.mark.parametrize(("given", "kept"), VARIABLES.values(), ids=VARIABLES)
def test_unless_the_same_structure_is_wanted(given: Any, kept: Any) -> None:
    result = tt.while_loop(lambda _: False, count, given, return_same_structure=True)
    assert type(result) is (type(kept) if isinstance(kept, list | tuple | dict) else list)
    assert len(result) == 1


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)], ids=["bare", "list", "tuple"])
def test_the_body_may_wrap_one_variable_or_not(wrap: Callable[[Any], Any]) -> None:
    assert int(tt.while_loop(below(3), lambda i: wrap(i + 1), [ZERO])) == 3


@pytest.mark.parametrize("keys", ["a", "ab"], ids=["one key", "two keys"])
def test_one_variable_may_be_a_structure(keys: str) -> None:
    start = dict.fromkeys(keys, ZERO)
    result = tt.while_loop(lambda d: d["a"] < 3, lambda d: {key: d[key] + 1 for key in d}, [start])
    # TensorFlow unwraps a single tensor, with what is around it, and nothing else.
    found = result if keys == "a" else result[0]
    assert {key: int(value) for key, value in found.items()} == dict.fromkeys(keys, 3)


def test_structures_come_back_as_they_went_in() -> None:
    start = (ZERO, Point(torch.zeros(2), {"deep": [torch.ones(3)]}))

    def body(step: Tensor, point: Point) -> Any:
        # A plain tuple stands for a named one.
        return [step + 1, (point.x + 1, {"deep": [2 * point.y["deep"][0]]})]

    step, point = tt.while_loop(below(3), body, start)
    assert int(step) == 3
    assert type(point) is Point
    assert point.x.tolist() == [3, 3]
    assert point.y["deep"][0].tolist() == [8, 8, 8]


def test_numbers_and_arrays_become_tensors() -> None:
    step, total = tt.while_loop(below(3), lambda i, a: (i + 1, a + 1), (0, np.zeros(2, np.float32)))
    assert isinstance(step, Tensor)
    assert total.dtype == torch.float32
    assert total.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("maximum", "steps"), [(0, 0), (2, 2), (99, 5), (None, 5), (np.int64(2), 2), (torch.tensor(2), 2)], ids=str
)
def test_maximum_iterations_is_a_cap(maximum: Any, steps: int) -> None:
    assert int(tt.while_loop(below(5), count, [ZERO], maximum_iterations=maximum)) == steps


def test_maximum_iterations_ends_an_endless_loop() -> None:
    assert int(tt.while_loop(lambda _: True, count, [ZERO], maximum_iterations=4)) == 4


@pytest.mark.parametrize(
    "invariants", [[(None, 3)], [[None, None]], ((None, 3),)], ids=["rows open", "both open", "in a tuple"]
)
def test_shape_invariants_let_a_variable_grow(invariants: Any) -> None:
    start = torch.ones(1, 3)
    grown = tt.while_loop(lambda x: x.shape[0] < 5, lambda x: torch.cat([x, x]), [start], shape_invariants=invariants)
    assert grown.shape == (8, 3)


def test_shape_invariants_hold_what_they_name() -> None:
    with pytest.raises(ValueError, match=r"enters the loop with shape \(None, 3\)"):
        tt.while_loop(lambda _: True, lambda x: torch.cat([x, x], 1), [torch.ones(1, 3)], shape_invariants=[(None, 3)])


def test_shape_invariants_of_some_variables_only() -> None:
    step, rows = tt.while_loop(
        below(3),
        lambda i, x: (i + 1, torch.cat([x, x])),
        (ZERO, torch.ones(1)),
        shape_invariants=(None, (None,)),
    )
    assert (int(step), rows.shape) == (3, (8,))


def test_invariants_of_nested_variables() -> None:
    (result,) = tt.while_loop(
        lambda d: d["rows"].shape[0] < 4,
        lambda d: {"rows": torch.cat([d["rows"]] * 2), "sum": d["sum"] + d["rows"].sum()},
        [{"rows": torch.ones(1), "sum": torch.zeros(())}],
        shape_invariants=[{"rows": (None,), "sum": ()}],
    )
    assert result["rows"].shape == (4,)
    assert result["sum"] == 3


@pytest.mark.parametrize("dynamic", [False, True], ids=["sized", "growing"])
def test_a_tensor_array_as_a_loop_variable(dynamic: bool) -> None:
    array = tt.TensorArray(torch.float32, size=0 if dynamic else 4, dynamic_size=dynamic)

    def body(step: Tensor, squares: tt.TensorArray) -> tuple[Tensor, tt.TensorArray]:
        return step + 1, squares.write(step, (step * step).float())

    _, squares = tt.while_loop(below(4), body, (ZERO, array))
    assert squares.stack().tolist() == [0, 1, 4, 9]
    # The array that went in is as it was.
    assert array.size() == (0 if dynamic else 4)


def test_loops_nest() -> None:
    def row(i: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        inner = tt.while_loop(lambda j, _: j <= i, lambda j, t: (j + 1, t + i * j), (ZERO, total))
        return i + 1, inner[1]

    _, total = tt.while_loop(below(4), row, (ZERO, ZERO))
    assert int(total) == sum(i * j for i in range(4) for j in range(i + 1))


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_gradients_of_every_order(steps: int) -> None:
    base = torch.tensor([0.5, -1.5], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda b: powers(b, steps), base)
    assert gradgradcheck(lambda b: powers(b, steps), base)


def test_gradients_are_those_of_the_formula() -> None:
    base = torch.tensor(3.0, requires_grad=True)
    (first,) = torch.autograd.grad(powers(base, 4), base, create_graph=True)
    (second,) = torch.autograd.grad(first, base)
    assert (first.item(), second.item()) == (5 * 3.0**4, 20 * 3.0**3)


def test_gradients_go_where_the_data_goes() -> None:
    """How often the body runs depends on the data; the gradient follows the steps that ran."""
    start = torch.tensor(1.0, requires_grad=True)
    end = tt.while_loop(lambda x: x < 100, lambda x: 3 * x, [start])
    (gradient,) = torch.autograd.grad(end, start)
    assert (end.item(), gradient.item()) == (243, 243)


def test_gradients_through_a_tensor_array() -> None:
    base = torch.tensor([0.5, -1.5], dtype=torch.float64, requires_grad=True)

    def stacked(base: Tensor) -> Tensor:
        array = tt.TensorArray(torch.float64, size=3)
        _, _, array = tt.while_loop(
            below(3), lambda i, p, a: (i + 1, p * base, a.write(i, p * base)), (ZERO, base, array)
        )
        return array.stack()

    torch.testing.assert_close(stacked(base), torch.stack([base**2, base**3, base**4]))
    assert gradcheck(stacked, base)
    assert gradgradcheck(stacked, base)


def test_without_back_prop_no_graph_is_recorded() -> None:
    base = torch.tensor(2.0, requires_grad=True)
    power = powers(base, 3, back_prop=False)
    assert power.item() == 16
    assert not power.requires_grad
    assert torch.is_grad_enabled()


def test_without_back_prop_the_past_of_a_variable_is_kept() -> None:
    base = torch.tensor(2.0, requires_grad=True)
    assert powers(3 * base, 0, back_prop=False).requires_grad


@pytest.mark.parametrize(
    "options", [{"swap_memory": True}, {"parallel_iterations": 1}, {"parallel_iterations": None}], ids=str
)
def test_options_that_change_no_result(options: dict[str, Any]) -> None:
    base = torch.tensor([0.5, -1.5], requires_grad=True)
    plain, other = powers(base, 4), powers(base, 4, **options)
    assert torch.equal(plain, other)
    assert torch.equal(*(torch.autograd.grad(result.sum(), base)[0] for result in (plain, other)))


def test_an_error_leaves_gradients_on() -> None:
    with pytest.raises(ZeroDivisionError):
        tt.while_loop(lambda _: 1 / 0, count, [ZERO], back_prop=False)
    assert torch.is_grad_enabled()


def test_a_recurrent_network_by_hand() -> None:
    cell, inputs = tt.GRUCell(5), torch.randn(4, 3, 2)
    with tt.backend("reference"):
        outputs, state = tt.dynamic_rnn(cell, inputs, dtype=torch.float32, time_major=True)

    def body(step: Tensor, state: Tensor, outputs: tt.TensorArray) -> Any:
        output, state = cell(inputs[step], state)
        return step + 1, state, outputs.write(step, output)

    start = ZERO, cell.zero_state(3, torch.float32), tt.TensorArray(torch.float32, size=4)
    _, by_hand, array = tt.while_loop(below(4), body, start)
    assert torch.equal(by_hand, state)
    assert torch.equal(array.stack(), outputs)
