"""Nested structures: tuples, lists, dicts and named tuples of tensors.

A thin layer over torch's own pytrees. It adds three things: `torch.Size` is a leaf (it stands where TensorFlow
has a `TensorShape`), a `PackedSequence` is a leaf, and `conform` lets a plain tuple stand for a named one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from throughtime._errors import type_name

Nest = Any
"""A leaf, or a tuple, list, dict or named tuple of nests."""


def _is_leaf(node: object) -> bool:
    return isinstance(node, torch.Size | PackedSequence)


def is_nest(value: object) -> bool:
    """Whether `value` is a structure rather than a leaf."""
    return not pytree.tree_is_leaf(value, is_leaf=_is_leaf)


def flatten(tree: Nest) -> list[Any]:
    """The leaves of `tree`, in order."""
    return pytree.tree_leaves(tree, is_leaf=_is_leaf)


def pack_as(template: Nest, leaves: Iterable[Any]) -> Nest:
    """`leaves` in the structure of `template`."""
    return pytree.tree_unflatten(leaves, pytree.tree_structure(template, is_leaf=_is_leaf))


def map_leaves(function: Callable[..., Any], tree: Nest, *others: Nest) -> Nest:
    """`function` applied leaf by leaf; the `others` have the structure of `tree`."""
    return pytree.tree_map(function, tree, *others, is_leaf=_is_leaf)


def map_up_to(function: Callable[..., Any], template: Nest, *trees: Nest) -> Nest:
    """`function(template_leaf, *values)`, where a value may be a whole subtree below a leaf of `template`."""
    if not is_nest(template) or not children(template):
        return function(template, *trees)
    parts = zip(children(template), *(children(tree) for tree in trees), strict=True)
    return rebuild(template, [map_up_to(function, *part) for part in parts])


def children(node: Nest) -> list[Any]:
    """The direct children of a structure, nested or not."""
    return pytree.tree_leaves(node, is_leaf=lambda child: child is not node)


def rebuild(node: Nest, new_children: Iterable[Any]) -> Nest:
    """A structure of the type of `node` with other direct children."""
    return pytree.tree_unflatten(new_children, pytree.tree_structure(node, is_leaf=lambda child: child is not node))


def describe(tree: Nest) -> str:
    """A structure as people read it: `LSTMStateTuple(c=*, h=*)`, with a star for each leaf."""
    if not is_nest(tree):
        return "*"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {describe(child)}" for key, child in tree.items()) + "}"
    parts = [describe(child) for child in children(tree)]
    fields = getattr(tree, "_fields", None)
    if fields is not None:
        return f"{type(tree).__name__}({', '.join(f'{f}={p}' for f, p in zip(fields, parts, strict=True))})"
    if isinstance(tree, list):
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def conform(template: Nest, value: Nest, what: str) -> Nest:
    """`value` rebuilt in the structure of `template`; sequences of any kind stand for each other.

    A template `()` takes anything: it is how a cell says that a part of its state has no size.
    """
    if is_nest(template) and not children(template) and not is_nest(value):
        return value
    _check_same_kind(template, value, what)
    if not is_nest(template):
        return value
    values = [value[key] for key in template] if isinstance(template, dict) else children(value)
    return rebuild(template, [conform(t, v, what) for t, v in zip(children(template), values, strict=True)])


def _check_same_kind(template: Nest, value: Nest, what: str) -> None:
    """One level of `conform`: the kind of structure, its arity and its names."""
    complaint = (
        f"{what} does not have the expected nested structure: got {_shown(value)}, expected {describe(template)}. "
        "Return or pass the same structure, with a star above standing for one tensor."
    )
    if is_nest(template) != is_nest(value) or isinstance(template, dict) != isinstance(value, dict):
        raise TypeError(complaint)
    if isinstance(template, dict):
        if set(template) != set(value):
            raise ValueError(complaint)
        return
    if is_nest(template) and len(children(template)) != len(children(value)):
        raise ValueError(complaint)
    fields = getattr(template, "_fields", None)
    if fields is not None and getattr(value, "_fields", fields) != fields:
        raise TypeError(complaint)


def _shown(value: Nest) -> str:
    return describe(value) if is_nest(value) else type_name(value)
