"""Rows and elements of variables changed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime.tf1._namespace import export
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._variables import variable_op_of
from throughtime.tf1.ops._convert import convert_to_tensor

Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _index(indices: torch.Tensor, rows: torch.Tensor, inner: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat row numbers, and updates as rows; one update may serve all rows."""
    flat = indices.reshape(-1).long()
    return flat, rows.expand(*indices.shape, *inner).reshape(-1, *inner)


def _reducing(kind: str) -> Update:
    def update(old: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        flat, rows = _index(indices, updates, tuple(old.shape[1:]))
        return _reduced(old, flat, rows, kind)

    return update


def _reduced(old: torch.Tensor, flat: torch.Tensor, rows: torch.Tensor, kind: str) -> torch.Tensor:
    index = flat.reshape(-1, *[1] * (old.ndim - 1)).expand(rows.shape)
    return old.scatter_reduce(0, index, rows, kind, include_self=True)


def _adding(sign: int) -> Update:
    def update(old: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        flat, rows = _index(indices, updates, tuple(old.shape[1:]))
        return old.index_add(0, flat, rows, alpha=sign)

    return update


def _replace(old: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    flat, rows = _index(indices, updates, tuple(old.shape[1:]))
    return old.index_copy(0, flat, rows)


def _divide(old: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    flat, rows = _index(indices, updates, tuple(old.shape[1:]))
    return _reduced(old, flat, 1 / rows, "prod") if old.is_floating_point() else _divide_each(old, flat, rows)


def _divide_each(old: torch.Tensor, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    result = old.clone()
    for row, divisor in zip(flat.tolist(), rows, strict=True):
        result[row] = torch.div(result[row], divisor, rounding_mode="trunc")
    return result


def _nd(sign: int | None) -> Update:
    def update(old: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        places = tuple(indices.long().unbind(-1))
        return old.index_put(places, updates if sign is None else sign * updates, accumulate=sign is not None)

    return update


def _batch(old: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    axis = indices.ndim - 1
    index = indices.long().reshape(*indices.shape, *[1] * (old.ndim - indices.ndim)).expand(updates.shape)
    return old.scatter(axis, index, updates)


def _operation(name: str, op_type: str, update: Update, doc: str) -> None:
    def function(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
        del use_locking
        variable = variable_op_of(ref)
        target = variable.outputs[0]
        inputs = [convert_to_tensor(indices), convert_to_tensor(updates, target.dtype.base_dtype)]

        def kernel(state: Any, where: torch.Tensor, rows: torch.Tensor) -> Any:
            state.values[variable] = update(variable.kernel(state), where, rows.detach())
            return state.values[variable]

        return create_op(
            op_type,
            kernel,
            inputs,
            name=name,
            dtypes=[target.dtype],
            shapes=[target.shape],
            stateful=True,
            mutates=variable,
        ).outputs[0]

    function.__doc__, function.__name__ = doc, name
    export(name, function)


_operation("scatter_update", "ScatterUpdate", _replace, "Replace rows of a variable.")
_operation("scatter_add", "ScatterAdd", _adding(1), "Add to rows of a variable.")
_operation("scatter_sub", "ScatterSub", _adding(-1), "Subtract from rows of a variable.")
_operation("scatter_mul", "ScatterMul", _reducing("prod"), "Multiply rows of a variable.")
_operation("scatter_div", "ScatterDiv", _divide, "Divide rows of a variable.")
_operation("scatter_min", "ScatterMin", _reducing("amin"), "Set rows of a variable to the smaller of old and new.")
_operation("scatter_max", "ScatterMax", _reducing("amax"), "Set rows of a variable to the larger of old and new.")
_operation("scatter_nd_update", "ScatterNdUpdate", _nd(None), "Replace elements of a variable.")
_operation("scatter_nd_add", "ScatterNdAdd", _nd(1), "Add to elements of a variable.")
_operation("scatter_nd_sub", "ScatterNdSub", _nd(-1), "Subtract from elements of a variable.")
_operation("batch_scatter_update", "BatchScatterUpdate", _batch, "Replace rows of each batch of a variable.")
