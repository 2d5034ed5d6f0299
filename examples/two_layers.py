"""Two LSTM layers, 128 and 256 wide, as one cell."""

import torch

import throughtime as tt

data = torch.randn(3, 5, 10)

# create 2 LSTMCells
rnn_layers = [tt.LSTMCell(size) for size in [128, 256]]

# create a RNN cell composed sequentially of a number of RNNCells
multi_rnn_cell = tt.MultiRNNCell(rnn_layers)

# 'outputs' is a tensor of shape [batch_size, max_time, 256]
# 'state' is a N-tuple where N is the number of LSTMCells, with an LSTMStateTuple for each cell
outputs, state = tt.dynamic_rnn(cell=multi_rnn_cell, inputs=data, dtype=torch.float32)

print("outputs", tuple(outputs.shape))
for layer, (c, h) in enumerate(state):
    print(f"layer {layer}: c {tuple(c.shape)}, h {tuple(h.shape)}")
