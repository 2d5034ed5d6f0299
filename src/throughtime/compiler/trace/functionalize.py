"""Functionalisation: in-place operations and views as operations that only compute new values.

A traced tensor is a chain of views into a `Memory`, the storage of a tensor. A write through the chain makes a new
value of the whole memory, with `slice_scatter` and the like; other tensors of the same memory read their parts again at
their next use. This is below autograd, which sees the operations as the cell has written them: gradients, and the
operations that torch refuses to differentiate, are those of torch.
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
"""`emit(operation, arguments, shape, dtype)` appends a node to the graph and returns its result."""


class View(NamedTuple):
    """A view: the operation, its arguments after the tensor, and the shapes of the tensor and of the view."""

    func: OpOverload
    args: tuple[Argument, ...]
    outer: Shape
    shape: Shape

    def read(self, emit: Emit, whole: Value) -> Value:
        """The part of `whole` that the view shows."""
        if self.func not in _SCATTERS and self.func is not aten.expand.default:
            raise Uncompilable(f"it changes a tensor in place that is also seen through aten.{self._name}")
        if self.func in _RESHAPES:
            # The strides of the new value may differ from those of the old one.
            return emit(aten.reshape.default, (whole, list(self.shape)), self.shape, whole.dtype)
        return emit(self.func, (whole, *self.args), self.shape, whole.dtype)

    def write(self, emit: Emit, whole: Value, piece: Value) -> Value:
        """`whole` with `piece` written to the part that the view shows."""
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
# The inverse of each view. None for `expand`: torch does not write to expanded tensors.
_SCATTERS: dict[OpOverload, Scatter] = {
    aten.slice.Tensor: _scattered(aten.slice_scatter.default),
    aten.select.int: _scattered(aten.select_scatter.default),
    aten.permute.default: _permuted_back,
    aten.transpose.int: _transposed_back,
    aten.t.default: _transposed_back,
    **dict.fromkeys(_RESHAPES, _reshaped),
}


class Memory:
    """The storage that tensors share: the value of the whole, and the number of writes."""

    def __init__(self, value: Value, emit: Emit, *, of_cell: bool = False, constant: bool = False) -> None:
        self.value = value
        self.writes = 0
        # Whether it is a parameter, a buffer or another tensor of the cell.
        self.of_cell = of_cell
        # Whether it was computed from literals alone, without random numbers.
        self.constant = constant
        self._emit = emit

    def read(self, views: Sequence[View]) -> Value:
        """The current value of a chain of views."""
        value = self.value
        for view in views:
            value = view.read(self._emit, value)
        return value

    def write(self, views: Sequence[View], value: Value) -> None:
        """Write a value through a chain of views."""
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
        # Defaults may differ: the probability of `bernoulli_` is optional, that of `bernoulli` is not.
        if argument.name not in kept and not argument.has_default_value():
            kept[argument.name] = dict(wanted)[argument.name].default_value
    return found, list(args), kept


# Operations that give a tensor other memory, and detach it from its views.
_OTHER_MEMORY = frozenset({"set_", "resize_", "resize_as_", "as_strided_", "detach_"})
# Operations whose out-of-place form is not named as they are without the underscore.
_UNLIKE = {"normal_": "normal_functional", "_index_put_impl_": "index_put"}


def _named(name: str) -> Argument:
    return getattr(aten, name, None)


def _overload(packet: Argument, wanted: Sequence[tuple[str, Argument]]) -> OpOverload | None:
    """The overload without side effects that takes these arguments."""
    for name in () if packet is None else packet.overloads():
        found: OpOverload = getattr(packet, name)
        arguments = found._schema.arguments
        if found._schema.is_mutable or len(arguments) > len(wanted):
            continue
        pairs = zip(arguments, wanted, strict=False)
        same = all(one.name == other and str(one.type) == str(two.type) for one, (other, two) in pairs)
        # Remaining arguments must be unknown to both: `_index_put_impl_` has `unsafe`.
        if same and all(argument.name == "unsafe" for _, argument in wanted[len(arguments) :]):
            return found
    return None
