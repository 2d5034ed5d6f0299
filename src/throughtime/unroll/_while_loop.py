"""`while_loop`: repeat a body while a condition holds, with TensorFlow's checks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_callable, check_flag, check_positive_int, problem, shape_of, type_name
from throughtime._pytree import Nest
from throughtime._tensors import as_tensor
from throughtime.cells._copies import call_on_copies
from throughtime.runtime.offload.tensor_pages import swapping
from throughtime.unroll._arguments import check_parallel_iterations
from throughtime.unroll._jit_trace import check_not_traced
from throughtime.unroll._tensor_array import TensorArray


def while_loop(  # noqa: PLR0913 (TensorFlow's signature)
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Nest,
    parallel_iterations: int | None = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: int | Tensor | None = None,
    *,
    shape_invariants: Nest = None,
    return_same_structure: bool = False,
) -> Nest:
    """Repeat `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` holds.

    A variable keeps its structure, dtype and shape; `shape_invariants`, in the structure of `loop_vars` with a list
    of dimensions for each tensor, lets dimensions given as None change. With `back_prop=False` no gradients are
    recorded; with `swap_memory=True` what they need waits in pinned host memory. A single tensor comes back by
    itself, unless `return_same_structure=True`.

    >>> import torch, throughtime as tt
    >>> tt.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (torch.tensor(0), torch.tensor(1.0)))
    (tensor(3), tensor(8.))
    """
    check_not_traced("while_loop", "the number of its iterations")
    function = "a function of the loop variables"
    check_callable("cond", cond, expected=function, fix="Pass a function, as in `cond=lambda i: i < 10`.")
    check_callable("body", body, expected=function, fix="Pass a function, as in `body=lambda i: i + 1`.")
    check_parallel_iterations(parallel_iterations)
    check_flag("back_prop", back_prop)
    check_flag("swap_memory", swap_memory)
    check_flag("return_same_structure", return_same_structure)
    variables = _open_variables(loop_vars)
    limit = None if maximum_iterations is None else _check_limit(maximum_iterations)
    invariants = _open_invariants(variables, shape_invariants)
    gradients = contextlib.nullcontext() if back_prop else torch.no_grad()
    count = 0
    with gradients, swapping(swap_memory and back_prop, body, variables):
        while (limit is None or count < limit) and _holds(cond(*_pytree.children(variables))):
            variables = _next_variables(body, variables, invariants)
            count += 1
    alone = len(_pytree.flatten(variables)) == 1 and not return_same_structure
    return _pytree.children(variables)[0] if alone else variables


def _open_variables(loop_vars: Nest) -> Nest:
    """The loop variables as a structure of tensors (and TensorArrays); a lone tensor is a structure of one."""
    if not _pytree.is_nest(loop_vars):
        loop_vars = [loop_vars] if loop_vars is not None else []
    if not _pytree.flatten(loop_vars):
        what, fix = "`loop_vars` is empty: no loop variables provided", "Pass what the loop changes, such as a counter."
        raise ValueError(problem(what, got="none", expected="at least one tensor", fix=fix))
    return _pytree.map_leaves(_as_variable, loop_vars)


def _check_limit(value: Any) -> int:
    if isinstance(value, Tensor) and value.ndim:
        what, fix = "`maximum_iterations` must be a scalar", "Pass one number."
        raise TypeError(problem(what, got=repr(value), expected="an int of at least 0", fix=fix))
    return check_positive_int("maximum_iterations", value, minimum=0)


def _as_variable(leaf: Any) -> Any:
    """Numbers and arrays become tensors; a TensorArray passes through."""
    return leaf if isinstance(leaf, TensorArray) else as_tensor("loop_vars", leaf)


def _open_invariants(variables: Nest, shape_invariants: Nest) -> list[tuple[int | None, ...] | None]:
    """For each leaf the dimensions it must keep, None for one that may change."""
    leaves = _pytree.flatten(variables)
    fixed: list[Any] = [shape_of(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves]
    if shape_invariants is None:
        return fixed
    found: list[Any] = []
    try:
        _pytree.map_up_to(lambda _, shape: found.append(shape), variables, shape_invariants)
    except (TypeError, ValueError):
        what = "`shape_invariants` must have the structure of `loop_vars`"
        got, fix = repr(shape_invariants), "Give a list of dimensions for each tensor."
        raise ValueError(problem(what, got=got, expected=_pytree.describe(variables), fix=fix)) from None
    return [_check_invariant(given, shape) for given, shape in zip(found, fixed, strict=True)]


def _check_invariant(given: Any, shape: tuple[int, ...] | None) -> tuple[int | None, ...] | None:
    """An invariant is a list of sizes, None for an open one, that the variable fits from the start."""
    if given is None:
        return shape
    sizes = list(given) if isinstance(given, list | tuple) else None
    if sizes is None or not all(size is None or (isinstance(size, int) and size >= 0) for size in sizes):
        what, fix = "an entry of `shape_invariants` is no shape", "Use None for dimensions that change."
        raise TypeError(problem(what, got=repr(given), expected="a list of sizes and Nones", fix=fix))
    if shape is not None and not _fits(shape, tuple(sizes)):
        what, fix = "`shape_invariants` do not fit a loop variable at the start", "Use None for dimensions that change."
        raise ValueError(problem(what, got=shape, expected=tuple(sizes), fix=fix))
    return tuple(sizes)


def _fits(shape: tuple[int, ...], invariant: tuple[int | None, ...]) -> bool:
    return len(shape) == len(invariant) and all(
        want in (None, size) for want, size in zip(invariant, shape, strict=True)
    )


def _holds(condition: Any) -> bool:
    if isinstance(condition, bool | np.bool_):
        return bool(condition)
    what, fix = "`cond` must return a bool", "Return a comparison, as in `i < 10`."
    if not isinstance(condition, Tensor | np.ndarray):
        raise TypeError(problem(what, got=type_name(condition), expected="True, False or a bool tensor", fix=fix))
    tensor = as_tensor("cond", condition)
    if tensor.dtype != torch.bool:
        raise TypeError(problem(what, got=tensor.dtype, expected="torch.bool", fix=fix))
    if tensor.ndim:
        got, fix = f"shape {shape_of(tensor)}", "Reduce it with `.all()` or `.any()`."
        raise ValueError(problem("`cond` must return a scalar", got=got, expected="shape ()", fix=fix))
    return bool(tensor)


def _next_variables(body: Callable[..., Any], variables: Nest, invariants: list[tuple[int | None, ...] | None]) -> Nest:
    result = call_on_copies(body, *_pytree.children(variables))
    # One loop variable may come back by itself.
    bare = not isinstance(result, list | tuple) or len(result) != 1
    if len(_pytree.children(variables)) == 1 and bare and not isinstance(variables, dict):
        result = [result]
    result = _pytree.conform(variables, result, "what `body` returns")
    pairs = zip(_pytree.flatten(variables), _pytree.flatten(result), invariants, strict=True)
    return _pytree.pack_as(variables, [check_kept(*pair) for pair in pairs])


def check_kept(old: Any, new: Any, invariant: tuple[int | None, ...] | None) -> Any:
    """A loop variable keeps its type, its dtype and, but for what its invariant leaves open, its shape."""
    if isinstance(old, Tensor) and isinstance(new, np.ndarray | np.number | float | int):
        new = _as_variable(new)
    if not isinstance(new, Tensor if isinstance(old, Tensor) else TensorArray):
        expected, fix = type_name(old), "Return the same kind of value from `body`."
        raise TypeError(problem("a loop variable changes its type", got=type_name(new), expected=expected, fix=fix))
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return new
    if new.dtype != old.dtype:
        fix = "Convert it back at the end of `body`."
        raise TypeError(problem("a loop variable changes its dtype", got=new.dtype, expected=old.dtype, fix=fix))
    if invariant is not None and not _fits(shape_of(new), invariant):
        what = f"a loop variable enters the loop with shape {invariant} but has another shape after one iteration"
        fix = "Keep the shape, or name what may change in `shape_invariants`."
        raise ValueError(problem(what, got=shape_of(new), expected=invariant, fix=fix))
    return new
