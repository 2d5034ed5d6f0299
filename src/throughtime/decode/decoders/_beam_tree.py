"""Beams as trees: every step points back at the beam it came from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import InvalidArgumentError, check_positive_int, problem, shape_of
from throughtime._tensors import as_tensor
from throughtime.decode._integer_arguments import whole_numbers
from throughtime.unroll._tensor_array import TensorArray

_TREE = "Pass what beam search gives, time-major."


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Every row `multiplier` times, one after the other: [B, ...] to [B * multiplier, ...], for tensors and nests.

    It makes rows of beams from rows of a batch. In a nest, what has no rows (a counter of steps) stays as it is.

    >>> import torch, throughtime as tt
    >>> tt.decode.tile_batch(torch.tensor([[1], [2]]), 2).tolist()
    [[1], [1], [2], [2]]
    """
    multiplier = check_positive_int("multiplier", multiplier)

    def tiled(leaf: Any) -> Any:
        if isinstance(leaf, TensorArray) and not leaf.size():
            shape = leaf.element_shape
            rows = None if not shape or shape[0] is None else (shape[0] * multiplier, *shape[1:])
            return TensorArray(leaf.dtype, 0, leaf.dynamic_size, leaf.clear_after_read, element_shape=rows)
        tensor = as_tensor("t", leaf)
        if not tensor.ndim and _pytree.is_nest(t):
            return tensor
        if not tensor.ndim:
            what, fix = "`t` has no rows to repeat", "Pass tensors [B, ...]."
            raise ValueError(problem(what, got="shape ()", expected="[B, ...]", fix=fix))
        return tensor.repeat_interleave(multiplier, 0)

    return _pytree.map_leaves(tiled, t)


def gather_tree(step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any) -> Tensor:
    """Sequences from beams: follows `parent_ids` back from the last step, beam by beam.

    Args:
        step_ids: [T, B, W], the token of each beam at each step.
        parent_ids: [T, B, W], the beam at the step before that it continues.
        max_sequence_lengths: [B], where to start going back.
        end_token: What stands past the first end token, and past the lengths.

    Returns:
        [T, B, W]: column b, w is the whole sequence of the beam that is w-th at the end.

    >>> import torch, throughtime as tt
    >>> ids = torch.tensor([[1, 2], [3, 4], [5, 6]]).unsqueeze(1)
    >>> parents = torch.tensor([[0, 0], [1, 0], [1, 1]]).unsqueeze(1)
    >>> tt.decode.gather_tree(ids, parents, [3], end_token=9).squeeze(1).T.tolist()
    [[1, 4, 5], [1, 4, 6]]
    """
    ids, parents = whole_numbers("step_ids", step_ids, 3, _TREE), whole_numbers("parent_ids", parent_ids, 3, _TREE)
    if ids.shape != parents.shape:
        what, fix = "`step_ids` and `parent_ids` differ in shape", "Give one parent for each token."
        raise ValueError(problem(what, got=f"{shape_of(ids)} and {shape_of(parents)}", expected="one shape", fix=fix))
    steps, rows, width = ids.shape
    fix = "Give one length for each row."
    lengths = whole_numbers("max_sequence_lengths", max_sequence_lengths, 1, fix).to(ids.device).clamp(0, steps)
    if len(lengths) != rows:
        what = "`max_sequence_lengths` has the wrong shape"
        raise ValueError(problem(what, got=shape_of(lengths), expected=(rows,), fix=fix))
    end = whole_numbers("end_token", end_token, 0, "Pass the token that means the end.").to(ids.device)
    beams = _trace(parents, lengths, width)
    found = torch.where(beams < 0, end, ids.gather(2, beams.clamp(min=0)))
    # Past its first end token a sequence says nothing else.
    over = (found == end).cumsum(0) > 0
    return torch.where(over, end, found)


def _trace(parents: Tensor, lengths: Tensor, width: int) -> Tensor:
    """Which beam each sequence was at each step, [T, B, W]; -1 past the lengths."""
    steps, rows, _ = parents.shape
    first = torch.arange(width, device=parents.device).expand(rows, width)
    current = first
    beams: list[Tensor] = []
    for step in reversed(range(steps)):
        started = (step < lengths).unsqueeze(1)
        beams.append(torch.where(started, current, -1))
        back = parents[step].gather(1, current)
        # The parents of the first step are beams of no step, and not followed.
        if step and bool((started & ((back < 0) | (back >= width))).any()):
            what, fix = "a parent id is no beam", "Correct `parent_ids`."
            wrong = back[(started & ((back < 0) | (back >= width)))][0]
            message = problem(what, got=f"{int(wrong)} at step {step}", expected=f"0 to {width - 1}", fix=fix)
            raise InvalidArgumentError(message)
        current = torch.where(started & (step > 0), back, first)
    return torch.stack(beams[::-1]) if beams else parents.clone()


def gather_tree_from_array(t: Any, parent_ids: Any, sequence_length: Any) -> Tensor:
    """What was kept at every step of beam search, in the order of the sequences that are there at the end.

    Args:
        t: A `TensorArray` or a tensor with, for each step, [B, W, ...] or [B * W, ...].
        parent_ids: [T, B, W].
        sequence_length: [B, W], the lengths at the end; past them values stay where they are.

    Returns:
        A tensor of the shape of `t`.

    >>> import torch, throughtime as tt
    >>> kept = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).unsqueeze(1)
    >>> parents = torch.tensor([[0, 0], [1, 0]]).unsqueeze(1)
    >>> tt.decode.gather_tree_from_array(kept, parents, torch.tensor([[2, 2]])).squeeze(1).tolist()
    [[2.0, 1.0], [3.0, 4.0]]
    """
    parents = whole_numbers("parent_ids", parent_ids, 3, _TREE)
    steps, rows, width = parents.shape
    fix = "Give the length of each beam."
    lengths = whole_numbers("sequence_length", sequence_length, 2, fix).to(parents.device)
    if lengths.shape != (rows, width):
        what = "`sequence_length` has the wrong shape"
        raise ValueError(problem(what, got=shape_of(lengths), expected=(rows, width), fix=fix))
    values = t.stack() if isinstance(t, TensorArray) else as_tensor("t", t)
    check_beams("t", values, rows, width, steps)
    own = torch.arange(width, device=parents.device).expand(steps, rows, width)
    beams = _trace(parents, lengths.amax(1) if width else lengths.new_zeros(rows), width)
    within = torch.arange(steps, device=parents.device).view(-1, 1, 1) < lengths
    beams = torch.where(within & (beams >= 0), beams, own)
    flat = values.reshape(steps, rows, width, -1)
    gathered = flat.gather(2, beams.unsqueeze(3).expand(-1, -1, -1, flat.shape[3]))
    return gathered.view(values.shape)


def check_beams(name: str, values: Tensor, rows: int, width: int, steps: int) -> None:
    """Raise unless `values` are [T, B, W, ...] or [T, B * W, ...]."""
    apart, merged = (steps, rows, width), (steps, rows * width)
    if shape_of(values)[:3] != apart and shape_of(values)[:2] != merged:
        what, fix = f"`{name}` does not hold one value for each beam", "Keep [B, W, ...] or [B * W, ...] at every step."
        expected = f"{apart} or {merged} and whatever a beam holds"
        raise InvalidArgumentError(problem(what, got=shape_of(values), expected=expected, fix=fix))
