"""Tensors behind others, time, and uninitialised variables."""

from __future__ import annotations

import time
from typing import Any

import torch

from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._dtypes import float64
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.ops._convert import convert_to_tensor


@exported("tuple")
def tuple_(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """The same tensors; none is there before all are."""
    with name_scope(name, "tuple") as scope:
        graph = get_default_graph()
        present = [getattr(one, "op", one) for one in [*tensors, *(control_inputs or ())] if one is not None]
        if not present:
            raise ValueError(f"Must have at least one Tensor: {tensors}")
        gate = lookup("group")(*present, name="group_deps")
        with graph.control_dependencies([gate]):
            found = [None if one is None else convert_to_tensor(one) for one in tensors]
            return [None if one is None else _behind(one, scope) for one in found]


def _behind(tensor: Any, scope: str) -> Any:
    with get_default_graph().name_scope(scope):
        return lookup("identity")(tensor, name="control_dependency")


@exported("timestamp")
def timestamp(name: str | None = None) -> Any:
    """Seconds since the epoch, read in each run."""
    kernel = lambda state: torch.tensor(time.time(), dtype=torch.float64)  # noqa: E731
    return create_op("Timestamp", kernel, name=name, dtypes=[float64], shapes=[()], stateful=True).outputs[0]
