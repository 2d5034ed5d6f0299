"""`dynamic_rnn`: one tensor in, one tensor out; nothing to stack, unstack or transpose."""

import numpy as np
import torch

import throughtime as tt

n_neurons = 5
torch.set_printoptions(sci_mode=False)

X_batch = np.array(
    [
        [[0, 1, 2], [9, 8, 7]],
        [[3, 4, 5], [0, 0, 0]],
        [[6, 7, 8], [6, 5, 4]],
        [[9, 0, 1], [3, 2, 1]],
    ],
    dtype=np.float32,
)

basic_cell = tt.BasicRNNCell(num_units=n_neurons)
outputs, states = tt.dynamic_rnn(basic_cell, X_batch, dtype=torch.float32)

# With time first, in and out, there is one transposition less.
time_major_outputs, _ = tt.dynamic_rnn(basic_cell, X_batch.transpose(1, 0, 2), dtype=torch.float32, time_major=True)

print(outputs.detach())
print("time major:", tuple(time_major_outputs.shape))
