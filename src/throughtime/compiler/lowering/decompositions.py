"""Decompositions in the loop program: composite operations as formulas over rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch

from throughtime.compiler.ir.loop_ir import Operand, Row


class Emitter(Protocol):
    """Appends operations to a loop program."""

    def pointwise(self, kind: str, *args: Operand, dtype: torch.dtype, name: str = "") -> Row:
        """A pointwise operation, as wide as its widest row."""

    def broadcast(self, row: Row, shape: Sequence[int], wanted: Sequence[int], name: str = "") -> Row:
        """A row broadcast to the `wanted` shape."""

    def reduce(self, kind: str, row: Row, shape: Sequence[int], axes: Collection[int], name: str = "") -> Row:
        """A row of some shape reduced over some of its axes."""


Term: TypeAlias = "Decomposition | float"
"""An operand of a formula."""


class Decomposition:
    """A row in a formula: arithmetic on it appends operations to the loop program."""

    def __init__(self, emitter: Emitter, row: Row, shape: tuple[int, ...]) -> None:
        self._emitter = emitter
        self.row, self.shape = row, shape

    def apply(self, kind: str, *others: Term, reverse: bool = False, dtype: torch.dtype | None = None) -> Decomposition:
        """A pointwise operation on this row and others, or numbers."""
        terms = (self, *others)[:: -1 if reverse else 1]
        return self._pointwise(kind, terms, dtype or self.row.dtype)

    def _pointwise(self, kind: str, terms: Sequence[Term], dtype: torch.dtype) -> Decomposition:
        # By numpy: the first call of torch's imports sympy, for a third of a second.
        shape = np.broadcast_shapes(*(term.shape for term in terms if isinstance(term, Decomposition)))
        args = [
            self._emitter.broadcast(term.row, term.shape, shape) if isinstance(term, Decomposition) else term
            for term in terms
        ]
        return Decomposition(self._emitter, self._emitter.pointwise(kind, *args, dtype=dtype), tuple(shape))

    def reduce(self, kind: str, axes: Collection[int]) -> Decomposition:
        """Reduced over some axes, which keep size 1."""
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(self.shape))
        return Decomposition(self._emitter, self._emitter.reduce(kind, self.row, self.shape, axes), shape)

    def mean(self, axes: Collection[int]) -> Decomposition:
        """The mean over some axes."""
        return self.reduce("sum", axes) * (1.0 / math.prod(self.shape[axis] for axis in axes))

    def where(self, condition: Decomposition, other: Term) -> Decomposition:
        """This row where the condition holds, else the other."""
        return self._pointwise("where", (condition, self, other), self.row.dtype)

    def __add__(self, other: Term) -> Decomposition:
        return self.apply("add", other)

    def __sub__(self, other: Term) -> Decomposition:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Decomposition:
        return self.apply("sub", other, reverse=True)

    def __mul__(self, other: Term) -> Decomposition:
        return self.apply("mul", other)

    def __truediv__(self, other: Term) -> Decomposition:
        return self.apply("div", other)

    def __neg__(self) -> Decomposition:
        return self.apply("neg")

    def __gt__(self, other: Term) -> Decomposition:
        return self.apply("gt", other, dtype=torch.bool)

    def __lt__(self, other: Term) -> Decomposition:
        return self.apply("lt", other, dtype=torch.bool)

    def __le__(self, other: Term) -> Decomposition:
        return self.apply("le", other, dtype=torch.bool)

    def __ge__(self, other: Term) -> Decomposition:
        return self.apply("ge", other, dtype=torch.bool)

    __radd__, __rmul__ = __add__, __mul__

    def __getattr__(self, kind: str) -> Callable[..., Decomposition]:
        """`x.exp()`, `x.maximum(0)`: the pointwise operation of that name."""
        if kind.startswith("_"):
            raise AttributeError(kind)
        return lambda *others: self.apply(kind, *others)


def _both(one: Decomposition, other: Decomposition) -> Decomposition:
    return one.apply("logical_and", other, dtype=torch.bool)


def _clamp(x: Decomposition, low: Term | None = None, high: Term | None = None) -> Decomposition:
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


def _within(x: Decomposition, low: float, high: float) -> Decomposition:
    return _both(x > low, x < high)


def _zero_where(condition: Decomposition, other: Decomposition) -> Decomposition:
    """By `where` rather than by a factor of zero, which would turn infinite gradients into NaN."""
    return other._pointwise("where", (condition, 0.0, other), other.row.dtype)


def _silu_backward(d: Decomposition, x: Decomposition) -> Decomposition:
    gate = x.sigmoid()
    return d * (gate * (x * (1.0 - gate) + 1.0))


def _gelu(x: Decomposition, approximate: str = "none") -> Decomposition:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1.0)
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1.0)


def _gelu_backward(d: Decomposition, x: Decomposition, approximate: str = "none") -> Decomposition:
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        t = ((x + x * x * x * 0.044715) * scale).tanh()
        slope = (1.0 - t * t) * (x * x * (3 * 0.044715) + 1.0) * scale
        return d * ((t + 1.0) * 0.5 + x * 0.5 * slope)
    below = ((x * math.sqrt(0.5)).erf() + 1.0) * 0.5
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return d * (below + x * density)


def _softplus(x: Decomposition, beta: float = 1, threshold: float = 20) -> Decomposition:
    return x.where(x * float(beta) > threshold, (x * float(beta)).exp().log1p() / float(beta))


def _softplus_backward(d: Decomposition, x: Decomposition, beta: float = 1, threshold: float = 20) -> Decomposition:
    return d.where(x * float(beta) > threshold, d * (x * float(beta)).sigmoid())


def _elu(x: Decomposition, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Decomposition:
    return (x * float(scale)).where(x > 0.0, (x * float(input_scale)).expm1() * float(alpha * scale))


def _elu_backward(
    d: Decomposition, alpha: float, scale: float, input_scale: float, is_result: bool, x: Decomposition
) -> Decomposition:
    positive = d * float(scale)
    factor = float(alpha * scale)
    slope = x + factor if is_result else (x * float(input_scale)).exp() * factor
    return (d * slope * float(input_scale)).where(x <= 0.0, positive)


def _leaky_relu(x: Decomposition, slope: float = 0.01) -> Decomposition:
    return x.where(x > 0.0, x * float(slope))


def _leaky_relu_backward(d: Decomposition, x: Decomposition, slope: float, is_result: bool) -> Decomposition:
    return d.where(x > 0.0, d * float(slope))


def _hardtanh_backward(d: Decomposition, x: Decomposition, low: float, high: float) -> Decomposition:
    outside = (x <= low).apply("logical_or", x >= high, dtype=torch.bool)
    return _zero_where(outside, d)


def _hardsigmoid(x: Decomposition) -> Decomposition:
    return _clamp(x + 3.0, 0.0, 6.0) * (1 / 6)


def _hardswish_backward(d: Decomposition, x: Decomposition) -> Decomposition:
    inside = d * (x * (1 / 3) + 0.5)
    return _zero_where(x <= -3.0, inside.where(x < 3.0, d))


def _mish_backward(d: Decomposition, x: Decomposition) -> Decomposition:
    t = _softplus(x).tanh()
    return d * (t + x * (1.0 - t * t) * x.sigmoid())


def _softmax(x: Decomposition, axis: int, _half: bool) -> Decomposition:
    raised = (x - x.reduce("amax", [axis])).exp()
    return raised / raised.reduce("sum", [axis])


def _safe_softmax(x: Decomposition, axis: int, _dtype: torch.dtype | None = None) -> Decomposition:
    """The softmax of attention: zeros where everything is masked."""
    largest = x.reduce("amax", [axis])
    raised = (x - largest.where(largest > -math.inf, 0.0)).exp()
    total = raised.reduce("sum", [axis])
    return raised / total.where(total > 0.0, 1.0)


def _log_softmax(x: Decomposition, axis: int, _half: bool) -> Decomposition:
    apart = x - x.reduce("amax", [axis])
    return apart - apart.exp().reduce("sum", [axis]).log()


def _softmax_backward(d: Decomposition, y: Decomposition, axis: int, _dtype: torch.dtype) -> Decomposition:
    weighted = d * y
    return weighted - y * weighted.reduce("sum", [axis])


def _log_softmax_backward(d: Decomposition, y: Decomposition, axis: int, _dtype: torch.dtype) -> Decomposition:
    return d - y.exp() * d.reduce("sum", [axis])


_SIXTH = 0.1666666716337204
"""1/6 as in torch's gradient of hardsigmoid: with the digits of float32, even in float64."""


def layer_norm(
    x: Decomposition, weight: Decomposition | None, bias: Decomposition | None, eps: float
) -> tuple[Decomposition, Decomposition, Decomposition]:
    """Groups normalised along the last axis; their means, and the reciprocals of their standard deviations."""
    mean = x.mean([1])
    apart = x - mean
    scale = ((apart * apart).mean([1]) + eps).rsqrt()
    y = apart * scale
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, scale


def layer_norm_backward(
    d: Decomposition, x: Decomposition, mean: Decomposition, scale: Decomposition, weight: Decomposition | None
) -> Decomposition:
    """The gradient of the input of `layer_norm`."""
    d = d if weight is None else d * weight
    normalized = (x - mean) * scale
    return (d - d.mean([1]) - normalized * (d * normalized).mean([1])) * scale


COMPOSITES: dict[str, Callable[..., Decomposition]] = {
    "sigmoid_backward": lambda d, y: d * (y * (1.0 - y)),
    "tanh_backward": lambda d, y: d * (1.0 - y * y),
    "threshold_backward": lambda d, y, threshold: _zero_where(y <= threshold, d),
    "square": lambda x: x * x,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "hardtanh": lambda x, low=-1.0, high=1.0: _clamp(x, low, high),
    "hardtanh_backward": _hardtanh_backward,
    "silu": lambda x: x * x.sigmoid(),
    "silu_backward": _silu_backward,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "softplus": _softplus,
    "softplus_backward": _softplus_backward,
    "elu": _elu,
    "elu_backward": _elu_backward,
    "leaky_relu": _leaky_relu,
    "leaky_relu_backward": _leaky_relu_backward,
    "hardsigmoid": _hardsigmoid,
    "hardsigmoid_backward": lambda d, x: (d * _SIXTH).where(_within(x, -3.0, 3.0), 0.0),
    "hardswish": lambda x: x * _hardsigmoid(x),
    "hardswish_backward": _hardswish_backward,
    "mish": lambda x: x * _softplus(x).tanh(),
    "mish_backward": _mish_backward,
    "_softmax": _softmax,
    "_safe_softmax": _safe_softmax,
    "_log_softmax": _log_softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _log_softmax_backward,
}
"""Formulas by the name of the operation, for `lowering="composite"` and `"composite_along_dim"`."""
