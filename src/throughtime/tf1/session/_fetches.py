"""Fetches: any nest of tensors, operations, variables and names, and the same nest of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from throughtime.tf1.graph._graph import Graph
from throughtime.tf1.graph._operation import Operation, Tensor

Build = Callable[[Sequence[Any]], Any]
"""From the values of the leaves to the result in the structure of the fetches."""


def open_fetches(graph: Graph, fetches: Any) -> tuple[list[Tensor | Operation], Build]:
    """The leaves, and a function that puts their values where they were."""
    leaves: list[Tensor | Operation] = []
    places: dict[int, int] = {}

    def leaf(found: Tensor | Operation) -> Build:
        place = places.setdefault(id(found), len(leaves))
        if place == len(leaves):
            leaves.append(found)
        return lambda values: values[place]

    return leaves, _open(graph, fetches, leaf)


def _open(graph: Graph, fetch: Any, leaf: Callable[[Any], Build]) -> Build:
    if fetch is None:
        raise TypeError("Fetch argument None has invalid type <class 'NoneType'>: fetch tensors and operations")
    if isinstance(fetch, list | tuple):
        return _open_sequence(graph, fetch, leaf)
    if isinstance(fetch, dict):
        parts = {key: _open(graph, value, leaf) for key, value in fetch.items()}
        return lambda values: type(fetch)((key, part(values)) for key, part in parts.items())
    if hasattr(fetch, "_fetch_parts"):
        items, rebuild = fetch._fetch_parts()
        inner = [_open(graph, item, leaf) for item in items]
        return lambda values: rebuild(*[part(values) for part in inner])
    try:
        return leaf(graph.as_graph_element(fetch))
    except TypeError as error:
        raise TypeError(
            f"Fetch argument {fetch!r} has invalid type {type(fetch)}, must be a string or Tensor. ({error})"
        ) from None
    except (ValueError, KeyError) as error:
        raise ValueError(f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error.args[0]})") from None


def _open_sequence(graph: Graph, fetch: Any, leaf: Callable[[Any], Build]) -> Build:
    parts = [_open(graph, item, leaf) for item in fetch]
    if hasattr(fetch, "_fields"):
        return lambda values: type(fetch)(*[part(values) for part in parts])
    kind = list if isinstance(fetch, list) else type(fetch)
    return lambda values: kind([part(values) for part in parts])


_SMALL = 1 << 16


def fetched(value: Any, storages: Callable[[], set[int]]) -> Any:
    """A value as a numpy array of its own, scalars as numpy scalars; never the storage of a variable."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            value = value.detach()
        if value.dtype == torch.bfloat16:
            value = value.float()
        if value.device.type == "cpu":
            if value.nbytes <= _SMALL or value._is_view() or value.untyped_storage().data_ptr() in storages():
                value = value.clone(memory_format=torch.contiguous_format)
        else:
            value = value.cpu()
        array = value.resolve_conj().resolve_neg().numpy()
        return array[()] if array.ndim == 0 else array
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else value.copy()
    return value
