"""`arg_scope`: default arguments for functions inside of a `with` block."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from throughtime._errors import problem
from throughtime.tf1._namespace import export

_Function = TypeVar("_Function", bound=Callable[..., Any])
Scope = dict[str, dict[str, Any]]
_STACK: list[Scope] = [{}]
_DECORATED: set[str] = set()


def _key(function: Any) -> str:
    return str(getattr(function, "_key_op", f"{function.__module__}.{function.__qualname__}"))


def add_arg_scope(function: _Function) -> _Function:
    """Let a function take its defaults from `arg_scope`."""
    key = _key(function)
    _DECORATED.add(key)

    @functools.wraps(function)
    def with_defaults(*args: Any, **arguments: Any) -> Any:
        return function(*args, **{**_STACK[-1].get(key, {}), **arguments})

    with_defaults._key_op = key  # type: ignore[attr-defined]
    return with_defaults  # type: ignore[return-value]


@contextlib.contextmanager
def arg_scope(list_ops_or_scope: Sequence[Any] | Scope, **arguments: Any) -> Iterator[Scope]:
    """Set defaults for functions, or open again what an earlier block gave.

    `with arg_scope([conv2d, fully_connected], activation_fn=None) as scope:`
    """
    if isinstance(list_ops_or_scope, dict):
        if arguments:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        scope = dict(list_ops_or_scope)
    else:
        scope = dict(_STACK[-1])
        for function in list_ops_or_scope:
            key = _key(function)
            if key not in _DECORATED:
                fix = "Decorate it with `add_arg_scope`."
                what = f"{key} cannot take defaults from a scope"
                raise ValueError(problem(what, got="a plain function", expected="a decorated one", fix=fix))
            scope[key] = {**scope.get(key, {}), **arguments}
    _STACK.append(scope)
    try:
        yield scope
    finally:
        _STACK.pop()


def current_arg_scope() -> Scope:
    """The defaults that are in force."""
    return _STACK[-1]


def has_arg_scope(function: Any) -> bool:
    """Whether a function takes defaults from scopes."""
    return _key(function) in _DECORATED


def arg_scoped_arguments(function: Any) -> tuple[str, ...]:
    """The names of the arguments that may get defaults."""
    code = getattr(function, "__wrapped__", function).__code__
    return tuple(code.co_varnames[: code.co_argcount])


for _place in ("contrib.framework", "contrib.slim", "contrib.framework.python.ops"):
    for _function in (add_arg_scope, arg_scope, current_arg_scope, has_arg_scope, arg_scoped_arguments):
        export(f"{_place}.{_function.__name__}", _function)
