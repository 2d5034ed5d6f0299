"""Start from a state of your own, here the cell's zero state, instead of giving a `dtype`."""

import torch

import throughtime as tt

batch_size, max_time, depth, hidden_size = 2, 6, 4, 8
input_data = torch.randn(batch_size, max_time, depth)

# create a BasicRNNCell
rnn_cell = tt.BasicRNNCell(hidden_size)

# defining initial state
initial_state = rnn_cell.zero_state(batch_size, dtype=torch.float32)

# 'outputs' is a tensor of shape [batch_size, max_time, cell_state_size]
# 'state' is a tensor of shape [batch_size, cell_state_size]
outputs, state = tt.dynamic_rnn(rnn_cell, input_data, initial_state=initial_state, dtype=torch.float32)

# A final state is as good a start as any: two halves in a row are one whole.
_, halfway = tt.dynamic_rnn(rnn_cell, input_data[:, :3], initial_state=initial_state)
_, state_in_two_halves = tt.dynamic_rnn(rnn_cell, input_data[:, 3:], initial_state=halfway)

print("outputs", tuple(outputs.shape), "state", tuple(state.shape))
print("in two halves, the same state:", torch.allclose(state, state_in_two_halves))
