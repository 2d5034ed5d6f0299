"""Forecasting: the next values of series of different lengths, one step ahead while training, many steps at the end."""

import torch
from torch import nn

import throughtime as tt

EPOCHS, SERIES, AHEAD = 15, 200, 20

torch.manual_seed(0)
torch.set_num_threads(1)


def series(length: int) -> torch.Tensor:
    """Two waves of its own period and phase, and some noise."""
    time = torch.arange(length) / (2 + 4 * torch.rand(()))
    wave = torch.sin(time + 6 * torch.rand(())) + 0.5 * torch.sin(time / 3)
    return (wave + 0.05 * torch.randn(length)).unsqueeze(1)


class Forecaster(nn.Module):
    """An LSTM that says how the next value differs from this one."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = tt.LSTMCell(48, input_size=1)
        self.change = nn.Linear(48, 1)

    def forward(self, values: torch.Tensor, lengths: torch.Tensor | None = None, state: object = None):
        outputs, state = tt.dynamic_rnn(self.cell, values, lengths, state, torch.float32)
        return values + self.change(outputs), state

    def forecast(self, values: torch.Tensor, steps: int) -> torch.Tensor:
        """Its own forecast is its next input."""
        predicted, state = self(values)
        found = [predicted[:, -1:]]
        for _ in range(steps - 1):
            predicted, state = self(found[-1], None, state)
            found.append(predicted)
        return torch.cat(found, 1)


def measure(model: nn.Module, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    predicted, _ = model(batch.inputs, batch.lengths)
    return {
        "loss": tt.train.squared_error(predicted, batch.targets, batch.lengths),
        "absolute error": tt.train.absolute_error(predicted, batch.targets, batch.lengths),
    }


whole = [series(int(torch.randint(40, 121, ()))) for _ in range(SERIES)]
examples = [(values[: -AHEAD - 1], values[1:-AHEAD]) for values in whole]
held_out = SERIES // 5
model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
history = tt.train.fit(
    model,
    measure,
    tt.train.loader(examples[held_out:], batch_size=16),
    tt.train.loader(examples[:held_out], batch_size=64, shuffle=False),
    optimizer=optimizer,
    schedule=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2),
    epochs=EPOCHS,
    clip_norm=1.0,
    callbacks=[tt.train.Progress()],
)
errors, naive = [], []
with torch.no_grad():
    for values in whole[:held_out]:
        known, future = values[None, :-AHEAD], values[None, -AHEAD:]
        errors.append((model.forecast(known, AHEAD) - future).abs().mean())
        naive.append((known[:, -1:] - future).abs().mean())
error, unchanged = float(torch.stack(errors).mean()), float(torch.stack(naive).mean())
print(f"{AHEAD} steps ahead: off by {error:.3f}; by {unchanged:.3f} if nothing changed")
