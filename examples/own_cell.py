"""A cell of your own is ten lines: set two sizes, define one step. Every unrolling takes it."""

import torch
from torch import nn

import throughtime as tt


class MinimalGatedCell(tt.RNNCell):
    """h = (1 - f) ∘ h + f ∘ tanh([x, f ∘ h] V), where f = σ([x, h] U): a GRU with one gate."""

    def __init__(self, input_size: int, num_units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = num_units
        self.forget = nn.Linear(input_size + num_units, num_units)
        self.candidate = nn.Linear(input_size + num_units, num_units)

    def forward(self, inputs, state):
        f = torch.sigmoid(self.forget(torch.cat([inputs, state], 1)))
        candidate = torch.tanh(self.candidate(torch.cat([inputs, f * state], 1)))
        state = (1 - f) * state + f * candidate
        return state, state


cell = MinimalGatedCell(3, 5)
X = torch.randn(4, 8, 3)
lengths = [8, 3, 0, 5]
outputs, state = tt.dynamic_rnn(cell, X, sequence_length=lengths, dtype=torch.float32)

# Wrap it, stack it, run it both ways.
deep = tt.MultiRNNCell([MinimalGatedCell(3, 5), tt.ResidualWrapper(MinimalGatedCell(5, 5))])
(forwards, backwards), _ = tt.bidirectional_dynamic_rnn(cell, deep, X, sequence_length=lengths, dtype=torch.float32)

print("outputs", tuple(outputs.shape), "state", tuple(state.shape))
print("both ways", tuple(torch.cat([forwards, backwards], 2).shape))

# What the engine made of it: what left the loop, what stayed in it, and which backend runs it.
print(tt.explain(cell, X, sequence_length=lengths))
