"""Losses of `tf.losses`: weights, reductions, collections."""

import numpy as np

from .case import case, floats, ints

_labels = np.abs(floats(4, 5, salt=2)) / np.abs(floats(4, 5, salt=2)).sum(1, keepdims=True)
PAIRS = (
    "absolute_difference",
    "mean_squared_error",
    "huber_loss",
    "log_loss",
    "cosine_distance",
    "mean_pairwise_squared_error",
)
for _name in PAIRS:
    _more = {"axis": 1} if _name == "cosine_distance" else {}
    for _label, _keywords in {
        "plain": {},
        "weights": {"weights": 0.5},
        "rows": {"weights": np.array([[1.0], [0.0], [2.0]], "float32")},
    }.items():
        if _name == "mean_pairwise_squared_error" and _label == "rows":
            continue
        case(
            "losses." + _name,
            lambda tf, x, y, f=_name, k=dict(_keywords, **_more): getattr(tf.losses, f)(y, x, **k),
            _label,
            x=floats(3, 4, low=0.1, high=0.9),
            y=floats(3, 4, low=0.1, high=0.9, salt=1),
            shapes=False,
        )
for _reduction in (
    "none",
    "weighted_sum",
    "weighted_mean",
    "weighted_sum_over_batch_size",
    "weighted_sum_by_nonzero_weights",
):
    case(
        "losses.mean_squared_error",
        lambda tf, x, y, r=_reduction: tf.losses.mean_squared_error(labels=y, predictions=x, reduction=r),
        _reduction,
        x=floats(3, 4),
        y=floats(3, 4, salt=1),
    )
case(
    "losses.hinge_loss",
    lambda tf, x, y: tf.losses.hinge_loss(y, x),
    x=floats(3, 4),
    y=ints(3, 4, below=2).astype("float32"),
)
case(
    "losses.softmax_cross_entropy",
    lambda tf, x, y: tf.losses.softmax_cross_entropy(y, x),
    x=floats(4, 5),
    y=_labels,
    shapes=False,
)
case(
    "losses.softmax_cross_entropy",
    lambda tf, x, y: tf.losses.softmax_cross_entropy(onehot_labels=y, logits=x, label_smoothing=0.1),
    "smoothing",
    x=floats(4, 5),
    y=_labels,
    shapes=False,
)
case(
    "losses.sigmoid_cross_entropy",
    lambda tf, x, y: tf.losses.sigmoid_cross_entropy(y, x),
    x=floats(4, 5),
    y=floats(4, 5, low=0, high=1),
)
case(
    "losses.sigmoid_cross_entropy",
    lambda tf, x, y: tf.losses.sigmoid_cross_entropy(y, x, label_smoothing=0.2),
    "smoothing",
    x=floats(4, 5),
    y=floats(4, 5, low=0, high=1),
)
case(
    "losses.sparse_softmax_cross_entropy",
    lambda tf, x, y: tf.losses.sparse_softmax_cross_entropy(y, x),
    x=floats(4, 5),
    y=ints(4),
)
case(
    "losses.sparse_softmax_cross_entropy",
    lambda tf, x, y: tf.losses.sparse_softmax_cross_entropy(labels=y, logits=x, weights=[1.0, 0.0, 1.0, 2.0]),
    "weights",
    x=floats(4, 5),
    y=ints(4),
    shapes=False,
)
case("losses.compute_weighted_loss", lambda tf, x: tf.losses.compute_weighted_loss(x, 0.5), x=floats(3, 4))
case(
    "losses.get_total_loss",
    lambda tf, x, y: [
        tf.losses.mean_squared_error(y, x),
        tf.losses.absolute_difference(y, x),
        tf.losses.get_total_loss(),
    ],
    x=floats(3, 4),
    y=floats(3, 4, salt=1),
)
case(
    "losses.get_losses",
    lambda tf, x, y: [tf.losses.mean_squared_error(y, x)] + tf.losses.get_losses(),
    x=floats(3, 4),
    y=floats(3, 4, salt=1),
)
case("losses.get_regularization_loss", lambda tf: tf.losses.get_regularization_loss())
