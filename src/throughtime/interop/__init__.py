"""For code that comes from TensorFlow: its checkpoints, its names for a cell's parameters, and its fused cells."""

from throughtime.interop._fused import FusedRNNCell, FusedRNNCellAdaptor, LSTMBlockFusedCell, TimeReversedFusedRNN
from throughtime.interop._tf_names import tf_variables
from throughtime.interop.checkpoints import Restored, TFCheckpoint, Variable, load_tf_checkpoint, save_tf_checkpoint

__all__ = [
    "FusedRNNCell",
    "FusedRNNCellAdaptor",
    "LSTMBlockFusedCell",
    "Restored",
    "TFCheckpoint",
    "TimeReversedFusedRNN",
    "Variable",
    "load_tf_checkpoint",
    "save_tf_checkpoint",
    "tf_variables",
]
