"""Activations, softmax and its kin, dropout."""

import numpy as np

from .case import case, floats
from .families import function

for _name in (
    "relu",
    "relu6",
    "crelu",
    "elu",
    "selu",
    "leaky_relu",
    "softplus",
    "softsign",
    "swish",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
):
    for _label, _shape in (("vector", (5,)), ("rows", (3, 4)), ("rank_3", (2, 3, 4))):
        case("nn." + _name, lambda tf, x, f=_name: getattr(tf.nn, f)(x), _label, x=floats(*_shape, low=-7, high=7))
    if _name != "swish":
        case("nn." + _name, lambda tf, x, f=_name: getattr(tf.nn, f)(x, name="named"), "named", x=floats(4))
case("nn.leaky_relu", lambda tf, x: tf.nn.leaky_relu(x, alpha=0.05), "alpha", x=floats(3, 4))
case("nn.crelu", lambda tf, x: tf.nn.crelu(x, axis=0), "axis", x=floats(3, 4))
for _name in ("nn.softmax", "nn.log_softmax", "math.softmax", "math.log_softmax"):
    for _label, _keywords in {"axis": {"axis": 1}, "old": {"dim": 0}, "last": {"axis": -1}}.items():
        case(_name, lambda tf, x, f=_name, k=_keywords: function(tf, f)(x, **k), _label, x=floats(3, 4))
case("nn.softmax", lambda tf, x: tf.nn.softmax(logits=x), "keyword", x=floats(3, 4))
case("nn.l2_normalize", lambda tf, x: tf.nn.l2_normalize(x, 1), x=floats(3, 4))
case("nn.l2_normalize", lambda tf, x: tf.nn.l2_normalize(x, dim=0), "old", x=floats(3, 4))
case("nn.l2_normalize", lambda tf, x: tf.nn.l2_normalize(x, axis=[0, 1], epsilon=0.5), "pair", x=floats(3, 4))
case(
    "nn.l2_normalize",
    lambda tf, x: tf.nn.l2_normalize(x, axis=1),
    "zeros",
    x=np.zeros((2, 3), "float32"),
    gradients=False,
)
case("nn.l2_loss", lambda tf, x: tf.nn.l2_loss(x), x=floats(3, 4))
case("nn.l2_loss", lambda tf, x: tf.nn.l2_loss(t=x, name="named"), "named", x=floats(3))
case("nn.bias_add", lambda tf, x, b: tf.nn.bias_add(x, b), x=floats(3, 4), b=floats(4))
case(
    "nn.bias_add",
    lambda tf, x, b: tf.nn.bias_add(value=x, bias=b, name="named"),
    "image",
    x=floats(2, 3, 3, 4),
    b=floats(4),
)
case(
    "nn.bias_add", lambda tf, x, b: tf.nn.bias_add(x, b, data_format="NCHW"), "NCHW", x=floats(2, 4, 3, 3), b=floats(4)
)
for _label, _keywords in {
    "keep_prob": {"keep_prob": 0.7},
    "rate": {"rate": 0.3},
    "noise_shape": {"keep_prob": 0.6, "noise_shape": [8, 1]},
}.items():
    case(
        "nn.dropout", lambda tf, x, k=_keywords: tf.nn.dropout(x, seed=7, **k), _label, x=floats(8, 5), seed=11, runs=2
    )
case(
    "nn.dropout",
    lambda tf, x, p: tf.nn.dropout(x, p, seed=7),
    "tensor",
    x=floats(8, 5),
    p=np.array(0.5, "float32"),
    constant=("p",),
    seed=11,
)
case("nn.dropout", lambda tf, x: tf.nn.dropout(x, keep_prob=1.0), "all", x=floats(3, 4))
case("nn.dropout", lambda tf, x: tf.nn.dropout(x, 0.5, name="named"), "graph_seed", x=floats(8, 5), seed=11)
