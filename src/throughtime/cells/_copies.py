"""Cells that work in place: each call has copies of its own, so that what it writes to is seen by no other step.

A cell is searched once for code that can write to a tensor: `h += x`, `h.mul_(2)`, `h[:, 0] = 0`, `out=h`,
`nn.ReLU(inplace=True)`. If there is any, it is called on copies. If there is none, it is called on the tensors
themselves, and the version counters of torch tell whether it has written to them all the same.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import problem, type_name
from throughtime.cells._in_place_code import can_write


class _Care(enum.Enum):
    """What is done about a function that may write to its arguments."""

    NONE = enum.auto()
    VERSIONS = enum.auto()
    COPIES = enum.auto()


_known: weakref.WeakKeyDictionary[Any, _Care] = weakref.WeakKeyDictionary()
# Whether a function that was first called in inference mode wrote to its arguments then.
_writes_uncounted: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def call_on_copies(function: Any, *arguments: Any) -> Any:
    """`function(*arguments)`, by which no tensor among the arguments is changed and no result is one that it keeps.

    The arguments are nests, and so are the results.
    """
    if torch.compiler.is_dynamo_compiling():
        # Which copies are needed is found out by the compiler that records this.
        return function(*arguments) if _is_own(function) else _called_apart(function, arguments)
    care = _care_for(function)
    if care is _Care.NONE:
        return function(*arguments)
    if care is _Care.COPIES:
        return _called_apart(function, arguments)
    leaves = [leaf for argument in arguments for leaf in _pytree.flatten(argument)]
    if any(map(_is_uncounted, leaves)):
        return _called_uncounted(function, function, arguments)
    before = _versions(leaves)
    result = function(*arguments)
    if _versions(leaves) != before:
        raise _unseen_write(function)
    return result


def caller_on_copies(function: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call_on_copies` for many calls of one function, which `call` is a quicker way to call."""
    if torch.compiler.is_dynamo_compiling():
        return lambda *arguments: call_on_copies(function, *arguments)
    care = _care_for(function)
    if care is _Care.NONE:
        return call
    if care is _Care.COPIES:
        return lambda *arguments: _called_apart(call, arguments)

    def checked(inputs: Any, state: Any) -> Any:
        before = _version(inputs), _version(state)
        if None in before:
            return _called_uncounted(function, call, (inputs, state))
        result = call(inputs, state)
        if (_version(inputs), _version(state)) != before:
            raise _unseen_write(function)
        return result

    return checked


def _called_uncounted(function: Any, call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """A call on tensors whose writes torch does not count: the first is made on copies that it does count."""
    try:
        writes = _writes_uncounted.get(function)
    except TypeError:
        writes = True
    if writes is None:
        with torch.inference_mode(False):
            copies = [_pytree.map_leaves(_copy, argument) for argument in arguments]
        leaves = [leaf for copy in copies for leaf in _pytree.flatten(copy)]
        before = _versions(leaves)
        result = _pytree.map_leaves(_copy, call(*copies))
        _writes_uncounted[function] = _versions(leaves) != before
        return result
    return _called_apart(call, arguments) if writes else call(*arguments)


def _is_uncounted(leaf: Any) -> bool:
    """Whether torch does not count how often a tensor is written to: one that was made in inference mode."""
    return isinstance(leaf, Tensor) and leaf.is_inference()


def _version(argument: Any) -> Any:
    """The version of a tensor, or those of a nest; None if torch does not count it."""
    if type(argument) is not Tensor:
        leaves = _pytree.flatten(argument)
        return None if any(map(_is_uncounted, leaves)) else _versions(leaves)
    return None if argument.is_inference() else argument._version


def _called_apart(function: Any, arguments: Sequence[Any]) -> Any:
    result = function(*(_pytree.map_leaves(_copy, argument) for argument in arguments))
    return _pytree.map_leaves(_copy, result)


def _copy(leaf: Any) -> Any:
    # Copies lie in order: whether a view or a copy comes of `reshape` does not depend on who calls.
    return leaf.clone(memory_format=torch.contiguous_format) if isinstance(leaf, Tensor) else leaf


def _versions(leaves: Sequence[Any]) -> list[int]:
    """How often each tensor was written to."""
    return [leaf._version for leaf in leaves if isinstance(leaf, Tensor)]


def _care_for(function: Any) -> _Care:
    try:
        found = _known.get(function)
        if found is None:
            found = _known[function] = _searched(function)
    except TypeError:
        # Compared by its parts, or kept in slots: it cannot be remembered.
        return _searched(function)
    return found


def _searched(function: Any) -> _Care:
    if can_write(function):
        return _Care.COPIES
    return _Care.NONE if _is_own(function) else _Care.VERSIONS


def _is_own(function: Any) -> bool:
    """Whether it is a cell of this library; one around another cell calls that one on copies."""
    return str(type(function).__module__).partition(".")[0] == "throughtime"


def _unseen_write(function: Any) -> RuntimeError:
    return RuntimeError(
        problem(
            f"{type_name(function)} has changed its inputs or its state in place, where its code does not show it",
            got="a tensor that was written to",
            expected="new tensors",
            fix="Begin the step with `state = state.clone()`, or the same for what it changes.",
        )
    )
