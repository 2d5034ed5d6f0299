"""Cells: what one step computes, in plain PyTorch. No loops, no kernels."""

from throughtime.cells._base import RNNCell
from throughtime.cells._basic import BasicRNNCell, GRUCell
from throughtime.cells._dropout import DropoutWrapper
from throughtime.cells._lstm import BasicLSTMCell, LSTMCell, LSTMStateTuple
from throughtime.cells._multi import MultiRNNCell
from throughtime.cells._projections import EmbeddingWrapper, InputProjectionWrapper, OutputProjectionWrapper
from throughtime.cells._wrappers import DeviceWrapper, ResidualWrapper

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "EmbeddingWrapper",
    "GRUCell",
    "InputProjectionWrapper",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "OutputProjectionWrapper",
    "RNNCell",
    "ResidualWrapper",
]
