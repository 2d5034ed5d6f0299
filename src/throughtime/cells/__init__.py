"""Cells: what one step computes, in plain PyTorch. No loops, no kernels."""

from throughtime.cells._attention import AttentionCellWrapper
from throughtime.cells._base import RNNCell
from throughtime.cells._basic import BasicRNNCell, GRUCell
from throughtime.cells._conv import Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, ConvLSTMCell
from throughtime.cells._dropout import DropoutWrapper
from throughtime.cells._elementwise_recurrent import IndRNNCell, IndyGRUCell, IndyLSTMCell, SRUCell
from throughtime.cells._grid import BidirectionalGridLSTMCell, GridLSTMCell, TimeFreqLSTMCell
from throughtime.cells._highway import CompiledWrapper, HighwayWrapper
from throughtime.cells._layer_norm import LayerNormBasicLSTMCell, LayerNormGRUCell, LayerNormLSTMCell
from throughtime.cells._lstm import BasicLSTMCell, LSTMCell, LSTMStateTuple
from throughtime.cells._lstm_variants import CoupledInputForgetGateLSTMCell, GLSTMCell, WeightNormLSTMCell
from throughtime.cells._minimal_gated import (
    CFNCell,
    IntersectionRNNCell,
    MinimalGatedUnitCell,
    MinimalRNNCell,
    UGRNNCell,
)
from throughtime.cells._multi import MultiRNNCell
from throughtime.cells._nas import NASCell
from throughtime.cells._ntm import NTMCell, NTMControllerState
from throughtime.cells._phased import PhasedLSTMCell
from throughtime.cells._projections import EmbeddingWrapper, InputProjectionWrapper, OutputProjectionWrapper
from throughtime.cells._slstm import SLSTMCell, SLSTMStateTuple
from throughtime.cells._tf_aliases import GRUBlockCell, GRUBlockCellV2, LSTMBlockCell
from throughtime.cells._wrappers import DeviceWrapper, ResidualWrapper
from throughtime.cells._zoneout import RecurrentDropoutGRUCell, RecurrentDropoutLSTMCell, ZoneoutWrapper

__all__ = [
    "AttentionCellWrapper",
    "BasicLSTMCell",
    "BasicRNNCell",
    "BidirectionalGridLSTMCell",
    "CFNCell",
    "CompiledWrapper",
    "Conv1DLSTMCell",
    "Conv2DLSTMCell",
    "Conv3DLSTMCell",
    "ConvLSTMCell",
    "CoupledInputForgetGateLSTMCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "EmbeddingWrapper",
    "GLSTMCell",
    "GRUBlockCell",
    "GRUBlockCellV2",
    "GRUCell",
    "GridLSTMCell",
    "HighwayWrapper",
    "IndRNNCell",
    "IndyGRUCell",
    "IndyLSTMCell",
    "InputProjectionWrapper",
    "IntersectionRNNCell",
    "LSTMBlockCell",
    "LSTMCell",
    "LSTMStateTuple",
    "LayerNormBasicLSTMCell",
    "LayerNormGRUCell",
    "LayerNormLSTMCell",
    "MinimalGatedUnitCell",
    "MinimalRNNCell",
    "MultiRNNCell",
    "NASCell",
    "NTMCell",
    "NTMControllerState",
    "OutputProjectionWrapper",
    "PhasedLSTMCell",
    "RNNCell",
    "RecurrentDropoutGRUCell",
    "RecurrentDropoutLSTMCell",
    "ResidualWrapper",
    "SLSTMCell",
    "SLSTMStateTuple",
    "SRUCell",
    "TimeFreqLSTMCell",
    "UGRNNCell",
    "WeightNormLSTMCell",
    "ZoneoutWrapper",
]
