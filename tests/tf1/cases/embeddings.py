"""Lookups in embeddings, whole and in parts."""

from .case import case, floats, ints

case("nn.embedding_lookup", lambda tf, w, i: tf.nn.embedding_lookup(w, i), w=floats(6, 3), i=ints(4))
case("nn.embedding_lookup", lambda tf, w, i: tf.nn.embedding_lookup(w, i), "matrix", w=floats(6, 3), i=ints(2, 3))
case(
    "nn.embedding_lookup",
    lambda tf, w, i: tf.nn.embedding_lookup(params=w, ids=i, name="named"),
    "named",
    w=floats(6, 3),
    i=ints(4, dtype="int64"),
)
case(
    "nn.embedding_lookup",
    lambda tf, w, i: tf.nn.embedding_lookup(w, i, max_norm=1.0),
    "max_norm",
    w=floats(6, 3),
    i=ints(4),
)
case("nn.embedding_lookup", lambda tf, w, i: tf.nn.embedding_lookup([w], i), "list", w=floats(6, 3), i=ints(4))
for _strategy in ("mod", "div"):
    for _label, _sizes in (("even", (3, 3)), ("uneven", (3, 2))):
        case(
            "nn.embedding_lookup",
            lambda tf, a, b, i, s=_strategy: tf.nn.embedding_lookup([a, b], i, partition_strategy=s),
            "%s_%s" % (_strategy, _label),
            a=floats(_sizes[0], 3),
            b=floats(_sizes[1], 3, salt=1),
            i=ints(4),
            shapes=False,
        )
for _combiner in ("sum", "mean", "sqrtn"):
    case(
        "nn.embedding_lookup_sparse",
        lambda tf, w, c=_combiner: tf.nn.embedding_lookup_sparse(
            w, tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1, 3, 0], [2, 2]), None, combiner=c
        ),
        _combiner,
        w=floats(6, 3),
        shapes=False,
    )
    case(
        "nn.embedding_lookup_sparse",
        lambda tf, w, v, c=_combiner: tf.nn.embedding_lookup_sparse(
            w,
            tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1, 3, 0], [2, 2]),
            tf.SparseTensor([[0, 0], [0, 1], [1, 0]], v, [2, 2]),
            combiner=c,
        ),
        _combiner + "_weights",
        w=floats(6, 3),
        v=floats(3, low=0.2),
        shapes=False,
    )
