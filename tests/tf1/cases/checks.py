"""Checks: assertions that hold, finite numbers, ranks and types."""

import numpy as np

from .case import case, floats, ints


def _after(tf, check, x):
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(x)


_x = np.array([1, 2, 3], "int32")
PAIRS = {"equal": 0, "greater": -1, "greater_equal": -1, "less": 1, "less_equal": 1, "none_equal": 1, "near": 0}
for _name, _shift in PAIRS.items():
    _value = _x.astype("float32") if _name == "near" else _x
    case(
        "assert_" + _name,
        lambda tf, x, f="assert_" + _name, s=_shift: _after(tf, getattr(tf, f)(x, x + s), x),
        x=_value,
        shapes=False,
        gradients=False,
    )
    case(
        "debugging.assert_" + _name,
        lambda tf, x, f="assert_" + _name, s=_shift: _after(tf, getattr(tf.debugging, f)(x, x + s, message="no"), x),
        x=_value,
        shapes=False,
        gradients=False,
    )
for _name, _value in (("positive", _x), ("negative", -_x), ("non_negative", _x), ("non_positive", -_x)):
    case("assert_" + _name, lambda tf, x, f="assert_" + _name: _after(tf, getattr(tf, f)(x), x), x=_value, shapes=False)
for _name, _argument in (("rank", 1), ("rank_at_least", 1), ("rank_in", (1, 2))):
    case(
        "assert_" + _name,
        lambda tf, x, f="assert_" + _name, a=_argument: _after(tf, getattr(tf, f)(x, a), x),
        x=_x,
        shapes=False,
    )
case("assert_integer", lambda tf, x: _after(tf, tf.assert_integer(x), x), x=_x, shapes=False)
case("assert_type", lambda tf, x: _after(tf, tf.assert_type(x, tf.int32), x), x=_x, shapes=False)
case("assert_scalar", lambda tf, x: tf.assert_scalar(x), x=floats(), shapes=False)
case("Assert", lambda tf, x: _after(tf, tf.Assert(tf.reduce_all(x > 0), [x]), x), x=_x, shapes=False)
case("check_numerics", lambda tf, x: tf.check_numerics(x, "bad"), x=floats(3))
case("verify_tensor_all_finite", lambda tf, x: tf.verify_tensor_all_finite(x, "bad"), x=floats(3))
case("debugging.assert_all_finite", lambda tf, x: tf.debugging.assert_all_finite(x, "bad"), x=floats(3))
case("is_numeric_tensor", lambda tf, x: tf.constant(tf.is_numeric_tensor(x)), x=ints(3))
case("is_tensor", lambda tf, x: tf.constant([tf.is_tensor(x), tf.is_tensor(3)]), x=ints(3))
case(
    "contrib.framework.is_tensor",
    lambda tf, x: tf.constant([tf.contrib.framework.is_tensor(x), tf.contrib.framework.is_tensor(3)]),
    x=ints(3),
)
