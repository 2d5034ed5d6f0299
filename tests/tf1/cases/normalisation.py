"""Batch and local response normalisation."""

import functools

from . import case as _case
from .case import floats

# Kernels and parameters are variables: their shapes are known.
case = functools.partial(_case.case, known=("m", "v", "b", "g"))
_variance = floats(3, low=0.3, high=2)
case(
    "nn.batch_normalization",
    lambda tf, x, m, v, b, g: tf.nn.batch_normalization(x, m, v, b, g, 0.001),
    x=floats(4, 3),
    m=floats(3),
    v=_variance,
    b=floats(3, salt=1),
    g=floats(3, salt=2),
)
case(
    "nn.batch_normalization",
    lambda tf, x, m, v: tf.nn.batch_normalization(x, m, v, None, None, 0.001),
    "bare",
    x=floats(4, 3),
    m=floats(3),
    v=_variance,
)
case(
    "nn.batch_normalization",
    lambda tf, x: tf.nn.batch_normalization(x, *tf.nn.moments(x, [0]), offset=None, scale=None, variance_epsilon=1e-3),
    "of_moments",
    x=floats(4, 3),
)
case(
    "nn.batch_norm_with_global_normalization",
    lambda tf, x, m, v, b, g: tf.nn.batch_norm_with_global_normalization(x, m, v, b, g, 0.001, True),
    x=floats(2, 2, 2, 3),
    m=floats(3),
    v=_variance,
    b=floats(3, salt=1),
    g=floats(3, salt=2),
)
case(
    "nn.fused_batch_norm",
    lambda tf, x, g, b: tf.nn.fused_batch_norm(x, g, b),
    "training",
    x=floats(2, 3, 3, 3),
    b=floats(3, salt=1),
    g=floats(3, salt=2),
    tolerance=1e-4,
    gradients=False,
)
case(
    "nn.fused_batch_norm",
    lambda tf, x, g, b: tf.nn.fused_batch_norm(x, g, b)[0],
    "gradients",
    x=floats(2, 3, 3, 3),
    b=floats(3, salt=1),
    g=floats(3, salt=2),
    tolerance=1e-4,
)
case(
    "nn.fused_batch_norm",
    lambda tf, x, g, b, m, v: tf.nn.fused_batch_norm(x, g, b, m, v, is_training=False)[0],
    "inference",
    x=floats(2, 3, 3, 3),
    b=floats(3, salt=1),
    g=floats(3, salt=2),
    m=floats(3),
    v=_variance,
    tolerance=1e-4,
    gradients=False,
)
for _label, _keywords in {"plain": {}, "narrow": {"depth_radius": 1, "bias": 2.0, "alpha": 0.3, "beta": 0.75}}.items():
    for _name in ("local_response_normalization", "lrn"):
        case(
            "nn." + _name,
            lambda tf, x, f=_name, k=_keywords: getattr(tf.nn, f)(x, **k),
            _label,
            x=floats(1, 2, 2, 7),
            tolerance=1e-4,
        )
