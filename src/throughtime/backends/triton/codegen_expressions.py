"""Pointwise operations and reductions as expressions of Triton. Numbers that are not whole are float32 inside."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

INSIDE = {
    torch.float32: "tl.float32",
    torch.bfloat16: "tl.float32",
    torch.float16: "tl.float32",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.bool: "tl.int1",
}
"""What a value of each dtype is inside of a kernel."""

OUTSIDE = {
    torch.float32: "tl.float32",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.bool: "tl.int1",
}
"""What it is in memory."""

_NAN = "propagate_nan=tl.PropagateNan.ALL"

FLOATING = {
    "abs": "tl.abs({0})",
    "acos": "libdevice.acos({0})",
    "add": "{0} + {1}",
    "asin": "libdevice.asin({0})",
    "atan": "libdevice.atan({0})",
    "atan2": "libdevice.atan2({0}, {1})",
    "ceil": "tl.ceil({0})",
    "cos": "tl.cos({0})",
    "cosh": "libdevice.cosh({0})",
    "div": "{0} / {1}",
    "erf": "tl.erf({0})",
    "exp": "tl.exp({0})",
    "expm1": "libdevice.expm1({0})",
    "floor": "tl.floor({0})",
    "floor_divide": "tl.floor({0} / {1})",
    "log": "tl.log({0})",
    "log10": "tl.log2({0}) * 0.30102999566398120",
    "log1p": "libdevice.log1p({0})",
    "log2": "tl.log2({0})",
    "maximum": f"tl.maximum({{0}}, {{1}}, {_NAN})",
    "minimum": f"tl.minimum({{0}}, {{1}}, {_NAN})",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "pow": "libdevice.pow({0}, {1})",
    "reciprocal": "1.0 / {0}",
    "relu": f"tl.maximum({{0}}, 0.0, {_NAN})",
    "remainder": "{0} - tl.floor({0} / {1}) * {1}",
    "round": "libdevice.nearbyint({0})",
    "rsqrt": "tl.rsqrt({0})",
    "sigmoid": "tl.sigmoid({0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
    "sin": "tl.sin({0})",
    "sinh": "libdevice.sinh({0})",
    "sqrt": "tl.sqrt({0})",
    "sub": "{0} - {1}",
    "tan": "libdevice.tan({0})",
    "tanh": "2.0 * tl.sigmoid(2.0 * {0}) - 1.0",
    "trunc": "libdevice.trunc({0})",
}
WHOLE = {
    "abs": "tl.abs({0})",
    "add": "{0} + {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_not": "~{0}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "relu": "tl.maximum({0}, 0)",
    "sub": "{0} - {1}",
}
TRUTH = {
    "add": "{0} | {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_not": "{0} == 0",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "eq": "{0} == {1}",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "isnan": "{0} != {0}",
    "le": "{0} <= {1}",
    "logical_and": "({0} != 0) & ({1} != 0)",
    "logical_not": "{0} == 0",
    "logical_or": "({0} != 0) | ({1} != 0)",
    "lt": "{0} < {1}",
    "mul": "{0} & {1}",
    "ne": "{0} != {1}",
}

EMPTY = {"sum": "0.0", "amax": 'float("-inf")', "amin": 'float("inf")', "prod": "1.0"}
"""What a reduction of nothing gives."""

TOGETHER = {
    "sum": "tl.reduce({0}, 1, plus, keep_dims=True)",
    "amax": "tl.reduce({0}, 1, larger, keep_dims=True)",
    "amin": "tl.reduce({0}, 1, smaller, keep_dims=True)",
    "prod": "tl.reduce({0}, 1, times, keep_dims=True)",
}
"""A tile reduced along its units."""

BOTH = {
    "sum": "{0} + {1}",
    "amax": f"tl.maximum({{0}}, {{1}}, {_NAN})",
    "amin": f"tl.minimum({{0}}, {{1}}, {_NAN})",
    "prod": "{0} * {1}",
}
"""Two shares of a reduction."""


def table(dtype: torch.dtype) -> dict[str, str]:
    """The operations whose result has a dtype."""
    return FLOATING if dtype.is_floating_point else TRUTH if dtype == torch.bool else WHOLE


def pointwise(kind: str, dtype: torch.dtype, args: Sequence[str], given: torch.dtype) -> str:
    """The expression of an operation with a result of `dtype`, its first row having the dtype `given`."""
    if kind == "where":
        return f"tl.where({args[0]}, {args[1]}, {args[2]})"
    if kind == "cast":
        if dtype == torch.bool:
            return f"{args[0]} != 0"
        if given.is_floating_point and dtype.is_floating_point:
            return args[0]
        return f"{args[0]}.to({INSIDE[dtype]})"
    return table(dtype)[kind].format(*args)


def number(value: float, dtype: torch.dtype) -> str:
    """A number as text."""
    if dtype.is_floating_point:
        value = float(value)
        if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value) if value >= 0 else f"({value!r})"
