"""Comparisons, logic, selection, checks of numbers."""

import numpy as np

from .case import bools, case, floats, ints
from .families import function

for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    for _left, _right in (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (3,))):
        case(
            _name,
            lambda tf, x, y, f=_name: function(tf, f)(x, y),
            "%s,%s" % (_left, _right),
            x=ints(*_left),
            y=ints(*_right, salt=1),
        )
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, 0.5), "number", x=floats(3))
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, x, name="named"), "named", x=floats(3))
for _name in ("equal", "not_equal"):
    case(_name, lambda tf, x, y, f=_name: function(tf, f)(x, y), "bool", x=bools(4), y=bools(4, salt=1))
for _name in ("logical_and", "logical_or", "logical_xor"):
    case(_name, lambda tf, x, y, f=_name: function(tf, f)(x, y), x=bools(2, 3), y=bools(2, 3, salt=1))
    case(_name, lambda tf, x, y, f=_name: function(tf, f)(x, y), "broadcast", x=bools(2, 3), y=bools(3, salt=1))
case("logical_not", lambda tf, x: tf.logical_not(x), x=bools(2, 3))

_odd = np.array([1, np.nan, np.inf, -np.inf], "float32")
for _name in ("is_finite", "is_inf", "is_nan"):
    case(_name, lambda tf, x, f=_name: function(tf, f)(x), x=_odd)
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, name="named"), "named", x=floats(2, 2))
for _name in ("is_non_decreasing", "is_strictly_increasing"):
    for _x in ([1, 2, 2], [1, 2, 3], [3, 2], [], [5]):
        case(_name, lambda tf, x, f=_name: function(tf, f)(x), x=np.array(_x, "float32"))

case("where", lambda tf, c, x, y: tf.where(c, x, y), "select", c=bools(2, 3), x=floats(2, 3), y=floats(2, 3, salt=1))
case("where", lambda tf, c, x, y: tf.where(c, x, y), "rows", c=bools(4), x=floats(4, 3), y=floats(4, 3, salt=1))
case("where", lambda tf, c, x, y: tf.where(c, x, y), "scalar", c=np.array(True), x=floats(), y=floats(salt=1))
case("where", lambda tf, c, x: tf.where(c, x, tf.zeros_like(x)), "zeros", c=bools(2, 3), x=floats(2, 3))
case("where", lambda tf, x: tf.where(x > 0, x, -x, name="named"), "named", x=floats(2, 3))
case("where", lambda tf, c: tf.where(c), "indices", c=bools(3, 4))
case("where", lambda tf, x: tf.where(tf.equal(x, 1)), "of_equal", x=ints(9, below=2))
case("where", lambda tf, x: tf.where(x), "of_ints", x=ints(5, below=2))
case("where_v2", lambda tf, c, x, y: tf.where_v2(c, x, y), c=bools(3), x=floats(2, 3), y=floats(2, 1))
case("where_v2", lambda tf, c, x: tf.where_v2(c, x, 0.0), "number", c=bools(2, 1), x=floats(2, 3))
case("where_v2", lambda tf, c: tf.where_v2(c), "indices", c=bools(4))
