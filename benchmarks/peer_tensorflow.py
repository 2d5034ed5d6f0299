"""TensorFlow as a peer: a training step of its own `dynamic_rnn`, in graph mode, with our weights.

Runs inside the environment of the peer; see `peer_loop.py`.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

# Keras 3 has no rnn_cell; tf_keras does. All else is left as TensorFlow wants it, oneDNN included.
os.environ.update(TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import tensorflow.compat.v1 as tf

from peer_loop import Arrays, Loaded, serve

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
warnings.filterwarnings("ignore", category=UserWarning)


def load(case: dict[str, Any], arrays: Arrays) -> Loaded:
    """The arrays are the inputs, the gradient of the outputs, and the weights by TensorFlow's names."""
    inputs, cotangent = arrays.pop("inputs"), arrays.pop("cotangent")
    with tf.Graph().as_default():
        # Variables, so that nothing is fed: a step reads what lies there.
        x, given = (tf.Variable(value, trainable=False, use_resource=True) for value in (inputs, cotangent))
        cell = getattr(tf.nn.rnn_cell, case["cell"])(case["units"])
        outputs, _ = tf.nn.dynamic_rnn(cell, x.read_value(), dtype=tf.float32, time_major=True)
        weights = {variable.op.name: variable for variable in tf.trainable_variables()}
        if weights.keys() != arrays.keys():
            raise ValueError(f"got weights {sorted(arrays)}, expected {sorted(weights)}")
        gradients = tf.gradients(outputs, [x, *weights.values()], given)
        session = _session(case["threads"])
        session.run(tf.global_variables_initializer())
        for name, variable in weights.items():
            variable.load(arrays[name], session)
        found = session.run(
            {"outputs": outputs, "inputs": gradients[0], **dict(zip(weights, gradients[1:], strict=True))}
        )
        # Fetched as operations everything is computed, a group of them could be optimised away, and nothing is copied.
        step = session.make_callable([tensor.op for tensor in (outputs, *gradients)])
    return Loaded(step, found)


def _session(threads: int) -> Any:
    config = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    return tf.Session(config=config)


if __name__ == "__main__":
    serve(tf.__version__, load)
