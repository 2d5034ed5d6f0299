"""`static_rnn` on one tensor [batch, n_steps, n_inputs]: unstack the steps, then stack the outputs."""

import numpy as np
import torch

import throughtime as tt

n_neurons = 5
torch.set_printoptions(sci_mode=False)

X_batch = np.array(
    [
        # t = 0      t = 1
        [[0, 1, 2], [9, 8, 7]],  # instance 0
        [[3, 4, 5], [0, 0, 0]],  # instance 1
        [[6, 7, 8], [6, 5, 4]],  # instance 2
        [[9, 0, 1], [3, 2, 1]],  # instance 3
    ],
    dtype=np.float32,
)

X = torch.from_numpy(X_batch)
X_seqs = list(X.transpose(0, 1).unbind())  # n_steps tensors [batch, n_inputs]
basic_cell = tt.BasicRNNCell(num_units=n_neurons)
output_seqs, states = tt.static_rnn(basic_cell, X_seqs, dtype=torch.float32)
outputs = torch.stack(output_seqs).transpose(0, 1)  # [batch, n_steps, n_neurons]

print(outputs.detach())
