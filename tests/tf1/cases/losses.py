"""Losses of `tf.nn`, with every spelling of their arguments."""

import numpy as np

from .case import case, floats, ints

_labels = np.abs(floats(4, 5, salt=2)) / np.abs(floats(4, 5, salt=2)).sum(1, keepdims=True)
for _name in ("softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_logits_v2"):
    for _label, _keywords in {"plain": {}, "dim": {"dim": -1}, "named": {"name": "named"}}.items():
        case(
            "nn." + _name,
            lambda tf, x, y, f=_name, k=_keywords: getattr(tf.nn, f)(labels=y, logits=x, **k),
            _label,
            x=floats(4, 5),
            y=_labels,
        )
    case(
        "nn." + _name,
        lambda tf, x, y, f=_name: getattr(tf.nn, f)(labels=y, logits=x),
        "rank_3",
        x=floats(2, 3, 4),
        y=floats(2, 3, 4, low=0),
    )
    case(
        "nn." + _name,
        lambda tf, x, y, f=_name: getattr(tf.nn, f)(labels=y, logits=x, dim=0),
        "axis_0",
        x=floats(4, 5),
        y=_labels,
    )
case(
    "nn.softmax_cross_entropy_with_logits_v2",
    lambda tf, x, y: tf.nn.softmax_cross_entropy_with_logits_v2(y, x),
    "positional",
    x=floats(4, 5),
    y=_labels,
)
case(
    "nn.softmax_cross_entropy_with_logits_v2",
    lambda tf, x, y: tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x, axis=0),
    "axis",
    x=floats(4, 5),
    y=_labels,
)
for _label, _shape, _kind in (
    ("plain", (4,), "int32"),
    ("int64", (4,), "int64"),
    ("rank_2", (2, 3), "int32"),
    ("scalar", (), "int32"),
):
    case(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda tf, x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x),
        _label,
        x=floats(*(_shape + (5,))),
        y=ints(*_shape, dtype=_kind),
    )
case(
    "nn.sparse_softmax_cross_entropy_with_logits",
    lambda tf, x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(None, y, x, name="named"),
    "named",
    x=floats(4, 5),
    y=ints(4),
)
case(
    "nn.sigmoid_cross_entropy_with_logits",
    lambda tf, x, y: tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x),
    x=floats(4, 5, low=-9, high=9),
    y=floats(4, 5, low=0, high=1),
)
case(
    "nn.sigmoid_cross_entropy_with_logits",
    lambda tf, x, y: tf.nn.sigmoid_cross_entropy_with_logits(logits=x, labels=y, name="named"),
    "named",
    x=floats(4),
    y=floats(4, low=0, high=1),
)
case(
    "nn.weighted_cross_entropy_with_logits",
    lambda tf, x, y: tf.nn.weighted_cross_entropy_with_logits(y, x, 2.0),
    x=floats(4, 5),
    y=floats(4, 5, low=0, high=1),
)
case(
    "nn.weighted_cross_entropy_with_logits",
    lambda tf, x, y: tf.nn.weighted_cross_entropy_with_logits(targets=y, logits=x, pos_weight=0.5),
    "old",
    x=floats(4),
    y=floats(4, low=0, high=1),
)
case("nn.log_poisson_loss", lambda tf, x, y: tf.nn.log_poisson_loss(y, x), x=floats(4), y=floats(4, low=0.1, high=3))
case(
    "nn.log_poisson_loss",
    lambda tf, x, y: tf.nn.log_poisson_loss(y, x, compute_full_loss=True),
    "full",
    x=floats(4),
    y=floats(4, low=1.1, high=3),
)
case(
    "nn.ctc_loss",
    lambda tf, x: tf.nn.ctc_loss(tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1, 2, 0], [2, 2]), x, [5, 4]),
    x=floats(5, 2, 4),
    shapes=False,
)

# Losses drawn from a sample of classes: with the sample given, and drawn from a seed.
_sampled = (np.array([1, 4, 6], "int64"), np.array([[0.3], [0.2]], "float32"), np.array([0.5, 0.4, 0.3], "float32"))
for _name in ("sampled_softmax_loss", "nce_loss"):
    for _label, _keywords in {
        "given": {},
        "keep_hits": {"remove_accidental_hits": False},
        "remove_hits": {"remove_accidental_hits": True},
    }.items():
        case(
            "nn." + _name,
            lambda tf, w, b, x, y, f=_name, k=_keywords: getattr(tf.nn, f)(
                w, b, y, x, 3, 8, sampled_values=tuple(tf.constant(v) for v in _sampled), **k
            ),
            _label,
            w=floats(8, 4),
            b=floats(8),
            x=floats(2, 4),
            y=np.array([[4], [2]], "int64"),
            shapes=False,
        )
case(
    "nn.sampled_softmax_loss",
    lambda tf, w, b, x, y: tf.nn.sampled_softmax_loss(
        weights=w, biases=b, labels=y, inputs=x, num_sampled=4, num_classes=8, seed=3
    ),
    "drawn",
    w=floats(8, 4),
    b=floats(8),
    x=floats(2, 4),
    y=np.array([[4], [2]], "int64"),
    seed=5,
    shapes=False,
)
case(
    "nn.nce_loss",
    lambda tf, w, b, x, y: tf.nn.nce_loss(
        weights=[w[0:8:2], w[1:8:2]],
        biases=b,
        labels=y,
        inputs=x,
        num_sampled=4,
        num_classes=8,
        num_true=1,
        sampled_values=tuple(tf.constant(v) for v in _sampled),
    ),
    "partitioned",
    w=floats(8, 4),
    b=floats(8),
    x=floats(2, 4),
    y=np.array([[4], [2]], "int64"),
    shapes=False,
)
for _name in ("uniform_candidate_sampler", "log_uniform_candidate_sampler", "learned_unigram_candidate_sampler"):
    for _unique in (True, False):
        case(
            "nn." + _name,
            lambda tf, y, f=_name, u=_unique: getattr(tf.nn, f)(y, 1, 4, u, 20, seed=3),
            "unique" if _unique else "repeated",
            y=np.array([[4], [2]], "int64"),
            seed=5,
            shapes=False,
            runs=2,
        )
case(
    "nn.fixed_unigram_candidate_sampler",
    lambda tf, y: tf.nn.fixed_unigram_candidate_sampler(
        y, 1, 4, True, 6, unigrams=[5, 3, 2, 9, 1, 4], distortion=0.75, seed=3
    ),
    y=np.array([[4], [2]], "int64"),
    seed=5,
    shapes=False,
)
case(
    "nn.all_candidate_sampler",
    lambda tf, y: tf.nn.all_candidate_sampler(y, 1, 6, True),
    y=np.array([[4], [2]], "int64"),
    shapes=False,
)
case(
    "nn.compute_accidental_hits",
    lambda tf, y: tf.nn.compute_accidental_hits(y, tf.constant([4, 1, 2, 5], tf.int64), 1),
    y=np.array([[4], [2]], "int64"),
    shapes=False,
)
