"""The recorder: a dispatch mode that writes every operation of a step into a graph.

Tensors of the step are `TracedTensor`s, which have shapes but no values. Operations in place are recorded as operations
out of place (`functionalize.py`); operations that need values raise `Uncompilable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime._torch_internals import DisableTorchFunction, OpOverload, TorchDispatchMode, no_dispatch, tree_leaves
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Node, Value
from throughtime.compiler.trace.batched_matmul import RowAxes
from throughtime.compiler.trace.call_log import CallLog
from throughtime.compiler.trace.decompositions import DECOMPOSITIONS
from throughtime.compiler.trace.functionalize import Memory, View, out_of_place, written_by
from throughtime.compiler.trace.trace import ESCAPED, Source, TracedTensor

aten = torch.ops.aten
_NEEDS_VALUES = {
    aten._local_scalar_dense,
    aten.is_nonzero,
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten._unique2,
    aten.unique_dim,
}


class Recorder(TorchDispatchMode):
    """Records the operations of one run of a step.

    `nodes` and `literals` are the graph so far. `is_plain` says whether torch differentiates everything that the step
    computes: no tensor is detached, or computed without gradients.
    """

    def __init__(self, axes: RowAxes, *, differentiate: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.literals: dict[Value, Tensor] = {}
        self.calls = CallLog(axes)
        # Whether torch differentiates the operations that are recorded now.
        self.is_forward = differentiate
        self.is_plain = True
        self._names: dict[str, int] = {}
        # The first tensor of each storage.
        self._storages: dict[int, TracedTensor] = {}
        self._alive: list[Tensor] = []
        self._generators: dict[int, Source] = {}
        self._owner = object()

    @property
    def devices(self) -> set[torch.device]:
        """The devices of the tensors so far."""
        return {tensor.device for tensor in self._alive}

    def know(self, generator: torch.Generator, source: Source) -> None:
        """Note where a random generator is found again."""
        self._generators[_address(generator)] = source

    def wrap(
        self, inner: Tensor, name: str, *, requires_grad: bool = False, constant: bool = False, of_cell: bool = False
    ) -> TracedTensor:
        """A tensor with a memory of its own."""
        value = Value(self._unique(name), tuple(inner.shape), inner.dtype)
        memory = Memory(value, self._emit, of_cell=of_cell, constant=constant)
        return self._known(TracedTensor(inner, memory, (), self._owner, requires_grad=requires_grad).shows(value))

    def _known(self, tensor: TracedTensor) -> TracedTensor:
        # Holds the storage, so that no other tensor gets its address.
        self._alive.append(tensor.held)
        storage = tensor.held.untyped_storage()
        if storage.nbytes():
            self._storages.setdefault(storage.data_ptr(), tensor)
        return tensor

    def _view(self, inner: Tensor, source: TracedTensor, view: View, name: str) -> TracedTensor:
        """A tensor that is a view of another."""
        value = Value(self._unique(name), tuple(inner.shape), inner.dtype)
        return self._known(TracedTensor(inner, source.memory, (*source.views, view), self._owner).shows(value))

    def _emit(self, func: OpOverload, args: tuple[Any, ...], shape: tuple[int, ...], dtype: torch.dtype) -> Value:
        value = Value(self._unique(func.overloadpacket.__name__), shape, dtype)
        self.nodes.append(Node(func, args, {}, (value,)))
        return value

    def _unique(self, name: str) -> str:
        name = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "value"
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if not count else f"{name}_{count}"

    def adopt(self, tensor: Any) -> TracedTensor:
        """A result of the step, which must be a traced tensor."""
        if isinstance(tensor, TracedTensor):
            return tensor
        raise Uncompilable("it returns a tensor that is no attribute of it and was not computed in the step")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunction():
            return self._record(func, args, kwargs or {})

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.overloadpacket in _NEEDS_VALUES:
            raise Uncompilable(f"what it does depends on the values of tensors (aten.{func.overloadpacket.__name__})")
        if self.is_forward and (func is aten.detach.default or not torch.is_grad_enabled()):
            self.is_plain &= not any(isinstance(arg, Tensor) and arg.requires_grad for arg in tree_leaves(args))
        own = _OWN_RECORDS.get(func)
        if own is not None:
            return own(self, *args, **kwargs)
        decomposed = DECOMPOSITIONS.get(func)
        if decomposed is not None:
            with self:
                simpler = decomposed(*args, **kwargs)
            if simpler is not NotImplemented:
                return simpler
        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs)
        args = _normalized(func, args)
        inner_args, inner_kwargs = self._unwrapped((args, kwargs))
        out = func(*inner_args, **inner_kwargs)
        if not isinstance(out, Tensor | tuple | list):
            return self._fact(func, args, out)
        return self._note(func, args, kwargs, out)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without this, torch imports its compiler to find out that it must not compile this mode: a second."""
        return False

    def _fact(self, func: OpOverload, args: Any, out: Any) -> Any:
        """A result that is no tensor, such as a promoted dtype; refused if it was computed from a tensor."""
        if any(isinstance(arg, Tensor) for arg in args):
            raise Uncompilable(f"what it does depends on the values of tensors ({func})")
        return out

    def _renamed(self, source: object) -> object:
        if not isinstance(source, TracedTensor):
            raise Uncompilable(_unknown_tensor(source))
        self._check_own(source)
        return TracedTensor(source.held, source.memory, source.views, self._owner).shows(source.value)

    def _check_own(self, tensor: TracedTensor) -> None:
        if tensor.owner is not self._owner:
            raise Uncompilable(ESCAPED)

    def _blank(self, like: Any, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
        """The buffer that autograd writes the gradient of a view into; its strides do not matter."""
        dtype, device = dtype or like.dtype, device or like.device
        blank = torch.empty_strided(size, stride, dtype=dtype, device=device)
        made: Tensor = self._note(aten.empty.memory_format, (list(size),), {"dtype": dtype, "device": device}, blank)
        return made

    def _literal(self, tensor: Tensor) -> Tensor:
        """A literal of the step, which is the same at every step."""
        literal = self.wrap(tensor, "literal", constant=True)
        self.literals[literal.value] = tensor
        return literal

    def _unwrapped(self, tree: Any) -> Any:
        if isinstance(tree, TracedTensor):
            self._check_own(tree)
            return tree.held
        if isinstance(tree, Tensor):
            raise Uncompilable(_unknown_tensor(tree))
        if isinstance(tree, tuple | list):
            return type(tree)(map(self._unwrapped, tree))
        if isinstance(tree, dict):
            return {key: self._unwrapped(part) for key, part in tree.items()}
        return tree

    def _values(self, tree: Any) -> Any:
        """Arguments as a graph has them: values for tensors, sources for generators."""
        if isinstance(tree, TracedTensor):
            return tree.value
        if isinstance(tree, torch.Generator):
            source = self._generators.get(_address(tree))
            if source is None:
                raise Uncompilable("it draws from a random generator that the engine cannot find again")
            return source
        if isinstance(tree, tuple | list):
            return type(tree)(map(self._values, tree))
        if isinstance(tree, dict):
            return {key: self._values(part) for key, part in tree.items()}
        return tree

    def _note(self, func: OpOverload, args: Any, kwargs: Any, out: Any) -> Any:
        name = func.overloadpacket.__name__.strip("_")
        outs = out if isinstance(out, tuple | list) else (out,)
        if not all(isinstance(part, Tensor) or part is None for part in outs):
            raise Uncompilable(f"aten.{name} does not compute tensors")
        given = [leaf.constant for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, TracedTensor)]
        constant = all(given) and torch.Tag.nondeterministic_seeded not in func.tags
        wrapped = [None if part is None else self._result(part, func, args, name, constant) for part in outs]
        results = tuple(Value("unused", (), torch.float32) if part is None else part.value for part in wrapped)
        self.nodes.append(Node(func, self._values(tuple(args)), self._values(kwargs), results))
        if not self.calls.inside:
            # Called by code that is no torch function, such as a script.
            self.calls.note(func, self.calls.described((args, kwargs)), (args, kwargs), wrapped)
        return type(out)(wrapped) if isinstance(out, tuple | list) else wrapped[0]

    def _result(self, part: Tensor, func: OpOverload, args: Any, name: str, constant: bool) -> TracedTensor:
        storage = part.untyped_storage()
        seen = self._storages.get(storage.data_ptr()) if storage.nbytes() else None
        if seen is None:
            return self.wrap(part, name, constant=constant)
        first = args[0] if args and isinstance(args[0], TracedTensor) else None
        if first is not None and first.held.untyped_storage().data_ptr() == storage.data_ptr():
            return self._view(part, first, View(func, tuple(args[1:]), tuple(first.shape), tuple(part.shape)), name)
        # A view of another argument than the first, by unknown strides: it cannot be written to.
        unknown = View(aten.as_strided.default, (), tuple(seen.shape), tuple(part.shape))
        return self._view(part, seen, unknown, name)

    def _in_place(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """An operation in place as the operation out of place, whose results are then written."""
        name = func.overloadpacket.__name__
        targets = written_by(func, args, kwargs)
        for target in targets:
            if not isinstance(target, TracedTensor):
                raise Uncompilable(f"it changes in place what is no tensor of the step (aten.{name})")
            self._check_own(target)
            if target.memory.of_cell:
                raise Uncompilable(f"it changes a tensor of the cell in place (aten.{name})")
        plain = out_of_place(func, args, kwargs)
        if plain is None:
            raise Uncompilable(f"it uses aten.{name}, of which only the form in place is known")
        operation, plain_args, plain_kwargs = plain
        with self:
            noted = operation(*plain_args, **plain_kwargs)
            if torch.Tag.inplace_view in func.tags:
                return self._look_through(targets[0], noted, func, args)
            results = noted if isinstance(noted, tuple | list) else (noted,)
            for target, result in zip(targets, results, strict=True):
                self._write(target, result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _look_through(self, target: TracedTensor, view: TracedTensor, func: OpOverload, args: Any) -> TracedTensor:
        """`unsqueeze_` and the like: the same memory in another shape, which torch changes at the tensor itself."""
        with no_dispatch():
            func(target, *args[1:])
        target.held, target.views = view.held, view.views
        return target.shows(view.value)

    def _write(self, target: TracedTensor, result: TracedTensor) -> None:
        if result.shape != target.shape or not torch.can_cast(result.dtype, target.dtype):
            what = f"a {result.dtype} tensor of shape {tuple(result.shape)} is written into {target!r}"
            raise Uncompilable(f"it cannot be traced ({what})")
        if result.dtype != target.dtype:
            result = aten._to_copy.default(result, dtype=target.dtype)
        target.memory.write(target.views, result.value)
        target.shows(result.value)


_OWN_RECORDS: dict[OpOverload, Callable[..., object]] = {
    aten.detach.default: Recorder._renamed,
    aten.alias.default: Recorder._renamed,
    aten.lift_fresh.default: Recorder._literal,
    aten.new_empty_strided.default: Recorder._blank,
}


def _normalized(func: OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Indices counted from the start and clamped to the bounds, so that `v[:, -1:]` and `v[:, 6:7]` are equal."""
    first = {aten.slice.Tensor: 1, aten.slice_scatter.default: 2, aten.select.int: 1}.get(func)
    if first is None or len(args) <= first:
        return args
    shape = args[0].shape
    dim = args[first] % len(shape)
    if func is aten.select.int:
        return (args[0], dim, args[2] % shape[dim])
    step = args[first + 3] if len(args) > first + 3 else 1
    ends = [args[place] if len(args) > place else None for place in (first + 1, first + 2)]
    start, stop, _ = slice(*ends).indices(shape[dim])
    return (*args[:first], dim, start, max(start, stop), *([step] if step != 1 else []))


def _unknown_tensor(tensor: Any) -> str:
    return (
        f"it uses a tensor of shape {tuple(tensor.shape)} that is no attribute of it: "
        "the engine could not see when it changes"
    )


def _address(generator: Any) -> int:
    """The address of a generator, which has several Python objects."""
    address: int = generator._cdata
    return address
