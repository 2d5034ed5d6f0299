"""Sequences of different lengths: `sequence_length` says where each one ends."""

import numpy as np
import torch

import throughtime as tt

n_neurons = 5
torch.set_printoptions(sci_mode=False)

X_batch = np.array(
    [
        # step 0    step 1
        [[0, 1, 2], [9, 8, 7]],  # instance 0
        [[3, 4, 5], [0, 0, 0]],  # instance 1 (padded with a zero vector)
        [[6, 7, 8], [6, 5, 4]],  # instance 2
        [[9, 0, 1], [3, 2, 1]],  # instance 3
    ],
    dtype=np.float32,
)
seq_length_batch = np.array([2, 1, 2, 2])

basic_cell = tt.BasicRNNCell(num_units=n_neurons)
outputs, states = tt.dynamic_rnn(basic_cell, X_batch, dtype=torch.float32, sequence_length=seq_length_batch)

# static_rnn takes lengths as well.
X_seqs = list(torch.from_numpy(X_batch).unbind(1))
output_seqs, static_states = tt.static_rnn(basic_cell, X_seqs, dtype=torch.float32, sequence_length=seq_length_batch)

print(outputs.detach())
print("instance 1, step 1 (past its length):", outputs[1, 1].tolist())
print("its final state is that of step 0:   ", torch.equal(states[1], outputs[1, 0]))
