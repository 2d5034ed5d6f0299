"""A compiled cell is used again only while it is the same: whatever changes between two calls is noticed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from backends import check_on, compiled_backends, plan_of
from compare import check_close, measure
from descriptors import BY_NAME, Case, random_inputs
from unrolls import dynamic, on
from user_cells import LayerNormLSTM, PlainTensors, TorchGRU

pytestmark = pytest.mark.covers("compiler")

LENGTHS = [3, 0, 4, 1]


def case_of(cell: Any, dtype: torch.dtype = torch.float64) -> Case:
    """A cell with whatever weights it has."""
    return Case(cell, random_inputs(3, 4, 4, dtype), None, dtype)


def lstm() -> Any:
    torch.manual_seed(3)
    return tt.LSTMCell(4, input_size=3, dtype=torch.float64)


def outputs_of(case: Case) -> Tensor:
    return dynamic(case.cell, case.inputs, LENGTHS, None, case.dtype)[0]


def in_place(cell: Any) -> None:
    with torch.no_grad():
        cell.kernel.mul_(1.5)


def through_data(cell: Any) -> None:
    cell.kernel.data += 0.1


def data_replaced(cell: Any) -> None:
    cell.bias.data = torch.ones_like(cell.bias)


def replaced(cell: Any) -> None:
    cell.kernel = nn.Parameter(torch.randn_like(cell.kernel))


def other_memory_layout(cell: Any) -> None:
    cell.kernel = nn.Parameter(torch.randn(cell.kernel.shape[::-1], dtype=torch.float64).T)


def loaded(cell: Any) -> None:
    cell.load_state_dict({name: torch.randn_like(value) for name, value in cell.state_dict().items()})


def optimised(cell: Any) -> None:
    for parameter in cell.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(cell.parameters(), 0.1).step()


def option(cell: Any) -> None:
    cell.forget_bias = -2.0


def activation(cell: Any) -> None:
    cell.activation = torch.sin


def method(cell: Any) -> None:
    def doubled(self: Any, inputs: Tensor, state: Any) -> Any:
        output, state = tt.LSTMCell.forward(self, inputs, state)
        return 2 * output, state

    cell.forward = MethodType(doubled, cell)


def parametrised(cell: Any) -> None:
    class Halved(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 0.5 * weight

    nn.utils.parametrize.register_parametrization(cell, "kernel", Halved())


class Loud(tt.LSTMCell):
    """An LSTM that speaks twice as loud."""

    def forward(self, inputs: Tensor, state: Any) -> Any:
        output, state = super().forward(inputs, state)
        return 2 * output, state


def other_class(cell: Any) -> None:
    cell.__class__ = Loud


CHANGES: list[Callable[[Any], None]] = [
    in_place,
    through_data,
    data_replaced,
    replaced,
    other_memory_layout,
    loaded,
    optimised,
    option,
    activation,
    method,
    parametrised,
    other_class,
]


@compiled_backends
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_between_two_calls(change: Callable[[Any], None], backend: str) -> None:
    case = case_of(lstm())
    before = outputs_of(case)
    change(case.cell)
    assert not before.allclose(outputs_of(case))
    check_on(backend, case, LENGTHS)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_between_calls_that_are_known(change: Callable[[Any], None]) -> None:
    """Without gradients and lengths a call that was seen before goes straight to its kernel."""
    case = case_of(lstm())

    def run() -> list[Tensor]:
        outputs, state = tt.dynamic_rnn(case.cell, case.inputs, dtype=case.dtype)
        return [outputs, *state]

    with torch.no_grad():
        before = [run(), run()]
        check_close("the same call", *before)
        change(case.cell)
        found = run(), run()
        with tt.backend("reference"):
            want = run()
    for one in found:
        check_close("changed", want, one)


@compiled_backends
@pytest.mark.parametrize("modules", [False, True])
def test_changes_inside_of_a_module(modules: bool, backend: str) -> None:
    cell = LayerNormLSTM(4, modules=modules).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    case = case_of(cell)
    check_on(backend, case, LENGTHS)
    if modules:
        cell.after = nn.LayerNorm(4, eps=0.5, dtype=torch.float64)
        check_on(backend, case, LENGTHS)
        cell.before = nn.Identity()
        check_on(backend, case, LENGTHS)
        cell.before = nn.Linear(16, 16, dtype=torch.float64)
    else:
        cell.scale = nn.Parameter(torch.randn(16, dtype=torch.float64))
    check_on(backend, case, LENGTHS)


@compiled_backends
def test_changes_of_plain_tensors(backend: str) -> None:
    """A cell that is no module has nothing that notices a change."""
    cell = PlainTensors(4)
    for weight in cell.weights:
        weight.data = torch.randn(weight.shape, dtype=torch.float64)
    case = case_of(cell)
    check_on(backend, case, LENGTHS)
    cell.kernels[1] = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    cell.helper.scale = torch.randn(4, dtype=torch.float64)
    cell.biases["in"].data.neg_()
    check_on(backend, case, LENGTHS)
    cell.helper = torch.nn.functional.silu
    plain, compiled = (
        on(name, dynamic)(cell, case.inputs, LENGTHS, None, case.dtype) for name in ("reference", backend)
    )
    check_close("results", plain, compiled)


@compiled_backends
def test_a_cell_moved_to_another_dtype(backend: str) -> None:
    cell = tt.GRUCell(4, input_size=3)
    for dtype in (torch.float32, torch.float64, torch.float32):
        check_on(backend, case_of(cell.to(dtype), dtype), LENGTHS)


@compiled_backends
def test_weights_frozen_and_set_free(backend: str) -> None:
    case = case_of(lstm())
    names = [set(measured(case, backend))]
    case.cell.kernel.requires_grad_(False)
    names.append(set(measured(case, backend)))
    case.cell.requires_grad_(False)
    names.append(set(measured(case, backend)))
    case.cell.requires_grad_(True)
    names.append(set(measured(case, backend)))
    assert names == [
        {"inputs[0]", "weights[0]", "weights[1]"},
        {"inputs[0]", "weights[1]"},
        {"inputs[0]"},
        {"inputs[0]", "weights[0]", "weights[1]"},
    ]


def measured(case: Case, backend: str) -> dict[str, Tensor]:
    """The gradients, which have been checked."""
    check_on(backend, case, LENGTHS)
    run = lambda cell, inputs, state: on(backend, dynamic)(cell, inputs, LENGTHS, state, case.dtype)  # noqa: E731
    return measure(run, case.cell, case.inputs, None).gradients


@compiled_backends
def test_only_the_inputs_ask_for_gradients(backend: str) -> None:
    case = case_of(lstm().requires_grad_(False))
    check_on(backend, case, LENGTHS)
    quiet = on(backend, dynamic)(case.cell, case.inputs, LENGTHS, None, case.dtype)[0]
    assert not quiet.requires_grad


@compiled_backends
def test_training_and_evaluation(backend: str) -> None:
    class Moody(TorchGRU):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            output, state = super().forward(inputs, state)
            return (output if self.training else -output), state

    case = case_of(Moody(4).double())
    trained = outputs_of(case)
    case.cell.eval()
    assert torch.equal(outputs_of(case), -trained)
    check_on(backend, case, LENGTHS)
    case.cell.train()
    check_on(backend, case, LENGTHS)


@compiled_backends
def test_a_class_that_is_changed(backend: str) -> None:
    """As notebooks do when they load a module again: cells made before get the new methods and class attributes."""

    class Scaled(TorchGRU):
        scale = 1.0

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(inputs * self.scale, state)

    case = case_of(Scaled(4).double())
    before = outputs_of(case)
    for name, value in (("scale", -3.0), ("forward", TorchGRU.forward)):
        setattr(Scaled, name, value)
        check_on(backend, case, LENGTHS)
    assert outputs_of(case).allclose(before), "with the method of the base class, as with a scale of one"


SCALE = 1.0


def rescale(scale: float) -> None:
    """Rebind the global."""
    global SCALE  # noqa: PLW0603
    SCALE = scale


@compiled_backends
def test_a_number_that_a_step_sees_from_outside(backend: str) -> None:
    """As in a notebook, where a global variable is set again and the next line runs once more."""

    class Scaled(TorchGRU):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(inputs * SCALE, state)

    case = case_of(Scaled(4).double())
    for scale in (1.0, -3.0, 1.0):
        rescale(scale)
        check_on(backend, case, LENGTHS)


@compiled_backends
def test_a_variable_of_the_function_around_it(backend: str) -> None:
    factor = 1.0

    class Scaled(TorchGRU):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(inputs * factor, state)

    case = case_of(Scaled(4).double())
    check_on(backend, case, LENGTHS)
    factor = -3.0
    check_on(backend, case, LENGTHS)


@compiled_backends
def test_the_default_dtype(backend: str) -> None:
    """It decides what a number written in a step becomes."""

    class Literal(TorchGRU):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            third = torch.tensor([1 / 3]) + torch.zeros(4)
            output, state = super().forward(inputs, state)
            return output * third.double(), state

    case = case_of(Literal(4).double())
    results = []
    for default in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(default)
        try:
            check_on(backend, case, LENGTHS)
            results.append(outputs_of(case))
        finally:
            torch.set_default_dtype(torch.float32)
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])


@compiled_backends
def test_a_closure_with_a_number_of_its_own(backend: str) -> None:
    def scaled_by(factor: float) -> Any:
        return lambda value: torch.tanh(factor * value)

    for factor in (1.0, 3.0):
        cell = tt.BasicRNNCell(4, activation=scaled_by(factor), input_size=3, dtype=torch.float64)
        check_on(backend, case_of(cell), LENGTHS)


@compiled_backends
def test_one_weight_that_becomes_two(backend: str) -> None:
    cell = tt.MultiRNNCell([tt.GRUCell(3, input_size=3, dtype=torch.float64)] * 2)
    case = case_of(cell)
    check_on(backend, case, LENGTHS)
    other = tt.MultiRNNCell([tt.GRUCell(3, input_size=3, dtype=torch.float64) for _ in range(2)])
    check_on(backend, case_of(other), LENGTHS)


@compiled_backends
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))], ids=["copy", "pickle"]
)
def test_copies_go_their_own_way(copied: Callable[[Any], Any], backend: str) -> None:
    case = case_of(lstm())
    before = outputs_of(case)
    twin = case._replace(cell=copied(case.cell))
    assert torch.equal(outputs_of(twin), before)
    in_place(twin.cell)
    assert torch.equal(outputs_of(case), before)
    check_on(backend, twin, LENGTHS)


@compiled_backends
def test_weights_from_outside(backend: str) -> None:
    """`torch.func.functional_call` puts other tensors in the place of the parameters, for one call."""
    case = case_of(lstm())
    model = tt.RNN(case.cell, dtype=case.dtype)
    others = {name: torch.randn_like(value).requires_grad_() for name, value in model.named_parameters()}
    found = []
    for name in ("reference", backend):
        with tt.backend(name):
            outputs, _ = torch.func.functional_call(model, others, (case.inputs, LENGTHS))
        found.append((outputs, torch.autograd.grad(outputs.square().sum(), list(others.values()))))
    check_close("results", *found)
    check_on(backend, case, LENGTHS)


# torch itself uses what it has deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_transforms_of_torch_take_the_plain_road() -> None:
    case = case_of(lstm())
    model = tt.RNN(case.cell, dtype=case.dtype)
    weights = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (inputs, LENGTHS))[0].square().sum()

    want = torch.autograd.grad(loss(weights, case.inputs), list(weights.values()))
    check_close("gradients", list(want), list(torch.func.grad(loss)(weights, case.inputs).values()))
    _, cotangent = torch.func.jvp(lambda inputs: loss(weights, inputs), (case.inputs,), (torch.ones_like(case.inputs),))
    inputs = case.inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(weights, inputs), inputs)
    torch.testing.assert_close(cotangent, gradient.sum())


@compiled_backends
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["dense", "ragged"])
@pytest.mark.parametrize("changed", ["weights", "inputs", "outputs"])
def test_what_the_backward_pass_needs_changed_before_it(changed: str, lengths: Any, backend: str) -> None:
    """The gradient is that of what was computed, or torch raises as it does for any operation of its own."""
    case = case_of(lstm())
    inputs = case.inputs.clone().requires_grad_()
    sources = [inputs, *case.cell.parameters()]

    def gradients(outputs: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(outputs.square().sum(), sources))

    want = gradients(on("reference", dynamic)(case.cell, inputs, lengths, None, case.dtype)[0])
    outputs, _ = on(backend, dynamic)(case.cell, inputs, lengths, None, case.dtype)
    copied = outputs.clone()
    with torch.no_grad():
        {"weights": case.cell.kernel, "inputs": inputs, "outputs": outputs}[changed].add_(1)
    try:
        found = gradients(copied)
    except RuntimeError as error:
        raised = str(error)
    else:
        assert changed != "weights", "weights are never copied"
        check_close("gradients", want, found)
        return
    assert "modified by an inplace operation" in raised


def test_two_cells_of_one_structure_share_a_program_but_not_weights() -> None:
    cases = [case_of(lstm()), case_of(lstm())]
    data = [torch.randn_like(case.cell.kernel) for case in cases]
    for case, kernel in zip(cases, data, strict=True):
        case.cell.kernel.data = kernel
    results = [outputs_of(case) for case in (*cases, *cases)]
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[3])
    assert not results[0].allclose(results[1])


def test_hidden_views_of_one_memory() -> None:
    """Two parameters that are views of one tensor, and inputs that are slices of a wider one."""
    case = BY_NAME["GRU"].case(4, 4)
    wide = torch.randn(4, 4, 9, dtype=torch.float64)
    check_on("auto", case._replace(inputs=wide[..., 2:8:2]), LENGTHS)
    check_on("auto", case._replace(inputs=wide[..., :3].flip(2)), LENGTHS)
    check_on("auto", case._replace(inputs=torch.randn(4, 1, 3, dtype=torch.float64).expand(4, 4, 3)), LENGTHS)
    assert plan_of(case).backend == "cpu"


def test_gradients_of_a_function_of_the_weights() -> None:
    """Weights that are themselves computed: gradients flow on to what they were computed from."""
    base = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    class Computed:
        state_size = output_size = 4

        def __init__(self) -> None:
            self.kernel = torch.sigmoid(base)

        def zero_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(batch_size, 4, dtype=dtype)

        def __call__(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            state = functional.softsign(inputs @ self.kernel + state)
            return state, state

    inputs = random_inputs(3, 4, 4, torch.float64)
    found = []
    for backend in ("reference", "cpu"):
        outputs, _ = on(backend, dynamic)(Computed(), inputs, LENGTHS, None, torch.float64)
        found.append(torch.autograd.grad(outputs.square().sum(), base)[0])
    torch.testing.assert_close(*found)


class Named(tt.RNNCell):
    """A step of another library may look at its name."""

    state_size = output_size = property(lambda self: 3)

    def forward(self, inputs: Any, state: Any) -> Any:
        new = torch.tanh(inputs + state) if self.name == "one" else inputs - state
        return new, new


def test_the_name_of_a_cell() -> None:
    x, cell = torch.randn(2, 3, 3), Named("one")
    for name in ("one", "other", "one"):
        for made in (Named(name), cell):
            made.name = name
            with tt.backend("reference"):
                want = tt.dynamic_rnn(made, x, dtype=torch.float32)[0]
            torch.testing.assert_close(tt.dynamic_rnn(made, x, dtype=torch.float32)[0], want)
