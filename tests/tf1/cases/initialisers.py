"""Initialisers of variables, by every name they have, with seeds."""

import numpy as np

from .case import case
from .families import function

INITIALISERS = {
    "zeros_initializer": {},
    "ones_initializer": {},
    "constant_initializer": {"value": 2.5},
    "random_uniform_initializer": {"minval": -0.3, "maxval": 0.2, "seed": 3},
    "random_normal_initializer": {"mean": 0.1, "stddev": 0.5, "seed": 3},
    "truncated_normal_initializer": {"stddev": 0.1, "seed": 3},
    "uniform_unit_scaling_initializer": {"factor": 1.5, "seed": 3},
    "variance_scaling_initializer": {"scale": 2.0, "seed": 3},
    "glorot_uniform_initializer": {"seed": 3},
    "glorot_normal_initializer": {"seed": 3},
    "orthogonal_initializer": {"gain": 1.5, "seed": 3},
    "initializers.zeros": {},
    "initializers.ones": {},
    "initializers.constant": {"value": 3.0},
    "initializers.random_uniform": {"seed": 3},
    "initializers.random_normal": {"seed": 3},
    "initializers.truncated_normal": {"seed": 3},
    "initializers.orthogonal": {"seed": 3},
    "initializers.he_normal": {"seed": 3},
    "initializers.he_uniform": {"seed": 3},
    "initializers.lecun_normal": {"seed": 3},
    "initializers.lecun_uniform": {"seed": 3},
    "initializers.glorot_uniform": {"seed": 3},
    "initializers.glorot_normal": {"seed": 3},
    "initializers.identity": {},
    "initializers.variance_scaling": {"seed": 3},
    "initializers.uniform_unit_scaling": {"seed": 3},
    "contrib.layers.xavier_initializer": {"seed": 3},
    "contrib.layers.variance_scaling_initializer": {"seed": 3},
}
for _name, _keywords in INITIALISERS.items():
    for _shape in ((6, 4), (7,), (3, 3, 2, 5)):
        if ("orthogonal" in _name and len(_shape) < 2) or ("identity" in _name and len(_shape) != 2):
            continue
        case(
            _name,
            lambda tf, f=_name, s=_shape, k=_keywords: function(tf, f)(**k)(s),
            "%s" % (_shape,),
            seed=8,
            tolerance=1e-5 if "orthogonal" in _name else 0,
            shapes=False,
        )
    case(
        _name,
        lambda tf, f=_name, k=_keywords: tf.get_variable("w", [4, 4], initializer=function(tf, f)(**k)),
        "variable",
        seed=8,
        tolerance=1e-5 if "orthogonal" in _name else 0,
        shapes=False,
    )
for _label, _keywords in {
    "fan_out": {"mode": "fan_out"},
    "fan_avg_uniform": {"mode": "fan_avg", "distribution": "uniform"},
    "untruncated": {"distribution": "untruncated_normal"},
    "normal": {"distribution": "normal", "scale": 3.0},
}.items():
    case(
        "variance_scaling_initializer",
        lambda tf, k=_keywords: tf.variance_scaling_initializer(seed=3, **k)([5, 7]),
        _label,
        seed=8,
        tolerance=0,
        shapes=False,
    )
for _label, _keywords in {
    "factor": {"factor": 1.0},
    "avg_uniform": {"mode": "FAN_AVG", "uniform": True},
    "out": {"mode": "FAN_OUT"},
}.items():
    case(
        "contrib.layers.variance_scaling_initializer",
        lambda tf, k=_keywords: tf.contrib.layers.variance_scaling_initializer(seed=3, **k)([5, 7]),
        _label,
        seed=8,
        tolerance=0,
        shapes=False,
    )
case(
    "contrib.layers.xavier_initializer",
    lambda tf: tf.contrib.layers.xavier_initializer(uniform=False, seed=3)([5, 7]),
    "normal",
    seed=8,
    tolerance=0,
    shapes=False,
)
case(
    "contrib.layers.xavier_initializer_conv2d",
    lambda tf: tf.contrib.layers.xavier_initializer_conv2d(seed=3)([3, 3, 2, 4]),
    seed=8,
    tolerance=0,
    shapes=False,
)
case("constant_initializer", lambda tf: tf.constant_initializer([1.0, 2.0, 3.0, 4.0])([2, 2]), "list", shapes=False)
case(
    "constant_initializer",
    lambda tf: tf.constant_initializer(np.arange(6).reshape(2, 3))([2, 3]),
    "array",
    shapes=False,
)
case("constant_initializer", lambda tf: tf.constant_initializer(5, dtype=tf.int32)([3]), "int32", shapes=False)
case("zeros_initializer", lambda tf: tf.zeros_initializer(dtype=tf.float64)([3]), "float64", shapes=False)
case("zeros_initializer", lambda tf: tf.zeros_initializer()([3], dtype=tf.int32), "dtype_of_call", shapes=False)
case(
    "keras.initializers.he_normal",
    lambda tf: tf.keras.initializers.he_normal(seed=3)([3, 4]),
    seed=8,
    tolerance=0,
    shapes=False,
)
