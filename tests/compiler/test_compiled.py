"""The contract through compiled backends: second derivatives, autocast, stacks, partial gradients, cost of padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import throughtime as tt
from backends import COMPILED, check_on, compiled_backends, plan_of
from compare import check_close, check_same, measure
from descriptors import BY_NAME, Case, random_inputs, settled
from unrolls import EVERY_UNROLL, dynamic, on
from user_cells import LayerNormLSTM, TorchGRU

pytestmark = pytest.mark.covers("compiler")

F64 = torch.float64
LENGTHS = [3, 0, 5, 1]


def everything() -> Any:
    """A stack with every wrapper there is, one inside of the other."""
    lowest = tt.InputProjectionWrapper(tt.LSTMCell(3, True, 0.7), 5, "tanh")
    middle = tt.ResidualWrapper(tt.DeviceWrapper(tt.GRUCell(3), "cpu"), torch.mul)
    dropped = tt.DropoutWrapper(tt.BasicRNNCell(3), 0.8, 0.8, 0.8, variational_recurrent=True, input_size=3, dtype=F64)
    highest = tt.OutputProjectionWrapper(tt.MultiRNNCell([dropped, tt.BasicLSTMCell(2)]), 2)
    return tt.MultiRNNCell([lowest, middle, highest])


def case_of(make: Callable[[], Any], batch: int = 4, time: int = 5, dtype: torch.dtype = F64) -> Case:
    cell = settled(make(), random_inputs(3, 1, 1, dtype), dtype)
    state = pytree.tree_map(torch.randn_like, cell.zero_state(batch, dtype))
    return Case(cell, random_inputs(3, batch, time, dtype), state, dtype)


@compiled_backends
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
@pytest.mark.parametrize(
    "options", [{}, {"all_states": True}, {"checkpoint_every": 2}, {"parallel_iterations": 3}], ids=str
)
def test_every_wrapper_at_once(backend: str, lengths: Any, options: dict[str, Any]) -> None:
    check_on(backend, case_of(everything), lengths, **options)


@compiled_backends
@pytest.mark.parametrize("unroll", ["both", "both stacked", "both packed", "static", "dynamic jagged"])
def test_every_wrapper_every_way(backend: str, unroll: str) -> None:
    lengths = [3, 1, 5, 2]
    run = lambda name: lambda cell, x, s: on(name, EVERY_UNROLL[unroll].run)(cell, x, lengths, s, F64)  # noqa: E731
    case = case_of(everything)
    check_same(*(measure(run(name), case.cell, case.inputs, case.state) for name in ("reference", backend)))


@compiled_backends
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck], ids=["first", "second"])
@pytest.mark.parametrize("name", ["LSTM full", "nests", "integer counters", "Multi", "layer norm"])
@pytest.mark.parametrize("lengths", [None, [2, 0, 3]], ids=["dense", "ragged"])
def test_finite_differences(name: str, lengths: Any, check: Any, backend: str) -> None:
    make = partial(LayerNormLSTM, 2, modules=True)
    case = case_of(make, 3, 3) if name == "layer norm" else BY_NAME[name].case(3, 3, units=2)
    leaves = [leaf for leaf in pytree.tree_leaves((case.inputs, case.state)) if leaf.is_floating_point()]
    sources = [*(leaf.requires_grad_() for leaf in leaves), *case.cell.parameters()]

    def function(*_: Tensor) -> tuple[Tensor, ...]:
        results = on(backend, dynamic)(case.cell, case.inputs, lengths, case.state, F64)
        return tuple(leaf for leaf in pytree.tree_leaves(results) if leaf.is_floating_point())

    assert check(function, sources, fast_mode=True)


@compiled_backends
@pytest.mark.parametrize(
    "options", [{}, {"checkpoint_every": 2}, {"parallel_iterations": 2}, {"all_states": True}], ids=str
)
def test_second_derivatives(backend: str, options: dict[str, Any]) -> None:
    case = case_of(lambda: LayerNormLSTM(4, modules=False))

    def second(cell: Any, inputs: Any, state: Any, *, name: str) -> Any:
        results = on(name, dynamic, **options)(cell, inputs, LENGTHS, state, F64)
        leaves = pytree.tree_leaves(results)
        sources = [inputs, *pytree.tree_leaves(state), *cell.parameters()]
        return torch.autograd.grad(sum(leaf.pow(3).sum() for leaf in leaves), sources, create_graph=True)

    runs = [partial(second, name=name) for name in ("reference", backend)]
    check_same(*(measure(run, case.cell, case.inputs, case.state) for run in runs))


@compiled_backends
@pytest.mark.parametrize("order", [1, 2])
def test_one_cell_upon_itself(backend: str, order: int) -> None:
    """Its weights are in what it computes from, and in its state: nothing may be counted twice."""

    def run(cell: Any, inputs: Any, state: Any, *, name: str) -> Any:
        state = state * cell.gates.bias[:3].tanh()
        outputs, final = on(name, dynamic)(cell, inputs, LENGTHS, state, F64)
        outputs, final = on(name, dynamic)(cell, outputs, [5, 2, 0, 4], final, F64)
        if order == 1:
            return outputs, final
        return torch.autograd.grad(outputs.pow(3).sum(), [inputs, *cell.parameters()], create_graph=True)

    case = case_of(lambda: tt.GRUCell(3))
    runs = [partial(run, name=name) for name in ("reference", backend)]
    check_same(*(measure(each, case.cell, case.inputs, case.state) for each in runs))


@pytest.mark.parametrize("backend", ["aten", "auto"])
@pytest.mark.parametrize("name", ["LSTM full", "GRU", "Multi", "layer norm"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
def test_autocast(name: str, lengths: Any, backend: str) -> None:
    """Products in bfloat16, weights, states and gradients in float32, as step by step."""
    make = partial(LayerNormLSTM, 4, modules=True)
    case = case_of(make, dtype=torch.float32) if name == "layer norm" else BY_NAME[name].case(4, 5, torch.float32)
    found = []
    for each in ("reference", backend):
        with torch.autocast("cpu", torch.bfloat16):
            found.append(measure(partial(autocast_run, each, lengths), case.cell, case.inputs, case.state))
    for want, got in zip(*map(pytree.tree_leaves, found), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        scale = max(1.0, want.abs().max().item())
        assert (got - want).abs().max().item() <= 4e-2 * scale
    with torch.autocast("cpu", torch.bfloat16):
        assert "bfloat16" in str(plan_of(case, lengths))
    assert "bfloat16" not in str(plan_of(case, lengths))


def autocast_run(backend: str, lengths: Any, cell: Any, inputs: Any, state: Any) -> Any:
    return on(backend, dynamic)(cell, inputs, lengths, state, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_small_dtypes_are_run_by_torchs_operations(dtype: torch.dtype) -> None:
    plan = plan_of(BY_NAME["LSTM"].case(3, 4, dtype))
    assert plan.backend == "aten"
    assert str(dtype).removeprefix("torch.") in plan.reasons["cpu"]


PARTS: dict[str, Callable[[Any, Any], Any]] = {
    "outputs": lambda outputs, final: outputs,
    "final state": lambda outputs, final: final,
    "one field": lambda outputs, final: final.c,
    "one step": lambda outputs, final: outputs[:, 2],
    "one feature": lambda outputs, final: outputs[..., :1],
    "a row that ends early": lambda outputs, final: final.h[3],
    "an empty row": lambda outputs, final: final.h[1],
    "one number for all": lambda outputs, final: outputs.sum().expand(3),
    "turned round": lambda outputs, final: outputs.transpose(1, 2).flip(0),
}


@compiled_backends
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
def test_gradients_of_a_part(part: str, lengths: Any, backend: str) -> None:
    """Cotangents that are missing, strided or all the same."""
    case = BY_NAME["LSTM full"].case(4, 5)
    runs = [
        lambda cell, inputs, state, name=name: PARTS[part](*on(name, dynamic)(cell, inputs, lengths, state, F64))
        for name in ("reference", backend)
    ]
    check_same(*(measure(run, case.cell, case.inputs, case.state) for run in runs))


@compiled_backends
def test_backward_twice_and_in_turn(backend: str) -> None:
    case = BY_NAME["LSTM"].case(4, 5)
    sources = list(case.cell.parameters())
    outputs = [on(backend, dynamic)(case.cell, scale * case.inputs, LENGTHS, case.state, F64)[0] for scale in (1, 2)]
    first = [torch.autograd.grad(one.sum(), sources, retain_graph=True) for one in outputs]
    again = [torch.autograd.grad(one.sum(), sources) for one in reversed(outputs)][::-1]
    assert all(torch.equal(*pair) for pair in zip(*map(pytree.tree_leaves, (first, again)), strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(outputs[0].sum(), sources)


@compiled_backends
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
def test_inside_of_torchs_own_checkpoint(backend: str, lengths: list[int] | None) -> None:
    """The first call within it finds a cell that is not compiled yet; the second must keep the same."""
    units = {"aten": 19, "cpu": 20}[backend] + 2 * (lengths is None)
    case = case_of(lambda: TorchGRU(units))

    def run(inputs: Tensor) -> Tensor:
        return on(backend, dynamic)(case.cell, inputs, lengths, None, F64)[0]

    inputs = case.inputs.requires_grad_()
    found = checkpoint(run, inputs, use_reentrant=False)
    gradients = [torch.autograd.grad(one.square().sum(), inputs)[0] for one in (found, run(inputs))]
    torch.testing.assert_close(*gradients)


@compiled_backends
def test_saved_tensors_can_be_moved(backend: str) -> None:
    case = BY_NAME["LSTM"].case(4, 5)
    with torch.autograd.graph.save_on_cpu():
        outputs, _ = on(backend, dynamic)(case.cell, case.inputs, LENGTHS, case.state, F64)
    want, _ = on("reference", dynamic)(case.cell, case.inputs, LENGTHS, case.state, F64)
    sources = list(case.cell.parameters())
    check_close("gradients", *(list(torch.autograd.grad(one.sum(), sources)) for one in (want, outputs)))


def rows_of_products(run: Callable[[], Any]) -> list[int]:
    """How many rows the products outside of the loop have had at a time."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, acc_events=True
    ) as profile:
        run()
    events = [event for event in profile.events() if event.name in ("aten::mm", "aten::addmm")]
    return [shape[0] for event in events for shape in event.input_shapes if len(shape) == 2 and shape[1] == 3]


@pytest.mark.parametrize("parallel", [None, 1, 4, 100])
def test_blocks_bound_the_work_that_is_done_at_once(parallel: int | None) -> None:
    case = BY_NAME["LSTM"].case(4, 10, torch.float32)
    with tt.backend("aten"):
        rows = rows_of_products(
            lambda: dynamic(case.cell, case.inputs, None, None, torch.float32, parallel_iterations=parallel)
        )
    assert sum(rows) == 40
    assert max(rows) == 4 * min(parallel or 10, 10)


def test_padding_costs_nothing() -> None:
    """The work outside of the loop is that of the real steps, and so is what is kept for the backward pass."""
    case, lengths = BY_NAME["LSTM"].case(6, 50, torch.float32, units=32), [50, 3, 1, 0, 4, 2]
    rows = rows_of_products(lambda: on("aten", dynamic)(case.cell, case.inputs, lengths, None, torch.float32))
    assert sum(rows) == sum(lengths)
    dense, ragged = (bytes_kept(case, each) for each in (None, lengths))
    assert ragged < dense * (sum(lengths) / 300 + 0.1)


def bytes_kept(case: Case, lengths: Any) -> int:
    """What autograd keeps of an unroll, besides what it was given."""
    given = {leaf.untyped_storage().data_ptr() for leaf in (case.inputs, *case.cell.parameters())}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        dynamic(case.cell, case.inputs, lengths, None, torch.float32)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in given)


@pytest.mark.parametrize("time_major", [False, True])
def test_dense_inputs_are_not_copied(time_major: bool) -> None:
    """The product takes them where they are."""
    inputs = torch.randn(40, 50, 3)
    cell = tt.LSTMCell(4, input_size=3)

    def run() -> Any:
        with torch.no_grad():
            return dynamic(cell, inputs, None, None, torch.float32, time_major=time_major)

    run()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, acc_events=True
    ) as profile:
        run()
    copies = [event for event in profile.events() if event.name == "aten::copy_" and [40, 50, 3] in event.input_shapes]
    assert copies == []
    assert not [event for event in profile.events() if event.name == "aten::copy_" and [2000, 3] in event.input_shapes]


def test_every_backend_was_asked() -> None:
    assert COMPILED == ("aten", "cpu")
    with pytest.raises(ValueError, match="`name` is no backend"), tt.backend("cython"):
        pass
    for name in ("triton",):
        case = BY_NAME["LSTM"].case(2, 3)
        with pytest.raises(ValueError, match=f'the backend "{name}" cannot run this cell'), tt.backend(name):
            dynamic(case.cell, case.inputs, None, case.state, F64)


def test_a_learned_state_and_inputs_that_are_computed() -> None:
    """The unroll is one part of a larger graph, in which gradients go on."""
    found = []
    for backend in ("reference", *COMPILED):
        torch.manual_seed(0)
        cell, below, start = tt.GRUCell(4, input_size=3), nn.Linear(2, 3), nn.Parameter(torch.randn(4))
        outputs, _ = on(backend, dynamic)(cell, below(torch.randn(4, 5, 2)), LENGTHS, start.expand(4, 4), torch.float32)
        outputs.square().sum().backward()
        found.append([weight.grad for weight in (below.weight, start, *cell.parameters())])
    check_close("gradients", found[0], found[1])
    check_close("gradients", found[0], found[2])
