"""A model made of torch's own modules, faster by one line: weights, checkpoints and optimiser stay what they are."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import throughtime as tt


class Tagger(nn.Module):
    """A class for every step of sequences of different lengths, as one writes it with torch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(64, 5)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.classes(outputs)


torch.manual_seed(0)
X, lengths = torch.randn(4, 10, 8), torch.tensor([10, 3, 7, 1])
model = Tagger()
optimizer = torch.optim.Adam(model.parameters())
before = model(X, lengths)

tt.accelerate(model)  # the one line

after = model(X, lengths)
after.square().mean().backward()
optimizer.step()
print(
    "now a tt.nn.LSTM:", isinstance(model.lstm, tt.nn.LSTM), "largest difference", (after - before).abs().max().item()
)

# What it learns, torch's own modules can load.
plain = Tagger()
plain.load_state_dict(model.state_dict())

# Padded sequences need no packing here: lengths are an argument, 0 is one of them, and they may be on any device.
padded, (h_n, c_n) = model.lstm(X, sequence_length=[10, 3, 0, 1])
print("outputs", tuple(padded.shape), "past the end:", padded[1, 3:].abs().max().item())

# What the engine made of a layer.
assert isinstance(model.lstm, tt.nn.LSTM)
print(tt.explain(model.lstm.cell(layer=0, reverse=True), X, lengths))
