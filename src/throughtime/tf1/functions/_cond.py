"""`cond` and `case`: one of several functions runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime import _pytree
from throughtime.tf1._errors import InvalidArgumentError
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._func_graph import Function, build_function, call_node
from throughtime.tf1.graph._dtypes import bool_
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._shapes import UNKNOWN, TensorShape
from throughtime.tf1.ops._convert import constant, constant_value, convert_to_tensor


@exported("cond")
def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """What `true_fn()` gives if `pred` holds, else what `false_fn()` gives; only one of them runs."""
    true_fn, false_fn = true_fn or fn1, false_fn or fn2
    for argument, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if not callable(function):
            raise TypeError(f"{argument} must be callable.")
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool; use a Python `if`, or tf.constant(pred)")
    assert true_fn is not None
    assert false_fn is not None
    with name_scope(name, "cond", [pred]):
        test = convert_to_tensor(pred, bool_, name="pred")
        if not test.shape.is_compatible_with(()):
            raise ValueError(
                f"pred must be a scalar, got shape {test.shape}; reduce it with tf.reduce_all or tf.reduce_any"
            )
        branches = [
            build_function(_with_result(function), [], convert=convert_to_tensor) for function in (true_fn, false_fn)
        ]
        return _choose(test, branches, strict)


def _with_result(function: Callable[[], Any]) -> Callable[[], Any]:
    """A branch that gives only an operation gives True besides, for others to depend on."""

    def called() -> Any:
        result = function()
        leaves = [] if result is None else [leaf for leaf in _pytree.flatten(result) if leaf is not None]
        if not leaves or not any(isinstance(leaf, Tensor) or not hasattr(leaf, "control_inputs") for leaf in leaves):
            return [*leaves, constant(True, name="done")]
        return result

    return called


def _choose(test: Tensor, branches: list[Function], strict: bool) -> Any:
    yes, no = branches
    if len(yes.outputs) != len(no.outputs):
        raise ValueError(
            f"true_fn and false_fn must return the same number of results, got {len(yes.outputs)} and {len(no.outputs)}"
        )
    for one, other in zip(yes.outputs, no.outputs, strict=True):
        if one.dtype.base_dtype != other.dtype.base_dtype:
            raise ValueError(
                "Outputs of true_fn and false_fn must have the same type: "
                f"{one.dtype.base_dtype.name}, {other.dtype.base_dtype.name}; use tf.cast"
            )
    count = len(yes.outer)

    def kernel(state: Any, pred: Any, *captures: Any) -> tuple[Any, ...]:
        return tuple(yes(state, captures[:count], ()) if bool(pred) else no(state, captures[count:], ()))

    op = call_node(
        "If",
        kernel,
        [test, *yes.outer, *no.outer],
        branches,
        name="Merge",
        dtypes=[tensor.dtype.base_dtype for tensor in yes.outputs],
        shapes=[_either(*pair) for pair in zip(yes.outputs, no.outputs, strict=True)],
    )
    return _packed(yes, op.outputs, strict)


def _packed(branch: Function, outputs: list[Tensor], strict: bool) -> Any:
    if branch.targets:
        return outputs[0]
    result = branch.structure
    if not _pytree.is_nest(result):
        return outputs[0]
    if not strict and isinstance(result, list | tuple) and len(result) == 1 and not hasattr(result, "_fields"):
        return _pytree.pack_as(result, outputs)[0]
    return _pytree.pack_as(result, outputs)


def _either(one: Tensor, other: Tensor) -> TensorShape:
    """What is known of a shape that is one of two."""
    first, second = one.shape.sizes, other.shape.sizes
    if first is None or second is None or len(first) != len(second):
        return UNKNOWN
    return TensorShape([a if a == b else None for a, b in zip(first, second, strict=True)])


@exported("contrib.framework.smart_cond", "layers.smart_cond", "python.layers.utils.smart_cond")
def smart_cond(pred: Any, true_fn: Any = None, false_fn: Any = None, name: str | None = None) -> Any:
    """`cond`, decided at once if `pred` is known."""
    known = pred if isinstance(pred, bool | int) else constant_value(pred)
    if known is not None:
        return true_fn() if known else false_fn()
    return cond(pred, true_fn, false_fn, name=name)


@exported("case")
def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """The result of the first function with a predicate that holds, else of `default`."""
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"Each entry in pred_fn_pairs must be a (predicate, callable) pair, got {pair!r}")
    if default is not None and not callable(default):
        raise TypeError(f"default must be callable, got {default!r}")
    del exclusive
    with name_scope(name, "case"):
        return _case(pairs, default, strict)


def _case(pairs: list[tuple[Any, Callable[[], Any]]], default: Callable[[], Any] | None, strict: bool) -> Any:
    (pred, function), *rest = pairs
    if not rest:
        return cond(pred, function, default or _none_of(function), strict)
    return cond(pred, function, lambda: _case(rest, default, strict), strict)


def _none_of(function: Callable[[], Any]) -> Callable[[], Any]:
    """Without a default: the last function, after an error if its predicate does not hold."""
    from throughtime.tf1.graph._graph import create_op, get_default_graph  # noqa: PLC0415

    def fail(state: Any) -> None:
        raise InvalidArgumentError(None, None, "None of the conditions of tf.case evaluated as True; pass default=")

    def failing() -> Any:
        op = create_op("Assert", fail, name="Assert", dtypes=[], shapes=[], stateful=True)
        with get_default_graph().control_dependencies([op]):
            return _pytree.map_leaves(lambda leaf: leaf + 0, function())

    return failing
