"""Assertions: static ones raise when they are made, the others when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime.tf1._errors import InvalidArgumentError
from throughtime.tf1._namespace import export, exported, lookup
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor, is_tensor
from throughtime.tf1.ops._helpers import plain, torch_dtype
from throughtime.tf1.ops._table import Static, Tensor, operation


@exported("Assert", "debugging.Assert")
def assert_(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> Any:
    """An operation that fails with `data` in its message if `condition` does not hold."""
    limit = summarize or 3
    tensors = [convert_to_tensor(condition), *(convert_to_tensor(one) for one in data)]

    def kernel(state: Any, holds: Any, *values: Any) -> None:
        if not bool(torch.all(holds) if isinstance(holds, torch.Tensor) else holds):
            shown = " ".join(f"[{_shown(value, limit)}]" for value in values)
            raise InvalidArgumentError(None, op, f"assertion failed: {shown}")

    with name_scope(name, "Assert"):
        op = create_op("Assert", kernel, tensors, name="Assert", dtypes=[], shapes=[], stateful=True)
    return op


def _shown(value: Any, limit: int) -> str:
    flat = value.reshape(-1).tolist()
    texts = [
        one.decode(errors="replace") if isinstance(one, bytes) else f"{one:g}" if isinstance(one, float) else str(one)
        for one in flat
    ]
    return " ".join(texts if limit < 0 or len(texts) <= limit else [*texts[:limit], "..."])


def _compare(name: str, symbol: str, holds: Callable[[Any, Any], Any]) -> None:
    def check(
        x: Any,
        y: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Any:
        with name_scope(name, function_name):
            first = convert_to_tensor(x)
            second = convert_to_tensor(y, first.dtype.base_dtype) if not is_tensor(y) else convert_to_tensor(y)
            condition = create_op(
                "All", lambda a, b: torch.all(holds(a, b)), [first, second], name="All", differentiable=False
            ).outputs[0]
            text = f"{message or ''} Condition x {symbol} y did not hold element-wise:"
            shown = (
                [text, f"x ({first.name}) = ", first, f"y ({second.name}) = ", second]
                if data is None
                else [text, *data]
            )
            return assert_(condition, shown, summarize, name="assert")

    function_name = f"assert_{name}"
    check.__doc__, check.__name__ = f"An operation that fails unless `x {symbol} y` for all elements.", function_name
    export(function_name, check)


for _name, _symbol, _holds in (
    ("equal", "==", torch.eq),
    ("none_equal", "!=", torch.ne),
    ("less", "<", torch.lt),
    ("less_equal", "<=", torch.le),
    ("greater", ">", torch.gt),
    ("greater_equal", ">=", torch.ge),
):
    _compare(_name, _symbol, _holds)


@exported("assert_near")
def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Any:
    """An operation that fails unless `x` and `y` are close."""
    first = convert_to_tensor(x)
    second = convert_to_tensor(y, first.dtype.base_dtype) if not is_tensor(y) else convert_to_tensor(y)
    tolerance = 10 * torch.finfo(torch_dtype(first.dtype)).eps
    relative, absolute = (tolerance if one is None else plain(one) for one in (rtol, atol))
    close = lambda a, b: torch.all(torch.abs(a - b) <= absolute + relative * torch.abs(b))  # noqa: E731
    with name_scope(name, "assert_near"):
        condition = create_op("All", close, [first, second], name="All", differentiable=False).outputs[0]
        return assert_(
            condition,
            data or [f"{message or ''} x and y not equal to tolerance", first, second],
            summarize,
            name="assert",
        )


def _sign(name: str, holds: Callable[[Any], Any], words: str) -> None:
    def check(
        x: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None
    ) -> Any:
        with name_scope(name, function_name):
            tensor = convert_to_tensor(x)
            condition = create_op(
                "All", lambda value: torch.all(holds(value)), [tensor], name="All", differentiable=False
            ).outputs[0]
            return assert_(
                condition,
                data or [f"{message or ''} Condition {words} did not hold element-wise:", tensor],
                summarize,
                name="assert",
            )

    function_name = f"assert_{name}"
    check.__doc__, check.__name__ = f"An operation that fails unless {words} for all elements.", function_name
    export(function_name, check)


_sign("positive", lambda x: x > 0, "x > 0")
_sign("negative", lambda x: x < 0, "x < 0")
_sign("non_negative", lambda x: x >= 0, "x >= 0")
_sign("non_positive", lambda x: x <= 0, "x <= 0")


def _rank(name: str, fits: Callable[[int, Any], bool], words: str) -> None:
    def check(
        x: Any,
        rank: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Any:
        tensor = convert_to_tensor(x)
        wanted = [
            int(plain(constant_value(one) if is_tensor(one) else one))
            for one in (rank if isinstance(rank, list | tuple) else [rank])
        ]
        known = tensor.shape.ndims
        if known is not None:
            if not fits(known, wanted):
                text = f"{message or ''} Tensor {tensor.name} must have rank {words} {wanted}"
                raise ValueError(f"{text}. Received rank {known}, shape {tensor.shape}")
            return lookup("no_op")(name=name or "static_checks_determined_all_ok")
        condition = create_op(
            "RankCheck",
            lambda value: torch.tensor(fits(value.ndim, wanted)),
            [tensor],
            dtypes=[as_dtype("bool")],
            shapes=[()],
        ).outputs[0]
        return assert_(condition, data or [f"{message or ''} rank must be {words} {wanted}"], summarize, name=name)

    check.__doc__, check.__name__ = f"Fails unless the rank of `x` is {words} the given.", f"assert_{name}"
    export(f"assert_{name}", check)


_rank("rank", lambda rank, wanted: rank == wanted[0], "equal to")
_rank("rank_at_least", lambda rank, wanted: rank >= wanted[0], "at least")
_rank("rank_in", lambda rank, wanted: rank in wanted, "in")


@exported("assert_integer")
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fails unless `x` has whole numbers."""
    tensor = convert_to_tensor(x)
    if not tensor.dtype.base_dtype.is_integer:
        raise TypeError(f'{message or ""}Expected "x" to be integer type.  Found: {tensor.dtype.name}')
    return lookup("no_op")(name or "statically_determined_was_integer")


@exported("assert_type")
def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fails unless a tensor has this dtype."""
    found = convert_to_tensor(tensor)
    if found.dtype.base_dtype != as_dtype(tf_type).base_dtype:
        raise TypeError(
            f"{message or ''} {found.name} must be of type {as_dtype(tf_type).name}, got {found.dtype.name}"
        )
    return lookup("no_op")(name or "statically_determined_correct_type")


@exported("assert_scalar")
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Any:
    """The same tensor; fails unless it has no axes."""
    found = convert_to_tensor(tensor)
    if found.shape.ndims not in {None, 0}:
        raise ValueError(f"{message or ''} Expected scalar shape for {found.name}, saw shape: {found.shape}.")
    return found


@exported("assert_same_float_dtype")
def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> Any:
    """The float dtype that all tensors have."""
    found = {as_dtype(one.dtype).base_dtype for one in tensors or ()} | ({as_dtype(dtype)} if dtype else set())
    if len(found) > 1 or any(not one.is_floating for one in found):
        raise ValueError(f"Expected one floating point type, got {sorted(one.name for one in found)}.")
    return next(iter(found), as_dtype("float32"))


@exported("assert_proper_iterable")
def assert_proper_iterable(values: Any) -> None:
    """Fails if `values` is a tensor, an array, a string or not iterable."""
    if (
        is_tensor(values)
        or isinstance(values, str | bytes)
        or hasattr(values, "dtype")
        or not hasattr(values, "__iter__")
    ):
        raise TypeError(f"Expected argument \"values\" to be a 'proper' iterable.  Found: {type(values)}")


@exported("is_numeric_tensor")
def is_numeric_tensor(tensor: Any) -> bool:
    """Whether it is a tensor of numbers."""
    return is_tensor(tensor) and (tensor.dtype.base_dtype.is_integer or tensor.dtype.base_dtype.is_floating)


@operation("check_numerics", op_name="CheckNumerics")
def check_numerics(tensor: Tensor, message: Static) -> Tensor:
    """The same tensor; fails if it has NaN or infinite numbers."""
    if not tensor.is_meta and not bool(torch.isfinite(tensor).all()):
        kind = "NaN" if bool(torch.isnan(tensor).any()) else "Inf"
        raise InvalidArgumentError(None, None, f"{message} : Tensor had {kind} values")
    return tensor


@exported("verify_tensor_all_finite", "debugging.assert_all_finite")
def verify_tensor_all_finite(
    t: Any = None, msg: str | None = None, name: str | None = None, x: Any = None, message: str | None = None
) -> Any:
    """The same tensor; fails if it has NaN or infinite numbers."""
    return check_numerics(
        t if x is None else x, msg if message is None else message, name=name or "VerifyFinite/CheckNumerics"
    )
