"""Lookups in embeddings, in one tensor or in several parts."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._helpers import plain
from throughtime.tf1.ops._table import Static, Tensor, Tensors, operation


def _limited(rows: Tensor, ids: Tensor, max_norm: Any) -> Tensor:
    """Rows scaled so that the norm of each is at most `max_norm`."""
    if max_norm is None:
        return rows
    over = tuple(range(ids.ndim, rows.ndim))
    norms = torch.sqrt(torch.sum(rows * rows, over, True))
    limit = plain(max_norm)
    return rows * limit / torch.clamp(norms, min=limit)


def looked_up(params: list[Tensor], ids: Tensor, strategy: str) -> Tensor:
    """Rows by id; with several parts, ids are dealt out in turn ("mod") or in ranges ("div")."""
    numbers = ids.long()
    if len(params) == 1:
        return torch.nn.functional.embedding(numbers, params[0]) if params[0].ndim == 2 else params[0][numbers]
    if strategy == "mod":
        part, place = numbers % len(params), torch.div(numbers, len(params), rounding_mode="floor")
    else:
        part, place = _ranges(numbers, params)
    sizes = torch.tensor([0, *(len(one) for one in params[:-1])], device=ids.device).cumsum(0)
    return torch.cat(params)[sizes[part] + place]


def _ranges(numbers: Tensor, params: list[Tensor]) -> tuple[Tensor, Tensor]:
    total, count = sum(len(one) for one in params), len(params)
    each, extra = divmod(total, count)
    limit = extra * (each + 1)
    first = torch.div(numbers, each + 1, rounding_mode="floor")
    part = torch.where(numbers < limit, first, extra + torch.div(numbers - limit, max(each, 1), rounding_mode="floor"))
    place = torch.where(numbers < limit, numbers % (each + 1), (numbers - limit) % max(each, 1))
    return part, place


@operation("nn.embedding_lookup", op_name="embedding_lookup")
def _lookup(params: Tensors, ids: Tensor, partition_strategy: Static = "mod", max_norm: Static = None) -> Tensor:
    """Rows of `params` by id."""
    if params[0].is_meta and len(params) == 1:
        return params[0].new_empty([*ids.shape, *params[0].shape[1:]])
    return _limited(looked_up(list(params), ids, partition_strategy), ids, max_norm)


@exported("nn.embedding_lookup")
def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: Any = None,
) -> Any:
    """Rows of `params` by id; a list of tensors is one embedding in parts."""
    parts = list(params) if isinstance(params, list | tuple | _partitioned()) else [params]
    if not parts:
        raise ValueError("Need at least one param")
    if partition_strategy not in {"mod", "div"}:
        raise ValueError(f"Unrecognized partition strategy: {partition_strategy}; use 'mod' or 'div'")
    return _lookup(parts, ids, partition_strategy, max_norm, name=name)


def _partitioned() -> Any:
    from throughtime.tf1._namespace import PUBLIC  # noqa: PLC0415

    return PUBLIC.get("PartitionedVariable", list)


@operation(
    "nn.embedding_lookup_sparse",
    op_name="embedding_lookup_sparse",
    dtypes=lambda **given: [given["params"][0].dtype.base_dtype],
    shape_rule=lambda **given: [[None, *(given["params"][0].shape.sizes or ())[1:]]],
)
def _lookup_sparse(
    params: Tensors,
    indices: Tensor,
    values: Tensor,
    weights: Tensor | None,
    partition_strategy: Static,
    combiner: Static,
    max_norm: Static,
) -> Tensor:
    """Rows of `params` by id, those of one row of ids combined."""
    rows = _limited(looked_up(list(params), values, partition_strategy), values, max_norm)
    number = indices[:, 0].long()
    count = int(number.max()) + 1 if len(number) else 0
    share = torch.ones(len(number), dtype=rows.dtype) if weights is None else weights.to(rows.dtype)
    sums = torch.zeros(count, *rows.shape[1:], dtype=rows.dtype).index_add(
        0, number, rows * share.reshape(-1, *[1] * (rows.ndim - 1))
    )
    if combiner == "sum":
        return sums
    given = share if combiner == "mean" else share * share
    total = torch.zeros(count, dtype=rows.dtype).index_add(0, number, given)
    total = total if combiner == "mean" else torch.sqrt(total)
    return sums / total.reshape(-1, *[1] * (rows.ndim - 1))


@exported("nn.embedding_lookup_sparse")
def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: Any = None,
) -> Any:
    """Rows of `params` by the ids of a `SparseTensor`, those of one row combined by "mean", "sqrtn" or "sum"."""
    parts = list(params) if isinstance(params, list | tuple) else [params]
    weights = None if sp_weights is None else sp_weights.values
    return _lookup_sparse(
        parts, sp_ids.indices, sp_ids.values, weights, partition_strategy, combiner or "mean", max_norm, name=name
    )
