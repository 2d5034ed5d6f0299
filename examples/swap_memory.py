"""Longer sequences than the GPU can remember: `swap_memory` keeps what the backward pass needs on the host."""

import torch

import throughtime as tt

device = "cuda" if torch.cuda.is_available() else "cpu"  # on a CPU, swapping changes nothing
X = torch.randn(16, 200, 32, device=device)
cell = tt.LSTMCell(64, input_size=32).to(device)


def gradient(swap_memory: bool = False, checkpoint_every: int | None = None) -> torch.Tensor:
    """The kernel's gradient through 200 steps."""
    outputs, _ = tt.dynamic_rnn(
        cell, X, dtype=torch.float32, swap_memory=swap_memory, checkpoint_every=checkpoint_every
    )
    return torch.autograd.grad(outputs.square().mean(), cell.kernel)[0]


kept = gradient()
swapped = gradient(swap_memory=True)
recomputed = gradient(checkpoint_every=20)  # or: store every twentieth state, and compute the rest again

print(f"on {device}, swapping changes the gradient by {(kept - swapped).abs().max():.1e}")
print(f"on {device}, recomputing changes the gradient by {(kept - recomputed).abs().max():.1e}")
