"""What `dynamic_rnn` does, spelled out: a `while_loop` over the cell that keeps what gradients will need."""

import torch

import throughtime as tt

X = torch.randn(4, 6, 3)
n_steps = X.shape[1]
cell = tt.BasicRNNCell(5, input_size=3)


def more_steps(time, state, outputs):
    return time < n_steps


def one_step(time, state, outputs):
    output, state = cell(X[:, time], state)
    return time + 1, state, outputs.write(time, output)


start = torch.tensor(0), cell.zero_state(4, torch.float32), tt.TensorArray(torch.float32, size=n_steps)
_, looped_state, looped_outputs = tt.while_loop(more_steps, one_step, start)
looped = looped_outputs.stack().transpose(0, 1)
(looped_gradient,) = torch.autograd.grad(looped.square().sum(), cell.kernel)

outputs, state = tt.dynamic_rnn(cell, X, dtype=torch.float32)
(gradient,) = torch.autograd.grad(outputs.square().sum(), cell.kernel)

print("largest difference in outputs: ", (looped - outputs).abs().max().item())
print("largest difference in gradient:", (looped_gradient - gradient).abs().max().item())
