"""A new operation, added as CONTRIBUTING.md says: refused, then run by torch in the loop, then by kernels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from backends import check_on, plan_of
from descriptors import Case
from throughtime.compiler.ir.ops import OPERATIONS, Kind, Linear, Operation
from throughtime.compiler.lowering.decompositions import COMPOSITES
from throughtime.compiler.lowering.rules import LOWERING_RULES
from throughtime.compiler.passes.row_rules import ROW_RULES

pytestmark = pytest.mark.covers("compiler")

ROOT = Path(__file__).parents[2]


@torch.library.custom_op("throughtime_toy::bump", mutates_args=())
def bump(x: Tensor) -> Tensor:
    """`x * exp(-x * x)`."""
    return x * torch.exp(-x * x)


@torch.library.custom_op("throughtime_toy::bump_backward", mutates_args=())
def bump_backward(d: Tensor, x: Tensor) -> Tensor:
    """The gradient of `bump`."""
    return d * (1 - 2 * x * x) * torch.exp(-x * x)


@torch.library.custom_op("throughtime_toy::mm", mutates_args=())
def mm(x: Tensor, w: Tensor) -> Tensor:
    """No matrix product, though its name is that of one."""
    return x @ w + x.sum()


bump.register_autograd(
    lambda ctx, d: bump_backward(d, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Bumps(tt.RNNCell):
    """A cell with the new operation. Each test has a `scale` of its own, and with it a structure of its own."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.state_size = self.output_size = 4
        self.scale = scale
        self.w = torch.nn.Parameter(torch.randn(3, 4))
        self.u = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One step."""
        h = bump(self.scale * (x @ self.w + h @ self.u)) + 0.5 * h
        return h, h


def case_of(cell: Any) -> Case:
    return Case(cell.double(), torch.randn(3, 5, 3).double(), torch.randn(3, 4).double(), torch.float64)


def test_without_a_line_it_is_refused() -> None:
    case = case_of(Bumps(0.7))
    plan = plan_of(case)
    assert plan.backend == "reference"
    reason = "throughtime_toy.bump, which is not known to treat the rows of a batch separately"
    assert all(reason in said for said in plan.reasons.values())


def add_lines(monkeypatch: pytest.MonkeyPatch, lowering: str | None) -> None:
    """Step 1; step 2 is not needed, since there is a rule for pointwise operations."""
    line = Operation(Kind.POINTWISE, rows="pointwise", lowering=lowering)
    monkeypatch.setitem(OPERATIONS, "throughtime_toy::bump", line)
    monkeypatch.setitem(OPERATIONS, "throughtime_toy::bump_backward", line)


def test_with_a_line_torch_runs_it_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    add_lines(monkeypatch, lowering=None)
    case = case_of(Bumps(0.8))
    plan = plan_of(case)
    assert plan.backend == "aten"
    assert "throughtime_toy.bump is not in the vocabulary" in plan.reasons["cpu"]
    check_on("aten", case, [5, 2, 0])


def test_with_a_formula_kernels_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    add_lines(monkeypatch, lowering="composite")
    monkeypatch.setitem(COMPOSITES, "throughtime_toy::bump", lambda x: x * (-(x * x)).exp())
    monkeypatch.setitem(
        COMPOSITES, "throughtime_toy::bump_backward", lambda d, x: d * (1.0 - 2.0 * x * x) * (-(x * x)).exp()
    )
    case = case_of(Bumps(0.9))
    plan = plan_of(case)
    assert plan.backend == "cpu"
    assert plan.program is not None
    assert [node.name for node in plan.program.loop.nodes].count("throughtime_toy::bump") == 1
    for backend in ("cpu", "aten"):
        check_on(backend, case, [5, 2, 0])


class Misnamed(tt.RNNCell):
    """A cell with an operation of another library that has the name of one of ATen, and mixes rows."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size = self.output_size = 3
        self.w = torch.nn.Parameter(torch.randn(3, 3), requires_grad=False)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One step."""
        h = torch.tanh(mm(x, self.w) + h)
        return h, h


def test_an_operation_is_not_taken_for_another_of_its_name() -> None:
    plan = tt.explain(Misnamed(), torch.randn(2, 4, 3))
    assert plan.backend == "reference"
    assert "throughtime_toy.mm" in plan.reasons["cpu"]


def test_the_steps_name_files_that_exist() -> None:
    steps = (ROOT / "CONTRIBUTING.md").read_text().split("## How to add an operation")[1].split("\n## ")[0]
    files = re.findall(r"`((?:src|tests)/[\w/]+\.py)`", steps)
    assert len(files) >= 7
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_every_rule_of_the_table_exists_and_is_used() -> None:
    lines = OPERATIONS.values()
    assert {line.rows for line in lines if line.rows is not None} == ROW_RULES.keys()
    assert {line.lowering for line in lines if line.lowering is not None} == LOWERING_RULES.keys()
    formulas = {name for name, line in OPERATIONS.items() if (line.lowering or "").startswith("composite")}
    assert formulas == COMPOSITES.keys()


def test_every_line_is_an_operation() -> None:
    unknown = {name for name in OPERATIONS if not hasattr(torch.ops.aten, name)} - {
        "over_rows",
        "product_over_rows",
        "times",
    }
    assert unknown == set()


@pytest.mark.parametrize("name", sorted(name for name, line in OPERATIONS.items() if line.linear is Linear.ONE))
def test_linear_operations_move_or_scale(name: str) -> None:
    """Only these kinds can be linear in one argument, whatever the others are."""
    kinds = {Kind.VIEW, Kind.COPY, Kind.REDUCTION, Kind.PRODUCT, Kind.SCAN}
    assert OPERATIONS[name].kind in kinds or name in ("mul", "neg")
