"""Names and argument orders from before TensorFlow 1.0: recorded under their present names."""

import numpy as np

from .case import bools, case, floats, ints


def old(tf, name, new):
    """`tf.<name>` where it exists, otherwise the function that took its place."""
    return getattr(tf, name, None) or new


for _name, _new in {"mul": "multiply", "sub": "subtract", "batch_matmul": "matmul"}.items():
    _shape = (2, 3, 3) if _name == "batch_matmul" else (2, 3)
    case(
        _name,
        lambda tf, x, y, n=_name, m=_new: old(tf, n, getattr(tf, m))(x, y),
        x=floats(*_shape),
        y=floats(*_shape, salt=1),
    )
for _name, _new in {"neg": "negative", "inv": "reciprocal", "complex_abs": "abs"}.items():
    case(_name, lambda tf, x, n=_name, m=_new: old(tf, n, getattr(tf, m))(x), x=floats(2, 3, low=0.3))
case("pack", lambda tf, x, y: old(tf, "pack", tf.stack)([x, y]), x=floats(2, 3), y=floats(2, 3, salt=1))
case("pack", lambda tf, x, y: old(tf, "pack", tf.stack)([x, y], axis=1), "axis", x=floats(2, 3), y=floats(2, 3, salt=1))
case("unpack", lambda tf, x: old(tf, "unpack", tf.unstack)(x), x=floats(2, 3))
case("unpack", lambda tf, x: old(tf, "unpack", tf.unstack)(x, axis=1), "axis", x=floats(2, 3))
case(
    "select",
    lambda tf, c, x, y: old(tf, "select", tf.where)(c, x, y),
    c=bools(2, 3),
    x=floats(2, 3),
    y=floats(2, 3, salt=1),
)
case("listdiff", lambda tf, x, y: old(tf, "listdiff", tf.setdiff1d)(x, y), x=ints(8), y=ints(2, salt=1))
case("concat", lambda tf, x, y: _old_concat(tf)(1, [x, y]), "axis_first", x=floats(2, 3), y=floats(2, 3, salt=1))
case(
    "concat",
    lambda tf, x, y: _old_concat(tf)(concat_dim=0, values=[x, y]),
    "concat_dim",
    x=floats(2, 3),
    y=floats(2, 3, salt=1),
)
case("concat_v2", lambda tf, x, y: old(tf, "concat_v2", tf.concat)([x, y], 1), x=floats(2, 3), y=floats(2, 3, salt=1))
case("split", lambda tf, x: _old_split(tf)(1, 2, x), "dim_first", x=floats(2, 4))
case("split", lambda tf, x: _old_split(tf)(split_dim=0, num_split=2, value=x), "split_dim", x=floats(2, 4))
for _name in ("batch_cholesky", "batch_matrix_inverse", "batch_matrix_determinant"):
    _x = floats(2, 3, 3) + 4 * np.eye(3, dtype="float32")
    _x = (_x + np.swapaxes(_x, 1, 2)) / 2
    case(_name, lambda tf, x, n=_name: old(tf, n, getattr(tf, n[6:]))(x), x=_x, tolerance=1e-4)
case("batch_matrix_diag", lambda tf, x: old(tf, "batch_matrix_diag", tf.matrix_diag)(x), x=floats(2, 3))
case(
    "batch_matrix_diag_part", lambda tf, x: old(tf, "batch_matrix_diag_part", tf.matrix_diag_part)(x), x=floats(2, 3, 3)
)
case(
    "nn.softmax_cross_entropy_with_logits",
    lambda tf, x, y: _old_loss(tf, "softmax_cross_entropy_with_logits")(x, y),
    "logits_first",
    x=floats(4, 5),
    y=floats(4, 5, low=0),
)
case(
    "nn.sparse_softmax_cross_entropy_with_logits",
    lambda tf, x, y: _old_loss(tf, "sparse_softmax_cross_entropy_with_logits")(x, y),
    "logits_first",
    x=floats(4, 5),
    y=ints(4),
)
case(
    "nn.sigmoid_cross_entropy_with_logits",
    lambda tf, x, y: _old_loss(tf, "sigmoid_cross_entropy_with_logits")(x, y),
    "logits_first",
    x=floats(4, 5),
    y=floats(4, 5, low=0, high=1),
)


def _is_ours(tf):
    return hasattr(tf, "pack")


def _old_concat(tf):
    return tf.concat if _is_ours(tf) else lambda concat_dim, values: tf.concat(values, concat_dim)


def _old_split(tf):
    return tf.split if _is_ours(tf) else lambda split_dim, num_split, value: tf.split(value, num_split, split_dim)


def _old_loss(tf, name):
    return (
        getattr(tf.nn, name)
        if _is_ours(tf)
        else lambda logits, labels: getattr(tf.nn, name)(logits=logits, labels=labels)
    )
