"""Functions of single numbers: arithmetic, exponentials, trigonometry, rounding, casts, bits, complex numbers."""

import numpy as np

from .case import case, floats, ints
from .families import function

# name: the interval that arguments are drawn from.
UNARY = {
    "abs": (-2, 2),
    "acos": (-0.9, 0.9),
    "acosh": (1.1, 3),
    "asin": (-0.9, 0.9),
    "asinh": (-2, 2),
    "atan": (-2, 2),
    "atanh": (-0.9, 0.9),
    "ceil": (-3, 3),
    "cos": (-4, 4),
    "cosh": (-2, 2),
    "digamma": (0.2, 4),
    "erf": (-2, 2),
    "erfc": (-2, 2),
    "exp": (-2, 2),
    "expm1": (-2, 2),
    "floor": (-3, 3),
    "lgamma": (0.2, 4),
    "log": (0.1, 4),
    "log1p": (-0.9, 4),
    "log_sigmoid": (-3, 3),
    "negative": (-2, 2),
    "reciprocal": (0.3, 3),
    "rint": (-3, 3),
    "round": (-3, 3),
    "rsqrt": (0.2, 4),
    "sigmoid": (-4, 4),
    "sign": (-2, 2),
    "sin": (-4, 4),
    "sinh": (-2, 2),
    "sqrt": (0.1, 4),
    "square": (-2, 2),
    "tan": (-1.2, 1.2),
    "tanh": (-3, 3),
    "identity": (-2, 2),
    "math.bessel_i0": (-2, 2),
    "math.bessel_i1": (-2, 2),
    "math.bessel_i0e": (-2, 2),
    "math.bessel_i1e": (-2, 2),
    "math.softplus": (-3, 3),
    "math.lbeta": (0.2, 4),
    "stop_gradient": (-2, 2),
    "zeros_like": (-2, 2),
    "ones_like": (-2, 2),
}
for _name, (_low, _high) in UNARY.items():
    for _shape in ((2, 3), ()) if _name != "math.lbeta" else ((2, 3),):
        case(_name, lambda tf, x, f=_name: function(tf, f)(x), x=floats(*_shape, low=_low, high=_high))
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, name="named"), "named", x=floats(4, low=_low, high=_high))
for _name in ("abs", "exp", "tanh", "square", "sigmoid", "sqrt", "log", "negative"):
    case(_name, lambda tf, x, f=_name: function(tf, f)(x), "float64", x=floats(3, low=0.1, dtype="float64"))
for _name in ("abs", "negative", "sign", "square", "zeros_like", "ones_like"):
    case(_name, lambda tf, x, f=_name: function(tf, f)(x), "int32", x=ints(5, low=-4))
case("round", lambda tf, x: tf.round(x), "half_to_even", x=np.array([0.5, 1.5, -0.5, -2.5], "float32"), gradients=False)
case("zeros_like", lambda tf, x: tf.zeros_like(x, dtype=tf.int32), "dtype", x=floats(2, 3))
case("ones_like", lambda tf, x: tf.ones_like(x, dtype="float64"), "dtype", x=floats(2, 3))

# name: the intervals of both arguments.
BINARY = {
    "add": ((-2, 2), (-2, 2)),
    "subtract": ((-2, 2), (-2, 2)),
    "multiply": ((-2, 2), (-2, 2)),
    "divide": ((-2, 2), (0.3, 2)),
    "truediv": ((-2, 2), (0.3, 2)),
    "div": ((-2, 2), (0.3, 2)),
    "realdiv": ((-2, 2), (0.3, 2)),
    "div_no_nan": ((-2, 2), (0.3, 2)),
    "floordiv": ((-5, 5), (0.3, 2)),
    "floor_div": ((-5, 5), (0.3, 2)),
    "mod": ((-5, 5), (0.3, 2)),
    "floormod": ((-5, 5), (-2, -0.3)),
    "truncatemod": ((-5, 5), (0.3, 2)),
    "maximum": ((-2, 2), (-2, 2)),
    "minimum": ((-2, 2), (-2, 2)),
    "pow": ((0.2, 2), (-2, 2)),
    "squared_difference": ((-2, 2), (-2, 2)),
    "atan2": ((-2, 2), (0.3, 2)),
    "igamma": ((0.5, 3), (0.2, 3)),
    "igammac": ((0.5, 3), (0.2, 3)),
    "zeta": ((1.5, 4), (0.5, 3)),
    "polygamma": ((1, 1.001), (0.5, 3)),
    "math.multiply_no_nan": ((-2, 2), (-2, 2)),
    "math.xlogy": ((0, 2), (0.1, 2)),
    "math.xdivy": ((0.1, 2), (0.3, 2)),
    "math.nextafter": ((-2, 2), (-2, 2)),
    "math.scalar_mul": ((1, 2), (-2, 2)),
}
# TensorFlow 1.15 has no gradient of these, or a wrong one where shapes are broadcast.
WITHOUT_GRADIENT = {
    "truncatemod",
    "atan2",
    "igamma",
    "igammac",
    "zeta",
    "polygamma",
    "floordiv",
    "floor_div",
    "math.nextafter",
    "math.xlogy",
}
for _name, ((_a, _b), (_c, _d)) in BINARY.items():
    _kind = "float64" if _name == "math.nextafter" else "float32"
    for _left, _right in (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (3,)), ((), (2,))):
        if _name == "math.scalar_mul" and _left != ():
            continue
        _whole = _name == "polygamma"
        _x = np.ones(_left, "float32") if _whole else floats(*_left, low=_a, high=_b, dtype=_kind)
        case(
            _name,
            lambda tf, x, y, f=_name: function(tf, f)(x, y),
            "%s,%s" % (_left, _right),
            gradients=_name not in WITHOUT_GRADIENT,
            x=_x,
            y=floats(*_right, low=_c, high=_d, dtype=_kind, salt=1),
        )
for _name in ("add", "subtract", "multiply", "maximum", "minimum", "pow", "squared_difference"):
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, 2.0), "python_number", x=floats(3, low=0.2))
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, [1.0, 2.0, 0.5]), "python_list", x=floats(3, low=0.2))
    case(_name, lambda tf, x, y, f=_name: function(tf, f)(x, y), "int32", x=ints(5), y=ints(5, salt=1))
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, x, name="named"), "named", x=floats(3, low=0.2))
for _name in ("floordiv", "floor_div", "mod", "floormod", "truncatediv", "truncatemod", "div", "truediv", "divide"):
    case(
        _name,
        lambda tf, x, y, f=_name: function(tf, f)(x, y),
        "int32",
        x=ints(6, low=-7, below=7),
        y=np.array([2, 3, -2, 4, -3, 5], "int32"),
    )
case(
    "div_no_nan",
    lambda tf, x, y: tf.div_no_nan(x, y),
    "zero",
    gradients=False,
    x=floats(3),
    y=np.array([0, 1, 0], "float32"),
)
case(
    "math.divide_no_nan",
    lambda tf, x, y: tf.math.divide_no_nan(x, y),
    x=floats(3),
    y=np.array([0, 1, 0], "float32"),
    gradients=False,
)
case("atan2", lambda tf, x, y: tf.atan2(x, y), "gradients", x=floats(2, 3), y=floats(2, 3, salt=1))
case(
    "betainc",
    lambda tf, a, b, x: tf.betainc(a, b, x),
    gradients=False,
    tolerance=1e-4,
    a=floats(4, low=0.5, high=3),
    b=floats(4, low=0.5, high=3, salt=1),
    x=floats(4, low=0.1, high=0.9),
)
case("lbeta", lambda tf, x: tf.lbeta(x), x=floats(2, 3, low=0.2, high=4))
case("scalar_mul", lambda tf, x: tf.scalar_mul(3.0, x), x=floats(2, 3))
case("scalar_mul", lambda tf, s, x: tf.scalar_mul(s, x), "tensor", s=floats(), x=floats(2, 3))
case("add_n", lambda tf, x, y, z: tf.add_n([x, y, z]), x=floats(2, 3), y=floats(2, 3, salt=1), z=floats(2, 3, salt=2))
case("add_n", lambda tf, x: tf.add_n([x]), "one", x=floats(2, 3))
case("accumulate_n", lambda tf, x, y: tf.accumulate_n([x, y]), x=floats(2, 3), y=floats(2, 3, salt=1))
case("math.reciprocal_no_nan", lambda tf, x: tf.math.reciprocal_no_nan(x), x=floats(3, low=0.3))
case(
    "math.reciprocal_no_nan",
    lambda tf, x: tf.math.reciprocal_no_nan(x),
    "zero",
    gradients=False,
    x=np.zeros(2, "float32"),
)
case("math.polyval", lambda tf, a, b, x: tf.math.polyval([a, b, 2.0], x), a=floats(), b=floats(salt=1), x=floats(3))
case("clip_by_value", lambda tf, x: tf.clip_by_value(x, -1.0, 0.5), x=floats(3, 4))
case(
    "clip_by_value",
    lambda tf, x, low, high: tf.clip_by_value(x, low, high),
    "tensors",
    x=floats(3, 4),
    low=floats(4, low=-2, high=-1),
    high=floats(4, low=0, high=1),
)
case("clip_by_value", lambda tf, x: tf.clip_by_value(t=x, clip_value_min=1, clip_value_max=3), "int32", x=ints(6))

# Operators of tensors.
OPERATORS = {
    "__add__": lambda x, y: x + y,
    "__sub__": lambda x, y: x - y,
    "__mul__": lambda x, y: x * y,
    "__truediv__": lambda x, y: x / y,
    "__floordiv__": lambda x, y: x // y,
    "__mod__": lambda x, y: x % y,
    "__pow__": lambda x, y: abs(x) ** y,
    "__neg__": lambda x, y: -x,
    "__lt__": lambda x, y: x < y,
    "__gt__": lambda x, y: x > y,
    "__le__": lambda x, y: x <= y,
    "__ge__": lambda x, y: x >= y,
    "__radd__": lambda x, y: 2 + x,
    "__rsub__": lambda x, y: 2 - x,
    "__rmul__": lambda x, y: 2 * x,
    "__rtruediv__": lambda x, y: 2 / x,
    "__rpow__": lambda x, y: 2**x,
    "__add__number": lambda x, y: x + 1,
    "__mul__array": lambda x, y: x * np.array([1, 2, 3], "float32"),
    "__abs__": lambda x, y: abs(x),
    "__rfloordiv__": lambda x, y: 2 // x,
    "__rmod__": lambda x, y: 5 % x,
}
for _name, _f in OPERATORS.items():
    case(
        "Tensor." + _name,
        lambda tf, x, y, f=_f: f(x, y),
        gradients="floordiv" not in _name and "mod" not in _name,
        x=floats(2, 3),
        y=floats(3, low=0.3),
    )
case("Tensor.__floordiv__", lambda tf, x: x // 2, "int32", x=ints(5, low=-4))
case("Tensor.__truediv__", lambda tf, x: x / 2, "int32", x=ints(5, low=-4))
case("Tensor.__and__", lambda tf, x, y: x & y, x=ints(4, below=2).astype(bool), y=ints(4, below=2, salt=1).astype(bool))
case("Tensor.__or__", lambda tf, x, y: x | y, x=ints(4, below=2).astype(bool), y=ints(4, below=2, salt=1).astype(bool))
case("Tensor.__xor__", lambda tf, x, y: x ^ y, x=ints(4, below=2).astype(bool), y=ints(4, below=2, salt=1).astype(bool))
case("Tensor.__invert__", lambda tf, x: ~x, x=ints(4, below=2).astype(bool))
case("Tensor.__matmul__", lambda tf, x, y: x @ y, x=floats(2, 3), y=floats(3, 4))

# Casts.
for _to in ("float32", "float64", "int32", "int64", "bool", "uint8", "int8", "int16", "float16"):
    for _x in (floats(2, 3, low=0, high=9), ints(4, below=3), ints(4, below=2).astype(bool)):
        case("cast", lambda tf, x, to=_to: tf.cast(x, function(tf, to)), "%s_to_%s" % (_x.dtype, _to), x=_x)
case("cast", lambda tf, x: tf.cast(x, "int32"), "dtype_by_name", x=floats(3, high=9))
case("cast", lambda tf, x: tf.cast(x, tf.float32), "same", x=floats(3))
for _name in ("to_float", "to_double", "to_int32", "to_int64", "to_complex64", "to_complex128"):
    case(_name, lambda tf, x, f=_name: function(tf, f)(x), x=floats(3, high=9), gradients="complex" not in _name)
case("to_bfloat16", lambda tf, x: tf.to_float(tf.to_bfloat16(x)), x=floats(3, high=9), gradients=False)
case(
    "saturate_cast", lambda tf, x: tf.saturate_cast(x, tf.uint8), x=np.array([-4, 3.7, 300], "float32"), gradients=False
)
case("saturate_cast", lambda tf, x: tf.saturate_cast(x, tf.int8), "int32", x=np.array([-400, 3, 300], "int32"))
case("bitcast", lambda tf, x: tf.bitcast(x, tf.int32), x=floats(3), gradients=False)
case("bitcast", lambda tf, x: tf.bitcast(x, tf.float32), "back", x=ints(3, low=1 << 29, below=1 << 30), gradients=False)

for _name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"):
    case(
        "bitwise." + _name,
        lambda tf, x, y, f=_name: getattr(tf.bitwise, f)(x, y),
        x=ints(5, below=50),
        y=ints(5, salt=1),
    )
case("bitwise.invert", lambda tf, x: tf.bitwise.invert(x), x=ints(5, below=50))

# Complex numbers.
case("complex", lambda tf, x, y: tf.complex(x, y), x=floats(3), y=floats(3, salt=1))
for _name in ("real", "imag", "angle", "abs", "conj"):
    case(
        _name,
        lambda tf, x, y, f=_name: function(tf, f)(tf.complex(x, y)),
        "complex",
        gradients=_name in ("real", "imag", "abs"),
        x=floats(3),
        y=floats(3, salt=1),
    )
for _name in ("real", "imag", "conj", "angle"):
    case(_name, lambda tf, x, f=_name: function(tf, f)(x), "of_float", gradients=False, x=floats(3))
case("math.conj", lambda tf, x: tf.math.conj(x), x=floats(3))
case(
    "multiply",
    lambda tf, x, y: tf.multiply(tf.complex(x, y), tf.complex(y, x)),
    "complex",
    x=floats(3),
    y=floats(3, salt=1),
    gradients=False,
)
