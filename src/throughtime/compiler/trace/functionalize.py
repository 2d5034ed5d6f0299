"""Functionalisation: operations in place, and views, as operations that only compute new values.

A traced tensor is a window into a `Memory`: a chain of views from the tensor that owns the storage. Writing through the
chain makes a new value of the whole, by `slice_scatter` and the like; the other tensors of the same memory read their
parts of it again when they are used next. Autograd runs above and sees the operations as the cell has written them,
so gradients, and what torch refuses to differentiate, are torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from throughtime._torch_internals import OpOverload
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Argument, Value

aten = torch.ops.aten

Shape = tuple[int, ...]
Emit = Callable[[OpOverload, tuple[Argument, ...], Shape, torch.dtype], Value]
"""`emit(operation, arguments, shape, dtype)`: writes an operation into the graph and gives its result."""


class View(NamedTuple):
    """How a tensor looks into another: an operation that gives a view, its arguments after the tensor, both shapes."""

    func: OpOverload
    args: tuple[Argument, ...]
    outer: Shape
    shape: Shape

    def read(self, emit: Emit, whole: Value) -> Value:
        """The part of `whole` that the view shows."""
        if self.func not in _SCATTERS and self.func is not aten.expand.default:
            raise Uncompilable(f"it changes a tensor in place that is also seen through aten.{self._name}")
        if self.func in _RESHAPES:
            # The elements of the new value need not lie as those of the old one did.
            return emit(aten.reshape.default, (whole, list(self.shape)), self.shape, whole.dtype)
        return emit(self.func, (whole, *self.args), self.shape, whole.dtype)

    def write(self, emit: Emit, whole: Value, piece: Value) -> Value:
        """`whole` with `piece` in the place of the part that the view shows."""
        scatter = _SCATTERS.get(self.func)
        if scatter is None:
            raise Uncompilable(f"it changes a tensor in place through a view of it (aten.{self._name})")
        func, args = scatter(self, whole, piece)
        return emit(func, args, self.outer, whole.dtype)

    @property
    def _name(self) -> str:
        return str(self.func.overloadpacket.__name__)


Scatter = Callable[[View, Value, Value], tuple[OpOverload, tuple[Argument, ...]]]


def _scattered(func: OpOverload) -> Scatter:
    return lambda view, whole, piece: (func, (whole, piece, *view.args))


def _reshaped(view: View, _: Value, piece: Value) -> tuple[OpOverload, tuple[Argument, ...]]:
    return aten.reshape.default, (piece, list(view.outer))


def _permuted_back(view: View, _: Value, piece: Value) -> tuple[OpOverload, tuple[Argument, ...]]:
    count = len(view.outer)
    order = [dim % count for dim in view.args[0]]
    return aten.permute.default, (piece, [order.index(dim) for dim in range(count)])


def _transposed_back(view: View, _: Value, piece: Value) -> tuple[OpOverload, tuple[Argument, ...]]:
    return view.func, (piece, *view.args)


_RESHAPES = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten._reshape_alias.default,
        aten.unsqueeze.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
    }
)
# What puts a piece back to where each view has it from. None for `expand`: torch writes to no expanded tensor.
_SCATTERS: dict[OpOverload, Scatter] = {
    aten.slice.Tensor: _scattered(aten.slice_scatter.default),
    aten.select.int: _scattered(aten.select_scatter.default),
    aten.permute.default: _permuted_back,
    aten.transpose.int: _transposed_back,
    aten.t.default: _transposed_back,
    **dict.fromkeys(_RESHAPES, _reshaped),
}


class Memory:
    """What the tensors that share a storage see: the value of the whole, and how often it was written to."""

    def __init__(self, value: Value, emit: Emit, *, of_cell: bool = False, constant: bool = False) -> None:
        self.value = value
        self.writes = 0
        # Whether it is a parameter, a buffer or another tensor of the cell.
        self.of_cell = of_cell
        # Whether it was made of numbers alone, none of them random.
        self.constant = constant
        self._emit = emit

    def read(self, views: Sequence[View]) -> Value:
        """What a chain of views shows now."""
        value = self.value
        for view in views:
            value = view.read(self._emit, value)
        return value

    def write(self, views: Sequence[View], value: Value) -> None:
        """Put a value where a chain of views leads."""
        wholes = [self.value]
        for view in views[:-1]:
            wholes.append(view.read(self._emit, wholes[-1]))
        for whole, view in zip(reversed(wholes), reversed(views), strict=False):
            value = view.write(self._emit, whole, value)
        self.value = value
        self.writes += 1
        self.constant = False


def written_by(func: OpOverload, args: Sequence[Argument], kwargs: dict[str, Argument]) -> list[Argument]:
    """The arguments that an operation writes to."""
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[place] if place < len(args) else kwargs.get(argument.name))
    return found


def out_of_place(
    func: OpOverload, args: Sequence[Argument], kwargs: dict[str, Argument]
) -> tuple[OpOverload, list[Argument], dict[str, Argument]] | None:
    """The operation that computes what `func` writes, and its arguments; None if there is none."""
    name = func.overloadpacket.__name__
    if name in _OTHER_MEMORY:
        return None
    outs = {argument.name for argument in func._schema.arguments if argument.is_out}
    plain = _named(name if outs else _UNLIKE.get(name, name.removesuffix("_")))
    wanted = [(argument.name, argument) for argument in func._schema.arguments if argument.name not in outs]
    found = _overload(plain, wanted)
    if found is None:
        return None
    kept = {key: value for key, value in kwargs.items() if key not in outs}
    for argument in found._schema.arguments[len(args) :]:
        # What may be left out in place need not be so out of place: the probability of `bernoulli_`.
        if argument.name not in kept and not argument.has_default_value():
            kept[argument.name] = dict(wanted)[argument.name].default_value
    return found, list(args), kept


# What gives a tensor other memory, and would part it from its views.
_OTHER_MEMORY = frozenset({"set_", "resize_", "resize_as_", "as_strided_", "detach_"})
# Operations whose form out of place has another name than theirs without the underscore.
_UNLIKE = {"normal_": "normal_functional", "_index_put_impl_": "index_put"}


def _named(name: str) -> Argument:
    return getattr(aten, name, None)


def _overload(packet: Argument, wanted: Sequence[tuple[str, Argument]]) -> OpOverload | None:
    """The overload that changes nothing and takes these arguments."""
    for name in () if packet is None else packet.overloads():
        found: OpOverload = getattr(packet, name)
        arguments = found._schema.arguments
        if found._schema.is_mutable or len(arguments) > len(wanted):
            continue
        pairs = zip(arguments, wanted, strict=False)
        same = all(one.name == other and str(one.type) == str(two.type) for one, (other, two) in pairs)
        # What is left over must be unknown to both: `_index_put_impl_` may also be called unsafe.
        if same and all(argument.name == "unsafe" for _, argument in wanted[len(arguments) :]):
            return found
    return None
