"""Nested structures: tuples, lists, dicts and named tuples of tensors.

The nests of TensorFlow's contract, with two kinds of leaf that look like structures: a `torch.Size` (it stands where
TensorFlow has a `TensorShape`) and a `PackedSequence`. torch has pytrees of its own, but a loop asks at every step, and
they took as long over a small state as the cell itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch.nn.utils.rnn import PackedSequence

from throughtime._errors import problem, type_name

Nest: TypeAlias = Any
"""A leaf, or a tuple, list, dict or named tuple of nests.

An alias of `Any` on purpose: a recursive union would need a cast at every leaf. Annotate structures of a user with it
(inputs, outputs, states, sizes), and write `Any` only for values that are of no such kind.
"""

_STRUCTURES = (tuple, list, dict)
_LEAVES = (torch.Tensor, torch.Size, PackedSequence)


def is_nest(value: object) -> bool:
    """Whether `value` is a structure rather than a leaf."""
    return isinstance(value, _STRUCTURES) and not isinstance(value, _LEAVES)


def children(node: Nest) -> list[Any]:
    """The direct children of a structure, nested or not."""
    return list(node.values()) if isinstance(node, dict) else list(node)


def rebuild(node: Nest, new_children: Iterable[Any]) -> Nest:
    """A structure of the type of `node` with other direct children."""
    if type(node) is dict:
        return dict(zip(node, new_children, strict=True))
    if isinstance(node, dict):
        # A copy keeps what a subclass carries besides its items, such as a default factory.
        new = copy.copy(node)
        new.update(zip(node, new_children, strict=True))
        return new
    make = getattr(node, "_make", type(node))
    return make(new_children)


def flatten(tree: Nest) -> list[Any]:
    """The leaves of `tree`, in order."""
    if not is_nest(tree):
        return [tree]
    leaves: list[Any] = []
    for child in children(tree):
        if is_nest(child):
            leaves += flatten(child)
        else:
            leaves.append(child)
    return leaves


def pack_as(template: Nest, leaves: Iterable[Any]) -> Nest:
    """`leaves` in the structure of `template`."""
    if not is_nest(template):
        (leaf,) = leaves
        return leaf
    return _pack(template, iter(leaves))


def packer(template: Nest) -> Callable[[Sequence[Any]], Nest]:
    """`pack_as` for one template and many calls."""
    if not is_nest(template):
        return itemgetter(0)
    if isinstance(template, tuple) and not any(map(is_nest, template)):
        make: Callable[[Sequence[Any]], Nest] = getattr(template, "_make", type(template))
        return make
    return partial(pack_as, template)


def _pack(template: Nest, leaves: Iterator[Any]) -> Nest:
    return rebuild(template, [_pack(child, leaves) if is_nest(child) else next(leaves) for child in children(template)])


def map_leaves(function: Callable[..., Any], tree: Nest, *others: Nest) -> Nest:
    """`function` applied leaf by leaf; the `others` have the structure of `tree`."""
    if not is_nest(tree):
        return function(tree, *others)
    parts = [children(tree), *(_matching_children(tree, other, "a nest") for other in others)]
    return rebuild(tree, [map_leaves(function, *part) for part in zip(*parts, strict=True)])


def map_up_to(function: Callable[..., Any], template: Nest, tree: Nest) -> Nest:
    """`function(template_leaf, value)`, where a value may be a whole subtree below a leaf of `template`."""
    if not is_nest(template) or not template:
        return function(template, tree)
    parts = zip(children(template), _matching_children(template, tree, "a nest"), strict=True)
    return rebuild(template, [map_up_to(function, *part) for part in parts])


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
    if not is_nest(template):
        if is_nest(value):
            raise ValueError(_mismatch(template, value, what))
        return value
    parts = children(template)
    if not parts and not is_nest(value):
        return value
    values = _matching_children(template, value, what)
    return rebuild(template, [conform(t, v, what) for t, v in zip(parts, values, strict=True)])


def check_nested(template: Nest, value: Nest, what: str) -> None:
    """Raise a `TypeError` for a single value where a structure is expected."""
    if is_nest(template) and children(template) and not is_nest(value):
        raise TypeError(_mismatch(template, value, what))


def _matching_children(template: Nest, value: Nest, what: str) -> list[Any]:
    """The children of `value` in the order of those of `template`, if the two are of one kind."""
    if not is_nest(value):
        raise ValueError(_mismatch(template, value, what))
    if isinstance(template, dict) != isinstance(value, dict):
        raise TypeError(_mismatch(template, value, what))
    if isinstance(template, dict):
        if set(template) != set(value):
            raise ValueError(_mismatch(template, value, what))
        return [value[key] for key in template]
    fields = getattr(template, "_fields", None)
    if fields is not None and getattr(value, "_fields", fields) != fields:
        raise TypeError(_mismatch(template, value, what))
    values = children(value)
    if len(values) != len(children(template)):
        raise ValueError(_mismatch(template, value, what))
    return values


def _mismatch(template: Nest, value: Nest, what: str) -> str:
    got = describe(value) if is_nest(value) else type_name(value)
    return problem(
        f"{what} does not have the same nested structure",
        got=got,
        expected=describe(template),
        fix="Give the same structure; a star stands for one tensor.",
    )


def floating_dtype(tree: Any) -> torch.dtype | None:
    """The dtype of the first floating point tensor in a nest."""
    leaves = (leaf for leaf in flatten(tree) if isinstance(leaf, torch.Tensor))
    return next((leaf.dtype for leaf in leaves if leaf.is_floating_point()), None)
