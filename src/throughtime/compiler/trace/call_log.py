"""A step as Python sees it: the functions of torch that it calls, with what they are given and what they return.

For a single row torch itself goes other ways than for many, inside of `einsum` or `reshape`, and computes the same. The
code of a cell may not: what it calls for one row must be what it calls for many.
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
    """Writes down every call of a function of torch while it is entered."""

    def __init__(self, axes: RowAxes) -> None:
        super().__init__()
        self.made: list[Call] = []
        self._axes = axes
        # Whether torch itself is at work: what it does then is its own affair.
        self.inside = False
        self._places: dict[Value, set[Any]] = {}
        # What a function of torch has raised because it is traced, even if the step catches it.
        self.failure: Exception | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = self.described((args, kwargs))
        name = getattr(func, "__name__", "")
        outer, self.inside = self.inside, True
        try:
            if func == _SET_DATA:
                raise Uncompilable("it gives a tensor other data, which nobody would see")
            if name in _NUMBERS_OF and isinstance(args[0], TracedTensor):
                # Before torch does: it would also warn of a gradient that only the trace has.
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
        """What stands for a function; or, called in a way that it does not know, the function itself."""
        named = dict(kwargs)
        first = (named.pop("input"),) if not args and "input" in named else args
        try:
            inspect.signature(replaced).bind(self._axes, func, *first, **named)
        except TypeError:
            return func(*args, **kwargs)
        return replaced(self._axes, func, *first, **named)

    def described(self, tree: Any) -> Any:
        """The arguments of a call: tensors are known by the places where they have been seen."""
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
        """Write a call down; all that it was given and has returned has now been seen there."""
        for place, leaf in enumerate([*_leaves(arguments), None, *_leaves(results)]):
            if isinstance(leaf, TracedTensor):
                self._places.setdefault(leaf.value, set()).add((len(self.made), place))
        returned = tuple(self.described(leaf) for leaf in _leaves(results))
        self.made.append(Call(function, given, returned))


def _would_not_fail(error: Exception) -> bool:
    """Whether a function would do its work if tensors had values; other mistakes are made at every step."""
    return isinstance(error, Uncompilable | NotImplementedError) or "tensor subclass" in str(error)


def check_calls(few: Sequence[Call], many: Sequence[Call], single: Sequence[Call], rows: tuple[int, int]) -> None:
    """Raise `Uncompilable` unless a step calls the same functions, in the same way, for a single row as for others.

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
    """Whether something is for a single row what it is for few and many, apart from the number of rows in it."""
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
        # So many for each row, and some besides.
        each, rest = divmod(many - few, rows[1] - rows[0])
        return not rest and single == few + each * (1 - rows[0])
    # NaN is not itself; what is no plain value cannot be compared.
    return not isinstance(few, COMPARED) or few == single or (isinstance(few, float) and math.isnan(few))


def _is_one(seen: Seen, other: Seen) -> bool:
    """Whether two tensors take the same part; what comes from elsewhere, as gradients do, has been seen nowhere."""
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
