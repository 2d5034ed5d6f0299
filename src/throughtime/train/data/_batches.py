"""Sequences side by side: what a model sees in one step of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime._errors import check_positive_int, problem, shape_of, type_name
from throughtime.train._distributed import Worker, this_worker


class Batch(NamedTuple):
    """Sequences of one batch, padded with zeros to the longest.

    `inputs` is [B, T, ...] and `lengths` [B]. `targets` is [B, ...] with one target for each sequence, or [B, U, ...]
    where each target is a sequence of its own; then `target_lengths` [B] says how long.

    >>> import torch, throughtime as tt
    >>> batch = tt.train.pad([(torch.ones(3, 2), 1), (torch.ones(1, 2), 0)])
    >>> batch.inputs.shape, batch.lengths.tolist(), batch.targets.tolist()
    (torch.Size([2, 3, 2]), [3, 1], [1, 0])
    """

    inputs: Tensor
    lengths: Tensor
    # A tensor, or None, as `measure` expects.
    targets: Any = None
    target_lengths: Tensor | None = None

    @property
    def steps(self) -> int:
        """How many steps are real."""
        return int(self.lengths.sum())

    @property
    def padded_steps(self) -> int:
        """How many steps there are with the padding."""
        return self.inputs.shape[0] * self.inputs.shape[1]

    def to(self, device: torch.device | str) -> Batch:
        """The batch on a device."""
        moved: list[Any] = [None if part is None else part.to(device) for part in self]
        return type(self)(*moved)

    def windows(self, size: int) -> Iterator[Batch]:
        """The batch cut along time into pieces of at most `size` steps, for truncated backpropagation.

        Targets must be one for each step, so that they can be cut in the same places.
        """
        if self.target_lengths is None or not torch.equal(self.target_lengths, self.lengths):
            what, fix = "a batch is cut along time only with a target for each step", "Leave `truncate` out."
            got = "one target a sequence" if self.target_lengths is None else "target sequences of other lengths"
            raise ValueError(problem(what, got=got, expected="`target_lengths` equal to `lengths`", fix=fix))
        for start in range(0, max(1, self.inputs.shape[1]), size):
            lengths = (self.lengths - start).clamp(0, size)
            piece = slice(start, start + size)
            targets = None if self.targets is None else self.targets[:, piece]
            yield type(self)(self.inputs[:, piece], lengths, targets, lengths)


class StandIn(Batch):
    """What a worker gets for which no row is left: rows that another worker has too, and that count there alone.

    So all workers take part in every step, with batches that any model takes.
    """

    __slots__ = ()


def brought(batch: Any, device: torch.device, *, lent: bool = False) -> Any:
    """A batch, or what another loader gives in its place, on a device; a stand-in if it is lent."""
    if not hasattr(batch, "to"):
        what, fix = "there is no batch among the batches", "Use `tt.train.loader`, or `collate_fn=tt.train.pad`."
        raise TypeError(problem(what, got=type_name(batch), expected="a tt.train.Batch, or the like", fix=fix))
    if lent and type(batch) is not Batch:
        what, fix = "a batch has fewer rows than there are workers", "Raise `batch_size`, or use fewer workers."
        raise TypeError(problem(what, got=type_name(batch), expected="a tt.train.Batch for that", fix=fix))
    return (StandIn(*batch) if lent else batch).to(device)


def pad(examples: Sequence[Any]) -> Batch:
    """Make a batch of examples: the `collate_fn` for torch's `DataLoader`.

    An example is `inputs` [T, ...], or a pair of `inputs` and a target: a number or a tensor of rank 0 (one for the
    sequence), or a tensor [U, ...] (a sequence itself). Arrays are taken for tensors.

    >>> import torch, throughtime as tt
    >>> batch = tt.train.pad([(torch.ones(2, 1), torch.tensor([5, 6])), (torch.ones(1, 1), torch.tensor([7]))])
    >>> batch.targets.tolist(), batch.target_lengths.tolist()
    ([[5, 6], [7, 0]], [2, 1])
    """
    if not len(examples):
        what, fix = "a batch needs an example", "Ask for batches of at least one sequence."
        raise ValueError(problem(what, got="none", expected="at least one", fix=fix))
    pairs = [example if isinstance(example, tuple | list) else (example,) for example in examples]
    if len({len(pair) for pair in pairs}) != 1 or len(pairs[0]) not in {1, 2}:
        what, fix = "an example is `inputs`, or a pair of `inputs` and a target", "Make all examples alike."
        got = f"examples of {sorted({len(pair) for pair in pairs})} parts"
        raise ValueError(problem(what, got=got, expected="1 part or 2, the same for all", fix=fix))
    inputs, lengths = _padded("inputs", [_as_tensor(pair[0]) for pair in pairs])
    if len(pairs[0]) == 1:
        return Batch(inputs, lengths)
    targets = [_as_tensor(pair[1]) for pair in pairs]
    if not any(target.ndim for target in targets):
        return Batch(inputs, lengths, torch.stack(targets))
    return Batch(inputs, lengths, *_padded("targets", targets))


def _padded(name: str, sequences: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Sequences [T_i, ...] as one tensor [B, T, ...], and their lengths: one copy for all of them, not one for each."""
    try:
        # torch looks at the rest of the shapes; on its own it would let empty ones and other dtypes pass.
        if sequences[0].ndim and len(set(map(_kind, sequences))) == 1:
            counts = [sequence.shape[0] for sequence in sequences]
            joined = torch.cat(_with_gaps(sequences, counts))
            return joined.view(len(counts), max(counts), *joined.shape[1:]), torch.tensor(counts)
    except RuntimeError:
        # One that has no room for the steps says so itself.
        if len({sequence.shape[1:] for sequence in sequences}) == 1:
            raise
    expected, fix = "tensors [T, ...] that differ in T only", f"Look at the `{name}` of every example."
    got = sorted({f"{shape_of(sequence)} {sequence.dtype}" for sequence in sequences})
    raise ValueError(problem(f"`{name}` do not fit into one batch", got=got, expected=expected, fix=fix))


def _with_gaps(sequences: list[Tensor], counts: list[int]) -> list[Tensor]:
    """Sequences padded with zeros to a number of steps."""
    longest, shortest = max(counts), min(counts)
    zeros = sequences[0].new_zeros(longest - shortest, *sequences[0].shape[1:])
    # As many as there are different lengths, which are few. The longest get none: empty tensors slow torch down.
    gaps = {count: zeros[count - shortest :] for count in set(counts) - {longest}}
    parts = []
    for sequence, count in zip(sequences, counts, strict=True):
        parts.append(sequence)
        if count < longest:
            parts.append(gaps[count])
    return parts


_kind = attrgetter("ndim", "dtype")


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        what, fix = "an example holds something that is no numbers", "Count classes from 0, and letters as codes."
        raise TypeError(
            problem(what, got=repr(value)[:80], expected="a tensor, an array or a number", fix=fix)
        ) from error


def streams(sequence: Any, batch_size: int) -> Batch:
    """One long sequence [N, ...] cut into `batch_size` streams side by side, each step's target being the next step.

    With `fit(..., truncate=k)` this is how language models are trained: the state at the end of one window is where
    the next begins. What does not fill a stream, fewer than `batch_size` steps, is left out. Of several workers
    each gets its share of the streams.

    >>> import torch, throughtime as tt
    >>> batch = tt.train.streams(torch.arange(9), batch_size=2)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 1, 2, 3], [4, 5, 6, 7]], [[1, 2, 3, 4], [5, 6, 7, 8]])
    """
    batch, worker = side_by_side(sequence, batch_size), this_worker()
    if len(batch.lengths) < worker.size:
        what, fix = "there are fewer streams than workers", "Raise `batch_size`, or use fewer workers."
        raise ValueError(problem(what, got=len(batch.lengths), expected=f"at least {worker.size}", fix=fix))
    return share_of(batch, worker)


def side_by_side(sequence: Any, batch_size: int) -> Batch:
    """The streams of all workers."""
    whole, rows = torch.as_tensor(sequence), check_positive_int("batch_size", batch_size)
    time = (len(whole) - 1) // rows if whole.ndim else 0
    if time < 1:
        got = f"{len(whole)} steps" if whole.ndim else type_name(sequence)
        expected, fix = f"at least {rows + 1} steps", "Pass a longer sequence, or a smaller `batch_size`."
        raise ValueError(
            problem("`sequence` is too short for `batch_size` streams", got=got, expected=expected, fix=fix)
        )
    inputs, targets = (whole[shift : shift + rows * time].unflatten(0, (rows, time)) for shift in (0, 1))
    lengths = torch.full((rows,), time)
    return Batch(inputs, lengths, targets, lengths)


def share_of(batch: Batch, worker: Worker) -> Batch:
    """A worker's rows of a batch; where none is left for it, the first row stands in."""
    is_left_out = worker.rank >= len(batch.lengths)
    rows = slice(1) if is_left_out else slice(worker.rank, None, worker.size)
    mine: list[Any] = [None if part is None else part[rows] for part in batch]
    return StandIn(*mine) if is_left_out else Batch(*mine)
