"""Gradients of the program's own: `custom_gradient`, `RegisterGradient` with `gradient_override_map`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import export, exported
from throughtime.tf1.functions._func_graph import FuncGraph, Function, call_node
from throughtime.tf1.graph import _graph
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.ops._convert import convert_to_tensor

_REGISTERED: dict[str, Callable[..., Any] | None] = {}


@exported("custom_gradient")
def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that returns its result and a function from the result's gradient to that of its inputs."""

    @functools.wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        inputs = [convert_to_tensor(one) for one in args]
        graph = FuncGraph(get_default_graph())
        with graph.as_default():
            arguments = [
                graph.argument(one.dtype.base_dtype, one.shape, f"x_{place}") for place, one in enumerate(inputs)
            ]
            result, grad_fn = f(*arguments, **kwargs)
            outputs = [graph.capture(convert_to_tensor(leaf)) for leaf in _pytree.flatten(result)]
            grads = [
                graph.argument(one.dtype.base_dtype, one.shape, f"dy_{place}") for place, one in enumerate(outputs)
            ]
            found = _gradients_of(graph, grad_fn(*grads), arguments)
        forward = Function(graph, arguments, outputs, [], result)
        backward = Function(graph, [*arguments, *grads], found, [], None)
        kernel = _differentiated(forward, backward, len(forward.outer), len(inputs))
        op = call_node(
            "CustomGradient",
            kernel,
            [*forward.outer, *inputs],
            [forward],
            name="CustomGradient",
            dtypes=[one.dtype.base_dtype for one in outputs],
            shapes=[one.shape for one in outputs],
        )
        return _pytree.pack_as(result, op.outputs) if _pytree.is_nest(result) else op.outputs[0]

    return decorated


def _gradients_of(graph: FuncGraph, found: Any, arguments: Sequence[Tensor]) -> list[Tensor]:
    """What a gradient function gives for each input; None is zero."""
    given = list(found) if isinstance(found, list | tuple) else [found]
    if len(given) != len(arguments):
        raise ValueError(
            f"a gradient function must give one gradient for each of {len(arguments)} inputs, got {len(given)}"
        )
    return [
        create_op("ZerosLike", torch.zeros_like, [argument]).outputs[0]
        if one is None
        else graph.capture(convert_to_tensor(one))
        for one, argument in zip(given, arguments, strict=True)
    ]


def _differentiated(
    forward: Function, backward: Function, captures: int, inputs: int
) -> Callable[..., tuple[Any, ...]]:
    """A kernel with `backward` for its gradient."""

    def kernel(state: Any, *values: Any) -> tuple[Any, ...]:
        class Differentiated(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *values: Any) -> Any:
                ctx.save_for_backward(*values)
                return tuple(forward(state, values[:captures], values[captures:]))

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                saved = ctx.saved_tensors
                found = backward(state, saved[:captures], [*saved[captures:], *grads])
                return (*[None] * captures, *found[:inputs])

        result: tuple[Any, ...] = Differentiated.apply(*values)  # type: ignore[no-untyped-call]
        return result

    return kernel


@exported("RegisterGradient")
class RegisterGradient:
    """Name a gradient function `(op, *grads)` for `Graph.gradient_override_map`."""

    def __init__(self, op_type: str):
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Register `f`."""
        if self._op_type in _REGISTERED:
            raise KeyError(f"Registering two gradient with name '{self._op_type}'!")
        _REGISTERED[self._op_type] = f
        return f


@exported("NotDifferentiable", "NoGradient", "no_gradient")
def not_differentiable(op_type: str) -> None:
    """Name operations without gradients."""
    _REGISTERED[op_type] = None


class _Node:
    """What a registered gradient function sees of its operation."""

    def __init__(self, op: Operation, inputs: list[Tensor], outputs: list[Tensor]):
        self.type, self.name, self.inputs, self.outputs = op.type, op.name, inputs, outputs
        self.get_attr = op.get_attr


def override_gradient(op: Operation, name: str) -> None:
    """Give an operation the gradient that is registered as `name`."""
    if name not in _REGISTERED:
        raise LookupError(f"No gradient is registered as {name!r}; use @tf.RegisterGradient({name!r})")
    grad_fn = _REGISTERED[name]
    if grad_fn is None:
        op.differentiable = False
        return
    if op.stateful:
        raise NotImplementedError(f"gradient_override_map does not take the stateful operation {op.type}")
    kernel, outputs = op.kernel, op.outputs
    graph = FuncGraph(op.graph)
    with graph.as_default():
        parts = [graph.argument(one.dtype.base_dtype, one.shape, "part") for one in (*op.inputs, *outputs, *outputs)]
        count, made = len(op.inputs), len(outputs)
        node = _Node(op, parts[:count], parts[count : count + made])
        found = _gradients_of(graph, grad_fn(node, *parts[count + made :]), parts[:count])
    backward = Function(graph, parts, found, [], None)
    if backward.outer or backward.stateful:
        raise NotImplementedError("a registered gradient must be a function of its operation and gradients alone")
    op.kernel = _overridden(kernel, backward, made)


def _overridden(kernel: Callable[..., Any], gradient: Function, made: int) -> Callable[..., Any]:
    class Overridden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            result = kernel(*values)
            result = tuple(result) if isinstance(result, tuple | list) else result.clone()
            ctx.save_for_backward(*values, *(result if isinstance(result, tuple) else (result,)))
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return tuple(gradient(None, (), [*ctx.saved_tensors, *grads]))

    del made
    return Overridden.apply


_graph.override_gradient = override_gradient


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, with gradients as if it were the identity."""

    @custom_gradient
    def passed(x: Tensor) -> Any:
        return f(x), lambda dy: dy

    return passed


export("grad_pass_through", grad_pass_through)
export("recompute_grad", lambda f: f)
