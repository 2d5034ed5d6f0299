"""TensorFlow's checkpoints, read and written without TensorFlow."""

from throughtime.interop.checkpoints._checkpoint import TFCheckpoint
from throughtime.interop.checkpoints._restore import Restored, load_tf_checkpoint
from throughtime.interop.checkpoints._save import save_tf_checkpoint
from throughtime.interop.checkpoints._variable import Variable

__all__ = ["Restored", "TFCheckpoint", "Variable", "load_tf_checkpoint", "save_tf_checkpoint"]
