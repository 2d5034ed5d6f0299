"""Cells that work in place: each call has copies of its own, so that what it writes to is seen by no other step.

A cell is searched once for code that can write to a tensor: `h += x`, `h.mul_(2)`, `h[:, 0] = 0`, `out=h`,
`nn.ReLU(inplace=True)`. If there is any, it is called on copies. If there is none, its first call is made on copies,
and the version counters of torch tell whether it has written to them all the same. Later calls are made on the tensors
themselves, with a look at the version counters.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import problem, type_name
from throughtime._torch_internals import num_dispatch_modes
from throughtime.cells._in_place_code import can_write


class _Care(enum.Enum):
    """What is done about a function that may write to its arguments."""

    NONE = enum.auto()
    PROBE = enum.auto()
    VERSIONS = enum.auto()
    COPIES = enum.auto()


class _Known(NamedTuple):
    """What is known of a function, and what it was then: it is searched again if a method is replaced."""

    care: _Care
    identity: tuple[Any, ...]


_known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()


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
    # What records the operations of a call sees its writes, and should see no copies that are ours.
    if care is _Care.PROBE and not num_dispatch_modes():
        return _probed(function, function, arguments)[0]
    return _called_counted(function, function, arguments)


def caller_on_copies(
    function: Any, call: Callable[[Any, Any], Any], *, two_states: bool = False
) -> Callable[[Any, Any], Any]:
    """`call_on_copies` for many calls of one function on `(inputs, state)`, which `call` is a quicker way to call.

    `two_states` says that the state is a tuple of two tensors.
    """
    if torch.compiler.is_dynamo_compiling():
        return lambda inputs, state: call_on_copies(function, inputs, state)
    care = _care_for(function)
    if care is _Care.NONE:
        return call
    if care is _Care.COPIES:
        return lambda inputs, state: _called_apart(call, (inputs, state))
    if care is _Care.PROBE:
        return _probing(function, call)
    if torch.is_inference_mode_enabled():
        # Torch does not count the versions of states that are made in this mode.
        return call
    return (_counting_two if two_states else _counting_one)(function, call)


def _counting_one(function: Any, call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Steps on the tensors themselves, with a look at their versions: quick for a state of one tensor."""

    def step(inputs: Any, state: Any) -> Any:
        try:
            # Versions only grow: their sum tells as much.
            before = inputs._version + state._version
        except (AttributeError, RuntimeError):
            # A nest, or a tensor that was made in inference mode.
            return _called_counted(function, call, (inputs, state))
        result = call(inputs, state)
        if inputs._version + state._version != before:
            raise _unseen_write(function)
        return result

    return step


def _counting_two(function: Any, call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same for a state of two tensors."""

    def step(inputs: Any, state: Any) -> Any:
        first, second = state
        try:
            before = inputs._version + first._version + second._version
        except (AttributeError, RuntimeError):
            return _called_counted(function, call, (inputs, state))
        result = call(inputs, state)
        if inputs._version + first._version + second._version != before:
            raise _unseen_write(function)
        return result

    return step


def _unseen_write(function: Any) -> RuntimeError:
    """A write to an argument by a function that has no code for it and did not write at its first call."""
    return RuntimeError(
        problem(
            f"{type_name(function)} has changed its inputs or its state in place, where its code does not show it",
            got="a tensor that was written to",
            expected="new tensors",
            fix="Begin the step with `state = state.clone()`, or the same for what it changes.",
        )
    )


def _probing(function: Any, call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Steps of which the first tells whether the others need copies."""
    writes: bool | None = None

    def step(inputs: Any, state: Any) -> Any:
        nonlocal writes
        if writes is None:
            result, writes = _probed(function, call, (inputs, state))
            return result
        if writes:
            return _called_apart(call, (inputs, state))
        return _called_counted(function, call, (inputs, state))

    return step


def _probed(function: Any, call: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, bool]:
    """A call on copies of which torch counts how often they are written to, and whether they are."""
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
        copies = [_pytree.map_leaves(_copy, argument) for argument in arguments]
    leaves = [leaf for copy in copies for leaf in _pytree.flatten(copy)]
    before = _versions(leaves)
    result = _pytree.map_leaves(_copy, call(*copies))
    writes = _versions(leaves) != before
    _remember(function, _Care.COPIES if writes else _Care.VERSIONS)
    return result, writes


def _called_counted(function: Any, call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """A call on the tensors themselves, of which torch counts how often they are written to, but for some."""
    leaves = [leaf for argument in arguments for leaf in _pytree.flatten(argument)]
    if any(map(_is_uncounted, leaves)):
        return call(*arguments)
    before = _versions(leaves)
    result = call(*arguments)
    if _versions(leaves) != before:
        raise _unseen_write(function)
    return result


def _is_uncounted(leaf: Any) -> bool:
    """Whether torch does not count how often a tensor is written to: one that was made in inference mode."""
    return isinstance(leaf, Tensor) and leaf.is_inference()


def _called_apart(function: Any, arguments: Sequence[Any]) -> Any:
    result = function(*(_pytree.map_leaves(_copy, argument) for argument in arguments))
    return _pytree.map_leaves(_copy, result)


def _copy(leaf: Any) -> Any:
    # Copies are contiguous: whether `reshape` gives a view or a copy does not depend on the caller.
    return leaf.clone(memory_format=torch.contiguous_format) if isinstance(leaf, Tensor) else leaf


def _versions(leaves: Sequence[Any]) -> list[int]:
    """How often each tensor was written to."""
    return [leaf._version for leaf in leaves if isinstance(leaf, Tensor)]


def _care_for(function: Any) -> _Care:
    try:
        found = _known.get(function)
    except TypeError:
        # It has no hash, or no weak references: it cannot be remembered.
        return _searched(function)
    if found is None or found.identity != _identity(function):
        return _remember(function, _searched(function))
    return found.care


def _remember(function: Any, care: _Care) -> _Care:
    try:
        _known[function] = _Known(care, _identity(function))
    except TypeError:
        return care
    return care


def _identity(function: Any) -> tuple[Any, ...]:
    """What must be the same for a search to hold: the class, and what a call runs."""
    kind = type(function)
    own = getattr(function, "__dict__", None)
    return kind, kind.__call__, getattr(kind, "forward", None), own.get("forward") if own else None


def _searched(function: Any) -> _Care:
    if can_write(function):
        return _Care.COPIES
    return _Care.NONE if _is_own(function) else _Care.PROBE


def _is_own(function: Any) -> bool:
    """Whether it is a cell of this library; one around another cell calls that one on copies."""
    return str(type(function).__module__).partition(".")[0] == "throughtime"
