"""Two steps by hand, then the same two steps by `static_rnn`."""

import torch

import throughtime as tt

n_inputs, n_neurons = 3, 5

# One tensor a step; four instances each.
X0 = torch.tensor([[0.0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 1]])
X1 = torch.tensor([[9.0, 8, 7], [0, 0, 0], [6, 5, 4], [3, 2, 1]])

basic_cell = tt.BasicRNNCell(n_neurons, input_size=n_inputs)

# A cell keeps one kernel for [inputs, state], TensorFlow's layout: the first rows act on the inputs.
Wx, Wy, b = basic_cell.kernel[:n_inputs], basic_cell.kernel[n_inputs:], basic_cell.bias
Y0_by_hand = torch.tanh(X0 @ Wx + b)
Y1_by_hand = torch.tanh(Y0_by_hand @ Wy + X1 @ Wx + b)

# The cell is called once a step and its weights are shared: a list of outputs comes back, and the final state.
(Y0, Y1), states = tt.static_rnn(basic_cell, [X0, X1], dtype=torch.float32)

print("step 0", Y0.detach(), "step 1", Y1.detach(), sep="\n")
print("same as by hand:", torch.allclose(Y0, Y0_by_hand, atol=1e-6) and torch.allclose(Y1, Y1_by_hand, atol=1e-6))
print("a basic cell's final state is its last output:", torch.equal(states, Y1))
