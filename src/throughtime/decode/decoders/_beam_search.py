"""Beam search: the best few sequences of each row, side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import (
    InvalidArgumentError,
    check_flag,
    check_number,
    check_positive_int,
    problem,
    shape_of,
    type_name,
)
from throughtime._tensors import rowwise
from throughtime.cells._base import check_cell
from throughtime.cells._copies import call_on_copies
from throughtime.decode._attention_state import AttentionWrapperState
from throughtime.decode._decoder import Decoder
from throughtime.decode._embedding import Lookup, check_end_token, check_start_tokens
from throughtime.decode.decoders._basic import check_output_layer, layered
from throughtime.decode.decoders._beam_step import best_continuations, coverage_penalty
from throughtime.decode.decoders._beam_tree import check_beams, gather_tree, gather_tree_from_array
from throughtime.unroll._tensor_array import TensorArray


class BeamSearchDecoderState(NamedTuple):
    """The state of beam search; every leaf has [B, W] in front.

    Attributes:
        cell_state: The cell's state.
        log_probs: The log probability of each beam.
        finished: Which beams have ended.
        lengths: How many tokens each beam has, its end token included.
        accumulated_attention_probs: [B, W, S], how much each place was looked at, with a coverage penalty; else ().

    >>> import throughtime as tt
    >>> tt.decode.BeamSearchDecoderState._fields[:2]
    ('cell_state', 'log_probs')
    """

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any = ()


class BeamSearchDecoderOutput(NamedTuple):
    """What one step of beam search gives, each [B, W]: `scores`, `predicted_ids`, and the `parent_ids` they go on from.

    >>> import throughtime as tt
    >>> tt.decode.BeamSearchDecoderOutput._fields
    ('scores', 'predicted_ids', 'parent_ids')
    """

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """What beam search gives at the end: `predicted_ids` [B, T, W], best beam first, and the outputs of all steps.

    >>> import throughtime as tt
    >>> tt.decode.FinalBeamSearchDecoderOutput._fields
    ('predicted_ids', 'beam_search_decoder_output')
    """

    predicted_ids: Any
    beam_search_decoder_output: Any


class BeamSearchDecoder(Decoder):
    """Keeps the `beam_width` best sequences of each row, until all of them have ended.

    Of every beam all continuations are scored; the best `beam_width` of all go on. The score is the log probability
    over a length penalty `((5 + length) / 6) ** length_penalty_weight`, plus for beams that have ended
    `coverage_penalty_weight` times the coverage penalty of their attention. `lengths` from `dynamic_decode` are
    [B, W], those of the beams at the end; a beam that has ended keeps its state.

    Args:
        cell: A cell; with attention, an `AttentionWrapper` whose memory was tiled, or whose state was.
        embedding: A table [V, E], or a function of tokens such as `nn.Embedding`.
        start_tokens: The tokens to start from, [B].
        end_token: The token that ends a sequence.
        initial_state: The cell's state, tiled by `tile_batch(state, beam_width)`: [B * W, ...].
        beam_width: W.
        output_layer: A module on the cell's outputs, such as `nn.Linear` to the vocabulary; None for none.
        length_penalty_weight: 0 for no length penalty.
        coverage_penalty_weight: 0 for no coverage penalty; otherwise the cell must be an `AttentionWrapper`.
        reorder_tensor_arrays: Whether a `TensorArray` in the state, such as an alignment history, comes back as a
            tensor in the order of the final beams.

    >>> import torch, throughtime as tt
    >>> cell, table, project = tt.LSTMCell(8), torch.nn.Embedding(6, 3), torch.nn.Linear(8, 6)
    >>> state = tt.decode.tile_batch(cell.zero_state(2, torch.float32), 4)
    >>> decoder = tt.decode.BeamSearchDecoder(cell, table, [1, 1], 0, state, beam_width=4, output_layer=project)
    >>> outputs, _, lengths = tt.decode.dynamic_decode(decoder, maximum_iterations=7)
    >>> outputs.predicted_ids.shape[0], outputs.predicted_ids.shape[2], lengths.shape
    (2, 4, torch.Size([2, 4]))
    """

    tracks_own_finished = True

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: nn.Module | None = None,
        length_penalty_weight: float = 0.0,
        coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:
        check_cell("cell", cell)
        check_output_layer(output_layer)
        self.cell = cell
        self.output_layer = output_layer
        self._embedding = Lookup(embedding)
        self._start_tokens = check_start_tokens(start_tokens, self._embedding)
        self._end_token = check_end_token(end_token, self._embedding)
        self.beam_width = check_positive_int("beam_width", beam_width)
        self._length_weight = check_number("length_penalty_weight", length_penalty_weight)
        self._coverage_weight = check_number("coverage_penalty_weight", coverage_penalty_weight)
        self._reorders = check_flag("reorder_tensor_arrays", reorder_tensor_arrays)
        state = _pytree.conform(cell.state_size, initial_state, "`initial_state`")
        self.initial_cell_state = _pytree.map_leaves(self._apart, state)
        self._covers = isinstance(self._coverage_weight, Tensor) or self._coverage_weight != 0
        if self._covers and not isinstance(self.initial_cell_state, AttentionWrapperState):
            what, fix = "a coverage penalty needs attention", "Wrap the cell in an AttentionWrapper."
            raise ValueError(problem(what, got=type_name(cell), expected="an AttentionWrapper", fix=fix))

    @property
    def batch_size(self) -> int:
        """B, as many as there are start tokens."""
        return len(self._start_tokens)

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        """One score, token and parent for each beam."""
        return BeamSearchDecoderOutput(*[torch.Size([self.beam_width])] * 3)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        """Scores in the dtype of the state, whole numbers else."""
        return BeamSearchDecoderOutput(self._dtype, torch.int64, torch.int64)

    @property
    def _dtype(self) -> torch.dtype:
        return _pytree.floating_dtype(self.initial_cell_state) or torch.get_default_dtype()

    def initialize(self, name: str | None = None) -> tuple[Tensor, Any, BeamSearchDecoderState]:
        """The first beam of each row is all there is: the others have ended, and are impossible."""
        device = self._start_tokens.device
        shape = (self.batch_size, self.beam_width)
        finished = torch.ones(shape, dtype=torch.bool, device=device)
        finished[:, 0] = False
        log_probs = torch.zeros(shape, dtype=self._dtype, device=device).masked_fill(finished, -torch.inf)
        state = BeamSearchDecoderState(
            cell_state=self.initial_cell_state,
            log_probs=log_probs,
            finished=finished,
            lengths=torch.zeros(shape, dtype=torch.int64, device=device),
            accumulated_attention_probs=self._no_attention() if self._covers else (),
        )
        return finished, self._embedding(self._start_tokens.unsqueeze(1).expand(shape)), state

    def step(
        self, time: Any, inputs: Any, state: BeamSearchDecoderState, name: str | None = None
    ) -> tuple[BeamSearchDecoderOutput, BeamSearchDecoderState, Any, Tensor]:
        """`(outputs, next_state, next_inputs, finished)`: all beams go one step, and the best continuations stay."""
        merged_state = _pytree.map_leaves(self._merged, state.cell_state)
        outputs, cell_state = call_on_copies(self.cell, _pytree.map_leaves(self._merged, inputs), merged_state)
        if self.output_layer is not None:
            outputs = layered(self.output_layer, outputs)
        cell_state = _pytree.map_leaves(self._apart, cell_state)
        step_log_probs = torch.log_softmax(self._check_logits(outputs), -1)
        attended = self._attended(state, cell_state)
        coverage = None
        if self._covers:
            coverage = self._coverage_weight * coverage_penalty(attended) * state.finished
        scores, log_probs, tokens, parents = best_continuations(
            state.log_probs,
            state.finished,
            state.lengths,
            step_log_probs,
            self._end_token,
            self._length_weight,
            coverage,
        )
        ended = state.finished.gather(1, parents)
        next_state = BeamSearchDecoderState(
            cell_state=self._continued(parents, state.cell_state, cell_state, ended),
            log_probs=log_probs,
            finished=ended | (tokens == self._end_token),
            lengths=state.lengths.gather(1, parents) + ~ended,
            accumulated_attention_probs=_of_parents(parents, attended) if self._covers else (),
        )
        output = BeamSearchDecoderOutput(scores, tokens, parents)
        return output, next_state, self._embedding(tokens), next_state.finished

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Whole sequences from the steps, [T, B, W]; arrays in the state in the order of the final beams."""
        longest = final_state.lengths.amax(1)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorders:
            final_state = final_state._replace(
                cell_state=_pytree.map_leaves(
                    lambda leaf: self._reordered(leaf, outputs.parent_ids, final_state.lengths), final_state.cell_state
                )
            )
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _reordered(self, leaf: Any, parents: Tensor, lengths: Tensor) -> Any:
        """A TensorArray of beams as a tensor, following the final beams; everything else as it is."""
        if not isinstance(leaf, TensorArray) or not leaf.size():
            return leaf
        values = leaf.stack()
        check_beams("a TensorArray in the state", values, self.batch_size, self.beam_width, len(parents))
        # A cell writes before the beams are chosen: what led to a beam lies where its parent was.
        flat = values.reshape(*parents.shape, -1)
        written = flat.gather(2, parents.unsqueeze(3).expand(-1, -1, -1, flat.shape[3]))
        return gather_tree_from_array(written.view(values.shape), parents, lengths)

    def _apart(self, leaf: Any) -> Any:
        """[B * W, ...] as [B, W, ...]."""
        if not isinstance(leaf, Tensor) or not leaf.ndim:
            return leaf
        rows = self.batch_size * self.beam_width
        if leaf.shape[0] != rows:
            what = "a state of beam search has the wrong batch size"
            fix = "Pass it, and the memory of attention, through `tile_batch(state, beam_width)` first."
            expected = f"({rows}, ...), {self.batch_size} rows of {self.beam_width} beams"
            raise InvalidArgumentError(problem(what, got=shape_of(leaf), expected=expected, fix=fix))
        return leaf.unflatten(0, (self.batch_size, self.beam_width))

    def _merged(self, leaf: Any) -> Any:
        """[B, W, ...] as [B * W, ...]."""
        return leaf.flatten(0, 1) if isinstance(leaf, Tensor) and leaf.ndim else leaf

    def _continued(self, parents: Tensor, old: Any, new: Any, ended: Tensor) -> Any:
        """The cell's state of each new beam: that of its parent after the step, or before it if that had ended."""

        def choose(new_leaf: Any, old_leaf: Any) -> Any:
            if not isinstance(new_leaf, Tensor) or not new_leaf.ndim:
                return new_leaf
            after = _of_parents(parents, new_leaf)
            if new_leaf.data_ptr() == old_leaf.data_ptr():
                return after
            before = _of_parents(parents, old_leaf)
            return torch.where(rowwise(ended, after), before, after)

        return _pytree.map_leaves(choose, new, old)

    def _check_logits(self, outputs: Any) -> Tensor:
        if not isinstance(outputs, Tensor) or outputs.ndim != 2:
            what, fix = "Expected outputs to be a single tensor", "Give one number for each token."
            raise TypeError(problem(what, got=type_name(outputs), expected="logits [B * W, V]", fix=fix))
        if not 0 <= self._end_token < outputs.shape[1]:
            what, fix = (
                "`end_token` is no token of the outputs",
                "A beam ends with one; outputs are one for each token.",
            )
            expected = f"0 to {outputs.shape[1] - 1}"
            raise InvalidArgumentError(problem(what, got=self._end_token, expected=expected, fix=fix))
        logits: Tensor = self._apart(outputs)
        return logits

    def _no_attention(self) -> Tensor:
        alignments = self._alignments(self.initial_cell_state)
        return torch.zeros_like(alignments)

    def _attended(self, state: BeamSearchDecoderState, cell_state: Any) -> Any:
        """How much each place was looked at so far, [B, W, S]; beams that have ended look no more."""
        if not self._covers:
            return ()
        looking = self._alignments(cell_state) * (~state.finished).unsqueeze(2)
        return state.accumulated_attention_probs + looking

    def _alignments(self, cell_state: AttentionWrapperState) -> Tensor:
        """Where a step looked; the mechanisms of several side by side."""
        alignments = cell_state.alignments
        return torch.cat(list(alignments), 2) if isinstance(alignments, tuple) else alignments


def _of_parents(parents: Tensor, leaf: Tensor) -> Tensor:
    """The rows [B, W, ...] of the beams that the new ones come from."""
    rows = torch.arange(len(parents), device=parents.device).unsqueeze(1)
    return leaf[rows, parents]
