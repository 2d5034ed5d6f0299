"""`while_loop`: repeat a body while a condition holds, with TensorFlow's checks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime import _nest
from throughtime._errors import check_positive_int, problem, shape_of, type_name
from throughtime.backends._swap import swapping
from throughtime.unroll._arguments import check_parallel_iterations


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    parallel_iterations: int | None = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: int | Tensor | None = None,
    *,
    shape_invariants: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeat `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` holds.

    A variable keeps its structure, dtype and shape; `shape_invariants`, in the structure of `loop_vars` with a list
    of dimensions for each tensor, lets dimensions given as None change. With `back_prop=False` no gradients are
    recorded; with `swap_memory=True` what they need waits in pinned host memory. One loop variable comes back by
    itself, unless `return_same_structure=True`.

    >>> import torch, throughtime as tt
    >>> tt.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (torch.tensor(0), torch.tensor(1.0)))
    (tensor(3), tensor(8.))
    """
    _check_callable("cond", cond)
    _check_callable("body", body)
    check_parallel_iterations(parallel_iterations)
    variables = _open_variables(loop_vars)
    limit = (
        None if maximum_iterations is None else check_positive_int("maximum_iterations", maximum_iterations, minimum=0)
    )
    invariants = _open_invariants(variables, shape_invariants)
    gradients = contextlib.nullcontext() if back_prop else torch.no_grad()
    count = 0
    with gradients, swapping(swap_memory and back_prop, body, variables):
        while (limit is None or count < limit) and _holds(cond(*_nest.children(variables))):
            variables = _next_variables(body, variables, invariants)
            count += 1
    if len(_nest.children(variables)) == 1 and not return_same_structure:
        return _nest.children(variables)[0]
    return variables


def _check_callable(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(
            problem(
                f"`{name}` must be callable",
                got=type_name(value),
                expected="a function of the loop variables",
                fix=f"Pass a function, as in `{name}=lambda i: i < 10`." if name == "cond" else "Pass a function.",
            )
        )


def _open_variables(loop_vars: Any) -> Any:
    """The loop variables as a structure of tensors (and TensorArrays); a lone tensor is a structure of one."""
    if not _nest.is_nest(loop_vars):
        loop_vars = [loop_vars] if loop_vars is not None else []
    if not _nest.flatten(loop_vars):
        raise ValueError(
            problem(
                "`loop_vars` is empty: no loop variables provided",
                got="none",
                expected="at least one tensor",
                fix="Pass what the loop changes, such as a counter.",
            )
        )
    return _nest.map_leaves(_as_variable, loop_vars)


def _as_variable(leaf: Any) -> Any:
    """Numbers and arrays become tensors; whatever else there is (a TensorArray) passes through."""
    try:
        return torch.as_tensor(leaf)
    except (TypeError, RuntimeError):
        return leaf


def _open_invariants(variables: Any, shape_invariants: Any) -> list[tuple[int | None, ...] | None]:
    """For each leaf the dimensions it must keep, None for one that may change."""
    leaves = _nest.flatten(variables)
    fixed = [shape_of(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves]
    if shape_invariants is None:
        return fixed  # type: ignore[return-value]
    found: list[Any] = []
    try:
        _nest.map_up_to(lambda _, shape: found.append(shape), variables, shape_invariants)
    except ValueError:
        raise ValueError(
            problem(
                "`shape_invariants` must have the structure of `loop_vars`",
                got=repr(shape_invariants),
                expected=_nest.describe(variables),
                fix="Give a list of dimensions for each tensor.",
            )
        ) from None
    return [shape if given is None else tuple(given) for given, shape in zip(found, fixed, strict=True)]


def _holds(condition: Any) -> bool:
    if isinstance(condition, bool):
        return condition
    tensor = torch.as_tensor(condition)
    if tensor.dtype != torch.bool:
        raise TypeError(
            problem(
                "`cond` must return a bool",
                got=tensor.dtype,
                expected="torch.bool",
                fix="Return a comparison, as in `i < 10`.",
            )
        )
    if tensor.ndim:
        raise ValueError(
            problem(
                "`cond` must return a scalar",
                got=f"shape {shape_of(tensor)}",
                expected="shape ()",
                fix="Reduce it with `.all()` or `.any()`.",
            )
        )
    return bool(tensor)


def _next_variables(body: Callable[..., Any], variables: Any, invariants: list[tuple[int | None, ...] | None]) -> Any:
    result = body(*_nest.children(variables))
    if len(_nest.children(variables)) == 1 and not (_nest.is_nest(result) and len(_nest.children(result)) == 1):
        result = [result]
    result = _nest.map_leaves(_as_variable, _nest.conform(variables, result, "what `body` returns"))
    for old, new, invariant in zip(_nest.flatten(variables), _nest.flatten(result), invariants, strict=True):
        if isinstance(old, Tensor):
            _check_kept(old, new, invariant)
    return result


def _check_kept(old: Tensor, new: Any, invariant: tuple[int | None, ...] | None) -> None:
    if not isinstance(new, Tensor) or new.dtype != old.dtype:
        raise TypeError(
            problem(
                "a loop variable changes its dtype",
                got=new.dtype if isinstance(new, Tensor) else type_name(new),
                expected=old.dtype,
                fix="Convert it back at the end of `body`.",
            )
        )
    fits = invariant is None or (
        new.ndim == len(invariant)
        and all(want in (None, size) for want, size in zip(invariant, new.shape, strict=True))
    )
    if not fits:
        raise ValueError(
            problem(
                f"a loop variable enters the loop with shape {invariant} but has another shape after one iteration",
                got=shape_of(new),
                expected=invariant,
                fix="Keep the shape, or name what may change in `shape_invariants`.",
            )
        )
