"""But how do you train it? Like any PyTorch model: here, an LSTM that learns to tell nine speakers apart."""

import torch
from torch import nn

import throughtime as tt
from throughtime.data import japanese_vowels

torch.manual_seed(0)
torch.set_num_threads(1)  # small matrices: one thread is fastest
train, test = japanese_vowels()


class SpeakerClassifier(nn.Module):
    """The final state of each sequence says who speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = tt.LSTMCell(64, input_size=12)
        self.speaker = nn.Linear(64, 9)

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        _, final_state = tt.dynamic_rnn(self.cell, inputs, sequence_length=lengths, dtype=torch.float32)
        return self.speaker(final_state.h)


def accuracy(utterances) -> float:
    inputs, lengths, speakers = utterances.padded()
    with torch.no_grad():
        return (model(inputs, lengths).argmax(1) == speakers).float().mean().item()


model = SpeakerClassifier()
epochs = 8
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
# A learning rate that falls: at a constant one, accuracy jumps by ten points from epoch to epoch, up and down.
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=epochs)
inputs, lengths, speakers = train.padded()
history = []
for epoch in range(epochs):
    for rows in torch.randperm(len(train)).split(32):
        loss = nn.functional.cross_entropy(model(inputs[rows], lengths[rows]), speakers[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
    history.append(accuracy(test))
    print(f"epoch {epoch}: loss {loss.item():.3f}, test accuracy {history[-1]:.1%}")
