"""`make_template`, `switch_case`, `tuple` and the switches of later versions, which change nothing here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.functions._cond import case
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._scopes import control_dependencies, name_scope
from throughtime.tf1.graph._variable_scope import VariableScope, variable_scope
from throughtime.tf1.graph._variables import group
from throughtime.tf1.ops._convert import convert_to_tensor


class Template:
    """A function with variables of its own, which every call shares."""

    def __init__(
        self, name: str, function: Callable[..., Any], create_scope_now: bool, getter: Any, unique: str | None
    ):
        self._function, self._name, self._getter, self._unique = function, name, getter, unique
        self._scope: VariableScope | None = None
        self._called = False
        if create_scope_now:
            self._scope = self._new_scope()

    def _new_scope(self) -> VariableScope:
        if self._unique is not None:
            with variable_scope(self._unique, custom_getter=self._getter) as scope:
                return scope
        with variable_scope(None, default_name=self._name, custom_getter=self._getter) as scope:
            return scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function inside of the template's scope."""
        if self._scope is None:
            self._scope = self._new_scope()
        with variable_scope(self._scope, reuse=self._called or None):
            result = self._function(*args, **kwargs)
        self._called = True
        return result

    @property
    def name(self) -> str:
        """The name that was asked for."""
        return self._name

    @property
    def variable_scope(self) -> VariableScope | None:
        """The scope of the variables."""
        return self._scope

    @property
    def variable_scope_name(self) -> str | None:
        """The name of the scope of the variables."""
        return None if self._scope is None else self._scope.name

    @property
    def variables(self) -> list[Any]:
        """The variables."""
        return [] if self._scope is None else self._scope.global_variables()

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that optimisers change."""
        return [] if self._scope is None else self._scope.trainable_variables()


@exported("make_template")
def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Any = None,
    **kwargs: Any,
) -> Template:
    """A function that makes its variables at the first call and shares them afterwards."""
    function = functools.partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now_, custom_getter_, unique_name_)


@exported("switch_case")
def switch_case(branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None) -> Any:
    """The result of the function with this index, else of the last one."""
    functions = dict(branch_fns) if isinstance(branch_fns, dict) else dict(enumerate(branch_fns))
    if functions and isinstance(next(iter(functions.values())), tuple):
        functions = dict(functions.values())
    index = convert_to_tensor(branch_index)
    *most, last = sorted(functions.items())
    pairs = [(_is(index, place), function) for place, function in (most if default is None else [*most, last])]
    if not pairs:
        return last[1]()
    return case(pairs, default=default or last[1], name=name or "switch_case")


def _is(index: Tensor, place: int) -> Tensor:
    return create_op("Equal", lambda value: value == place, [index], differentiable=False).outputs[0]


@exported("tuple")
def tuple_(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """The tensors, each of which has a value only when all are computed."""
    if not tensors or all(one is None for one in tensors):
        raise ValueError("Must have at least one Tensor: tensors is empty")
    with name_scope(name, "tuple"):
        found = [one if one is None or isinstance(one, Operation) else convert_to_tensor(one) for one in tensors]
        gate = group(*[one for one in found if one is not None], *(control_inputs or []))
        with control_dependencies([gate]):
            return [_same(one) if isinstance(one, Tensor) else one for one in found]


def _same(tensor: Tensor) -> Tensor:
    return create_op(
        "Identity", lambda value: value, [tensor], dtypes=[tensor.dtype.base_dtype], shapes=[tensor.shape]
    ).outputs[0]


def _nothing(*_: Any, **__: Any) -> None:
    """Accepted."""


for _name in (
    "disable_control_flow_v2",
    "disable_eager_execution",
    "disable_resource_variables",
    "disable_tensor_equality",
    "disable_v2_behavior",
    "disable_v2_tensorshape",
    "enable_control_flow_v2",
    "enable_resource_variables",
):
    export(_name, _nothing)
    export(f"compat.v1.{_name}", _nothing)
for _name in ("executing_eagerly", "control_flow_v2_enabled", "resource_variables_enabled"):
    export(_name, lambda: False)


@exported("enable_eager_execution", "enable_v2_behavior")
def enable_eager_execution(*_: Any, **__: Any) -> None:
    """Not supported: this is TensorFlow 1's graph mode; port the program to PyTorch instead."""
    raise NotImplementedError(
        "eager execution is not supported: throughtime.tf1 runs graphs; use throughtime's own API"
    )
