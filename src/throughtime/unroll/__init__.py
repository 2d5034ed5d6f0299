"""Unrolling: the contract through time."""

from throughtime.unroll._bidirectional import (
    bidirectional_dynamic_rnn,
    static_bidirectional_rnn,
)
from throughtime.unroll._dynamic import dynamic_rnn
from throughtime.unroll._explain import explain
from throughtime.unroll._module import RNN
from throughtime.unroll._raw_rnn import raw_rnn
from throughtime.unroll._stacked_bidirectional import stack_bidirectional_dynamic_rnn, stack_bidirectional_rnn
from throughtime.unroll._static import static_rnn, static_state_saving_rnn
from throughtime.unroll._tensor_array import TensorArray
from throughtime.unroll._while_loop import while_loop

__all__ = [
    "RNN",
    "TensorArray",
    "bidirectional_dynamic_rnn",
    "dynamic_rnn",
    "explain",
    "raw_rnn",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
    "while_loop",
]
