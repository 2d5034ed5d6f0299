"""The pipeline: every pass is listed, runs, and is verified."""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import throughtime as tt
from throughtime.compiler import pipeline as module
from throughtime.compiler.errors import VerificationError
from throughtime.compiler.ir.graph import Graph
from throughtime.compiler.ir.program import Program
from throughtime.compiler.passes.loop_body import LoopBody
from throughtime.compiler.passes.merge_matmuls import MergedMatmuls
from throughtime.compiler.pipeline import Partitioned, Pass, Pipeline, SectionNodes, pipeline
from throughtime.compiler.trace.trace import Trace

pytestmark = pytest.mark.covers("compiler")

ROOT = Path(__file__).parents[2]
COMPILER = ROOT / "src" / "throughtime" / "compiler"
BACKENDS = {"cpu": False, "triton": True, "aten": False, "aten on a GPU": True}
HELPERS = {
    "bounds": "reads a slice",
    "compute_when_needed": "a part of order_section",
    "folded_axis": "reads a value",
    "grouped": "a part of fuse_pointwise, for chunks that are recomputed",
    "hoist": "a part of hoist_step and add_adjoint",
    "is_cheap": "asks the operation table",
    "refuse": "raises",
    "size_ahead": "reads a value",
    "spendable": "reads a program",
    "sum_of": "makes nodes",
    "times_of": "reads a value",
    "unfolded_shape": "reads a value",
    "unmerged": "makes the input of the first pass over matmuls",
    "unsupported_reason": "a part of fuse_pointwise",
    "verify_body": "verifies",
    "verify_fused": "verifies",
    "verify_merged": "verifies",
    "weight_gradient_operands": "reads a node",
}
"""Public functions of `compiler/passes` that are no passes, and what they do."""


def listed(backend: str) -> Pipeline:
    return pipeline(backend.partition(" ")[0], on_gpu=BACKENDS[backend])


def stages(passes: Pipeline) -> dict[str, list[str]]:
    """The names of the passes, stage by stage."""
    found = {}
    for field in fields(passes):
        stage = getattr(passes, field.name)
        found[field.name] = [stage.__name__] if callable(stage) else [one.name for one in stage or ()]
    return found


def every_name() -> set[str]:
    return {name for backend in BACKENDS for names in stages(listed(backend)).values() for name in names}


def functions() -> set[str]:
    """The public functions of the modules with passes."""
    trees = [ast.parse(path.read_text()) for path in (COMPILER / "passes").glob("*.py")]
    defined = [node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {name for name in defined if not name.startswith("_")}


def test_every_pass_is_listed() -> None:
    assert functions() - HELPERS.keys() == every_name()
    assert HELPERS.keys() <= functions()


def test_nothing_else_runs_a_pass() -> None:
    """Outside of `compiler/passes`, only the pipeline imports passes, so that each is verified."""
    found = {
        (path.name, alias.name)
        for path in (ROOT / "src").rglob("*.py")
        if path.parent != COMPILER / "passes" and path != COMPILER / "pipeline.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("throughtime.compiler.passes.")
        for alias in node.names
    }
    assert {name for _, name in found}.isdisjoint(every_name()), found


def test_the_readme_has_the_list() -> None:
    """The README shows every stage with its passes, in order."""
    shown = re.search(r"```\n(trace .*?)```", (COMPILER / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    found: dict[str, list[str]] = {}
    stage = ""
    for line in shown[1].splitlines():
        names = line.partition("(")[0].split()
        if not line.startswith(" "):
            stage = names.pop(0)
            found[stage] = []
        found[stage] += names
    expected: dict[str, list[str]] = {}
    for backend in ("cpu", "aten on a GPU"):
        for stage, names in stages(listed(backend)).items():
            expected.setdefault(stage, []).extend(name for name in names if name not in expected.get(stage, ()))
    once = {stage: list(dict.fromkeys(names)) for stage, names in expected.items()}
    assert {stage: list(dict.fromkeys(names)) for stage, names in found.items()} == once


@pytest.mark.parametrize("page", ["src/throughtime/compiler/README.md", "docs/design/compiler.md"])
def test_pages_tell_how_passes_are_verified(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "THROUGHTIME_VERIFY" in text
    assert "VerificationError" in text
    # Modules and functions that a page names exist.
    named = set(re.findall(r"`(\w+\.py)`", text))
    assert named <= {path.name for path in ROOT.glob("src/throughtime/**/*.py")}


_numbers = itertools.count()


def new_cell() -> tt.LSTMCell:
    """A cell of a structure that no test has compiled."""
    return tt.LSTMCell(4, forget_bias=5 + next(_numbers) / 7, input_size=3)


def damaged(ir: Any) -> Any:
    """The same with one node or operation missing that is needed."""
    match ir:
        case Trace():
            lost = next(node for node in reversed(ir.graph.nodes) if not set(ir.results).isdisjoint(node.results))
            return replace(ir, graph=Graph([node for node in ir.graph.nodes if node is not lost]))
        case Partitioned():
            return ir._replace(program=damaged(ir.program))
        case Program():
            return replace(ir, loop=replace(ir.loop, nodes=ir.loop.nodes[:-1]))
        case LoopBody():
            return ir._replace(ops=ir.ops[:-1])
        case MergedMatmuls():
            return ir._replace(loop=replace(ir.loop, nodes=ir.loop.nodes[:-1]))
        case SectionNodes():
            return ir._replace(nodes=ir.nodes[:-1])
    raise AssertionError(type(ir))


def with_damage(stage: str, place: int, name: str) -> Callable[..., Pipeline]:
    """The pipeline whose pass of this name, at this place of a stage, loses something."""

    def damaging(backend: str, *, on_gpu: bool = False) -> Pipeline:
        passes = pipeline(backend, on_gpu=on_gpu)
        chosen: list[Pass[Any]] = list(getattr(passes, stage))
        if place < len(chosen) and chosen[place].name == name:
            one = chosen[place]
            chosen[place] = Pass(one.name, lambda ir: damaged(one.run(ir)))
        return replace(passes, **{stage: tuple(chosen)})

    return damaging


def places(backend: str, *chosen: str) -> list[Any]:
    found = [
        (stage, place, name) for stage, names in stages(listed(backend)).items() for place, name in enumerate(names)
    ]
    return [pytest.param(*one, id=f"{one[0]}-{one[2]}-{one[1]}") for one in found if one[0] in chosen]


def compiled_on_cpu() -> None:
    """Forward and backward, with everything that torch runs around the loop."""
    inputs = torch.randn(2, 3, 3)
    with tt.backend("cpu"):
        outputs, _ = tt.dynamic_rnn(new_cell(), inputs, dtype=torch.float32)
        outputs.sum().backward()


@pytest.mark.parametrize(
    ("stage", "place", "name"), places("cpu", "trace", "partition", "program", "loop_body", "section")
)
def test_every_pass_for_kernels_is_verified(stage: str, place: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pipeline", with_damage(stage, place, name))
    # Passes over sections that only a gradient needs run in its first call, where the error is raised as it is.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises((ValueError, VerificationError), match=f"after {name}, "):
            compiled_on_cpu()


@pytest.mark.parametrize(("stage", "place", "name"), places("aten on a GPU", "matmuls"))
def test_every_pass_over_matmuls_is_verified(
    stage: str, place: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tt.explain(new_cell(), torch.zeros(2, 3, 3)).program
    assert program is not None
    monkeypatch.setattr(module, "pipeline", with_damage(stage, place, name))
    with pytest.raises(VerificationError, match=f"after {name}, "):
        module.merge_matmuls(program.loop)


def test_fusion_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tt.explain(new_cell(), torch.zeros(2, 3, 3)).program
    assert program is not None
    products = module.merge_matmuls(program.loop)
    whole = module.fuse_pointwise

    def fuse(*args: Any, **options: Any) -> Any:
        step = whole(*args, **options)
        return replace(step, parts=step.parts[:-1])

    fuse.__name__ = "fuse_pointwise"
    monkeypatch.setattr(module, "fuse_pointwise", fuse)
    with pytest.raises(VerificationError, match="after fuse_pointwise, "):
        module.fuse_step(products, lambda _: None, masked=True)


def test_verification_costs_nothing_unless_it_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THROUGHTIME_VERIFY")
    for name in ("verify_graph", "verify_program", "verify_section", "verify_body"):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    compiled_on_cpu()
