"""`tt.explain`, and the generated sources: what people read when they want to know what their cell has become."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

import throughtime as tt
from backends import plan_of
from compare import weights
from descriptors import BY_NAME, DESCRIPTORS, Descriptor
from record_sources import CELLS, FOLDER, sources

pytestmark = pytest.mark.covers("compiler")

SOURCES = dict(sources())


@pytest.mark.parametrize("name", SOURCES)
def test_generated_sources_are_as_recorded(name: str) -> None:
    """A refactoring changes none; a change that is meant is recorded: `.venv/bin/python tools/record_sources.py`."""
    recorded = (FOLDER / name).read_text()
    if recorded.splitlines()[0] != SOURCES[name].splitlines()[0]:
        pytest.skip("the sources were recorded with another version of torch")
    assert SOURCES[name] == recorded


def test_every_recorded_source_is_still_generated() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(SOURCES)


@pytest.mark.parametrize("name", CELLS)
def test_what_leaves_the_loop(name: str) -> None:
    """Of the product with `[x, h]`, only the part with `h` is left inside; weight gradients are taken outside."""
    program = tt.explain(CELLS[name], torch.zeros(2, 5, 3)).program
    products = {part: names(getattr(program, part)).count("mm") for part in ("before", "loop", "after")}
    assert products == {"before": 2, "loop": 2, "after": 0} if name == "gru" else {"before": 1, "loop": 1, "after": 0}
    assert all(not node.result.has_rows for node in program.adjoint.after.nodes if is_weight_gradient(node))
    assert sum(map(is_weight_gradient, program.adjoint.after.nodes)) == 2 * products["loop"]
    assert not any(map(is_weight_gradient, program.adjoint.loop.nodes))


def names(section: Any) -> list[str]:
    return [node.name for node in section.nodes]


def is_weight_gradient(node: Any) -> bool:
    return node.name == "mm" and node.args[0].row_axis == 1


def test_one_is_not_several() -> None:
    cell = tt.GRUCell(1, input_size=1)
    assert str(tt.explain(cell, torch.zeros(1, 1, 1))).splitlines()[0] == "GRUCell over 1 sequence of 1 step"
    text = str(tt.explain(Doubling(), torch.zeros(1, 3, 1)))
    assert "Doubling over 1 sequence of 3 steps" in text
    assert not re.search(r"\b1 (FLOPs|bytes|sequences|steps|rows|blocks)\b", text)
    assert "1 FLOP in the loop" in text


class Doubling(tt.RNNCell):
    """One operation a step."""

    state_size = output_size = 1

    def forward(self, inputs, state):
        return state, state + inputs


def test_a_plan_can_be_read() -> None:
    cell = tt.LSTMCell(16, input_size=8)
    plan = tt.explain(cell, torch.zeros(4, 10, 8), [10, 3, 7, 0])
    text = str(plan)
    first, second, *_ = text.splitlines()
    assert first == "LSTMCell over 4 sequences of 10 steps, 20 of 40 of them real"
    assert second == "runs on: cpu"
    for title in ("once, from parameters", "before the loop", "in the loop", "after the loop", "backward: in the loop"):
        assert title in text
    # One row: [16] @ [16, 64], two FLOPs for each weight, and some for gates and states.
    inside = int(text.split("forward, a step and row: ")[1].split(" FLOPs in the loop", maxsplit=1)[0].replace(",", ""))
    assert 2 * 16 * 64 < inside < 2 * 16 * 64 + 64 * 40
    # The gates [64], c and h [16] each, and tanh(c).
    saved = int(text.split("saved for the backward pass: ")[1].split(" bytes", maxsplit=1)[0].replace(",", ""))
    assert saved == 4 * (64 + 16 + 16 + 16)
    assert "bytes read" in text
    assert max(map(len, text.splitlines())) <= 140


def test_a_plan_without_gradients_has_no_backward_part() -> None:
    case = BY_NAME["LSTM"].case(2, 3)
    with torch.no_grad():
        plan = plan_of(case)
    assert "backward" not in str(plan)
    assert plan.program.adjoint is None


def test_a_plan_says_why_not() -> None:
    class Coupled(tt.RNNCell):
        state_size = output_size = 3

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return inputs - inputs.mean(0), state

    plan = tt.explain(Coupled(), torch.zeros(2, 5, 3))
    assert (plan.backend, plan.source, plan.program) == ("reference", "", None)
    assert "runs on: reference" in str(plan)
    for backend in ("cpu", "aten"):
        assert f"not on {backend}: the rows of a batch are not independent: aten.mean" in str(plan)


@pytest.mark.parametrize("backend", ["aten", "cpu"])
def test_the_source_is_that_of_the_backend(backend: str) -> None:
    with tt.backend(backend):
        plan = tt.explain(tt.GRUCell(4), torch.zeros(2, 5, 3))
    assert plan.backend == backend
    if backend == "aten":
        compile(plan.source, "aten", "exec")
    else:
        assert plan.source.startswith("# kernel of loop GRUCell")


def test_a_named_backend_is_explained_or_refused() -> None:
    with tt.backend("reference"):
        assert tt.explain(tt.GRUCell(4), torch.zeros(2, 5, 3)).backend == "reference"
    case = BY_NAME["no state"].case(2, 3)
    with tt.backend("cpu"), pytest.raises(ValueError, match="it has no state"):
        plan_of(case)


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_explaining_changes_nothing(descriptor: Descriptor) -> None:
    """Neither the weights, nor the random numbers to come, nor what the cell would draw next."""
    case = descriptor.case(2, 3)
    before = torch.get_rng_state(), [weight.clone() for weight in weights(case.cell)]
    assert str(plan_of(case)).splitlines()[0].endswith("over 2 sequences of 3 steps")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(torch.equal(*pair) for pair in zip(weights(case.cell), before[1], strict=True))


@pytest.mark.parametrize("name", ["LSTM full", "GRU", "Multi", "Residual", "InputProjection", "Embedding"])
def test_explaining_builds_nothing(name: str) -> None:
    cell, inputs = BY_NAME[name].make(4), BY_NAME[name].case(2, 3, torch.float32).inputs
    before = torch.get_rng_state()
    assert tt.explain(cell, inputs, dtype=torch.float32).backend == "cpu"
    assert torch.equal(torch.get_rng_state(), before)
    assert any(map(is_lazy, cell.parameters()))


def test_every_form_of_inputs_is_explained() -> None:
    cell, inputs = tt.GRUCell(4, input_size=3), torch.zeros(2, 5, 3)
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, [5, 2], batch_first=True)
    ragged = torch.nested.nested_tensor_from_jagged(torch.zeros(7, 3), torch.tensor([0, 5, 7]))
    titles = [str(tt.explain(cell, form)).splitlines()[0] for form in (inputs, packed, ragged)]
    assert titles == ["GRUCell over 2 sequences of 5 steps"] + [f"{titles[0]}, 7 of 10 of them real"] * 2
    assert str(tt.explain(cell, inputs.transpose(0, 1), time_major=True)).splitlines()[0] == titles[0]
    states = tt.explain(cell, inputs, all_states=True)
    assert len(states.program.outputs) == 2


def test_the_readme_of_the_goldens_says_how_to_record_sources() -> None:
    assert "tools/record_sources.py" in (Path(__file__).parents[1] / "goldens" / "README.md").read_text()
