"""Cells learn their input size late: until then they can be moved, copied, saved, loaded and given to an optimiser."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import prune

import throughtime as tt
from compare import check_close
from descriptors import DESCRIPTORS, Descriptor, random_inputs
from throughtime.cells import _lazy_build

pytestmark = pytest.mark.covers("conformance")

F32 = torch.float32

# The library's own: a user's cell builds what it likes when it likes.
LAZY = [
    descriptor
    for descriptor in DESCRIPTORS
    if type(cell := descriptor.make(4)) in [*vars(tt).values(), *vars(tt.cells).values()]
    and any(map(is_lazy, cell.parameters()))
]
every_lazy_cell = pytest.mark.parametrize("descriptor", LAZY, ids=lambda descriptor: descriptor.name)


def run(cell: Any, inputs: Any, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """One unroll, with the same dropout masks every time."""
    torch.manual_seed(0)
    return tt.dynamic_rnn(cell, inputs, [3, 1], dtype=dtype, **options)


def shapes(cell: nn.Module) -> dict[str, Any]:
    """The name, shape and dtype of every parameter."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in cell.named_parameters()}


def test_the_lazy_cells_are_found() -> None:
    assert len(LAZY) >= 20


@every_lazy_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("time", "lengths"), [(0, None), (3, [0, 0])], ids=["no steps", "empty sequences"])
def test_an_unroll_of_no_steps_builds_and_never_calls(
    descriptor: Descriptor, dtype: torch.dtype, time: int, lengths: list[int] | None
) -> None:
    called, idle = descriptor.make(4), descriptor.make(4)
    run(called, random_inputs(descriptor.input_size, 2, 3, dtype), dtype)
    for cell in (module for module in idle.modules() if isinstance(module, tt.RNNCell)):
        cell.forward = None
    tt.dynamic_rnn(idle, random_inputs(descriptor.input_size, 2, time, dtype), lengths, dtype=dtype)
    assert shapes(idle) == shapes(called)


@every_lazy_cell
def test_building_by_hand_is_building_by_the_first_call(descriptor: Descriptor) -> None:
    inputs = random_inputs(descriptor.input_size, 2, 3, torch.float32)
    called, built = descriptor.make(4), descriptor.make(4)
    run(called, inputs)
    built.build(inputs.shape[2:])
    assert shapes(built) == shapes(called)
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    built.build(inputs.shape[2:])
    run(built, inputs)
    check_close("parameters", before, dict(built.state_dict()))


def _saved(cell: Any) -> Any:
    file = io.BytesIO()
    torch.save(cell, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda cell: pickle.loads(pickle.dumps(cell)),
    "torch.save": _saved,
}


@every_lazy_cell
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("built", [False, True], ids=["unbuilt", "built"])
def test_copies_are_cells_of_their_own(descriptor: Descriptor, copied: Callable[[Any], Any], built: bool) -> None:
    inputs = random_inputs(descriptor.input_size, 2, 3, torch.float32)
    cell = descriptor.make(4)
    if built:
        run(cell, inputs)
    other = copied(cell)
    check_close("results", run(cell, inputs), run(other, inputs))
    assert not {id(parameter) for parameter in cell.parameters()} & {id(parameter) for parameter in other.parameters()}
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert any(parameter.any() for parameter in cell.parameters())


@every_lazy_cell
def test_weights_can_be_loaded_before_and_after_building(descriptor: Descriptor) -> None:
    inputs = random_inputs(descriptor.input_size, 2, 3, torch.float32)
    cell, unbuilt, built = (descriptor.make(4) for _ in range(3))
    run(cell, inputs)
    run(built, inputs)
    want = run(cell, inputs)
    for other in (unbuilt, built):
        assert str(other.load_state_dict(cell.state_dict())) == "<All keys matched successfully>"
        check_close("results", want, run(other, inputs))


def test_unbuilt_weights_can_be_saved_and_loaded() -> None:
    cell = tt.MultiRNNCell([tt.GRUCell(4), tt.LSTMCell(4, num_proj=2)])
    other = tt.MultiRNNCell([tt.GRUCell(4), tt.LSTMCell(4, num_proj=2)])
    other.load_state_dict(cell.state_dict())
    assert run(other, torch.ones(2, 3, 3))[0].shape == (2, 3, 2)


@every_lazy_cell
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimiser_can_be_made_first(descriptor: Descriptor, optimizer: Any) -> None:
    cell = descriptor.make(4)
    steps = optimizer(cell.parameters(), lr=0.1)
    inputs = random_inputs(descriptor.input_size, 2, 3, torch.float32)
    run(cell, inputs)
    before = [parameter.detach().clone() for parameter in cell.parameters()]
    run(cell, inputs)[0].square().sum().backward()
    steps.step()
    moved = [not torch.equal(*pair) for pair in zip(before, cell.parameters(), strict=True)]
    assert all(moved)


@every_lazy_cell
@pytest.mark.parametrize(
    "moved",
    [lambda cell: cell.double(), lambda cell: cell.to(torch.float64), lambda cell: tt.RNN(cell).to(torch.float64).cell],
    ids=["double", "to", "inside a module"],
)
def test_a_dtype_can_be_chosen_first(descriptor: Descriptor, moved: Callable[[Any], Any]) -> None:
    cell = moved(descriptor.make(4))
    width = descriptor.input_size if isinstance(descriptor.input_size, int) else 1
    cell.build(width)
    assert {parameter.dtype for parameter in cell.parameters()} == {torch.float64}


def test_the_last_word_on_the_dtype_counts() -> None:
    assert dtypes(tt.GRUCell(4, dtype=torch.float64)) == {torch.float64}
    assert dtypes(tt.GRUCell(4, dtype=torch.float32).double()) == {torch.float64}
    assert dtypes(tt.GRUCell(4, dtype=torch.float64).float()) == {torch.float32}
    assert dtypes(tt.GRUCell(4, dtype=torch.float64, input_size=3).float()) == {torch.float32}


def dtypes(cell: nn.Module) -> set[torch.dtype]:
    """The dtypes of a cell built without a hint."""
    cell.build(3)
    return {parameter.dtype for parameter in cell.parameters()}


def test_the_first_inputs_say_the_dtype_if_nobody_else_does() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        cell = tt.LSTMCell(4, num_proj=2)
        run(cell, torch.ones(2, 3, 3, dtype=dtype), dtype)
        assert {parameter.dtype for parameter in cell.parameters()} == {dtype}


@every_lazy_cell
def test_recomputing_builds_once(descriptor: Descriptor) -> None:
    inputs = random_inputs(descriptor.input_size, 2, 3, torch.float32)
    cell = descriptor.make(4)
    outputs, _ = run(cell, inputs, checkpoint_every=2)
    before = {name: tensor.clone() for name, tensor in cell.state_dict().items()}
    outputs.sum().backward()
    check_close("parameters", before, dict(cell.state_dict()))


def test_a_module_inside_a_cell_may_be_lazy_too() -> None:
    class Mixed(tt.RNNCell):
        state_size = output_size = 2

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(2)

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            state = torch.tanh(self.layer(torch.cat([inputs, nn.functional.dropout(state)], 1)))
            return state, state

    def gradients(**options: Any) -> Any:
        torch.manual_seed(0)
        cell = Mixed()
        outputs, _ = tt.dynamic_rnn(cell, torch.ones(2, 4, 3), [4, 2], dtype=torch.float32, **options)
        outputs.sum().backward()
        return [parameter.grad for parameter in cell.parameters()]

    check_close("gradients", gradients(), gradients(checkpoint_every=2))


@every_lazy_cell
def test_weights_from_outside_stand_in_for_a_cells_own(descriptor: Descriptor) -> None:
    """`torch.func.functional_call` puts plain tensors where parameters were: meta-learning and per-sample gradients."""
    inputs = random_inputs(descriptor.input_size, 2, 3, torch.float32)
    module = tt.RNN(descriptor.make(4), dtype=torch.float32)
    module(inputs)
    others = {name: torch.randn_like(parameter) for name, parameter in module.named_parameters()}
    torch.manual_seed(0)
    got = torch.func.functional_call(module, others, (inputs,))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(others[name])
    torch.manual_seed(0)
    check_close("results", module(inputs), got)


def test_parametrized_weights() -> None:
    cell = tt.GRUCell(4, input_size=3)
    inputs = torch.randn(2, 3, 3)
    want = run(cell, inputs)
    nn.utils.parametrizations.weight_norm(cell.gates, "kernel")
    check_close("results", want, run(cell, inputs))


def test_per_sample_gradients() -> None:
    module = tt.RNN(tt.GRUCell(4, input_size=3), returns="state")
    weights = dict(module.named_parameters())
    inputs = torch.randn(5, 4, 3)

    def loss(weights: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(module, weights, (one.unsqueeze(0),)).square().sum()

    together = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, inputs)
    for row, one in enumerate(inputs):
        alone = torch.autograd.grad(loss(weights, one), list(weights.values()))
        check_close("gradients", list(alone), [gradient[row] for gradient in together.values()])


PHASED: dict[str, Callable[[Any], Any]] = {
    "alone": lambda cell: cell,
    "wrapped": lambda cell: tt.DropoutWrapper(cell, state_keep_prob=1.0),
    "stacked": lambda cell: tt.MultiRNNCell([cell, tt.BasicRNNCell(3)]),
}


@pytest.mark.parametrize("around", PHASED)
def test_a_cell_of_several_inputs_is_built_before_its_first_step(around: str) -> None:
    inputs = (torch.arange(6.0).view(2, 3, 1), torch.randn(2, 3, 5))
    cell = PHASED[around](tt.cells.PhasedLSTMCell(4))
    assert tt.explain(cell, inputs).backend == "cpu"
    cell = PHASED[around](tt.cells.PhasedLSTMCell(4))
    with tt.backend("cpu"):
        first, again = (tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0] for _ in range(2))
    assert torch.equal(first, again)
    cell = PHASED[around](tt.cells.PhasedLSTMCell(4))
    tt.dynamic_rnn(cell, inputs, [0, 0], dtype=torch.float32)
    assert not any(map(is_lazy, cell.parameters()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_process_that_forked_while_another_thread_was_building() -> None:
    """No thread of the new process would ever end what that thread began."""
    begun, ended = threading.Event(), threading.Event()

    def build() -> None:
        with _lazy_build.building:
            begun.set()
            ended.wait()

    thread = threading.Thread(target=build)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        tt.BasicRNNCell(2).build((None, 3))
        os._exit(0)
    ended.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("turn", range(30))
def test_threads_that_call_first_together_build_once(turn: int) -> None:
    """Many times, since two threads rarely build at the same time; no call runs on parameters that are half made."""
    cell, outputs, failures = tt.LSTMCell(4), list[Any](), list[Any]()
    start = threading.Barrier(8)

    def call() -> None:
        start.wait()
        try:
            outputs.append(tt.dynamic_rnn(cell, torch.ones(2, 3, 5), dtype=torch.float32)[0])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(torch.equal(one, outputs[0]) for one in outputs), turn


@pytest.mark.parametrize("made_inside", [False, True])
def test_a_cell_of_inference_mode_can_be_trained_later(made_inside: bool) -> None:
    early = None if made_inside else tt.LSTMCell(4, use_peepholes=True, num_proj=3)
    with torch.inference_mode():
        cell = early or tt.LSTMCell(4, use_peepholes=True, num_proj=3)
        tt.dynamic_rnn(cell, torch.ones(2, 3, 5), dtype=torch.float32)
    tt.dynamic_rnn(cell, torch.ones(2, 3, 5), dtype=torch.float32)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in cell.parameters())


@pytest.mark.parametrize(
    "make",
    [
        lambda: tt.MultiRNNCell([tt.GRUCell(3), tt.LSTMCell(4)], input_size=5),
        lambda: tt.ResidualWrapper(tt.GRUCell(5), input_size=5),
        lambda: tt.DeviceWrapper(tt.GRUCell(3), "cpu", input_size=5),
        lambda: tt.OutputProjectionWrapper(tt.GRUCell(3), 2, input_size=5),
        lambda: tt.InputProjectionWrapper(tt.GRUCell(3), 2, input_size=5),
    ],
    ids=["multi", "residual", "device", "output projection", "input projection"],
)
def test_input_size_builds_what_is_inside_too(make: Any) -> None:
    assert not any(torch.nn.parameter.is_lazy(parameter) for parameter in make().parameters())


def test_a_built_cell_can_be_pickled_whatever_filled_it() -> None:
    cell = tt.LSTMCell(4, initializer=lambda weights: torch.nn.init.constant_(weights, 0.5), input_size=3)
    copied = pickle.loads(pickle.dumps(cell))
    assert torch.equal(copied.kernel, cell.kernel)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_tools_that_replace_a_weight_before_every_call(backend: str) -> None:
    """`prune` and its kin are called before the module whose weight they replace: here that module is not called."""
    cell, x = tt.GRUCell(4, input_size=3), torch.randn(2, 5, 3)
    prune.l1_unstructured(cell.gates, "kernel", 0.5)
    with tt.backend(backend):
        for _ in range(2):
            tt.dynamic_rnn(cell, x, dtype=torch.float32)[0].sum().backward()
        before = tt.dynamic_rnn(cell, x, dtype=torch.float32)[0]
        assert cell.gates.kernel_orig.grad.count_nonzero() == cell.gates.kernel_mask.sum()
        with torch.no_grad():
            cell.gates.kernel_orig.mul_(2)
            assert not torch.equal(before, tt.dynamic_rnn(cell, x, dtype=torch.float32)[0])


@pytest.mark.parametrize("with_kwargs", [False, True])
def test_hooks_of_a_part_of_a_cell(with_kwargs: bool) -> None:
    cell, seen = tt.GRUCell(4, input_size=3), []
    cell.gates.register_forward_pre_hook(lambda *given: seen.append(len(given)), with_kwargs=with_kwargs)
    cell(torch.ones(2, 3), torch.zeros(2, 4))
    assert seen == [3 if with_kwargs else 2]
