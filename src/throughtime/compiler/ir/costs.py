"""What programs cost: the only place that counts FLOPs. `backends/hardware_rates.py` has the rates of hardware."""

from __future__ import annotations

from throughtime.compiler.ir.graph import Node
from throughtime.compiler.ir.loop_ir import LoopProgram, Matrix
from throughtime.compiler.ir.ops import Kind

_MOVES = frozenset({Kind.VIEW, Kind.COPY, Kind.FILL})
"""Kinds that compute nothing."""


def matmul_flops(rows: int, depth: int, columns: int) -> int:
    """A product of [rows, depth] with [depth, columns]: a multiplication and an addition for each of its terms."""
    return 2 * rows * depth * columns


def product_flops(node: Node) -> int:
    """Of a product of a step, for one row of the batch; 0 for every other node.

    Without rows in its result a product sums over rows: each row adds the outer product of two vectors.
    """
    if node.name not in ("mm", "bmm"):
        return 0
    left, right = node.args[:2]
    if not node.result.has_rows:
        return matmul_flops(1, left.row_size, right.row_size)
    depth = left.shape[-1]
    return matmul_flops(1, depth if isinstance(depth, int) else 1, node.result.row_size)


def node_flops(node: Node) -> int:
    """Of any node of a step, for one row: one for each element that it reads or computes, unless it is a product."""
    operation = node.operation
    if operation.kind is Kind.PRODUCT:
        return product_flops(node)
    if operation.kind in _MOVES:
        return 0
    return max((value.row_size for value in (*node.results, *node.values) if value.has_rows), default=0)


def multiply_adds(program: LoopProgram) -> int:
    """Half the FLOPs of the products of a loop program, for one row in one step, without what runs ahead."""
    matrices = (arg for op in program.body for arg in op.args if isinstance(arg, Matrix))
    return sum(matmul_flops(1, matrix.rows, matrix.columns) for matrix in matrices) // 2


def elements(program: LoopProgram) -> int:
    """Elements that operations other than views compute for one row in one step, without what runs ahead."""
    return sum(op.rows[0].width if op.is_in_groups else op.result.width for op in program.body if op.kind != "strided")
