"""Gradients of variables that are only looked up: rows and their indices, as TensorFlow gives them.

The gradient of `tf.gather(table, ids)` by the table is the gradient by the rows that were looked up. It is never
spread over the table: the work is that of the rows, and a row that occurs twice stays two rows, as in TensorFlow,
which matters for `tf.global_norm`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from throughtime.tf1.graph._dtypes import int64
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._program import variable_of
from throughtime.tf1.ops._convert import constant
from throughtime.tf1.ops._indexed_slices import IndexedSlices

_LOOKUPS = {"GatherV2", "embedding_lookup"}
Uses = dict[Tensor, list[Operation]]


def lookups_of(targets: Sequence[Tensor], sources: Sequence[Tensor], stops: Sequence[Tensor]) -> Uses:
    """The lookups of each of `sources` that is a variable and has no other use on the way to `targets`."""
    uses = _uses(targets, stops)
    found = {}
    for source in dict.fromkeys(sources):
        if variable_of(source) is not None:
            users = _users(source, uses)
            if users and all(map(_is_row_lookup, users)):
                found[source] = users
    return found


def _users(tensor: Tensor, uses: Uses) -> list[Operation]:
    """The operations that use a variable, seen through its `read`."""
    users = []
    for op in uses.get(tensor, ()):
        users += _users(op.outputs[0], uses) if op.type == "Identity" else [op]
    return users


def _uses(targets: Sequence[Tensor], stops: Sequence[Tensor]) -> Uses:
    """The operations between each tensor and `targets` that take it."""
    stopped, seen, uses = set(stops), set(), Uses()
    stack = [target.op for target in targets if target.dtype.is_differentiable]
    while stack:
        op = stack.pop()
        if op in seen or not op.differentiable:
            continue
        seen.add(op)
        for tensor in dict.fromkeys(op.inputs):
            uses.setdefault(tensor, []).append(op)
            if tensor.dtype.is_differentiable and tensor not in stopped:
                stack.append(tensor.op)
    return uses


def _is_row_lookup(op: Operation) -> bool:
    """Whether an operation takes rows of its first input by the numbers in its second, and does nothing else."""
    settings = [op.attrs.get(name) for name in ("axis", "batch_dims", "max_norm")]
    return op.type in _LOOKUPS and len(op.inputs) == 2 and not any(settings)


def slices_of(source: Tensor, lookups: Sequence[Operation], gradients: Sequence[Tensor]) -> IndexedSlices:
    """The gradient of a variable from those of the rows that were looked up."""
    sizes = source.shape.as_list()
    rest = sizes[1:]

    def values(*parts: torch.Tensor) -> torch.Tensor:
        flat = [part.reshape(-1, *(size or 0 for size in rest)) for part in parts]
        return flat[0] if len(flat) == 1 else torch.cat(flat)

    def indices(*parts: torch.Tensor) -> torch.Tensor:
        flat = [part.reshape(-1) for part in parts]
        return flat[0] if len(flat) == 1 else torch.cat([part.long() for part in flat])

    ids = [op.inputs[1] for op in lookups]
    counts = [tensor.shape.num_elements() for tensor in ids]
    count = None if None in counts else sum(counts)  # type: ignore[arg-type]
    dtype = ids[0].dtype if len(ids) == 1 else int64
    rows = create_op("Reshape", values, list(gradients), dtypes=[source.dtype.base_dtype], shapes=[[count, *rest]])
    where = create_op("Reshape", indices, ids, dtypes=[dtype], shapes=[[count]], differentiable=False)
    return IndexedSlices(rows.outputs[0], where.outputs[0], constant(sizes, "int32", name="Shape"))
