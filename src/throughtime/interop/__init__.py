"""For code that comes from TensorFlow: its names for a cell's parameters, and its fused cells."""

from throughtime.interop._fused import FusedRNNCell, FusedRNNCellAdaptor, LSTMBlockFusedCell, TimeReversedFusedRNN
from throughtime.interop._tf_names import tf_variables

__all__ = ["FusedRNNCell", "FusedRNNCellAdaptor", "LSTMBlockFusedCell", "TimeReversedFusedRNN", "tf_variables"]
