"""Cost model of a step as separate kernels: matmuls of torch, and fused kernels for pointwise operations.

`auto` compares it with the persistent kernel for all steps, which wins as long as matrices stay on chip.
"""

from __future__ import annotations

import torch

from throughtime.backends.aten.fuse_pointwise import FusedStep, FusionGroup
from throughtime.backends.hardware_rates import (
    DEEP_MATMUL,
    LAUNCH_SECONDS,
    MATRIX_BYTES,
    ROW_BYTES,
    SMALL_MATMUL_SECONDS,
    STEP_FLOPS,
)
from throughtime.compiler import Node, Value
from throughtime.compiler.ir.costs import matmul_flops


def seconds(step: FusedStep, rows: int) -> float:
    """The time of one step of `rows` rows."""
    total = 0.0
    for part in step.parts:
        if isinstance(part, FusionGroup):
            written = [*part.kept, *(value for value in part.gives if value in step.stored)]
            total += LAUNCH_SECONDS + rows * _row_bytes([*part.takes, *written]) / ROW_BYTES
        else:
            total += sum(_node_seconds(node, rows) for node in part.nodes)
    return total


def _node_seconds(node: Node, rows: int) -> float:
    if node.name in ("mm", "bmm") and not node.args[1].has_rows:
        return _matmul_seconds(node.args[1], rows)
    if node.operation.launches_nothing:
        return 0.0
    return LAUNCH_SECONDS + rows * _row_bytes([*node.values, *node.results]) / ROW_BYTES


def _matmul_seconds(matrix: Value, rows: int) -> float:
    features, columns = matrix.row_shape[-2:]
    as_tf32 = matrix.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    rate = STEP_FLOPS["tf32" if as_tf32 else matrix.dtype.itemsize]
    busy = max(matrix.row_bytes / MATRIX_BYTES, matmul_flops(rows, matrix.row_size // columns, columns) / rate)
    return SMALL_MATMUL_SECONDS + busy * (DEEP_MATMUL if features > columns else 1)


def _row_bytes(values: list[Value]) -> int:
    return sum(value.row_bytes for value in values if value.has_rows)
