"""The grammar of step graphs and of loop programs: a broken one for each rule, and no rule without one."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import throughtime as tt
from throughtime.compiler import pipeline
from throughtime.compiler.errors import VerificationError
from throughtime.compiler.ir import loop_ir, verify
from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value
from throughtime.compiler.ir.loop_ir import BINARY, Ahead, Carry, LoopProgram, Matrix, Op, Row, verify_loop
from throughtime.compiler.ir.program import Program
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.ir.strided_view import StridedView
from throughtime.compiler.ir.verify import verify_graph, verify_program, verify_section
from throughtime.compiler.lowering import rules as lowering_rules
from throughtime.compiler.pipeline import Pass, Pipeline
from throughtime.compiler.trace.trace import Trace

pytestmark = pytest.mark.covers("compiler")

F32, F64, I64, BOOL = torch.float32, torch.float64, torch.int64, torch.bool
X, H, NEW = Row("x", 3, F32), Row("h", 4, F32), Row("new", 4, F32)
ONE, TRUTH, WHOLE, DOUBLE = Row("one", 1, F32), Row("truth", 4, BOOL), Row("whole", 4, I64), Row("double", 4, F64)
W = Matrix("w", 3, 4, F32)
Y = Row("y", 3, F32)


def program(*body: Op, **parts: Any) -> LoopProgram:
    """`new` from what is there; only what a test gives differs from a well-formed program."""
    given = {
        "name": "cell",
        "reverse": False,
        "streams": (X, ONE, TRUTH, WHOLE, DOUBLE),
        "lagged": (),
        "constants": (),
        "matrices": (W,),
        "carried": (Carry(H, H),),
        "body": body,
        "stored": (),
    }
    return LoopProgram(**(given | parts))


def op(kind: str, *args: Any, result: Row = NEW) -> Op:
    return Op(kind, result, args)


def like(row: Row, **parts: Any) -> Row:
    return dataclasses.replace(row, **parts)


GOOD = {
    "nothing": program(),
    "ahead": program(ahead=Ahead(program(op("neg", X, result=Y), carried=(), stored=(Y,)), (0,))),
    "product": program(op("product", X, W), stored=(NEW,), carried=(Carry(H, NEW),)),
    "pointwise": program(op("add", H, ONE)),
    "number": program(op("mul", H, 2.0)),
    "comparison": program(op("lt", H, 0.0, result=like(NEW, dtype=BOOL))),
    "where": program(op("where", TRUTH, H, 0.0)),
    "cast": program(op("cast", WHOLE)),
    "reduction": program(op("sum", H, result=like(NEW, width=1))),
    "reduction of groups": program(op("sum", H, 2, 1, result=like(NEW, width=2))),
    "reduction of groups that lie apart": program(op("amax", H, 2, 2, result=like(NEW, width=2))),
    "strided": program(op("strided", H, StridedView(0, (2, 2), (1, 2)))),
    "backwards": program(op("strided", X, StridedView(2, (3,), (-1,)), result=Y)),
    "slice": program(op("slice", H, 1, 3, result=like(NEW, width=2))),
    "cat": program(op("cat", X, ONE)),
    "lagged": program(op("add", H, NEW, result=like(NEW, name="sum")), lagged=(NEW,)),
}
BROKEN_LOOPS = {
    "is carried on as": program(
        op("slice", H, 0, 2, result=like(NEW, width=2)), carried=(Carry(H, like(NEW, width=2)),)
    ),
    "is defined twice": program(streams=(X, X)),
    "h is defined twice": program(op("neg", H, result=H)),
    "which no loop program has": program(streams=(like(X, dtype=torch.float8_e5m2),), matrices=()),
    "is used by": program(op("neg", Row("absent", 4, F32))),
    "a stored or carried value before it is defined": program(stored=(NEW,)),
    "but it is": program(op("neg", like(H, width=5), result=like(NEW, width=5))),
    "is not in the vocabulary": program(op("convolve", H)),
    "does not join rows to the width": program(op("cat", X, X)),
    "does not join rows": program(op("cat", X, 1.0)),
    "does not reduce one row": program(op("sum", H)),
    "does not reduce a row, or its groups": program(op("sum", H, H, result=like(NEW, width=1))),
    "does not reduce groups of 3 out of 4": program(op("sum", H, 3, 1, result=like(NEW, width=1))),
    "does not reduce groups of 2 out of 4 to 4": program(op("sum", H, 2, 1)),
    "does not reduce groups of 4 out of 4": program(op("sum", H, 4, 1, result=like(NEW, width=1))),
    "does not reduce groups of 1 out of 4": program(op("sum", H, 1, 1)),
    "does not reduce groups of 2 out of 4 to 2": program(op("sum", H, 2, 0, result=like(NEW, width=2))),
    "does not read 4 features out of 4": program(op("strided", H, StridedView(1, (2, 2), (1, 2)))),
    "does not read 3 features out of 3": program(op("strided", X, StridedView(1, (3,), (-1,)), result=Y)),
    "does not read 4 features out of 3": program(op("strided", X, StridedView(0, (3,), (-1,)))),
    "has more axes than it needs": program(op("strided", H, StridedView(0, (2, 2), (2, 1)))),
    "or is a slice": program(op("strided", H, StridedView(0, (4,), (1,)))),
    "is not a row with axes": program(op("strided", H, 1, 2)),
    "strided(h, [0: 2 by 1, 2 by 2])` changes the dtype": program(
        op("strided", H, StridedView(0, (2, 2), (1, 2)), result=like(NEW, dtype=F64))
    ),
    "is no row of": program(op("product", H, W)),
    "`new: f64[4] = product(x, w)` mixes dtypes": program(op("product", X, W, result=like(NEW, dtype=F64))),
    "is not a row times a matrix": program(op("product", X, X)),
    "does not cut": program(op("slice", H, 2, 6)),
    "does not cut 4 features": program(op("slice", H, 0, 2)),
    "is not a row with a start and a stop": program(op("slice", H, 0)),
    "changes the dtype": program(op("slice", H, 0, 4, result=like(NEW, dtype=F64))),
    "`new: f32[4] = cat(double)` changes the dtype": program(op("cat", DOUBLE)),
    "does not take 2 rows or numbers": program(op("add", H)),
    "does not take 1 rows or numbers": program(op("neg", H, H)),
    "does not take 3 rows or numbers": program(op("where", TRUTH, H)),
    "take 2 rows or numbers": program(op("add", H, W)),
    "has no row": program(op("add", 1.0, 2.0)),
    "neither the width of the result nor width 1": program(op("add", H, X)),
    "makes a row wider": program(op("add", ONE, ONE)),
    "is a truth value, but not of dtype bool": program(op("lt", H, H)),
    "is no truth value": program(op("where", H, H, H)),
    "depends on other steps": program(ahead=Ahead(program(), ())),
    "one row for each stream": program(ahead=Ahead(program(carried=()), (0,))),
    "feeds y": program(ahead=Ahead(program(op("neg", X, result=Y), carried=(), stored=(Y,)), (1,))),
    "the condition of": program(op("where", 1.0, H, H)),
    "mixes dtypes without a cast": program(op("add", H, DOUBLE)),
    "where(truth, h, double)` mixes dtypes": program(op("where", TRUTH, H, DOUBLE)),
}

a, b = Value("a", (ROWS, 4), F32), Value("b", (ROWS, 4), F32)
NEG, ADD = torch.ops.aten.neg.default, torch.ops.aten.add_.Tensor
BROKEN_GRAPHS: dict[str, tuple[Graph, list[Value], list[Value]]] = {
    "uses b before it is defined": (Graph([Node(NEG, (b,), {}, (Value("c", (ROWS, 4), F32),))]), [a], []),
    "defines a again": (Graph([Node(NEG, (a,), {}, (a,))]), [a], []),
    "changes its arguments": (Graph([Node(ADD, (a, a), {}, (b,))]), [a], [b]),
    "the result b is never computed": (Graph([]), [a], [b]),
    "has rows along two axes": (Graph([Node(NEG, (a,), {}, (Value("c", (ROWS, ROWS), F32),))]), [a], []),
    "float32[n, n] has rows": (Graph([]), [Value("c", (ROWS, ROWS), F32)], []),
}


def empty_program(**parts: Any) -> Program:
    """A program that hands its state on; only what a test gives differs from a well-formed one."""
    sections = {name: Section(name, []) for name in ("random", "invariant", "before", "after")}
    given = {
        "name": "cell",
        "tensors": [],
        "inputs": [a],
        "state": [b],
        "outputs": [a],
        "new_state": [b],
        "literals": {},
        "loop": Loop.of("cell", [], [b], [b], reverse=False),
        "adjoint": None,
    }
    return Program(**(sections | given | parts))


C = Value("c", (ROWS, 4), F32)
OVERWRITES = Node(ADD, (a, a), {}, (b,))
BROKEN_REWRITES: dict[str, Callable[[], None]] = {
    "overwrites a, which other sections may read": lambda: verify_section(
        [Node(NEG, (a,), {}, (b,))], [OVERWRITES], [b]
    ),
    "the output c is not available": lambda: verify_program(empty_program(outputs=[C])),
}


def table(broken: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("words", "case"), broken.items(), ids=broken)


@pytest.mark.parametrize("name", GOOD)
def test_well_formed_programs(name: str) -> None:
    verify_loop(GOOD[name])


@table(BROKEN_LOOPS)
def test_broken_programs(words: str, case: LoopProgram) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_loop(case)
    assert words in str(caught.value)


@table(BROKEN_GRAPHS)
def test_broken_graphs(words: str, case: Any) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_graph(*case)
    assert words in str(caught.value)


@table(BROKEN_REWRITES)
def test_broken_rewrites(words: str, case: Callable[[], None]) -> None:
    verify_program(empty_program())
    with pytest.raises(VerificationError) as caught:
        case()
    assert words in str(caught.value)


def test_a_value_may_be_overwritten_that_is_not_needed_any_more() -> None:
    before = [Node(NEG, (a,), {}, (b,)), Node(torch.ops.aten.add.Tensor, (b, a), {}, (C,))]
    verify_section(before, [before[0], Node(ADD, (b, a), {}, (C,))], [C])
    with pytest.raises(VerificationError, match="the result b is never computed"):
        verify_section(before, [before[0], Node(ADD, (b, a), {}, (C,))], [C, b])


@pytest.mark.parametrize(
    ("module", "checks"),
    [
        (loop_ir, [lambda case=case: verify_loop(case) for case in BROKEN_LOOPS.values()]),
        (
            verify,
            [lambda case=case: verify_graph(*case) for case in BROKEN_GRAPHS.values()] + [*BROKEN_REWRITES.values()],
        ),
    ],
    ids=["loops", "graphs"],
)
def test_every_rule_has_its_test(module: ModuleType, checks: list[Callable[[], None]]) -> None:
    rules = {
        node.lineno
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Raise) and "VerificationError" in ast.unparse(node)
    }
    assert rules == {line_of(check) for check in checks}


def line_of(check: Callable[[], None]) -> int:
    """The line that a broken program stops at."""
    with pytest.raises(VerificationError) as caught:
        check()
    return caught.traceback[-1].lineno + 1


def test_the_vocabulary_is_torchs() -> None:
    """Every pointwise operation of a loop program is one of torch's, by its name."""
    torchs = {name for name in BINARY | loop_ir.UNARY if hasattr(torch.ops.aten, name)}
    assert torchs == BINARY | loop_ir.UNARY


_numbers = itertools.count()


def new_structure() -> tt.LSTMCell:
    """A cell that is not compiled yet, whichever tests have run."""
    return tt.LSTMCell(4, forget_bias=3 + next(_numbers) / 7, input_size=3)


def forgetful(backend: str, *, on_gpu: bool = False) -> Pipeline:
    """A pipeline that loses a node of the trace."""
    passes = PIPELINE(backend, on_gpu=on_gpu)

    def forget(traced: Trace) -> Trace:
        return dataclasses.replace(traced, graph=Graph(traced.graph.nodes[1:]))

    return dataclasses.replace(passes, trace=(*passes.trace, Pass("forget", forget)))


PIPELINE = pipeline.pipeline


def narrow(lowering: Any, node: Node) -> Row:
    """A lowering that loses columns."""
    left, right = node.args
    result = lowering.emit("product", lowering.row(left), lowering.matrix(right), width=1, dtype=left.dtype)
    return lowering.emit("cat", *[result] * node.result.row_size, width=node.result.row_size, dtype=left.dtype)


@pytest.mark.parametrize("broken", ["pass", "lowering"])
def test_a_defect_is_caught_and_told_and_hurts_nobody(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell still runs, on a backend without the defect."""
    if broken == "pass":
        monkeypatch.setattr(pipeline, "pipeline", forgetful)
    else:
        monkeypatch.setitem(lowering_rules.LOWERING_RULES, "mm", narrow)
    cell, inputs = new_structure(), torch.randn(2, 3, 3)
    with pytest.warns(RuntimeWarning, match="a defect of the compiler, VerificationError: .*Please report it"):
        outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=F32)
    plan = tt.explain(cell, inputs)
    assert plan.backend == ("reference" if broken == "pass" else "aten")
    assert "before it is defined" in plan.reasons["cpu"] or "is no row of 1" in plan.reasons["cpu"]
    with pytest.raises(ValueError, match="a defect of the compiler"), tt.backend("cpu"):
        tt.dynamic_rnn(cell, inputs, dtype=F32)
    with tt.backend("reference"):
        torch.testing.assert_close(outputs, tt.dynamic_rnn(cell, inputs, dtype=F32)[0])


READABLE = """
loop cell:
  stream   x: f32[3]
  stream   one: f32[1]
  stream   truth: bool[4]
  stream   whole: i64[4]
  stream   double: f64[4]
  matrix   w: f32[3, 4]
  carried  h: f32[4]
    new: f32[4] = product(x, w)
  store    new
  carry    h <- new
"""


def test_programs_can_be_read() -> None:
    assert str(GOOD["product"]) == READABLE.strip()
