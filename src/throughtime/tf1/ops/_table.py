"""The table of operations: a torch kernel with a decorator is a public function that makes nodes.

    @operation("reduce_sum", "math.reduce_sum", op_name="Sum", spellings={"reduction_indices": "axis"})
    def reduce_sum(input_tensor: Tensor, axis: Static = None, keepdims: Static = False) -> Tensor: ...

Parameters annotated `Tensor` are converted and become inputs, `Tensors` is a list of them, `Static` stays as it is
unless the program gives a tensor for it: then its value arrives when the operation runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import export
from throughtime.tf1.graph._dtypes import DType, as_dtype
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Tensor as GraphTensor
from throughtime.tf1.graph._shape_cache import probe_key
from throughtime.tf1.graph._shape_inference import SHAPE_FALLBACK, ShapeRule
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor, is_tensor
from throughtime.tf1.ops._operation_counts import uncounted_operations

Tensor = torch.Tensor
Tensors = Sequence[torch.Tensor]
Static = Any

_TENSOR, _TENSORS, _STATIC = "Tensor", "Tensors", "Static"


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    names: tuple[str, ...]
    op_name: str
    scope_name: str
    kernel: Callable[..., Any]
    kinds: dict[str, str]
    defaults: dict[str, Any]
    spellings: dict[str, str]
    positional: tuple[str, ...]
    same_dtype: tuple[str, ...]
    dtypes: Callable[..., Sequence[Any]] | None
    shape_rule: ShapeRule | None
    differentiable: bool
    stateful: bool
    argument_dtypes: dict[str, Any] = field(default_factory=dict)
    fallback_rule: ShapeRule | None = None


TABLE: dict[str, Entry] = {}
"""Every operation by its first public name."""


def operation(
    *names: str,
    op_name: str,
    scope: str | None = None,
    spellings: dict[str, str] | None = None,
    positional: Sequence[str] | None = None,
    same_dtype: Sequence[str] = (),
    argument_dtypes: dict[str, Any] | None = None,
    dtypes: Callable[..., Sequence[Any]] | None = None,
    shape_rule: ShapeRule | None = None,
    differentiable: bool = True,
    stateful: bool = False,
    fallback_rule: ShapeRule | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a kernel into the table and make its public function.

    Args:
        names: Public names below `tf`, the first is the one that the table and tests use.
        op_name: TensorFlow's name of the kind of operation.
        scope: The default name of the node where it differs, as "add" for "Add".
        spellings: Other spellings of arguments, old to new.
        positional: The order of positional arguments; by default the kernel's parameters, then `name`, then the
            other spellings.
        same_dtype: Arguments that must have one dtype: Python numbers take that of the first tensor among them.
        argument_dtypes: Dtypes that single arguments are converted to.
        dtypes: A function of the inputs (graph tensors) to the dtypes of outputs, where probes cannot tell.
        shape_rule: A function of the inputs (graph tensors) to shapes, for kernels that need real values.
        differentiable: Whether gradients pass.
        stateful: Whether the kernel takes the run's state first and runs in creation order.
        fallback_rule: A shape rule for arguments that the kernel does not take as probes.
    """

    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(kernel).parameters.values())[int(stateful) :]
        kinds = {one.name: _kind(str(one.annotation)) for one in parameters}
        other = spellings or {}
        order = tuple(positional or (*kinds, "name", *other))
        entry = Entry(
            names, op_name, scope or op_name, kernel, kinds,
            {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty},
            other, order, tuple(same_dtype), dtypes, shape_rule, differentiable, stateful, argument_dtypes or {},
            fallback_rule,
        )  # fmt: skip
        public = _public_function(entry)
        TABLE[names[0]] = entry
        for name in names:
            export(name, public)
        return public

    return register


def _kind(annotation: str) -> str:
    first = annotation.split("|", maxsplit=1)[0].strip()
    return first if first in {_TENSOR, _TENSORS} else _STATIC


def _public_function(entry: Entry) -> Callable[..., Any]:
    @functools.wraps(entry.kernel)
    def public(*args: Any, **kwargs: Any) -> Any:
        arguments = _bind(entry, args, kwargs)
        name = arguments.pop("name", None)
        with get_default_graph().name_scope(name or entry.scope_name) as scope:
            converted = _convert_arguments(entry, arguments)
        made = make_node(entry, converted, scope)
        get_default_graph().skip_ids(uncounted_operations(entry.names[0], converted))
        return made

    public.entry = entry  # type: ignore[attr-defined]
    return public


def _bind(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the kernel's parameters, as Python binds them."""
    called = f"{entry.names[0]}()"
    if len(args) > len(entry.positional):
        raise TypeError(f"{called} takes at most {len(entry.positional)} arguments ({len(args)} given)")
    given = dict(zip(entry.positional, args, strict=False))
    if not given.keys().isdisjoint(kwargs):
        raise TypeError(f"{called} got multiple values for argument {next(iter(given.keys() & kwargs))!r}")
    for key, value in kwargs.items():
        if key not in entry.kinds and key not in entry.spellings and key != "name":
            raise TypeError(
                f"{called} got an unexpected keyword argument {key!r}; it takes {', '.join(entry.positional)}"
            )
        given[key] = value
    _respell(entry, given)
    for name in entry.kinds:
        if name not in given and name not in entry.defaults:
            raise TypeError(f"{called} missing required argument: {name!r}")
        if given.get(name) is None:
            given[name] = entry.defaults.get(name)
    return given


def _respell(entry: Entry, given: dict[str, Any]) -> None:
    """Move arguments with other spellings to the names of the kernel's parameters."""
    for old, new in entry.spellings.items():
        value = given.pop(old, None)
        if value is not None:
            if given.get(new) is not None:
                raise ValueError(f"Cannot specify both '{old}' and '{new}'")
            given[new] = value


def _convert_arguments(entry: Entry, given: dict[str, Any]) -> dict[str, Any]:
    partner = _partner_dtype(entry, given)
    converted: dict[str, Any] = {}
    for name, kind in entry.kinds.items():
        value = given[name]
        dtype = entry.argument_dtypes.get(name) or (partner if name in entry.same_dtype else None)
        if kind == _TENSOR and value is not None:
            converted[name] = _converted(entry, name, value, dtype)
        elif kind == _TENSORS:
            converted[name] = _convert_list(value, dtype, name)
        else:
            converted[name] = static_or_tensor(value)
    _check_same_dtype(entry, converted)
    return converted


def _converted(entry: Entry, name: str, value: Any, dtype: DType | None) -> GraphTensor:
    if dtype is not None and is_tensor(value) and name in entry.same_dtype:
        return convert_to_tensor(value)  # compared with the others below, all named in the error
    return convert_to_tensor(value, dtype, name=name)


def _convert_list(values: Any, dtype: DType | None, name: str) -> list[GraphTensor]:
    values = list(values) if isinstance(values, list | tuple) else [values]
    found = dtype or next((as_dtype(one.dtype).base_dtype for one in values if is_tensor(one)), None)
    return [convert_to_tensor(one, found, name=f"{name}_{place}") for place, one in enumerate(values)]


def _partner_dtype(entry: Entry, given: dict[str, Any]) -> DType | None:
    values = [given[name] for name in entry.same_dtype if given[name] is not None]
    for value in values:
        if is_tensor(value):
            return as_dtype(value.dtype).base_dtype
    return convert_dtype_of(values[0]) if len(values) > 1 else None


def convert_dtype_of(value: Any) -> DType | None:
    """The dtype that a Python value or an array would be converted to."""
    from throughtime.tf1.ops._convert import numpy_value  # noqa: PLC0415

    return as_dtype(numpy_value(value, None).dtype)


def _check_same_dtype(entry: Entry, converted: dict[str, Any]) -> None:
    found = {name: converted[name].dtype.base_dtype for name in entry.same_dtype if converted[name] is not None}
    if len(set(found.values())) > 1:
        text = ", ".join(f"{name!r} has type {dtype.name}" for name, dtype in found.items())
        raise TypeError(f"Inputs of {entry.op_name!r} must have one dtype: {text}. Use tf.cast.")


def static_or_tensor(value: Any) -> Any:
    """A static argument; a tensor of known value becomes that value, a list with tensors becomes one tensor."""
    if isinstance(value, TensorShape) and value.is_fully_defined():
        return static_sizes(value)
    if not is_tensor(value):
        if not isinstance(value, list | tuple) or not any(
            is_tensor(one) or isinstance(one, list | tuple) for one in value
        ):
            return value
        if not _has_any_tensor(value):
            return value
        value = convert_to_tensor(value)
    tensor = convert_to_tensor(value)
    known = constant_value(tensor)
    return tensor if known is None else known.tolist()


def _has_any_tensor(value: Any) -> bool:
    return any(map(_has_any_tensor, value)) if isinstance(value, list | tuple) else is_tensor(value)


def make_node(entry: Entry, arguments: dict[str, Any], name: str) -> Any:
    """The node of an entry; its output, or a list of several."""
    inputs, kernel = _close_over_static(entry, arguments)
    op = create_op(
        entry.op_name,
        kernel,
        inputs,
        name=name,
        dtypes=None if entry.dtypes is None else [as_dtype(one) for one in entry.dtypes(**arguments)],
        shape_rule=None if entry.shape_rule is None else lambda *_: entry.shape_rule(**arguments),  # type: ignore[misc]
        stateful=entry.stateful,
        differentiable=entry.differentiable,
        attrs=_attributes(entry, arguments),
        probe_key=probe_key(entry.kernel, arguments, lambda value: isinstance(value, GraphTensor)),
    )
    return op.outputs[0] if len(op.outputs) == 1 else op.outputs or op


def _attributes(entry: Entry, arguments: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in arguments.items() if not isinstance(value, GraphTensor)}
    if entry.fallback_rule is not None:
        found[SHAPE_FALLBACK] = functools.partial(entry.fallback_rule, **arguments)
    return found


def _close_over_static(entry: Entry, arguments: dict[str, Any]) -> tuple[list[GraphTensor], Callable[..., Any]]:
    """The inputs, and the kernel as a function of their values alone."""
    names = list(arguments)
    leading = 0
    while leading < len(names) and isinstance(arguments[names[leading]], GraphTensor):
        leading += 1
    rest = {name: arguments[name] for name in names[leading:]}
    inputs = [arguments[name] for name in names[:leading]]
    if not any(_holds_tensor(value) for value in rest.values()):
        return inputs, functools.partial(entry.kernel, **rest) if rest else entry.kernel
    return [*inputs, *_tensors_in(rest)], _rebuilding(entry, leading, rest)


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, GraphTensor) or (
        isinstance(value, list) and any(isinstance(one, GraphTensor) for one in value)
    )


def _tensors_in(rest: dict[str, Any]) -> list[GraphTensor]:
    found: list[GraphTensor] = []
    for value in rest.values():
        if _holds_tensor(value):
            found.extend([value] if isinstance(value, GraphTensor) else value)
    return found


def _rebuilding(entry: Entry, leading: int, rest: dict[str, Any]) -> Callable[..., Any]:
    """A kernel that puts the values of tensors where the arguments had them."""
    static = {name: value for name, value in rest.items() if not _holds_tensor(value)}
    places: list[tuple[str, int | None]] = [
        (name, None if isinstance(value, GraphTensor) else len(value))
        for name, value in rest.items()
        if _holds_tensor(value)
    ]
    first = leading + int(entry.stateful)
    kernel = functools.partial(entry.kernel, **static)

    def rebuilt(*values: Any) -> Any:
        at, keywords = first, {}
        for name, count in places:
            keywords[name] = values[at] if count is None else list(values[at : at + count])
            at += count or 1
        return kernel(*values[:first], **keywords)

    rebuilt.takes_strings = getattr(entry.kernel, "takes_strings", False)  # type: ignore[attr-defined]
    return rebuilt


def ints(value: Any) -> Any:
    """A size, a list of sizes or an axis that may have come as a tensor: plain ints."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [ints(one) for one in value]
    if isinstance(value, np.ndarray):
        return value.astype(np.int64).tolist()
    if isinstance(value, TensorShape):
        return static_sizes(value)
    return value if value is None else int(value)


def static_sizes(shape: TensorShape) -> list[int]:
    """The sizes of a shape that is known as a whole."""
    if not shape.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {shape}; use tf.shape")
    return [size or 0 for size in shape.as_list()]
