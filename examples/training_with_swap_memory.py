"""Training on long sequences with less GPU memory, in a plain torch loop: `swap_memory`, and `checkpoint_every`.

On a GPU, `swap_memory=True` keeps what the backward pass needs in the memory of the host. Without one it changes
nothing, so that the same program runs anywhere; `checkpoint_every=k` computes it again instead. Both are exact.
"""

from typing import Any

import torch
from torch import nn

import throughtime as tt

STEPS = 400
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
# The sum of two marked numbers far apart (Hochreiter and Schmidhuber 1997): memory over hundreds of steps.
numbers = torch.rand(64, STEPS, 1)
marks = torch.zeros(64, STEPS, 1)
places = torch.stack([torch.randperm(STEPS)[:2] for _ in range(64)])
marks.scatter_(1, places.unsqueeze(2), 1.0)
inputs = torch.cat([numbers, marks], 2).to(device)
targets = (numbers * marks).sum((1, 2)).to(device)


def losses_of(**memory: Any) -> list[float]:
    """Train for a few steps of the optimiser, the same ones every time."""
    torch.manual_seed(1)
    cell, last = tt.LSTMCell(32, input_size=2).to(device), nn.Linear(32, 1).to(device)
    optimizer = torch.optim.Adam([*cell.parameters(), *last.parameters()], lr=0.01)
    losses = []
    for _ in range(4):
        _, state = tt.dynamic_rnn(cell, inputs, dtype=torch.float32, **memory)
        loss = nn.functional.mse_loss(last(state.h)[:, 0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


ways: dict[str, dict[str, Any]] = {"kept": {}, "swapped": {"swap_memory": True}, "recomputed": {"checkpoint_every": 20}}
found: dict[str, list[float]] = {}
for name, memory in ways.items():
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found[name] = losses_of(**memory)
    held = f"  {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB at most" if device == "cuda" else ""
    print(f"{name:>10}: " + "  ".join(f"{loss:.4f}" for loss in found[name]) + held)
