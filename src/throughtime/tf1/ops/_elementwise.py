"""Functions of single numbers."""

from __future__ import annotations

import torch

from throughtime.tf1.ops._helpers import torch_dtype, unary
from throughtime.tf1.ops._table import Static, Tensor, operation

_TABLE = {
    "acos": ("Acos", torch.acos, "The inverse cosine."),
    "acosh": ("Acosh", torch.acosh, "The inverse hyperbolic cosine."),
    "asin": ("Asin", torch.asin, "The inverse sine."),
    "asinh": ("Asinh", torch.asinh, "The inverse hyperbolic sine."),
    "atan": ("Atan", torch.atan, "The inverse tangent."),
    "atanh": ("Atanh", torch.atanh, "The inverse hyperbolic tangent."),
    "cos": ("Cos", torch.cos, "The cosine."),
    "cosh": ("Cosh", torch.cosh, "The hyperbolic cosine."),
    "digamma": ("Digamma", torch.digamma, "The derivative of `lgamma`."),
    "erf": ("Erf", torch.erf, "The error function."),
    "erfc": ("Erfc", torch.erfc, "One less the error function."),
    "exp": ("Exp", torch.exp, "The exponential."),
    "expm1": ("Expm1", torch.expm1, "The exponential less one."),
    "lgamma": ("Lgamma", torch.lgamma, "The logarithm of the gamma function."),
    "log": ("Log", torch.log, "The natural logarithm."),
    "log1p": ("Log1p", torch.log1p, "The logarithm of one more."),
    "log_sigmoid": ("LogSigmoid", torch.nn.functional.logsigmoid, "The logarithm of the sigmoid."),
    "reciprocal": ("Reciprocal", torch.reciprocal, "One divided by the value."),
    "rsqrt": ("Rsqrt", torch.rsqrt, "One divided by the square root."),
    "sigmoid": ("Sigmoid", torch.sigmoid, "The logistic function."),
    "sign": ("Sign", torch.sgn, "The sign: -1, 0 or 1."),
    "sin": ("Sin", torch.sin, "The sine."),
    "sinh": ("Sinh", torch.sinh, "The hyperbolic sine."),
    "sqrt": ("Sqrt", torch.sqrt, "The square root."),
    "square": ("Square", lambda x: x * x, "The square."),
    "tan": ("Tan", torch.tan, "The tangent."),
    "tanh": ("Tanh", torch.tanh, "The hyperbolic tangent."),
}
for _name, (_op_name, _function, _doc) in _TABLE.items():
    unary(_name, _op_name, _function, _doc)

_BESSEL = {
    "bessel_i0": torch.special.i0,
    "bessel_i1": torch.special.i1,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1e": torch.special.i1e,
}
for _name, _function in _BESSEL.items():
    unary(
        f"math.{_name}",
        _name,
        _function,
        "A modified Bessel function.",
        scope=_name.title().replace("_", "").replace("E", "e") if _name.endswith("e") else _name,
    )


def _rounding(name: str, op_name: str, function: str, doc: str) -> None:
    """TensorFlow has no gradient of these, rather than a gradient of zero; whole numbers stay as they are."""
    compute = getattr(torch, function)
    unary(name, op_name, lambda x: compute(x) if x.is_floating_point() else x, doc, differentiable=False)


_rounding("ceil", "Ceil", "ceil", "The next whole number above.")
_rounding("floor", "Floor", "floor", "The next whole number below.")
_rounding("rint", "Rint", "round", "The nearest whole number, halves to even ones.")
_rounding("round", "Round", "round", "The nearest whole number, halves to even ones.")

for _name, _function, _doc in (
    ("is_finite", torch.isfinite, "Where a number is neither infinite nor NaN."),
    ("is_inf", torch.isinf, "Where a number is infinite."),
    ("is_nan", torch.isnan, "Where a number is NaN."),
):
    unary(
        _name,
        {"is_finite": "IsFinite", "is_inf": "IsInf", "is_nan": "IsNan"}[_name],
        _function,
        _doc,
        differentiable=False,
    )

unary("real", "Real", lambda x: x.real if x.is_complex() else x, "The real part.", argument="input")
unary(
    "imag",
    "Imag",
    lambda x: torch.imag(x) if x.is_complex() else torch.zeros_like(x),
    "The imaginary part.",
    argument="input",
)
unary("angle", "Angle", torch.angle, "The angle of a complex number.", argument="input")
unary("conj", "Conj", lambda x: torch.conj(x).resolve_conj(), "The conjugate.")
unary("bitwise.invert", "Invert", torch.bitwise_not, "All bits inverted.", scope="Invert", differentiable=False)
unary(
    "math.reciprocal_no_nan",
    "reciprocal_no_nan",
    lambda x: torch.where(x == 0, 0, 1 / torch.where(x == 0, 1, x)),
    "One divided by the value, zero for zero.",
)


@operation("math.lbeta", "lbeta", op_name="Lbeta", scope="lbeta")
def lbeta(x: Tensor) -> Tensor:
    """The logarithm of the beta function of the numbers along the last axis."""
    return torch.lgamma(x).sum(-1) - torch.lgamma(x.sum(-1))


@operation(
    "zeros_like",
    op_name="ZerosLike",
    scope="zeros_like",
    differentiable=False,
    positional=("tensor", "dtype", "name", "optimize"),
)
def zeros_like(tensor: Tensor, dtype: Static = None, optimize: Static = True) -> Tensor:
    """Zeros in the shape of a tensor."""
    return torch.zeros_like(tensor, dtype=None if dtype is None else torch_dtype(dtype))


@operation(
    "ones_like",
    op_name="OnesLike",
    scope="ones_like",
    differentiable=False,
    positional=("tensor", "dtype", "name", "optimize"),
)
def ones_like(tensor: Tensor, dtype: Static = None, optimize: Static = True) -> Tensor:
    """Ones in the shape of a tensor."""
    return torch.ones_like(tensor, dtype=None if dtype is None else torch_dtype(dtype))


def _to(name: str, dtype: str) -> None:
    def kernel(x: Tensor) -> Tensor:
        return x.to(torch_dtype(dtype))

    kernel.__doc__ = f"`x` as {dtype}."
    operation(name, op_name="Cast", scope=f"To{name[3:].title()}".replace("Bf", "BF"))(kernel)


for _name, _kind in {
    "to_float": "float32",
    "to_double": "float64",
    "to_int32": "int32",
    "to_int64": "int64",
    "to_bfloat16": "bfloat16",
    "to_complex64": "complex64",
    "to_complex128": "complex128",
}.items():
    _to(_name, _kind)


@operation("saturate_cast", op_name="Cast", scope="saturate_cast")
def saturate_cast(value: Tensor, dtype: Static) -> Tensor:
    """`value` in another dtype, clipped to its range."""
    kind = torch_dtype(dtype)
    limits = torch.finfo(kind) if kind.is_floating_point else torch.iinfo(kind)
    return value.clamp(limits.min, limits.max).to(kind)


@operation("bitcast", op_name="Bitcast", differentiable=False)
def bitcast(input: Tensor, type: Static) -> Tensor:  # noqa: A002
    """The same bits as another dtype; a wider or narrower one adds or removes a last axis."""
    kind = torch_dtype(type)
    narrower = kind.itemsize < input.dtype.itemsize
    wider = kind.itemsize > input.dtype.itemsize
    found = (input.unsqueeze(-1) if narrower else input).view(kind)
    return found.squeeze(-1) if wider else found


@operation(
    "clip_by_value", op_name="Maximum", scope="clip_by_value", same_dtype=("t", "clip_value_min", "clip_value_max")
)
def clip_by_value(t: Tensor, clip_value_min: Tensor, clip_value_max: Tensor) -> Tensor:
    """`t` limited to an interval."""
    return torch.maximum(torch.minimum(t, clip_value_max), clip_value_min)


@operation("complex", op_name="Complex", same_dtype=("real", "imag"))
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """A complex number of two parts."""
    return torch.complex(*torch.broadcast_tensors(real, imag))
