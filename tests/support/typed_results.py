"""Results as type checkers see them: mypy reads this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

import throughtime as tt

F32 = torch.float32
x, packed, steps = torch.ones(2, 3, 4), torch.nn.utils.rnn.pack_sequence([torch.ones(3, 4)]), [torch.ones(2, 4)] * 3
gru, lstm = tt.GRUCell(5), tt.LSTMCell(5, input_size=4)
stack = tt.MultiRNNCell([tt.LSTMCell(5), tt.LSTMCell(6)])


class Own(tt.RNNCell):
    """A typed cell of a user."""

    def forward(self, x: Tensor, h: tuple[Tensor, int]) -> tuple[Tensor, tuple[Tensor, int]]:
        return x, h


class Nested(tt.RNNCell):
    """A cell with two tensors as its output."""

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        return (inputs, inputs), state


class Duck:
    """No module, and no `forward`: any callable with these attributes is a cell."""

    state_size = output_size = 5
    zero_state: Callable[..., Tensor] = torch.zeros

    def __call__(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, state


# dynamic_rnn
assert_type(tt.dynamic_rnn(gru, x, dtype=F32), tuple[Tensor, Tensor])
assert_type(tt.dynamic_rnn(lstm, x, [1, 2], dtype=F32), tuple[Tensor, tt.LSTMStateTuple])
assert_type(tt.dynamic_rnn(lstm, x, dtype=F32)[1].c, Tensor)
assert_type(tt.dynamic_rnn(tt.BasicLSTMCell(5), packed, dtype=F32), tuple[PackedSequence, tt.LSTMStateTuple])
assert_type(tt.dynamic_rnn(gru, x, dtype=F32, all_states=True), tuple[Tensor, Tensor, Tensor])
assert_type(tt.dynamic_rnn(gru, np.ones((2, 3, 4)), dtype=F32), tuple[Any, Tensor])
assert_type(tt.dynamic_rnn(tt.cells.SLSTMCell(5), x, dtype=F32)[1].m, Tensor)
assert_type(tt.dynamic_rnn(Own(), x, dtype=F32), tuple[Tensor, tuple[Tensor, int]])
assert_type(tt.dynamic_rnn(Nested(), x, dtype=F32), tuple[Any, ...])
assert_type(tt.dynamic_rnn(Duck(), x, dtype=F32), tuple[Any, ...])

# cells made of cells
assert_type(tt.dynamic_rnn(stack, x, dtype=F32), tuple[Tensor, tuple[tt.LSTMStateTuple, ...]])
assert_type(tt.dynamic_rnn(tt.MultiRNNCell([gru, lstm]), x, dtype=F32), tuple[Tensor, tuple[Any, ...]])
assert_type(tt.dynamic_rnn(tt.DropoutWrapper(lstm, 0.5), x, dtype=F32), tuple[Tensor, tt.LSTMStateTuple])
assert_type(tt.dynamic_rnn(tt.ResidualWrapper(gru), x, dtype=F32), tuple[Tensor, Tensor])
assert_type(tt.dynamic_rnn(tt.DeviceWrapper(gru, "cpu"), x, dtype=F32), tuple[Tensor, Tensor])
assert_type(tt.dynamic_rnn(tt.InputProjectionWrapper(gru, 3), x, dtype=F32), tuple[Tensor, Tensor])
assert_type(tt.dynamic_rnn(tt.OutputProjectionWrapper(lstm, 3), x, dtype=F32), tuple[Tensor, tt.LSTMStateTuple])
assert_type(tt.dynamic_rnn(tt.EmbeddingWrapper(gru, 9, 4), x, dtype=F32), tuple[Tensor, Tensor])
assert_type(tt.dynamic_rnn(tt.cells.HighwayWrapper(gru), x, dtype=F32), tuple[Tensor, Tensor])
assert_type(tt.dynamic_rnn(tt.cells.ZoneoutWrapper(gru, 0.1), x, dtype=F32), tuple[Tensor, Tensor])
wrapped: tt.DropoutWrapper = tt.DropoutWrapper(Duck())

# one step
assert_type(gru(x[:, 0], torch.zeros(2, 5)), tuple[Tensor, Tensor])
assert_type(lstm(x[:, 0], (torch.zeros(2, 5),) * 2), tuple[Tensor, tt.LSTMStateTuple])
assert_type(stack(x[:, 0], ()), tuple[Tensor, tuple[tt.LSTMStateTuple, ...]])
assert_type(tt.LSTMStateTuple(4, 5), tt.LSTMStateTuple[int])
assert_type(tt.LSTMStateTuple(x, x).dtype, torch.dtype)

# the other unrolls
assert_type(
    tt.bidirectional_dynamic_rnn(gru, lstm, x, dtype=F32),
    tuple[tuple[Tensor, Tensor], tuple[Tensor, tt.LSTMStateTuple]],
)
assert_type(tt.bidirectional_dynamic_rnn(gru, gru, packed, dtype=F32)[0], tuple[PackedSequence, PackedSequence])
assert_type(tt.static_rnn(lstm, steps, dtype=F32), tuple[list[Tensor], tt.LSTMStateTuple])
assert_type(tt.static_rnn(Duck(), steps, dtype=F32), tuple[list[Any], Any])
assert_type(tt.static_bidirectional_rnn(gru, lstm, steps, dtype=F32), tuple[list[Tensor], Tensor, tt.LSTMStateTuple])
assert_type(
    tt.stack_bidirectional_dynamic_rnn([gru], [lstm], x, dtype=F32),
    tuple[Tensor, tuple[Tensor, ...], tuple[tt.LSTMStateTuple, ...]],
)
assert_type(
    tt.stack_bidirectional_rnn([gru], [gru], steps, dtype=F32),
    tuple[list[Tensor], tuple[Tensor, ...], tuple[Tensor, ...]],
)

# drop-in modules
assert_type(tt.nn.LSTM(4, 5)(x), tuple[Tensor, tuple[Tensor, Tensor]])
assert_type(tt.nn.LSTM(4, 5)(x, (x, x), sequence_length=[1, 2]), tuple[Tensor, tuple[Tensor, Tensor]])
assert_type(tt.nn.LSTM(4, 5)(packed), tuple[PackedSequence, tuple[Tensor, Tensor]])
assert_type(tt.nn.GRU(4, 5)(x), tuple[Tensor, Tensor])
assert_type(tt.nn.GRU(4, 5).forward(packed, x), tuple[PackedSequence, Tensor])
assert_type(tt.nn.RNN(4, 5)(x), tuple[Tensor, Tensor])
assert_type(tt.accelerate(torch.nn.Linear(3, 4)), torch.nn.Linear)

# what is wrong stays wrong: each of these needs its comment
tt.nn.GRU(4, 5)(x, (x, x))  # type: ignore[call-overload]
tt.nn.LSTM(4, 5)(x, x)  # type: ignore[call-overload]
tt.LSTMCell(hidden_size=4)  # type: ignore[call-arg]
unknown = tt.NoSuchName  # type: ignore[attr-defined]
