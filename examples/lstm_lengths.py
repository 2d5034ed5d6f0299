"""An LSTM on five sequences of up to ten steps; with `sequence_length`, padding costs nothing."""

import torch

import throughtime as tt

lens = [4, 9, 10, 5, 10]
cell = tt.LSTMCell(7)

input_sequences = torch.randn(5, 10, 20)  # batch_size, time_steps, embed_dim

full_output, full_state = tt.dynamic_rnn(cell, input_sequences, dtype=torch.float32)
output, final_state = tt.dynamic_rnn(cell, input_sequences, sequence_length=lens, dtype=torch.float32)

# The final state is taken where each sequence ends: its h is the last real output.
last_outputs = output[torch.arange(5), torch.tensor(lens) - 1]

print("output", tuple(output.shape), "final state", [tuple(part.shape) for part in final_state])
print("steps that are not zero, by sequence:", [int(row.any(dim=1).sum()) for row in output])
print("final h is the last real output:", torch.equal(final_state.h, last_outputs))
