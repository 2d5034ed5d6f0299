"""What programs cost: FLOPs and elements, counted by hand."""

from __future__ import annotations

import pytest
import torch

from throughtime.compiler.ir.costs import elements, matmul_flops, multiply_adds, node_flops, product_flops
from throughtime.compiler.ir.graph import ROWS, Node, Value
from throughtime.compiler.ir.loop_ir import Carry, LoopProgram, Matrix, Op, Row

pytestmark = pytest.mark.covers("compiler")

aten, F32 = torch.ops.aten, torch.float32
X, H, W = Value("x", (ROWS, 3), F32), Value("h", (ROWS, 4), F32), Value("w", (3, 4), F32)
G, GT = Value("g", (ROWS, 4), F32), Value("xt", (3, ROWS), F32)
BATCHED = [Value("q", (ROWS, 2, 3), F32), Value("k", (ROWS, 3, 5), F32), Value("s", (ROWS, 2, 5), F32)]


@pytest.mark.parametrize(
    ("node", "flops"),
    [
        (Node(aten.mm.default, (X, W), {}, (H,)), 2 * 3 * 4),
        # A gradient of a matrix: each row adds an outer product.
        (Node(aten.mm.default, (GT, G), {}, (Value("dw", (3, 4), F32),)), 2 * 3 * 4),
        (Node(aten.bmm.default, tuple(BATCHED[:2]), {}, (BATCHED[2],)), 2 * 2 * 3 * 5),
        (Node(aten.tanh.default, (H,), {}, (G,)), 4),
        (Node(aten.sum.dim_IntList, (H, [1]), {}, (Value("s", (ROWS,), F32),)), 4),
        (Node(aten.reshape.default, (H, [ROWS, 2, 2]), {}, (Value("r", (ROWS, 2, 2), F32),)), 0),
        (Node(aten.cat.default, ([X, H], 1), {}, (Value("c", (ROWS, 7), F32),)), 0),
        (Node(aten.t.default, (W,), {}, (Value("wt", (4, 3), F32),)), 0),
        (Node(aten.neg.default, (W,), {}, (Value("nw", (3, 4), F32),)), 0),
    ],
    ids=lambda value: value.name if isinstance(value, Node) else str(value),
)
def test_flops_of_a_node_for_one_row(node: Node, flops: int) -> None:
    assert node_flops(node) == flops
    assert product_flops(node) == (flops if node.name in ("mm", "bmm") else 0)


def test_costs_of_a_loop_program() -> None:
    x, h, made, new = Row("x", 3, F32), Row("h", 4, F32), Row("made", 4, F32), Row("new", 4, F32)
    matrix = Matrix("w", 3, 4, F32)
    body = (Op("product", made, (x, matrix)), Op("add", new, (made, h)))
    program = LoopProgram("cell", False, (x,), (), (), (matrix,), (Carry(h, new),), body, ())
    assert 2 * multiply_adds(program) == matmul_flops(1, 3, 4)
    assert elements(program) == 4 + 4
