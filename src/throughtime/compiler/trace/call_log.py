"""The calls of torch functions that a step makes, with their arguments and results.

For a single row torch itself takes other paths, inside of `einsum` or `reshape`, with the same result. The code of a
cell must not: for one row it has to make the same calls as for many.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Value
from throughtime.compiler.trace.batched_matmul import RowAxes
from throughtime.compiler.trace.torch_overrides import BY_AXES, REPLACED
from throughtime.compiler.trace.trace import Call, Seen, TracedTensor

DEPENDS = "what it does depends on the number of rows in the batch"


_NUMBERS_OF = {"__float__": "float()", "__int__": "int()", "__complex__": "complex()"}
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class CallLog(TorchFunctionMode):
    """Logs every call of a torch function while it is entered."""

    def __init__(self, axes: RowAxes) -> None:
        super().__init__()
        self.made: list[Call] = []
        self._axes = axes
        # Whether a torch function is running: the calls that it makes itself are not logged.
        self.inside = False
        self._places: dict[Value, set[Any]] = {}
        # The error of a torch function that tracing has caused, even if the step catches it.
        self.failure: Exception | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = self.described((args, kwargs))
        name = getattr(func, "__name__", "")
        outer, self.inside = self.inside, True
        try:
            if func == _SET_DATA:
                raise Uncompilable("it replaces the data of a tensor, which cannot be detected")
            if name in _NUMBERS_OF and isinstance(args[0], TracedTensor):
                # Before torch does, which would also warn about a gradient that only the trace has.
                raise Uncompilable(f"what it does depends on the values of tensors ({_NUMBERS_OF[name]} of one)")
            by_axes = BY_AXES.get(name)
            out = (
                REPLACED.get(name, func)(*args, **kwargs)
                if by_axes is None
                else self._by_axes(by_axes, func, args, kwargs)
            )
        except Exception as error:
            if not outer and _would_not_fail(error):
                self.failure = self.failure or error
            raise
        finally:
            self.inside = outer
        if any(isinstance(leaf, TracedTensor) for leaf in _leaves(out)) or (out is None and name != "__get__"):
            self.note(func, given, (args, kwargs), out)
        return out

    def _by_axes(self, replaced: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """The replacement of a function; the function itself for arguments that the replacement does not support."""
        named = dict(kwargs)
        first = (named.pop("input"),) if not args and "input" in named else args
        try:
            inspect.signature(replaced).bind(self._axes, func, *first, **named)
        except TypeError:
            return func(*args, **kwargs)
        return replaced(self._axes, func, *first, **named)

    def described(self, tree: Any) -> Any:
        """The arguments of a call: tensors by the calls and positions where they occurred before."""
        if isinstance(tree, TracedTensor):
            return Seen(frozenset(self._places.get(tree.value, ())), tuple(tree.shape), tree.dtype)
        if isinstance(tree, tuple | list):
            return tuple(map(self.described, tree))
        if isinstance(tree, dict):
            return {key: self.described(part) for key, part in tree.items()}
        if isinstance(tree, slice):
            return self.described((tree.start, tree.stop, tree.step))
        return tree

    def note(self, function: object, given: object, arguments: object, results: object) -> None:
        """Log a call, and note that its arguments and results occurred there."""
        for place, leaf in enumerate([*_leaves(arguments), None, *_leaves(results)]):
            if isinstance(leaf, TracedTensor):
                self._places.setdefault(leaf.value, set()).add((len(self.made), place))
        returned = tuple(self.described(leaf) for leaf in _leaves(results))
        self.made.append(Call(function, given, returned))


def _would_not_fail(error: Exception) -> bool:
    """Whether an error is due to tracing: with values the function would succeed. Other errors occur at every step."""
    return isinstance(error, Uncompilable | NotImplementedError) or "tensor subclass" in str(error)


def check_calls(few: Sequence[Call], many: Sequence[Call], single: Sequence[Call], rows: tuple[int, int]) -> None:
    """Raise `Uncompilable` unless a step makes the same calls for a single row as for more.

    `rows` are the numbers of rows of `few` and `many`.
    """
    if not len(few) == len(many) == len(single):
        raise Uncompilable(DEPENDS)
    for calls in zip(few, many, single, strict=True):
        if not calls[0].function == calls[1].function == calls[2].function:
            raise Uncompilable(DEPENDS)
        if not all(_is_alike(*parts, rows) for parts in zip(*calls, strict=True) if parts[0] is not calls[0].function):
            raise Uncompilable(DEPENDS)


def _is_alike(few: Any, many: Any, single: Any, rows: tuple[int, int]) -> bool:
    """Whether an argument for a single row equals those for few and many rows, apart from the number of rows."""
    if not type(few) is type(many) is type(single) or (isinstance(few, Seen) and not _is_one(few, single)):
        return False
    if isinstance(few, Seen):
        return _is_alike(few.shape, many.shape, single.shape, rows)
    if isinstance(few, tuple):
        return len(few) == len(many) == len(single) and all(map(_is_alike, few, many, single, repeat(rows)))
    if isinstance(few, dict):
        same = few.keys() == many.keys() == single.keys()
        return same and all(_is_alike(few[key], many[key], single[key], rows) for key in few)
    if type(few) is int:
        # A multiple of the rows, plus a constant.
        each, rest = divmod(many - few, rows[1] - rows[0])
        return not rest and single == few + each * (1 - rows[0])
    # NaN differs from itself, and arbitrary objects cannot be compared.
    return not isinstance(few, COMPARED) or few == single or (isinstance(few, float) and math.isnan(few))


def _is_one(seen: Seen, other: Seen) -> bool:
    """Whether two tensors have the same origin; gradients, for example, have none in the log."""
    return seen.dtype == other.dtype and (not seen.places or not seen.places.isdisjoint(other.places))


COMPARED = (bool, float, complex, str, bytes, torch.dtype, torch.device, torch.memory_format, torch.layout)


def _leaves(tree: object) -> Iterator[object]:
    if isinstance(tree, tuple | list):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, dict):
        yield from _leaves(tuple(tree.values()))
    else:
        yield tree
