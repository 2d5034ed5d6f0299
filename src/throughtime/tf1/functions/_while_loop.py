"""`while_loop`: a body repeated while a condition holds, in one node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._func_graph import Function, build_function, call_node
from throughtime.tf1.functions._tensor_array import TensorArray, as_loop_leaves, from_loop_leaves
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._shapes import TensorShape, as_shape
from throughtime.tf1.ops._convert import convert_to_tensor


@exported("while_loop")
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeat `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` holds."""
    del swap_memory
    for argument, function in (("cond", cond), ("body", body)):
        check_callable(argument, function)
    if parallel_iterations < 1:
        raise TypeError("parallel_iterations must be a positive integer.")
    if not _pytree.is_nest(loop_vars):
        loop_vars = [loop_vars]
    if not _pytree.flatten(loop_vars):
        raise ValueError("No loop variables provided")
    with name_scope(name, "while", loop_vars):
        loop = _Loop(loop_vars, shape_invariants)
        test = loop.function(cond, "cond")
        if len(test.outputs) != 1 or not test.outputs[0].dtype.is_bool:
            raise TypeError("cond must return a boolean tensor; compare values, as in `i < n`")
        step = loop.function(body, "body", result_like_variables=True)
        limit = [] if maximum_iterations is None else [convert_to_tensor(maximum_iterations)]
        op = _node(loop, test, step, limit, back_prop)
    result = from_loop_leaves(loop_vars, op.outputs)
    alone = len(_pytree.children(result)) == 1 and not return_same_structure
    return _pytree.children(result)[0] if alone else result


def check_callable(argument: str, function: Any) -> None:
    """Raise unless a function was given."""
    if not callable(function):
        raise TypeError(f"{argument} must be callable.")


class _Loop:
    """The loop variables: their structure, first values and the shapes that stay."""

    def __init__(self, loop_vars: Any, shape_invariants: Any):
        self.template = loop_vars
        self.first = as_loop_leaves(loop_vars)
        self.shapes = [tensor.shape for tensor in self.first]
        self.given = shape_invariants is not None
        if shape_invariants is not None:
            self.shapes = _invariants(loop_vars, shape_invariants, self.first)

    def function(self, function: Callable[..., Any], name: str, result_like_variables: bool = False) -> Function:
        specs = [(tensor.dtype.base_dtype, shape) for tensor, shape in zip(self.first, self.shapes, strict=True)]

        def called(*leaves: Tensor) -> Any:
            variables = from_loop_leaves(self.template, list(leaves))
            result = function(*_pytree.children(variables)) if not isinstance(variables, dict) else function(variables)
            return self.leaves_of(result) if result_like_variables else result

        return build_function(called, specs, name=name, convert=convert_to_tensor)

    def leaves_of(self, result: Any) -> list[Tensor]:
        """What the body returned, checked against the loop variables."""
        if len(_pytree.children(self.template)) == 1 and not (_pytree.is_nest(result) and len(result) == 1):
            result = [result]
        found = as_loop_leaves(result, dtypes=[tensor.dtype.base_dtype for tensor in self.first])
        if len(found) != len(self.first):
            raise ValueError(
                "The number of outputs of the loop body must be that of loop_vars: "
                f"got {len(found)}, expected {len(self.first)}"
            )
        for first, new, shape in zip(self.first, found, self.shapes, strict=True):
            self._check(first, new, shape)
        return found

    def _check(self, first: Tensor, new: Tensor, shape: TensorShape) -> None:
        if first.dtype.base_dtype != new.dtype.base_dtype:
            raise TypeError(
                f"Loop variable {first.name!r} changes its dtype: got {new.dtype.base_dtype.name}, expected "
                f"{first.dtype.base_dtype.name}; use tf.cast at the end of the body"
            )
        if not _at_most_as_open(new.shape, shape):
            raise ValueError(
                f"The shape for {first.name} is not an invariant for the loop. It enters the loop with shape {shape}, "
                f"but has shape {new.shape} after one iteration. Provide shape invariants using either the "
                "`shape_invariants` argument of tf.while_loop or set_shape() on the loop variables."
            )


def _at_most_as_open(new: TensorShape, wanted: TensorShape) -> bool:
    if wanted.sizes is None:
        return True
    if new.sizes is None or len(new.sizes) != len(wanted.sizes):
        return False
    return all(want is None or want == size for want, size in zip(wanted.sizes, new.sizes, strict=True))


def _invariants(loop_vars: Any, shape_invariants: Any, first: list[Tensor]) -> list[TensorShape]:
    found: list[Any] = []

    def take(variable: Any, shape: Any) -> None:
        found.append(None if isinstance(variable, TensorArray) else as_shape(shape))

    if not _pytree.is_nest(shape_invariants) or isinstance(shape_invariants, TensorShape):
        shape_invariants = [shape_invariants]
    _pytree.map_up_to(take, loop_vars, shape_invariants)
    shapes = [tensor.shape if shape is None else shape for tensor, shape in zip(first, found, strict=True)]
    for tensor, shape in zip(first, shapes, strict=True):
        if not _at_most_as_open(tensor.shape, shape):
            raise ValueError(
                f"The shape invariant specified for {tensor.name} is not compatible with the initial shape of the loop "
                f"variable. It enters the loop with shape {tensor.shape}, but the specified shape invariant is {shape}."
            )
    return shapes


def _node(loop: _Loop, test: Function, step: Function, limit: list[Tensor], back_prop: bool) -> Operation:
    count, tests = len(loop.first), len(test.outer)
    recording = contextlib.nullcontext if back_prop else torch.no_grad

    def kernel(state: Any, *values: Any) -> tuple[Any, ...]:
        variables: Any = values[:count]
        for_test, for_step = values[count : count + tests], values[count + tests : len(values) - len(limit)]
        most = int(values[-1]) if limit else -1
        done = 0
        with recording():
            while done != most and bool(test(state, for_test, variables)[0]):
                variables = step(state, for_step, variables)
                done += 1
        return tuple(variables)

    return call_node(
        "While",
        kernel,
        [*loop.first, *test.outer, *step.outer, *limit],
        [test, step],
        name="Exit",
        dtypes=[tensor.dtype.base_dtype for tensor in loop.first],
        shapes=loop.shapes,
    )
