"""What a step should take as kernels one after another: torch's products, and fused kernels for what is pointwise.

With this `auto` chooses between them and one kernel for the whole walk, which wins as long as matrices stay on chip.
The rates were measured on an H200, in recorded graphs; `docs/design/gpu.md` has a table.
"""

from __future__ import annotations

import torch

from throughtime.backends.aten.fuse_pointwise import FREE, FusedStep, FusionGroup
from throughtime.compiler import Node, Value

LAUNCH_SECONDS = 2.0e-6
"""A kernel that does little, after another one."""
PRODUCT_SECONDS = 3.0e-6
"""A small product."""
MATRIX_BYTES = 3.2e12
"""Bytes of a matrix that a product takes in, a second."""
ROW_BYTES = 4.0e12
"""Bytes of rows that pointwise kernels read and write, a second."""
FLOPS = {"tf32": 250e12, 2: 500e12, 4: 45e12, 8: 45e12}
"""Of products, a second: as TF32, else by the bytes of a number."""
DEEP = 1.3
"""Products with fewer columns than features keep fewer multiprocessors busy."""


def seconds(step: FusedStep, rows: int) -> float:
    """The time of one step of so many rows."""
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
        return _product_seconds(node.args[1], rows)
    if node.name in FREE:
        return 0.0
    return LAUNCH_SECONDS + rows * _row_bytes([*node.values, *node.results]) / ROW_BYTES


def _product_seconds(matrix: Value, rows: int) -> float:
    features, columns = matrix.row_shape[-2:]
    as_tf32 = matrix.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    rate = FLOPS["tf32" if as_tf32 else matrix.dtype.itemsize]
    busy = max(matrix.row_bytes / MATRIX_BYTES, 2 * rows * matrix.row_size / rate)
    return PRODUCT_SECONDS + busy * (DEEP if features > columns else 1)


def _row_bytes(values: list[Value]) -> int:
    return sum(value.row_bytes for value in values if value.has_rows)
