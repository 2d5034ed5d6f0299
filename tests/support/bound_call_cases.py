"""Cells and inputs of calls that go straight to their kernels."""

from __future__ import annotations

import torch
from torch import Tensor

import throughtime as tt

UNITS, WIDTH, BATCH, TIME = 12, 9, 6, 7
LENGTHS = [7, 0, 1, 6, 3, 7]
CELLS = {
    "LSTM": lambda: tt.LSTMCell(UNITS, input_size=WIDTH),
    "peepholes": lambda: tt.LSTMCell(UNITS, use_peepholes=True, input_size=WIDTH),
    "projection": lambda: tt.LSTMCell(UNITS, num_proj=8, input_size=WIDTH),
    "GRU": lambda: tt.GRUCell(UNITS, input_size=WIDTH),
    "RNN": lambda: tt.BasicRNNCell(UNITS, input_size=WIDTH),
    "stack": lambda: tt.MultiRNNCell([tt.GRUCell(UNITS, input_size=WIDTH), tt.LSTMCell(8, input_size=UNITS)]),
    "layer norm": lambda: tt.cells.LayerNormLSTMCell(UNITS, input_size=WIDTH),
    "independent": lambda: tt.cells.IndRNNCell(UNITS, input_size=WIDTH),
    "residual": lambda: tt.ResidualWrapper(tt.GRUCell(WIDTH, input_size=WIDTH)),
}


def inputs(time_major: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    x = torch.randn(BATCH, TIME, WIDTH, dtype=dtype, generator=torch.Generator().manual_seed(1))
    return (x.transpose(0, 1).contiguous() if time_major else x).requires_grad_()
