"""Recurrent networks through time, on PyTorch.

`dynamic_rnn` runs any cell over batches of sequences, whatever their lengths; cells, unrolls, states and errors keep
the contract of TensorFlow's RNN functions. The import convention is `import throughtime as tt`.
"""

from throughtime import cells, decode, interop, train
from throughtime._errors import InvalidArgumentError
from throughtime.backends import backend
from throughtime.cells import (
    BasicLSTMCell,
    BasicRNNCell,
    DeviceWrapper,
    DropoutWrapper,
    EmbeddingWrapper,
    GRUCell,
    InputProjectionWrapper,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    OutputProjectionWrapper,
    ResidualWrapper,
    RNNCell,
)
from throughtime.unroll import (
    RNN,
    TensorArray,
    bidirectional_dynamic_rnn,
    dynamic_rnn,
    explain,
    raw_rnn,
    stack_bidirectional_dynamic_rnn,
    stack_bidirectional_rnn,
    static_bidirectional_rnn,
    static_rnn,
    static_state_saving_rnn,
    while_loop,
)

__version__ = "0.1.0"

__all__ = [
    "RNN",
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "EmbeddingWrapper",
    "GRUCell",
    "InputProjectionWrapper",
    "InvalidArgumentError",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "OutputProjectionWrapper",
    "RNNCell",
    "ResidualWrapper",
    "TensorArray",
    "backend",
    "bidirectional_dynamic_rnn",
    "cells",
    "decode",
    "dynamic_rnn",
    "explain",
    "interop",
    "raw_rnn",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
    "train",
    "while_loop",
]
