"""Reductions with every spelling of their arguments, cumulated sums, norms, order statistics."""

import numpy as np

from .case import bools, case, floats, ints
from .families import function

FLOAT = ("sum", "mean", "max", "min", "prod", "logsumexp", "euclidean_norm", "std", "variance")
SPELLINGS = {
    "all": {},
    "axis": {"axis": 1},
    "negative": {"axis": -1},
    "pair": {"axis": [0, 2]},
    "keepdims": {"axis": 1, "keepdims": True},
    "old": {"reduction_indices": [1], "keep_dims": True},
    "old_axis": {"reduction_indices": 0},
    "keep_all": {"keepdims": True},
    "named": {"axis": 0, "name": "named"},
    "none_of_them": {"axis": []},
    "tuple": {"axis": (0, 1)},
}
OLD = ("old", "old_axis")


def _full(name):
    """The public name: some reductions are in `tf.math` only."""
    return "math.reduce_" + name if name in ("euclidean_norm", "std", "variance") else "reduce_" + name


for _name in FLOAT:
    for _label, _keywords in SPELLINGS.items():
        _public = _full(_name)
        if _public.startswith("math.") and (_label in OLD or _label == "none_of_them"):
            continue
        case(
            _public,
            lambda tf, x, f=_public, k=_keywords: function(tf, f)(x, **k),
            _label,
            x=floats(2, 3, 4, salt=_name),
        )
for _name in ("sum", "mean", "max", "min", "prod"):
    case("reduce_" + _name, lambda tf, x, f="reduce_" + _name: function(tf, f)(x), "scalar", x=floats())
    case("reduce_" + _name, lambda tf, x, f="reduce_" + _name: function(tf, f)(x, 1), "int32", x=ints(2, 3, below=9))
    case(
        "reduce_" + _name,
        lambda tf, x, f="reduce_" + _name: function(tf, f)(input_tensor=x, axis=0),
        "keyword",
        x=floats(2, 3),
    )
for _name in ("sum", "max", "mean"):
    case(
        "reduce_" + _name,
        lambda tf, x, y, f="reduce_" + _name: function(tf, f)([x, y], 0),
        "list",
        x=floats(3),
        y=floats(3, salt=1),
    )
    case(
        "reduce_" + _name,
        lambda tf, x, a, f="reduce_" + _name: function(tf, f)(x, a),
        "tensor_axis",
        x=floats(2, 3),
        a=np.array(1, "int32"),
    )
for _name in ("all", "any"):
    for _label, _keywords in SPELLINGS.items():
        case(
            "reduce_" + _name,
            lambda tf, x, f="reduce_" + _name, k=_keywords: function(tf, f)(x, **k),
            _label,
            x=bools(2, 3, 4),
        )
for _label, _keywords in SPELLINGS.items():
    if _label not in ("none_of_them",):
        case("count_nonzero", lambda tf, x, k=_keywords: tf.count_nonzero(x, **k), _label, x=ints(2, 3, 4, below=2))
case("count_nonzero", lambda tf, x: tf.count_nonzero(x, dtype=tf.int32), "dtype", x=ints(5, below=2))
case("reduce_max", lambda tf, x: tf.reduce_max(x, 1), "ties", x=np.array([[1, 1, 0], [2, 2, 2]], "float32"))
case("reduce_prod", lambda tf, x: tf.reduce_prod(x, 1), "with_zero", x=np.array([[0, 2, 3], [1, 2, 4]], "float32"))

for _name in ("argmax", "argmin"):
    for _label, _keywords in {
        "first": {},
        "axis": {"axis": 1},
        "old": {"dimension": 1},
        "last": {"axis": -1},
        "int32": {"axis": 0, "output_type": "int32"},
        "named": {"axis": 1, "name": "named"},
    }.items():
        case(
            _name,
            lambda tf, x, f=_name, k=_keywords: function(tf, f)(
                x, **{key: tf.as_dtype(value) if key == "output_type" else value for key, value in k.items()}
            ),
            _label,
            x=floats(3, 4),
        )
    case(_name, lambda tf, x, f=_name: function(tf, f)(x, 1), "ties", x=np.array([[1, 1], [0, 0]], "float32"))
case("arg_max", lambda tf, x: tf.arg_max(x, 1), x=floats(3, 4))
case("arg_min", lambda tf, x: tf.arg_min(x, dimension=1), x=floats(3, 4))

for _name in ("cumsum", "cumprod", "math.cumulative_logsumexp"):
    for _label, _keywords in {
        "plain": {},
        "axis": {"axis": 1},
        "exclusive": {"exclusive": True},
        "reverse": {"reverse": True},
        "both": {"axis": -1, "exclusive": True, "reverse": True},
    }.items():
        case(
            _name,
            lambda tf, x, f=_name, k=_keywords: function(tf, f)(x, **k),
            _label,
            x=floats(3, 4, low=0.3),
            gradients=not ("cumulative" in _name and _label in ("exclusive", "both")),
        )
case("cumsum", lambda tf, x: tf.cumsum(x), "int32", x=ints(5))

for _label, _keywords in {
    "plain": {},
    "one": {"ord": 1},
    "two": {"ord": 2, "axis": 1},
    "inf": {"ord": np.inf, "axis": 0},
    "three": {"ord": 3, "axis": 1},
    "keepdims": {"axis": 1, "keepdims": True},
    "old": {"axis": 1, "keep_dims": True},
    "fro": {"ord": "fro", "axis": [0, 1]},
    "matrix_one": {"ord": 1, "axis": [0, 1]},
    "matrix_inf": {"ord": np.inf, "axis": [0, 1]},
}.items():
    case("norm", lambda tf, x, k=_keywords: tf.norm(x, **k), _label, x=floats(3, 4))
case("linalg.normalize", lambda tf, x: tf.linalg.normalize(x, axis=1), x=floats(3, 4))
case("linalg.normalize", lambda tf, x: tf.linalg.normalize(x, ord=1, axis=0), "one", x=floats(3, 4))
case("global_norm", lambda tf, x, y: tf.global_norm([x, None, y]), x=floats(3, 4), y=floats(5))
case("clip_by_norm", lambda tf, x: tf.clip_by_norm(x, 1.5), x=floats(3, 4))
case("clip_by_norm", lambda tf, x: tf.clip_by_norm(x, 1.5, axes=[1]), "axes", x=floats(3, 4))
case("clip_by_norm", lambda tf, x: tf.clip_by_norm(x, 100.0), "below", x=floats(3, 4))
case("clip_by_average_norm", lambda tf, x: tf.clip_by_average_norm(x, 0.1), x=floats(3, 4))
case("clip_by_global_norm", lambda tf, x, y: tf.clip_by_global_norm([x, y], 2.0), x=floats(3, 4), y=floats(5))
case(
    "clip_by_global_norm",
    lambda tf, x, y: tf.clip_by_global_norm([x, None, y], 100.0),
    "below",
    x=floats(3, 4),
    y=floats(5),
)
case(
    "clip_by_global_norm",
    lambda tf, x, y: tf.clip_by_global_norm([x, y], 2.0, use_norm=tf.constant(7.0)),
    "use_norm",
    x=floats(3),
    y=floats(5),
)

case("nn.top_k", lambda tf, x: tf.nn.top_k(x, 2), x=floats(3, 5))
case("nn.top_k", lambda tf, x: tf.nn.top_k(x), "one", x=floats(5))
case("nn.top_k", lambda tf, x: tf.nn.top_k(x, k=3, sorted=True, name="named"), "named", x=ints(5, below=90))
case("nn.top_k", lambda tf, x: tf.nn.top_k(x, 2).indices, "indices", x=floats(3, 5))
case("math.top_k", lambda tf, x: tf.math.top_k(x, 2).values, x=floats(3, 5))
case("nn.in_top_k", lambda tf, p, t: tf.nn.in_top_k(p, t, 2), p=floats(4, 5), t=ints(4))
case(
    "nn.in_top_k",
    lambda tf, p, t: tf.nn.in_top_k(predictions=p, targets=t, k=1),
    "int64",
    p=floats(4, 5),
    t=ints(4, dtype="int64"),
)
case(
    "nn.in_top_k",
    lambda tf, p, t: tf.nn.in_top_k(p, t, 1),
    "ties",
    p=np.ones((2, 3), "float32"),
    t=np.array([0, 2], "int32"),
)
case("math.in_top_k", lambda tf, p, t: tf.math.in_top_k(p, t, 2), p=floats(4, 5), t=ints(4))
for _label, _keywords in {"plain": {}, "descending": {"direction": "DESCENDING"}, "axis": {"axis": 0}}.items():
    case("sort", lambda tf, x, k=_keywords: tf.sort(x, **k), _label, x=floats(3, 4))
    case("argsort", lambda tf, x, k=_keywords: tf.argsort(x, **k), _label, x=floats(3, 4))
case("contrib.framework.sort", lambda tf, x: tf.contrib.framework.sort(x), x=floats(5))
case("searchsorted", lambda tf, s, v: tf.searchsorted(s, v), s=np.sort(floats(2, 6), -1), v=floats(2, 3, salt=1))
case(
    "searchsorted",
    lambda tf, s, v: tf.searchsorted(s, v, side="right"),
    "right",
    s=np.array([1, 2, 2, 3], "int32"),
    v=np.array([0, 2, 4], "int32"),
)
case("nn.zero_fraction", lambda tf, x: tf.nn.zero_fraction(x), x=ints(3, 4, below=2).astype("float32"), gradients=False)
case(
    "math.zero_fraction",
    lambda tf, x: tf.math.zero_fraction(x),
    x=ints(3, 4, below=2).astype("float32"),
    gradients=False,
)
for _label, _keywords in {
    "axes": {},
    "keep": {"keep_dims": True},
    "keepdims": {"keepdims": True},
    "named": {"name": "named"},
}.items():
    case("nn.moments", lambda tf, x, k=_keywords: tf.nn.moments(x, [0], **k), _label, x=floats(4, 3))
case("nn.moments", lambda tf, x: tf.nn.moments(x, axes=[0, 1, 2]), "image", x=floats(2, 3, 3, 2))
case("nn.weighted_moments", lambda tf, x, w: tf.nn.weighted_moments(x, [0], w), x=floats(4, 3), w=floats(4, 1, low=0.2))
case("nn.sufficient_statistics", lambda tf, x: tf.nn.sufficient_statistics(x, [0])[:3], x=floats(4, 3))
case(
    "nn.normalize_moments",
    lambda tf, m, v: tf.nn.normalize_moments(tf.constant(4.0), m, v, None),
    m=floats(3),
    v=floats(3, low=5, high=9),
)
case("bincount", lambda tf, x: tf.bincount(x), x=ints(9))
case("bincount", lambda tf, x: tf.bincount(x, minlength=7), "minlength", x=ints(9))
case("bincount", lambda tf, x: tf.bincount(x, maxlength=3), "maxlength", x=ints(9))
case(
    "bincount",
    lambda tf, x, w: tf.bincount(x, weights=w, dtype=tf.float32),
    "weights",
    x=ints(9),
    w=floats(9),
    gradients=False,
)
case("histogram_fixed_width", lambda tf, x: tf.histogram_fixed_width(x, [-1.0, 1.0], nbins=4), x=floats(20))
case("histogram_fixed_width_bins", lambda tf, x: tf.histogram_fixed_width_bins(x, [-1.0, 1.0], nbins=4), x=floats(20))
case("confusion_matrix", lambda tf, x, y: tf.confusion_matrix(x, y), x=ints(9), y=ints(9, salt=1))
case(
    "confusion_matrix",
    lambda tf, x, y: tf.confusion_matrix(x, y, num_classes=6, dtype=tf.float32),
    "classes",
    x=ints(9),
    y=ints(9, salt=1),
)
case(
    "confusion_matrix",
    lambda tf, x, y, w: tf.confusion_matrix(x, y, 5, weights=w, dtype=tf.float32),
    "weights",
    gradients=False,
    x=ints(9),
    y=ints(9, salt=1),
    w=floats(9),
)
