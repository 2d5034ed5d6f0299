"""TensorFlow 1 as it lives on inside TensorFlow 2.21, set up so that a run can be repeated to the last bit."""

import os
import warnings

os.environ.update(
    # Keras 3 has no rnn_cell; tf_keras does.
    TF_USE_LEGACY_KERAS="1",
    CUDA_VISIBLE_DEVICES="",
    # oneDNN picks its kernels, and with them the rounding, by CPU.
    TF_ENABLE_ONEDNN_OPTS="0",
    TF_CPP_MIN_LOG_LEVEL="3",
)

import tensorflow.compat.v1 as tf

__all__ = ["ONE_THREAD", "tf"]

EXPECTED = "2.21."
if not tf.__version__.startswith(EXPECTED):
    raise ImportError(f"got TensorFlow {tf.__version__}, expected {EXPECTED}*; `make goldens` installs it on its own")

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
warnings.filterwarnings("ignore", message=".* is deprecated and will be removed", category=UserWarning)

ONE_THREAD = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
