"""Our answers against TensorFlow's, recorded in `goldens/` by `tools/record_goldens.py`.

Each unroll, loop function and cell below has a twin of the same name in `tools/`, written with TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import throughtime as tt
from backends import REFUSED, every_backend, raises_refusal

# The tool and its tests share the format of the files and the list of cases.
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from golden_cases import all_cases
from golden_file import Case, Golden, in_units, read_goldens, write_goldens

pytestmark = pytest.mark.covers("goldens")

GOLDENS = {golden.case.name: golden for golden in read_goldens(Path(__file__).parents[1] / "goldens")}
DYNAMIC = [name for name in GOLDENS if name.startswith("dynamic_rnn/")]
# What calls the cell itself, step by step, has no choice of a backend.
BY_HAND = ("step/", "raw_rnn/", "while_loop/")
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}

Result = tuple[Any, Any]
Unroll = Callable[[Case, Any, Any, Any], Result]


class NestedCell(tt.RNNCell):
    state_size: ClassVar[Any] = ({"grid": torch.Size([2, 2])}, 3)
    output_size: ClassVar[Any] = {"left": 3, "right": (torch.Size([2, 2]), 2)}

    def forward(self, inputs: Any, state: Any) -> Any:
        (x, y), (held, h) = inputs, state
        grid = torch.tanh(y["grid"] + 0.5 * held["grid"] + h[:, :1, None])
        h = torch.tanh(x * h + grid.sum(2)[:, :1])
        return {"left": x + h, "right": (grid * grid, h[:, 1:])}, ({"grid": grid}, h)


class WeightedCell(tt.RNNCell):
    def __init__(self, num_units: int, dtype: torch.dtype, input_size: int = 3) -> None:
        super().__init__()
        self.state_size = self.output_size = num_units
        self.kernel = nn.Parameter(torch.zeros(input_size, num_units, dtype=dtype))
        self.scale = nn.Parameter(torch.zeros(num_units, dtype=dtype))

    def forward(self, inputs: Tensor, state: Tensor) -> Any:
        h = torch.sin(inputs @ self.kernel + self.scale * state)
        return h * h, h


class CountingCell(tt.RNNCell):
    state_size = (3, torch.Size([]))
    output_size = 3

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        return torch.zeros(batch_size, self.output_size, dtype=dtype), torch.zeros((), dtype=torch.int32)

    def forward(self, inputs: Tensor, state: Any) -> Any:
        h, count = state
        h = torch.tanh(inputs + h * count)
        return h, (h, count + 1)


CLASSES = {each.__name__: each for each in (NestedCell, WeightedCell, CountingCell)}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "outputs_minus_half_inputs": lambda inputs, outputs: outputs - 0.5 * inputs,
    "only_c": lambda state: tt.LSTMStateTuple(c=True, h=False) if isinstance(state, tuple) else True,
}


def build(spec: Any, dtype: torch.dtype) -> Any:
    """What `spec` describes: a cell, a list of cells, a function, an initialiser, or just a value."""
    if isinstance(spec, list):
        return [build(each, dtype) for each in spec]
    if not isinstance(spec, dict):
        return spec
    if "repeat" in spec:
        return [build(spec["repeat"], dtype)] * spec["times"]
    if "function" in spec:
        return FUNCTIONS[spec["function"]]
    if "constant" in spec:
        return lambda tensor: nn.init.constant_(tensor, spec["constant"])
    arguments = {name: build(value, dtype) for name, value in spec.items() if name != "class"}
    if arguments.get("dtype") == "case" or spec["class"] == "WeightedCell":
        arguments["dtype"] = dtype
    return (CLASSES.get(spec["class"]) or getattr(tt, spec["class"]))(**arguments)


def step(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    return cell(pytree.tree_map(lambda x: x[:, 0], inputs), state)


def dynamic_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    return tt.dynamic_rnn(
        cell, inputs, case.lengths, state, dtype_of(case), time_major=case.time_major, scope=case.scope
    )


def rnn_module(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    return tt.RNN(cell, time_major=case.time_major, dtype=dtype_of(case))(inputs, case.lengths, state)


def static_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    outputs, state = tt.static_rnn(cell, unstacked(case, inputs), state, dtype_of(case), case.lengths)
    return stacked(outputs), state


def static_state_saving_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    leaves, structure = pytree.tree_flatten(state)
    names = [f"state_{index}" for index in range(len(leaves))]
    saver = StateSaver(zip(names, leaves, strict=True))
    named = pytree.tree_unflatten(names, structure)
    outputs, state = tt.static_state_saving_rnn(cell, unstacked(case, inputs), saver, named, case.lengths)
    return stacked(outputs), (state, [saver[name] for name in names])


def bidirectional_dynamic_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    return tt.bidirectional_dynamic_rnn(
        *cells, inputs, case.lengths, *(states or (None, None)), dtype=dtype_of(case), time_major=case.time_major
    )


def static_bidirectional_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    outputs, *final = tt.static_bidirectional_rnn(
        *cells, unstacked(case, inputs), *(states or (None, None)), dtype=dtype_of(case), sequence_length=case.lengths
    )
    return stacked(outputs), final


def stack_bidirectional_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    outputs, *final = tt.stack_bidirectional_rnn(
        *cells, unstacked(case, inputs), *(states or (None, None)), dtype=dtype_of(case), sequence_length=case.lengths
    )
    return stacked(outputs), final


def stack_bidirectional_dynamic_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    outputs, *final = tt.stack_bidirectional_dynamic_rnn(
        *cells,
        inputs,
        *(states or (None, None)),
        dtype=dtype_of(case),
        sequence_length=case.lengths,
        time_major=case.time_major,
    )
    return outputs, final


def raw_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    loop_fn = LOOP_FNS[case.loop_fn or ""](case, inputs, state)
    emitted, final, loop_state = tt.raw_rnn(cell, loop_fn)
    outputs = pytree.tree_map(lambda array: array.stack(), emitted)
    return (outputs, [] if loop_state is None else [loop_state]), final


def while_loop(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    arriving = tt.TensorArray(inputs.dtype, case.steps).unstack(inputs)

    def body(time: Any, state: Any, leaving: Any) -> Any:
        output, state = cell(arriving.read(time), state)
        return time + 1, state, leaving.write(time, output)

    start = (torch.tensor(0), state, tt.TensorArray(inputs.dtype, case.steps))
    _, final, leaving = tt.while_loop(lambda time, *_: time < case.steps, body, start)
    return leaving.stack(), final


def read_inputs(case: Case, inputs: Tensor, state: Any) -> Callable[..., Any]:
    def loop_fn(time: Any, output: Any, carried: Any, loop_state: Any) -> Any:
        return finished(case, time), at(case, inputs, time), state if output is None else carried, output, None

    return loop_fn


def feed_back(case: Case, inputs: Tensor, state: Any) -> Callable[..., Any]:
    def loop_fn(time: Any, output: Any, carried: Any, loop_state: Any) -> Any:
        if output is None:
            return finished(case, time), inputs[0], state, None, None
        return finished(case, time), output, carried, output, None

    return loop_fn


def own_emission(case: Case, inputs: Tensor, state: Any) -> Callable[..., Any]:
    def loop_fn(time: Any, output: Any, carried: Any, total: Any) -> Any:
        entering = at(case, inputs, time)
        if output is None:
            rows = (torch.zeros(2, dtype=inputs.dtype), torch.zeros((), dtype=inputs.dtype))
            return finished(case, time), entering, state, rows, torch.zeros((), dtype=inputs.dtype)
        sums, ran = output.sum(1), time <= torch.tensor(case.lengths)
        return finished(case, time), entering, carried, (2 * output[:, :2], sums), total + (ran * sums).sum()

    return loop_fn


LOOP_FNS = {each.__name__: each for each in (read_inputs, feed_back, own_emission)}
UNROLLS: dict[str, Unroll] = {
    unroll.__name__: unroll
    for unroll in (
        step,
        dynamic_rnn,
        static_rnn,
        static_state_saving_rnn,
        bidirectional_dynamic_rnn,
        static_bidirectional_rnn,
        stack_bidirectional_rnn,
        stack_bidirectional_dynamic_rnn,
        raw_rnn,
        while_loop,
    )
}


class StateSaver(dict[str, Tensor]):
    state = dict.__getitem__
    save_state = dict.__setitem__


def dtype_of(case: Case) -> torch.dtype:
    return {"float32": torch.float32, "float64": torch.float64}[case.dtype]


def unstacked(case: Case, inputs: Any) -> list[Any]:
    return [pytree.tree_map(lambda x, t=t: x[:, t], inputs) for t in range(case.steps)]


def stacked(outputs: list[Any]) -> Any:
    return pytree.tree_map(lambda *steps: torch.stack(steps, 1), *outputs)


def finished(case: Case, time: Any) -> Tensor:
    return time >= torch.tensor(case.lengths)


def at(case: Case, inputs: Tensor, time: Any) -> Tensor:
    return inputs[min(int(time), case.steps - 1)]


def run_case(golden: Golden, unroll: Unroll | None = None) -> dict[str, Tensor]:
    """What we answer to a case, by the keys of `golden.expected`; through `unroll`, if not through its own."""
    case = golden.case
    unroll = unroll or UNROLLS[case.unroll]
    cells = build(case.cell, dtype_of(case))
    given = given_to(golden)
    inputs = nest_of(case.inputs, leaves_of(given, "ids/"), leaves_of(given, "inputs/"))
    states = states_of(case, cells, leaves_of(given, "initial_state/"))
    with torch.no_grad():
        unroll(case, cells, inputs, states)  # builds the cells, which their first inputs do
    weights = variables(cells)
    own_weights = {key: weight.detach().clone() for key, weight in weights.items()} if case.initialised else {}
    if not case.initialised:
        load(weights, given)
    outputs, state = unroll(case, cells, inputs, states)
    answers = by_key("outputs", outputs) | by_key("state", state)
    sources = {key: tensor for key, tensor in given.items() if tensor.requires_grad} | weights
    return own_weights | answers | gradients(answers, sources, given)


def given_to(golden: Golden) -> dict[str, Tensor]:
    """Everything drawn for the case; inputs and states ask for gradients."""
    dtype = golden.case.dtype
    given = {key: torch.from_numpy(in_units(key, drawn, dtype)) for key, drawn in golden.given.items()}
    for key, tensor in given.items():
        tensor.requires_grad_(key.startswith(("inputs/", "initial_state/")))
    return given


def leaves_of(given: dict[str, Tensor], prefix: str) -> Iterator[Tensor]:
    return (tensor for key, tensor in given.items() if key.startswith(prefix))


def nest_of(spec: Any, ids: Iterator[Tensor], floats: Iterator[Tensor]) -> Any:
    """The inputs, in the nest that `spec` describes."""
    if isinstance(spec, list):
        return tuple(nest_of(each, ids, floats) for each in spec)
    if "shape" not in spec:
        return {name: nest_of(each, ids, floats) for name, each in spec.items()}
    return next(ids if "below" in spec else floats)


def states_of(case: Case, cells: Any, leaves: Iterator[Tensor]) -> Any:
    """The initial state of each cell, in the structure of its zero state."""
    if not case.initial_state:
        return None
    if isinstance(cells, list):
        return [states_of(case, each, leaves) for each in cells]
    return pytree.tree_map(lambda _: next(leaves), cells.zero_state(case.batch, dtype_of(case)))


def variables(cells: Any) -> dict[str, Tensor]:
    """The weights of all cells, by TensorFlow's names: the names come from the scope the unroll gave each cell."""
    distinct = {id(cell): cell for cell in pytree.tree_leaves(cells)}.values()
    named = [tt.interop.tf_variables(cell) for cell in distinct]
    return {f"weights/{name}": weight for names in named for name, weight in names.items()}


def load(weights: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    recorded = {key: value for key, value in given.items() if key.startswith("weights/")}
    assert set(weights) == set(recorded)
    with torch.no_grad():
        for key, weight in weights.items():
            assert weight.shape == recorded[key].shape
            weight.copy_(recorded[key])


def by_key(kind: str, nest: Any) -> dict[str, Tensor]:
    return {f"{kind}/{index}": leaf for index, leaf in enumerate(pytree.tree_leaves(nest))}


def gradients(answers: dict[str, Tensor], sources: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the sum of all answers times their cotangents."""
    total = sum(((answer * given[f"cotangent/{key}"]).sum() for key, answer in answers.items()), torch.zeros(()))
    if total.requires_grad:
        found = torch.autograd.grad(total, list(sources.values()), allow_unused=True, materialize_grads=True)
    else:
        found = tuple(torch.zeros_like(source) for source in sources.values())
    return {f"gradient/{key}": gradient for key, gradient in zip(sources, found, strict=True)}


def assert_matches(golden: Golden, found: dict[str, Tensor]) -> None:
    assert set(found) == set(golden.expected)
    dtype, tolerance = dtype_of(golden.case), TOLERANCES[golden.case.dtype]
    for key, expected in golden.expected.items():
        # A whole number, such as a step count, is recorded in the dtype of the case.
        value = found[key] if found[key].is_floating_point() else found[key].to(dtype)
        torch.testing.assert_close(
            value,
            torch.from_numpy(expected),
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text, key=key: f"{key}: {text}",
        )


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.startswith(BY_HAND)])
def test_tensorflow_answers_the_same_by_hand(name: str) -> None:
    assert_matches(GOLDENS[name], run_case(GOLDENS[name]))


@pytest.mark.parametrize("name", [name for name in GOLDENS if not name.startswith(BY_HAND)])
@every_backend
def test_tensorflow_answers_the_same(backend: str, name: str) -> None:
    reason = REFUSED.get((backend, name.split("/")[1]))
    with tt.backend(backend), nullcontext() if reason is None else raises_refusal(backend, reason):
        assert_matches(GOLDENS[name], run_case(GOLDENS[name]))


@pytest.mark.parametrize("name", [name for name in DYNAMIC if GOLDENS[name].case.scope is None])
def test_the_module_answers_like_dynamic_rnn(name: str) -> None:
    assert_matches(GOLDENS[name], run_case(GOLDENS[name], rnn_module))


def test_there_are_enough_cases() -> None:
    assert len(GOLDENS) >= 150


def test_every_public_cell_and_unroll_has_cases() -> None:
    public = {name: getattr(tt, name) for name in tt.__all__}
    cells = {name for name, value in public.items() if isinstance(value, type) and issubclass(value, tt.RNNCell)}
    unrolls = {name for name in public if name.endswith(("_rnn", "while_loop"))}
    assert cells - {"RNNCell"} <= set(classes_in([golden.case.cell for golden in GOLDENS.values()]))
    assert unrolls <= {golden.case.unroll for golden in GOLDENS.values()}


def classes_in(spec: Any) -> Iterator[str]:
    if isinstance(spec, dict):
        yield from [spec["class"]] if "class" in spec else []
        spec = list(spec.values())
    for each in spec if isinstance(spec, list) else []:
        yield from classes_in(each)


def test_every_kind_of_length_layout_and_dtype_has_cases() -> None:
    cases = [golden.case for golden in GOLDENS.values()]
    assert {(case.dtype, case.time_major) for case in cases} >= {
        (dtype, major) for dtype in TOLERANCES for major in (False, True)
    }
    reached = {
        min(length, case.steps + 1) - case.steps if length > 1 else f"{length} steps"
        for case in cases
        for length in case.lengths or ()
    }
    assert reached >= {"0 steps", "1 steps", -1, 0, 1}


def test_the_files_hold_the_cases_of_the_tool() -> None:
    # A case added, changed or taken away there without recording shows here.
    recorded, listed = [golden.case for golden in GOLDENS.values()], all_cases()
    assert sorted(recorded, key=lambda case: case.name) == sorted(listed, key=lambda case: case.name)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    write_goldens(tmp_path, GOLDENS.values())
    for golden in read_goldens(tmp_path):
        original = GOLDENS[golden.case.name]
        assert golden.case == original.case
        np.testing.assert_equal(golden.given, original.given)
        np.testing.assert_equal(golden.expected, original.expected)
