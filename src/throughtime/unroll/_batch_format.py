"""Batch formats: padded, packed, jagged. Outputs have the format of the inputs.

Every format is a tensor of rows [R, ...] and a rule for the position of step `time` of sequence `row` among them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from throughtime import _pytree
from throughtime._errors import problem, shape_of, type_name
from throughtime._pytree import Nest
from throughtime._tensors import as_tensor


class BatchFormat(ABC):
    """How the sequences of a batch are stored."""

    batch_size: int
    max_time: int
    lengths: list[int] | None

    @abstractmethod
    def rows(self, leaf: Nest) -> Tensor:
        """The leaf as rows [R, ...]."""

    @abstractmethod
    def positions(self, row: Tensor, time: Tensor) -> Tensor:
        """The position of step `time` of sequence `row` among the rows."""

    @abstractmethod
    def blank(self, like: Tensor, fill: Tensor | None) -> Tensor | None:
        """Rows to write results into: zeros, or each sequence's row of `fill`; None if all rows will be written."""

    @abstractmethod
    def restore(self, rows: Tensor) -> Nest:
        """Rows in this format."""


class Padded(BatchFormat):
    """Tensors [B, T, ...], or [T, B, ...] when time-major."""

    def __init__(self, batch_size: int, max_time: int, time_major: bool) -> None:
        self.batch_size = batch_size
        self.max_time = max_time
        self.lengths = None
        self.time_major = time_major

    @property
    def time_axis(self) -> int:
        """Which axis is time."""
        return 0 if self.time_major else 1

    def rows(self, leaf: Tensor) -> Tensor:
        return leaf.flatten(0, 1)

    def positions(self, row: Tensor, time: Tensor) -> Tensor:
        return time * self.batch_size + row if self.time_major else row * self.max_time + time

    def blank(self, like: Tensor, fill: Tensor | None) -> Tensor:
        count = self.batch_size * self.max_time
        if fill is None:
            return like.new_zeros(count, *like.shape[1:])
        return self.rows(fill.unsqueeze(self.time_axis).expand(*self.leading, *fill.shape[1:]))

    def restore(self, rows: Tensor) -> Tensor:
        return rows.reshape(*self.leading, *rows.shape[1:])

    @property
    def leading(self) -> tuple[int, int]:
        """The axes of batch and time, in their order."""
        shape = (self.batch_size, self.max_time)
        return shape[::-1] if self.time_major else shape


class Packed(BatchFormat):
    """A torch `PackedSequence`: time-major, rows sorted by length, no padding.

    Its sequences are indexed in that order, which is the order of the loop; `order` is the permutation from the batch
    to it, `inverse` the one back. Both may be on a GPU; they are not read on the host.
    """

    def __init__(self, sample: PackedSequence) -> None:
        self._sample = sample
        # The key of all batches with the same lengths.
        self.active = sample.batch_sizes.numpy().astype(np.int64, copy=False).tobytes()
        self.lengths = packed_lengths(self.active)
        self.batch_size = len(self.lengths)
        self.max_time = len(sample.batch_sizes)
        self.order, self.inverse = sample.sorted_indices, sample.unsorted_indices

    def rows(self, leaf: PackedSequence) -> Tensor:
        return leaf.data

    def positions(self, row: Tensor, time: Tensor) -> Tensor:
        starts = torch.nn.functional.pad(self._sample.batch_sizes.cumsum(0), (1, 0))
        return starts[time] + row

    def blank(self, like: Tensor, fill: Tensor | None) -> None:
        return None

    def restore(self, rows: Tensor) -> PackedSequence:
        sample = self._sample
        return PackedSequence(rows, sample.batch_sizes, sample.sorted_indices, sample.unsorted_indices)


@lru_cache(maxsize=64)
def packed_lengths(active: bytes) -> list[int]:
    """The lengths of sequences, longest first, from the bytes of the number of rows of each step."""
    counts = np.frombuffer(active, np.int64)
    # A row is as long as there are steps with more rows than come before it.
    lengths: list[int] = np.searchsorted(-counts, -np.arange(counts[0] if len(counts) else 0)).tolist()
    return lengths


class Jagged(BatchFormat):
    """A torch `NestedTensor` of the jagged layout, [B, *, ...]: one sequence after another, no padding."""

    def __init__(self, sample: Any) -> None:
        self._offsets: Tensor = sample.offsets()
        self._starts: Tensor = self._offsets.cpu()
        self.lengths: list[int] = self._starts.diff().tolist()
        self.batch_size = len(self.lengths)
        self.max_time = max(self.lengths, default=0)

    def rows(self, leaf: Nest) -> Tensor:
        values: Tensor = leaf.values()
        return values

    def positions(self, row: Tensor, time: Tensor) -> Tensor:
        return self._starts[row] + time

    def blank(self, like: Tensor, fill: Tensor | None) -> None:
        return None

    def restore(self, rows: Tensor) -> Tensor:
        # The same offsets make it add up with the inputs; the lengths let torch pad it without counting.
        restored: Tensor = torch.nested.nested_tensor_from_jagged(
            rows, self._offsets, min_seqlen=min(self.lengths, default=0), max_seqlen=self.max_time
        )
        return restored


def open_inputs(inputs: Nest, time_major: bool, *, minimum_rank: int = 3) -> tuple[BatchFormat, Nest]:
    """The format of `inputs`, and the inputs as tensors; every leaf must have the same format."""
    if inputs is None:
        raise ValueError(
            problem(
                "`inputs` is None: None values not supported",
                got=None,
                expected="a tensor [B, T, ...] or a nest of them",
                fix="Pass the sequences.",
            )
        )
    leaves = _pytree.flatten(inputs)
    if not leaves:
        raise ValueError(
            problem(
                "`inputs` is empty",
                got=_pytree.describe(inputs),
                expected="at least one tensor",
                fix="Pass the sequences.",
            )
        )
    if any(_is_packed(leaf) for leaf in leaves):
        _check_one_kind(leaves, _is_packed)
        return _open_packed(leaves), inputs
    if any(_is_jagged(leaf) for leaf in leaves):
        _check_one_kind(leaves, _is_jagged)
        for leaf in leaves:
            _check_jagged(leaf, time_major)
        # A jagged tensor may have holes between its sequences; made contiguous, it has none.
        inputs = _pytree.map_leaves(lambda leaf: leaf if leaf.lengths() is None else leaf.contiguous(), inputs)
        return _open_jagged(_pytree.flatten(inputs)), inputs
    tensors = _pytree.map_leaves(lambda leaf: as_tensor("inputs", leaf), inputs)
    return _open_padded(_pytree.flatten(tensors), time_major, minimum_rank, kind=type(inputs)), tensors


def _is_packed(leaf: Any) -> bool:
    return isinstance(leaf, PackedSequence)


def _is_jagged(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_nested


def _check_one_kind(leaves: list[Any], kind: Callable[[Any], bool]) -> None:
    if not all(kind(leaf) for leaf in leaves):
        raise TypeError(
            problem(
                "`inputs` mix packed, jagged and padded sequences",
                got=", ".join(map(type_name, leaves)),
                expected="leaves of one kind",
                fix="Bring all leaves of the nest into the same form.",
            )
        )


def _open_packed(leaves: list[PackedSequence]) -> Packed:
    # A PackedSequence has neither a batch nor a time axis, so `time_major` says nothing about it.
    first = leaves[0]
    for leaf in leaves[1:]:
        same_order = _equal(leaf.sorted_indices, first.sorted_indices)
        if not (same_order and torch.equal(leaf.batch_sizes, first.batch_sizes)):
            raise ValueError(
                problem(
                    "the packed `inputs` of a nest differ in lengths or order",
                    got=leaf.batch_sizes.tolist(),
                    expected=first.batch_sizes.tolist(),
                    fix="Pack every leaf with the same lengths.",
                )
            )
    return Packed(first)


def _check_jagged(leaf: Any, time_major: bool) -> None:
    """A jagged tensor is [B, *, ...], with time as its ragged dimension."""
    if leaf.layout != torch.jagged:
        what = "a NestedTensor must have the jagged layout"
        fix = "Make it with `torch.nested.nested_tensor(sequences, layout=torch.jagged)`."
        raise TypeError(problem(what, got=leaf.layout, expected="torch.jagged", fix=fix))
    if time_major:
        what, fix = "a NestedTensor is batch-major", "Leave `time_major` out."
        raise ValueError(problem(what, got="time_major=True", expected="time_major=False", fix=fix))
    if leaf._ragged_idx != 1:
        what, fix = "the ragged dimension of a NestedTensor must be time", "Transpose it back."
        got = f"dimension {leaf._ragged_idx}"
        raise ValueError(problem(what, got=got, expected="dimension 1: [B, *, ...]", fix=fix))


def _open_jagged(leaves: list[Any]) -> Jagged:
    first = leaves[0].offsets()
    for leaf in leaves[1:]:
        if not torch.equal(leaf.offsets(), first):
            what, fix = "the jagged `inputs` of a nest differ in lengths", "Give every leaf the same lengths."
            got, expected = leaf.offsets().diff().tolist(), first.diff().tolist()
            raise ValueError(problem(what, got=got, expected=expected, fix=fix))
    return Jagged(leaves[0])


def _more_axes(leaf: Tensor, kind: type) -> str:
    """How to make a sequence of a tensor with too few axes, found in inputs of this kind."""
    if issubclass(kind, list):
        # The list of tt.static_rnn, or plain numbers.
        return "A list is a nest of sequences: stack steps with `torch.stack(inputs, 1)`, or use tt.static_rnn."
    if issubclass(kind, tuple):
        return (
            "A tuple is a nest of sequences. If it is the `(outputs, state)` of another layer, pass the outputs alone: "
            "`tt.RNN(cell, returns='outputs')`."
        )
    fix = "Add the missing axis: features with `x.unsqueeze(-1)`, the batch with `x.unsqueeze(0)`."
    if leaf.ndim == 2 and not leaf.is_floating_point():
        fix = "Look token ids up first, with a torch.nn.Embedding; tt.EmbeddingWrapper takes `ids.unsqueeze(-1)`."
    return fix


def _open_padded(leaves: list[Tensor], time_major: bool, minimum_rank: int, *, kind: type) -> Padded:
    axes = "[T, B, ...]" if time_major else "[B, T, ...]"
    for leaf in leaves:
        if leaf.ndim < minimum_rank:
            what, fix = f"`inputs` must have rank at least {minimum_rank}", _more_axes(leaf, kind)
            raise ValueError(problem(what, got=f"shape {shape_of(leaf)}", expected=axes, fix=fix))
    time_axis = 0 if time_major else 1
    for axis, what in ((time_axis, "Time steps is"), (1 - time_axis, "Batch_size is")):
        sizes = [leaf.shape[axis] for leaf in leaves]
        # Not as a set: sizes that torch leaves open have no hash.
        if any(size != sizes[0] for size in sizes):
            raise ValueError(
                problem(
                    f"{what} not the same for all the elements of `inputs`",
                    got=sizes,
                    expected=f"one size, in {axes}",
                    fix="Pad or cut the leaves to one size.",
                )
            )
    return Padded(leaves[0].shape[1 - time_axis], leaves[0].shape[time_axis], time_major)


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)
