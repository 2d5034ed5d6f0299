"""`map_fn`, `scan`, `foldl`, `foldr`: a function of each element along the first axis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._func_graph import Function, build_function, call_node
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import convert_to_tensor


def _opened(fn: Any, elems: Any) -> list[Tensor]:
    if not callable(fn):
        raise TypeError("fn must be callable.")
    leaves = [convert_to_tensor(leaf, name="elem") for leaf in _pytree.flatten(elems)]
    for leaf in leaves:
        if leaf.shape.ndims == 0:
            raise ValueError(f"elements in elems must be 1+ dimensional Tensors, not scalars: got {leaf}")
    return leaves


def _specs(tensors: Sequence[Tensor], skip: int) -> list[Any]:
    return [(tensor.dtype.base_dtype, tensor.shape[skip:]) for tensor in tensors]


def _count(leaves: Sequence[Tensor]) -> int | None:
    known = [leaf.shape.sizes[0] for leaf in leaves if leaf.shape.sizes]
    return next((size for size in known if size is not None), None)


def _recording(back_prop: bool) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    return contextlib.nullcontext if back_prop else torch.no_grad


@exported("map_fn")
def map_fn(
    fn: Callable[..., Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: Any = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
) -> Any:
    """`fn` of each element of `elems` along the first axis, stacked."""
    del parallel_iterations, swap_memory, infer_shape
    leaves = _opened(fn, elems)
    with name_scope(name, "map", leaves):
        function = build_function(
            lambda *parts: fn(_pytree.pack_as(elems, parts)), _specs(leaves, 1), name="elem", convert=convert_to_tensor
        )
        _check_dtypes(function, elems if dtype is None else dtype, leaves if dtype is None else None)
        size, recording = len(leaves), _recording(back_prop)

        def kernel(state: Any, *values: Any) -> tuple[Any, ...]:
            rows = zip(*[value.unbind(0) for value in values[:size]], strict=True)
            with recording():
                found = [function(state, values[size:], row) for row in rows]
                return _stacked(found, function)

        op = _node("Map", kernel, [*leaves, *function.outer], function, _count(leaves))
    return _pytree.pack_as(function.structure, op.outputs) if _pytree.is_nest(function.structure) else op.outputs[0]


def _check_dtypes(function: Function, wanted: Any, leaves: Sequence[Tensor] | None) -> None:
    """What `fn` returns has the dtypes that were announced."""
    found = [tensor.dtype.base_dtype for tensor in function.outputs]
    if leaves is not None:
        expected = [leaf.dtype.base_dtype for leaf in leaves]
    else:
        expected = [as_dtype(one).base_dtype for one in _pytree.flatten(wanted)]
    if len(found) != len(expected):
        raise ValueError(f"fn returns {len(found)} tensors, expected {len(expected)}: pass dtype= with its structure")
    for one, other in zip(found, expected, strict=True):
        if one != other:
            raise TypeError(f"fn returns {one.name}, expected {other.name}: pass dtype=tf.{one.name}")


def _stacked(found: list[list[Any]], function: Function) -> tuple[Any, ...]:
    if found:
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True))
    return tuple(
        torch.zeros((0, *[size or 0 for size in tensor.shape.sizes or ()]), dtype=tensor.dtype.torch_dtype)
        for tensor in function.outputs
    )


def _node(op_type: str, kernel: Any, inputs: Sequence[Tensor], function: Function, count: int | None) -> Operation:
    return call_node(
        op_type,
        kernel,
        inputs,
        [function],
        name=op_type,
        dtypes=[tensor.dtype.base_dtype for tensor in function.outputs],
        shapes=[TensorShape([count]).concatenate(tensor.shape) for tensor in function.outputs],
    )


class _Fold:
    """A function of an accumulated value and an element, from a first value or the first element on."""

    def __init__(self, fn: Any, elems: Any, initializer: Any):
        self.leaves = _opened(fn, elems)
        self.given = initializer is not None
        self.template = elems if initializer is None else initializer
        first = [convert_to_tensor(leaf) for leaf in _pytree.flatten(initializer)] if self.given else []
        specs = _specs(first, 0) if self.given else _specs(self.leaves, 1)
        self.first = first
        self.size = len(specs)

        def called(*parts: Tensor) -> Any:
            carried = _pytree.pack_as(self.template, parts[: self.size])
            return fn(carried, _pytree.pack_as(elems, parts[self.size :]))

        self.function = build_function(
            called, [*specs, *_specs(self.leaves, 1)], name="value", convert=convert_to_tensor
        )
        found = [tensor.dtype.base_dtype for tensor in self.function.outputs]
        if found != [spec[0] for spec in specs]:
            names = [dtype.name for dtype in found], [spec[0].name for spec in specs]
            raise TypeError(f"fn must return what it accumulates: got {names[0]}, expected {names[1]}")
        for tensor, (_, shape) in zip(self.function.outputs, specs, strict=True):
            if not tensor.shape.is_compatible_with(shape):
                raise ValueError(f"fn must keep the shape of what it accumulates: got {tensor.shape}, expected {shape}")

    @property
    def inputs(self) -> list[Tensor]:
        return [*self.first, *self.leaves, *self.function.outer]

    def run(self, state: Any, values: Sequence[Any], reverse: bool) -> list[list[Any]]:
        """The accumulated values after each element, in the order in which they were computed."""
        first, many = len(self.first), len(self.leaves)
        elements = [list(value.unbind(0)) for value in values[first : first + many]]
        rows = list(zip(*[part[::-1] if reverse else part for part in elements], strict=True))
        captures = values[first + many :]
        carried = list(values[:first]) if self.given else list(rows.pop(0))
        found: list[list[Any]] = [] if self.given else [carried]
        for row in rows:
            carried = self.function(state, captures, [*carried, *row])
            found.append(carried)
        return found

    def packed(self, outputs: Sequence[Tensor]) -> Any:
        return _pytree.pack_as(self.template, outputs) if _pytree.is_nest(self.template) else outputs[0]


@exported("scan")
def scan(
    fn: Callable[..., Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """The values that `fn(accumulated, element)` gives one after the other, stacked."""
    del parallel_iterations, swap_memory, infer_shape
    with name_scope(name, "scan"):
        fold = _Fold(fn, elems, initializer)
        recording = _recording(back_prop)

        def kernel(state: Any, *values: Any) -> tuple[Any, ...]:
            with recording():
                found = fold.run(state, values, reverse)
                return _stacked(found[::-1] if reverse else found, fold.function)

        op = _node("Scan", kernel, fold.inputs, fold.function, _count(fold.leaves))
    return fold.packed(op.outputs)


def _fold(fn: Any, elems: Any, initializer: Any, back_prop: bool, name: str, reverse: bool) -> Any:
    with name_scope(name):
        fold = _Fold(fn, elems, initializer)
        recording = _recording(back_prop)

        def kernel(state: Any, *values: Any) -> tuple[Any, ...]:
            with recording():
                found = fold.run(state, values, reverse)
                return tuple(found[-1] if found else values[: fold.size])

        op = call_node(
            "Fold",
            kernel,
            fold.inputs,
            [fold.function],
            name="Fold",
            dtypes=[tensor.dtype.base_dtype for tensor in fold.function.outputs],
            shapes=[tensor.shape for tensor in fold.function.outputs],
        )
    return fold.packed(op.outputs)


@exported("foldl")
def foldl(
    fn: Callable[..., Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """The last value of `fn(accumulated, element)` from the first element to the last."""
    del parallel_iterations, swap_memory
    return _fold(fn, elems, initializer, back_prop, name or "foldl", reverse=False)


@exported("foldr")
def foldr(
    fn: Callable[..., Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """The last value of `fn(accumulated, element)` from the last element to the first."""
    del parallel_iterations, swap_memory
    return _fold(fn, elems, initializer, back_prop, name or "foldr", reverse=True)
