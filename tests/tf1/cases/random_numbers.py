"""Random numbers of given seeds, bit for bit."""

import numpy as np

from .case import case, floats

SEEDS = {
    "graph": (17, None),
    "both": (17, 5),
    "operation": (None, 5),
    "zero": (0, 0),
    "large": (123456789012, 98765432109),
}
SHAPES = ((7,), (3, 5), (1001,), ())
for _name in ("random_uniform", "random_normal", "truncated_normal"):
    for _label, (_graph, _op) in SEEDS.items():
        case(
            _name,
            lambda tf, f=_name, s=_op: getattr(tf, f)([3, 5], seed=s),
            "seeds_" + _label,
            seed=_graph,
            runs=3,
            tolerance=0,
        )
    for _shape in SHAPES:
        case(
            _name,
            lambda tf, f=_name, s=_shape: getattr(tf, f)(s, seed=3),
            "shape_%s" % (_shape,),
            seed=4,
            runs=2,
            tolerance=0,
        )
    for _kind in ("float64", "float16"):
        case(
            _name,
            lambda tf, f=_name, k=_kind: getattr(tf, f)([9], dtype=getattr(tf, k), seed=3),
            _kind,
            seed=4,
            runs=2,
            tolerance=0,
        )
    case(
        _name,
        lambda tf, x, f=_name: getattr(tf, f)(tf.shape(x), seed=3, name="named"),
        "dynamic",
        x=floats(2, 3),
        seed=4,
        tolerance=0,
    )
    case(_name, lambda tf, f=_name: [getattr(tf, f)([2]), getattr(tf, f)([2])], "two_operations", seed=4, tolerance=0)
for _label, _args in {"bounds": (-2.0, 3.0), "upper": (0.0, 5.0)}.items():
    case("random_uniform", lambda tf, a=_args: tf.random_uniform([6], *a, seed=3), _label, seed=4, tolerance=0)
case("random_uniform", lambda tf: tf.random_uniform([50], 3, 19, dtype=tf.int32, seed=3), "int32", seed=4, runs=2)
case(
    "random_uniform",
    lambda tf: tf.random_uniform([50], minval=-3, maxval=19, dtype=tf.int64, seed=3),
    "int64",
    seed=4,
    runs=2,
)
case("random_uniform", lambda tf: tf.random_uniform([], maxval=5, dtype=tf.int32, seed=3), "int_scalar", seed=4, runs=3)
for _name in ("random_normal", "truncated_normal"):
    case(_name, lambda tf, f=_name: getattr(tf, f)([6], 1.5, 0.3, seed=3), "mean_and_deviation", seed=4, tolerance=0)
    case(
        _name, lambda tf, m, f=_name: getattr(tf, f)([6], mean=m, stddev=0.1, seed=3), "tensor_mean", m=floats(), seed=4
    )
for _alias, _name in (
    ("random.uniform", "uniform"),
    ("random.normal", "normal"),
    ("random.truncated_normal", "truncated_normal"),
):
    case(_alias, lambda tf, f=_name: getattr(tf.random, f)([5], seed=3), seed=4, tolerance=0)
case("random_shuffle", lambda tf: tf.random_shuffle(tf.range(17), seed=3), seed=4, runs=3)
case(
    "random_shuffle",
    lambda tf, x: tf.random_shuffle(x, seed=3),
    "rows",
    x=floats(6, 2),
    seed=4,
    runs=2,
    gradients=False,
)
case("random_shuffle", lambda tf, x: tf.random_shuffle(x), "graph_seed", x=floats(6, 2), seed=4, gradients=False)
case("random_crop", lambda tf, x: tf.random_crop(x, [2, 2], seed=3), x=floats(5, 6), seed=4, runs=2, gradients=False)
_logits = np.log(np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], "float32"))
case("multinomial", lambda tf, x: tf.multinomial(x, 9, seed=3), x=_logits, seed=4, runs=2)
case("multinomial", lambda tf, x: tf.multinomial(x, num_samples=1), "one", x=_logits, seed=4, runs=2)
case("multinomial", lambda tf, x: tf.multinomial(x, 5, seed=3, output_dtype=tf.int32), "int32", x=_logits, seed=4)
case("random.categorical", lambda tf, x: tf.random.categorical(x, 7, seed=3), x=_logits, seed=4)
case(
    "random.categorical", lambda tf, x: tf.random.categorical(x, 7, dtype=tf.int32, seed=3), "int32", x=_logits, seed=4
)
case("random_gamma", lambda tf: tf.random_gamma([5], [0.5, 1.0, 3.5], seed=3), seed=4, runs=2)
case("random_gamma", lambda tf: tf.random_gamma([5], 2.0, beta=3.0, seed=3), "beta", seed=4)
case("random_poisson", lambda tf: tf.random_poisson([0.5, 3.5, 20.0], [6], seed=3), seed=4, runs=2)
for _name in ("uniform", "normal", "truncated_normal"):
    case(
        "random.stateless_" + _name,
        lambda tf, f="stateless_" + _name: getattr(tf.random, f)([9], seed=[3, 5]),
        runs=2,
        tolerance=0,
    )
    case(
        "random.stateless_" + _name,
        lambda tf, f="stateless_" + _name: getattr(tf.random, f)([2, 3], [7, -1], dtype=tf.float64),
        "float64",
        tolerance=0,
    )
case(
    "random.stateless_uniform",
    lambda tf: tf.random.stateless_uniform([9], [3, 5], minval=2, maxval=9, dtype=tf.int32),
    "int32",
)
