"""Helpers for training: the inputs are known, or mostly known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_callable, check_flag, check_number, problem, shape_of, type_name
from throughtime._tensors import as_tensor, rowwise
from throughtime.decode._embedding import Lookup, check_logits
from throughtime.decode._integer_arguments import check_values_known
from throughtime.decode.helpers._helper import Helper
from throughtime.decode.helpers._sampling import Chance
from throughtime.unroll._arguments import check_lengths


class TrainingHelper(Helper):
    """Feeds known inputs, whatever the outputs are: teacher forcing. Samples are the most likely tokens.

    Args:
        inputs: [B, T, ...] ([T, B, ...] if `time_major`), or a nest of such tensors.
        sequence_length: The length of each sequence [B]; above T counts as T.
        time_major: Whether time is the first axis.
        name: Ignored; it names operations in TensorFlow.

    >>> import torch, throughtime as tt
    >>> cell, inputs = tt.GRUCell(4), torch.randn(2, 5, 3)
    >>> helper = tt.decode.TrainingHelper(inputs, sequence_length=[5, 2])
    >>> decoder = tt.decode.BasicDecoder(cell, helper, cell.zero_state(2, torch.float32))
    >>> outputs, state, lengths = tt.decode.dynamic_decode(decoder)
    >>> outputs.rnn_output.shape, lengths.tolist()
    (torch.Size([2, 5, 4]), [5, 2])
    """

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        major = check_flag("time_major", time_major)
        self.inputs = _pytree.map_leaves(lambda leaf: _time_major("inputs", leaf, major), inputs)
        leaves = _pytree.flatten(self.inputs)
        if not leaves or len({leaf.shape[:2] for leaf in leaves}) > 1:
            got, fix = [shape_of(leaf) for leaf in leaves], "Give every leaf B rows and T steps."
            raise ValueError(problem("`inputs` do not agree", got=got, expected="[B, T, ...] for each", fix=fix))
        self.max_time: int = leaves[0].shape[0]
        self._batch_size: int = leaves[0].shape[1]
        if sequence_length is None:
            what, fix = "`sequence_length` is missing", "Pass one length for each row of the batch."
            raise ValueError(problem(what, got="None", expected=f"{self._batch_size} lengths", fix=fix))
        lengths = check_lengths(sequence_length, self._batch_size) or []
        self.lengths = torch.tensor([min(max(length, 0), self.max_time) for length in lengths], dtype=torch.int64)
        self.sequence_length = self.lengths.to(leaves[0].device)

    @property
    def batch_size(self) -> int:
        """B, as many as there are lengths."""
        return self._batch_size

    @property
    def sample_ids_shape(self) -> torch.Size:
        """One token."""
        return torch.Size([])

    @property
    def sample_ids_dtype(self) -> torch.dtype:
        """`torch.int64`."""
        return torch.int64

    def initialize(self, name: str | None = None) -> tuple[Tensor, Any]:
        """The inputs of the first step; rows of length 0 have ended."""
        return self.sequence_length <= 0, self.inputs_at(0)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """The most likely tokens."""
        return check_logits(outputs).argmax(-1)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """The inputs of the next step, and the rows that have none."""
        return self.sequence_length <= int(time) + 1, self.inputs_at(int(time) + 1), state

    def inputs_at(self, time: int) -> Any:
        """The inputs of a step: zeros for rows that have ended, whatever stands there."""
        ended = self.sequence_length <= time

        def read(leaf: Tensor) -> Tensor:
            if time >= self.max_time or bool(ended.all()):
                return leaf.new_zeros(leaf.shape[1:])
            return torch.where(rowwise(ended, leaf[time]), leaf.new_zeros(()), leaf[time])

        return _pytree.map_leaves(read, self.inputs)


def _time_major(name: str, leaf: Any, time_major: bool) -> Tensor:
    tensor = as_tensor(name, leaf)
    if tensor.ndim < 2:
        fix = "Put batch and time first."
        raise ValueError(problem(f"`{name}` has no time axis", got=shape_of(tensor), expected="[B, T, ...]", fix=fix))
    check_values_known(name, tensor)
    return tensor if time_major else tensor.transpose(0, 1)


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """Scheduled sampling (Bengio et al. 2015): now and then the embedding of a sampled token in the place of the input.

    Samples are -1 where the known input was taken.

    Args:
        inputs: As for `TrainingHelper`.
        sequence_length: As for `TrainingHelper`.
        embedding: A table [V, E], or a function of tokens such as `nn.Embedding`.
        sampling_probability: How likely a sample is taken: a number, or a tensor () or [B].
        time_major: Whether time is the first axis.
        seed: For the tokens.
        scheduling_seed: For the choice between sample and input.
        name: Ignored; it names operations in TensorFlow.

    >>> import torch, throughtime as tt
    >>> table, inputs = torch.randn(4, 3), torch.randn(2, 5, 3)
    >>> helper = tt.decode.ScheduledEmbeddingTrainingHelper(inputs, [5, 2], table, sampling_probability=0.0)
    >>> helper.sample(0, torch.randn(2, 4), None).tolist()
    [-1, -1]
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major, name)
        self._embedding = Lookup(embedding)
        self._probability = _check_probability(sampling_probability, self.batch_size)
        self._tokens, self._choices = Chance("seed", seed), Chance("scheduling_seed", scheduling_seed)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """Tokens as likely as the outputs say, and -1 where none is taken."""
        logits = check_logits(outputs)
        taken = self._choices.bernoulli(self._probability, self.batch_size, logits.device)
        return torch.where(taken, self._tokens.categorical(logits), -1)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """The known inputs, or the embeddings of the samples that were taken."""
        finished, known, state = super().next_inputs(time, outputs, state, sample_ids)
        taken = (sample_ids >= 0) & ~finished
        embedded = self._embedding(torch.where(taken, sample_ids, 0))
        return finished, _chosen(taken, embedded, known), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """Scheduled sampling of outputs: now and then a step's output is the next input, in the place of the known one.

    Args:
        inputs: As for `TrainingHelper`.
        sequence_length: As for `TrainingHelper`.
        sampling_probability: How likely an output is taken: a number, or a tensor () or [B].
        time_major: Whether time is the first axis.
        seed: For the choice between output and input.
        next_inputs_fn: Makes inputs of outputs; None takes outputs as they are.
        auxiliary_inputs: Further inputs [B, T, ...], joined to the inputs and to the outputs taken in their place.
        name: Ignored; it names operations in TensorFlow.

    >>> import torch, throughtime as tt
    >>> helper = tt.decode.ScheduledOutputTrainingHelper(torch.zeros(2, 5, 3), [5, 2], sampling_probability=1.0)
    >>> taken = helper.sample(0, torch.ones(2, 3), None)
    >>> helper.next_inputs(0, torch.ones(2, 3), (), taken)[1].tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        next_inputs_fn: Callable[[Any], Any] | None = None,
        auxiliary_inputs: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major, name)
        self._probability = _check_probability(sampling_probability, self.batch_size)
        self._choices = Chance("seed", seed)
        if next_inputs_fn is not None:
            check_callable("next_inputs_fn", next_inputs_fn, expected="a function", fix="Pass next_inputs_fn(outputs).")
        self._next_inputs_fn = next_inputs_fn
        self._auxiliary: TrainingHelper | None = None
        if auxiliary_inputs is not None:
            self._auxiliary = TrainingHelper(auxiliary_inputs, self.lengths, time_major)
            _check_joinable(self.inputs, self._auxiliary.inputs)
            self.inputs = _pytree.map_leaves(_joined, self.inputs, self._auxiliary.inputs)

    @property
    def sample_ids_dtype(self) -> torch.dtype:
        """`torch.bool`: whether the output was taken."""
        return torch.bool

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """Whether each row's output is taken, bool [B]."""
        return self._choices.bernoulli(self._probability, self.batch_size, self.sequence_length.device)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """The known inputs, or the outputs that were taken."""
        finished, known, state = super().next_inputs(time, outputs, state, sample_ids)
        taken = sample_ids.bool() & ~finished
        given = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
        if self._auxiliary is not None:
            given = _pytree.map_leaves(_joined, given, self._auxiliary.inputs_at(int(time) + 1))
        return finished, _chosen(taken, given, known), state


def _check_joinable(inputs: Any, auxiliary: Any) -> None:
    """Raise unless further inputs fit the inputs in all but the last axis."""
    further = _pytree.flatten(_pytree.conform(inputs, auxiliary, "`auxiliary_inputs`"))
    for one, other in zip(_pytree.flatten(inputs), further, strict=True):
        if one.shape[:-1] != other.shape[:-1] or one.device != other.device:
            what, fix = (
                "`auxiliary_inputs` cannot be joined to the inputs",
                "Give as many rows and steps as the inputs.",
            )
            expected = f"{(*shape_of(one)[:-1], '...')} (time-major) on {one.device}"
            raise ValueError(problem(what, got=type_name(other), expected=expected, fix=fix))


def _joined(one: Tensor, other: Tensor) -> Tensor:
    return torch.cat([one, other], -1)


def _chosen(taken: Tensor, one: Any, other: Any) -> Any:
    """Row by row `one` where it is taken, else `other`; both are inputs, so they have one shape."""

    def choose(known: Tensor, new: Any) -> Tensor:
        if not isinstance(new, Tensor) or new.shape != known.shape:
            what, fix = "what is sampled does not look like the inputs", "Make it so, with `next_inputs_fn` if need be."
            raise ValueError(problem(what, got=type_name(new), expected=f"a tensor {shape_of(known)}", fix=fix))
        return torch.where(rowwise(taken, known), new, known)

    return _pytree.map_leaves(choose, other, _pytree.conform(other, one, "what is sampled"))


def _check_probability(value: Any, batch_size: int) -> Any:
    """A probability: a number, or a tensor () or [B]."""
    name, fix = "sampling_probability", "Pass a number between 0 and 1, or one for each row."
    if isinstance(value, Tensor) and value.ndim:
        if value.ndim > 1 or value.shape[0] != batch_size:
            expected = f"() or ({batch_size},)"
            raise ValueError(
                problem(f"`{name}` must be a scalar or a vector", got=shape_of(value), expected=expected, fix=fix)
            )
    else:
        check_number(name, value)
    # To look at a tensor of a GPU would mean to wait for it.
    if not (isinstance(value, Tensor) and value.is_cuda) and not torch.as_tensor((value >= 0) & (value <= 1)).all():
        raise ValueError(problem(f"`{name}` is no probability", got=value, expected="0 to 1", fix=fix))
    return value
