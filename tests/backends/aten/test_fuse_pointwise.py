"""Steps of a loop in fused kernels and operations of torch: how they are cut up, and when they beat one kernel.

What the kernels compute is held to the reference in Triton's interpreter (`triton_interpreter_fusing.py`, in its own
process) and on a card (`tests/gpu/test_graphs.py`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from descriptors import BY_NAME
from throughtime.backends.aten import cost_model
from throughtime.backends.aten.fuse_pointwise import (
    FusedStep,
    FusionGroup,
    UnfusedNodes,
    fuse_pointwise,
    unsupported_reason,
)
from throughtime.backends.aten.fused_chunk import AddressTable, FusedCode, FusedKernel
from throughtime.backends.triton.support import most_operations
from throughtime.backends.triton.target import gpu_target
from throughtime.backends.triton.tiling import GpuSpec
from throughtime.compiler import ROWS, Loop, Node, Program, Value
from throughtime.compiler.passes.merge_matmuls import deep_bytes
from throughtime.compiler.pipeline import merge_matmuls
from throughtime.layout.step_layout import StepLayout

pytestmark = pytest.mark.covers("kernels")
HERE = Path(__file__).parents[2] / "support"


def test_fused_steps_in_the_interpreter() -> None:
    """In a process of its own: Triton decides at its import whether it interprets."""
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command.append("triton_interpreter_fusing.py")
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=HERE)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]


def program_of(cell: Any, features: int = 3, dtype: torch.dtype = torch.float32) -> Program:
    cell = cell.to(dtype)
    with tt.backend("aten"):
        program = tt.explain(cell, torch.zeros(2, 4, features, dtype=dtype), dtype=dtype).program
    assert program is not None
    return program


def backward(program: Program) -> Loop:
    assert program.adjoint is not None
    return program.adjoint.loop


def fused(loop: Loop, *, masked: bool) -> FusedStep:
    return fuse_pointwise(merge_matmuls(loop), masked=masked)


def described(step: FusedStep) -> list[str | list[str]]:
    """A group as a word, the operations of torch by name."""
    return [[node.name for node in part.nodes] if isinstance(part, UnfusedNodes) else "group" for part in step.parts]


@pytest.fixture
def deep() -> Iterator[None]:
    """Matrices of any size are deep enough to be cut."""
    with deep_bytes.use(0):
        yield


class TestGroups:
    def test_a_step_of_an_lstm_is_a_product_and_a_group(self) -> None:
        program = program_of(tt.LSTMCell(5, input_size=3))
        assert described(fused(program.loop, masked=False)) == [["mm"], "group"]
        assert described(fused(program.loop, masked=True)) == [["mm"], "group"]
        assert described(fused(backward(program), masked=False)) == ["group", ["mm"]]
        # Which rows keep the gradient that they had is known once the product is.
        assert described(fused(backward(program), masked=True)) == ["group", ["mm"], "group"]

    def test_a_product_that_needs_another_splits_the_groups(self) -> None:
        step = fused(program_of(tt.GRUCell(5, input_size=3)).loop, masked=False)
        assert described(step) == [["mm"], "group", ["mm"], "group"]
        assert step.launches == 4

    def test_nothing_that_a_kernel_reads_or_stores_is_copied(self) -> None:
        program = program_of(tt.LSTMCell(5, input_size=3))
        for loop in (program.loop, backward(program)):
            step = fused(loop, masked=True)
            assert not step.copied
            assert not step.stacked
            assert step.stored == loop.stored
            assert set(step.streams) == {value for value in loop.reads if value.has_rows}

    def test_what_only_a_later_group_needs_is_computed_there(self) -> None:
        """The update gate of a GRU is made from the first product, but only the second group works with it."""
        step = fused(program_of(tt.GRUCell(5, input_size=3)).loop, masked=False)
        first, last = (part for part in step.parts if isinstance(part, FusionGroup))
        assert {node.name for node in first.nodes} == {"add", "sigmoid", "slice", "mul"}
        assert sum(node.name == "mul" for node in first.nodes) == 1
        assert sum(node.name == "mul" for node in last.nodes) == 3

    def test_what_is_stored_is_read_from_there_again(self) -> None:
        """In training the gates of a GRU are stored: the second group needs no tensor of them."""
        step = fused(program_of(tt.GRUCell(5, input_size=3)).loop, masked=False)
        (gates,) = [value for value in step.stored if value.name == "sigmoid"]
        assert gates in step.streams
        assert all(gates not in part.kept for part in step.parts if isinstance(part, FusionGroup))

    def test_convolutions_and_products_of_rows_stay_operations_of_torch(self) -> None:
        case = BY_NAME["Conv2DLSTM"].case(2, 4)
        with tt.backend("aten"):
            program = tt.explain(case.cell, case.inputs, dtype=case.dtype).program
        assert program is not None
        step = fused(program.loop, masked=False)
        plain = [node.name for part in step.parts if isinstance(part, UnfusedNodes) for node in part.nodes]
        assert "convolution" in plain
        assert not {"sigmoid", "tanh", "mul"} & set(plain)

    def test_every_cell_has_all_its_nodes_in_order(self) -> None:
        """Whatever the cut, no part takes what no part before it, no stream and no constant gives."""
        for name in ("LSTM full", "Multi", "LayerNormLSTM", "Attention", "nests", "Phased"):
            case = BY_NAME[name].case(2, 4)
            with tt.backend("aten"):
                program = tt.explain(case.cell, case.inputs, dtype=case.dtype).program
            assert program is not None
            for loop in (program.loop, backward(program)):
                for masked in (False, True):
                    check_order(loop, masked=masked)

    def test_a_step_that_is_too_much_for_one_kernel_is_left_to_torch(self) -> None:
        loop = program_of(tt.LSTMCell(5, input_size=3)).loop
        with most_operations.use(5):
            parts = fused(loop, masked=False).parts
            check_order(loop, masked=False)
        assert not [part for part in parts if isinstance(part, FusionGroup) and len(part.nodes) > 5]

    def test_what_torch_computes_otherwise_is_left_to_it(self) -> None:
        class Wraps(tt.RNNCell):
            state_size = output_size = 4

            def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
                state = torch.remainder(inputs + state, 0.7)
                return state, state

        loop = program_of(Wraps(), 4).loop
        (node,) = (node for node in loop.nodes if node.name == "remainder")
        assert unsupported_reason([node]) == "remainder is not what torch has for it"
        assert ["remainder"] in described(fused(loop, masked=False))


def check_order(loop: Loop, *, masked: bool) -> None:
    step = fused(loop, masked=masked)
    befores = {before for found in step.carried for before in found.before}
    known = {*befores, *step.constants, *step.streams, *step.copied, *([step.alive] if step.alive else [])}
    for part in step.parts:
        assert known.issuperset(part.takes)
        known.update(part.kept if isinstance(part, FusionGroup) else part.gives)
        if isinstance(part, UnfusedNodes):
            assert set(part.takes).isdisjoint(set(step.streams) - set(step.copied) - befores)
    assert known.issuperset([*(after for found in step.carried for after in found.after), *step.stacked])
    written = [value for part in step.parts if isinstance(part, FusionGroup) for value in part.gives]
    assert set(written).issuperset(step.stored)
    assert set(step.stored).isdisjoint(step.stacked)
    assert {*step.stored, *step.stacked} == set(loop.stored)


class Gates(tt.RNNCell):
    """An LSTM as people write it who do not think of products: a layer for each gate."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.gates = nn.ModuleList(nn.Linear(features + units, units) for _ in range(4))

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        c, h = state
        i, j, f, o = (gate(torch.cat([inputs, h], 1)) for gate in self.gates)
        c = c * torch.sigmoid(f) + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (c, h)


class TestProducts:
    def test_products_of_the_same_rows_are_one(self) -> None:
        loop = program_of(Gates(3, 5)).loop
        assert sum(node.name == "mm" for node in loop.nodes) == 4
        matrices = merge_matmuls(loop).joined
        assert described(fused(loop, masked=False)) == [["mm"], "group"]
        ((matrix, parts),) = matrices.items()
        assert (matrix.shape, parts.dim, len(parts.parts)) == ((5, 20), 1, 4)

    def test_a_sum_of_products_is_one(self) -> None:
        loop = backward(program_of(Gates(3, 5)))
        assert sum(node.name == "mm" for node in loop.nodes) == 4
        matrices = merge_matmuls(loop).joined
        assert described(fused(loop, masked=False)) == ["group", ["mm"]]
        ((matrix, parts),) = matrices.items()
        assert (matrix.shape, parts.dim, len(parts.parts)) == ((20, 5), 0, 4)

    def test_terms_that_are_no_products_are_added_afterwards(self) -> None:
        class Sums(tt.RNNCell):
            state_size = output_size = 4

            def __init__(self) -> None:
                super().__init__()
                self.one, self.other = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))

            def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
                state = torch.tanh(state @ self.one + state.square() + inputs + state.sin() @ self.other)
                return state, state

        loop = program_of(Sums(), 4).loop
        assert described(fused(loop, masked=False)) == ["group", ["mm"], "group"]

    @pytest.mark.usefixtures("deep")
    def test_a_deep_product_is_cut_along_its_features(self) -> None:
        program = program_of(tt.LSTMCell(5, input_size=3))
        step = fused(backward(program), masked=True)
        torch_part = ["view", "transpose", "view", "bmm", *["select"] * 4]
        # The parts are summed by the group that chooses rows, which is there anyway.
        assert described(step) == ["group", torch_part, "group"]
        assert step.launches == 3
        # If all rows are alive, the next step adds the parts up.
        step = fused(backward(program), masked=False)
        assert described(step) == ["group", torch_part]
        assert sorted(len(found.before) for found in step.carried) == [1, 4]
        assert described(fused(program.loop, masked=False)) == [["mm"], "group"]

    @pytest.mark.usefixtures("deep")
    def test_parts_of_half_precision_are_summed_in_float32(self) -> None:
        loop = backward(program_of(tt.LSTMCell(5, input_size=3), dtype=torch.bfloat16))
        joined = merge_matmuls(loop).loop
        assert {node.result.dtype for node in joined.nodes if node.name == "bmm"} == {torch.float32}
        assert all(before.dtype == after.dtype for before, after in joined.carried)

    def test_a_product_that_is_carried_or_stored_is_left_alone(self) -> None:
        loop = program_of(tt.LSTMCell(5, input_size=3)).loop
        assert merge_matmuls(loop).joined == {}


def test_kernels_read_sixteen_bytes_at_a_time_where_rows_allow_it() -> None:
    pytest.importorskip("triton")
    for units, hinted in ((64, True), (63, False)):
        code = FusedCode(merge_matmuls(program_of(tt.BasicRNNCell(units, input_size=3)).loop), masked=False)
        (kernel,) = (part for part in code.parts if isinstance(part, FusedKernel))
        assert ("tl.multiple_of" in kernel.source) == hinted


def test_rows_with_others_between_them_are_read_where_they_are() -> None:
    """The gates of a user's GRU are slices of one product: their rows lie 3 H apart."""

    class Adds(tt.RNNCell):
        state_size = output_size = 4

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return state, inputs[:, 4:] * state

    loop = program_of(Adds(), 8).loop
    code = FusedCode(merge_matmuls(loop), masked=False)
    (stream,) = code.step.streams
    steps = StepLayout(torch.tensor([2, 2, 2]), torch.tensor([0, 2, 4]), 1, 2)
    whole = torch.zeros(6, 8)
    env = {stream: whole[:, 4:]}
    stored = {value: torch.zeros(6, 4) for value in loop.stored}
    table = AddressTable([code], env, {}, stored, steps)._table
    place = 2 + 2 * code.columns[stream]
    assert table[:, 0].tolist() == [2, 2, 2]
    assert table[:, place].tolist() == [whole[2 * step, 4:].data_ptr() for step in range(3)]
    assert set(table[:, place + 1].tolist()) == {8}


H200 = GpuSpec(132, 227 * 2**10)


@pytest.fixture
def on_a_card() -> Iterator[None]:
    """Choose as if there were an H200."""
    pytest.importorskip("triton")
    torch.set_float32_matmul_precision("high")
    with gpu_target.change(card_of=lambda _: H200, is_gpu=lambda _: True):
        yield
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="module")
def large() -> tt.RNNCell:
    """Zeros, which are made in no time."""
    cell = tt.LSTMCell(2048, input_size=3, initializer=nn.init.zeros_)
    with torch.no_grad():
        cell.zero_state(1, torch.float32)
    return cell


def plan_for(cell: Any, batch: int, features: int = 3) -> Any:
    with torch.no_grad():
        return tt.explain(cell, torch.zeros(batch, 2, features), dtype=torch.float32)


@pytest.mark.usefixtures("on_a_card")
class TestChoice:
    def test_one_kernel_where_matrices_stay_on_chip(self) -> None:
        assert plan_for(tt.LSTMCell(256, input_size=3), 128).backend == "triton"

    def test_kernels_one_after_another_where_they_do_not(self, large: tt.RNNCell) -> None:
        plan = plan_for(large, 128)
        assert plan.backend == "aten"
        assert "a step of 128 rows should take it" in plan.reasons["triton"]
        assert "µs as kernels one after another" in plan.reasons["triton"]

    def test_the_batch_of_the_call_decides(self, large: tt.RNNCell) -> None:
        assert [plan_for(large, batch).backend for batch in (2, 128, 2)] == ["triton", "aten", "triton"]

    def test_whoever_asks_for_a_backend_gets_it(self, large: tt.RNNCell) -> None:
        with tt.backend("triton"):
            assert plan_for(large, 128).backend == "triton"


@pytest.mark.parametrize(
    ("dtype", "rows", "features", "columns", "microseconds"),
    [
        (torch.float32, 128, 2048, 8192, 22.6),
        (torch.float32, 128, 8192, 2048, 31.0),
        (torch.float32, 128, 2048, 6144, 19.2),
        (torch.float32, 32, 2048, 8192, 23.3),
        (torch.float32, 256, 2048, 8192, 28.9),
        (torch.float32, 256, 8192, 2048, 50.3),
        (torch.float32, 64, 1024, 4096, 6.9),
        (torch.float32, 128, 4096, 16384, 76.6),
        (torch.bfloat16, 128, 2048, 8192, 9.3),
        (torch.bfloat16, 128, 8192, 2048, 16.2),
        (torch.bfloat16, 64, 1024, 4096, 4.1),
        (torch.bfloat16, 128, 4096, 16384, 37.8),
    ],
)
@pytest.mark.usefixtures("on_a_card")
def test_estimates_are_near_what_was_measured(
    dtype: torch.dtype, rows: int, features: int, columns: int, microseconds: float
) -> None:
    """Products as nodes of a recorded graph, on an H200."""
    left, right = Value("rows", (ROWS, features), dtype), Value("matrix", (features, columns), dtype)
    node = Node(torch.ops.aten.mm.default, (left, right), {}, (Value("result", (ROWS, columns), dtype),))
    step = FusedStep([UnfusedNodes([node])], [], [], [], [], [], None)
    assert 0.65 < 1e6 * cost_model.seconds(step, rows) / microseconds < 1.6
