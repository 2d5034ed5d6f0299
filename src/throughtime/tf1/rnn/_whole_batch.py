"""The plain loop for steps that the engine does not take: every step runs for the whole batch, as in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from throughtime.tf1.functions._func_graph import Function


def unroll_whole_batch(
    step: Function,
    session_state: Any,
    captures: Sequence[Any],
    inputs: Sequence[torch.Tensor],
    lengths: torch.Tensor | None,
    state: Sequence[Any],
    output_count: int,
    *,
    time_major: bool,
    reverse: bool,
) -> tuple[list[torch.Tensor], list[Any]]:
    """Outputs and final state; past its end a sequence's outputs are zero and its state is copied through."""
    rows = [value if time_major else value.transpose(0, 1) for value in inputs]
    steps = rows[0].shape[0]
    if reverse:
        rows = [_reversed(value, lengths) for value in rows]
    current = list(state)
    outputs: list[list[torch.Tensor]] = [[] for _ in range(output_count)]
    for time in range(steps):
        found = step(session_state, captures, [*(value[time] for value in rows), *current])
        new_outputs, new_state = found[:output_count], found[output_count:]
        if lengths is not None:
            running = time < lengths
            new_outputs = [_kept(running, new, torch.zeros_like(new)) for new in new_outputs]
            new_state = [_kept(running, new, old) for new, old in zip(new_state, current, strict=True)]
        current = new_state
        for parts, new in zip(outputs, new_outputs, strict=True):
            parts.append(new)
    stacked = [torch.stack(parts) if parts else _nothing(step, place, rows) for place, parts in enumerate(outputs)]
    if reverse:
        stacked = [_reversed(value, lengths) for value in stacked]
    return [value if time_major else value.transpose(0, 1) for value in stacked], current


def _kept(running: torch.Tensor, new: Any, old: Any) -> Any:
    """`new` for sequences that run, `old` for others; what has no batch axis is new."""
    if not isinstance(new, torch.Tensor) or new.ndim == 0:
        return new
    return torch.where(running.reshape([-1] + [1] * (new.ndim - 1)), new, old)


def _reversed(value: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """[T, B, ...] with each sequence reversed within its length."""
    if lengths is None:
        return value.flip(0)
    steps = torch.arange(value.shape[0], device=value.device)[:, None]
    places = torch.where(steps < lengths, lengths.long() - 1 - steps, steps)
    return value[places, torch.arange(value.shape[1], device=value.device)]


def _nothing(step: Function, place: int, rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """The outputs of no steps."""
    tensor = step.outputs[place]
    sizes = [size or 0 for size in (tensor.shape.sizes or (0,))[1:]]
    return torch.zeros((0, rows[0].shape[1], *sizes), dtype=tensor.dtype.torch_dtype)
