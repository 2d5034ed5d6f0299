"""`BeamSearchDecoder`: the best few sequences of each row; its arithmetic is that of `throughtime.decode`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from throughtime import _pytree
from throughtime import tf1 as tf
from throughtime.decode.decoders import _beam_tree
from throughtime.decode.decoders._beam_step import best_continuations, coverage_penalty
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._tensor_array import TensorArray
from throughtime.tf1.graph._dtypes import bool_, int32, int64
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn._cell import check_cell
from throughtime.tf1.seq2seq._basic import check_layer
from throughtime.tf1.seq2seq._decoder import Decoder
from throughtime.tf1.seq2seq._helpers import embedding_function
from throughtime.tf1.seq2seq._nodes import known, node, size_of
from throughtime.tf1.seq2seq._wrapper import AttentionWrapperState


@exported("contrib.seq2seq.BeamSearchDecoderState")
class BeamSearchDecoderState(NamedTuple):
    """The state of all beams."""

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any


@exported("contrib.seq2seq.BeamSearchDecoderOutput")
class BeamSearchDecoderOutput(NamedTuple):
    """What one step gives for each beam."""

    scores: Any
    predicted_ids: Any
    parent_ids: Any


@exported("contrib.seq2seq.FinalBeamSearchDecoderOutput")
class FinalBeamSearchDecoderOutput(NamedTuple):
    """Whole sequences, and the outputs of the steps."""

    predicted_ids: Any
    beam_search_decoder_output: Any


@exported("contrib.seq2seq.tile_batch")
def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Every row of every tensor `multiplier` times, side by side."""

    def tiled(leaf: Any) -> Tensor:
        tensor = convert_to_tensor(leaf)
        if not tensor.shape.ndims:
            raise ValueError(
                f"t must have statically known rank of at least 1, got shape {tensor.shape}; use set_shape"
            )
        return node("Reshape", lambda rows: rows.repeat_interleave(int(multiplier), 0), [tensor])

    return _pytree.map_leaves(tiled, t)


@exported("contrib.seq2seq.gather_tree")
def gather_tree(step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any, name: Any = None) -> Tensor:
    """Whole sequences of tokens and parents of steps [time, batch, beam]."""
    ids = convert_to_tensor(step_ids, name="step_ids")

    def kernel(*values: torch.Tensor) -> torch.Tensor:
        return _beam_tree.gather_tree(*(value.long() for value in values)).to(torch.int32)

    return node("GatherTree", kernel, [ids, parent_ids, max_sequence_lengths, end_token], like=ids)


def _of_parents(parents: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(parents), device=parents.device).unsqueeze(1)
    return leaf[rows, parents.long()]


@exported("contrib.seq2seq.BeamSearchDecoder")
class BeamSearchDecoder(Decoder):
    """Goes on with the best `beam_width` continuations of each row at every step."""

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: Any = 0.0,
        coverage_penalty_weight: Any = 0.0,
        reorder_tensor_arrays: bool = True,
    ):
        check_cell(cell)
        check_layer(output_layer)
        self._cell, self._output_layer, self._beam_width = cell, output_layer, int(beam_width)
        self._length_weight, self._coverage_weight = length_penalty_weight, coverage_penalty_weight
        self._covers = isinstance(coverage_penalty_weight, Tensor) or coverage_penalty_weight != 0.0
        self._reorders = reorder_tensor_arrays
        self._embedding_fn = embedding_function(embedding)
        tokens = convert_to_tensor(start_tokens, int32, name="start_tokens")
        self._end_token = convert_to_tensor(end_token, int32, name="end_token")
        if tokens.shape.ndims != 1:
            raise ValueError(f"start_tokens must be a vector, got shape {tokens.shape}; give one a sequence")
        if self._end_token.shape.ndims != 0:
            raise ValueError(f"end_token must be a scalar, got shape {self._end_token.shape}; give one number")
        self._batch_size = size_of(tokens, 0)
        width = self._beam_width
        self._start_tokens = node("Tile", lambda rows: rows.unsqueeze(1).repeat(1, width), [tokens])
        self._start_inputs = self._embedding_fn(self._start_tokens)
        self._initial_cell_state = _pytree.map_leaves(self._apart, initial_state)
        self._dtype = _pytree.flatten(self._initial_cell_state)[0].dtype.base_dtype

    @property
    def batch_size(self) -> Any:
        """The number of rows."""
        return self._batch_size

    @property
    def tracks_own_finished(self) -> bool:
        """Beams change places."""
        return True

    @property
    def output_size(self) -> Any:
        """One number of each kind for each beam."""
        size = TensorShape([self._beam_width])
        return BeamSearchDecoderOutput(size, size, size)

    @property
    def output_dtype(self) -> Any:
        """Scores in the dtype of the state."""
        return BeamSearchDecoderOutput(self._dtype, int32, int32)

    def _apart(self, leaf: Any) -> Any:
        """[batch * beam, ...] as [batch, beam, ...]."""
        if isinstance(leaf, TensorArray) or convert_to_tensor(leaf).shape.ndims == 0:
            return leaf
        width, tensor = self._beam_width, convert_to_tensor(leaf)
        sizes, batch = tensor.shape.as_list(), known(self._batch_size)
        if batch is not None and sizes[0] is not None and sizes[0] != batch * width:
            raise ValueError(
                f"A state of beam search has the wrong batch size: got {sizes[0]}, expected {batch} * {width}; use "
                "tf.contrib.seq2seq.tile_batch, or zero_state with batch_size * beam_width"
            )
        kernel = lambda rows: rows.reshape(rows.shape[0] // width, width, *rows.shape[1:])  # noqa: E731
        shape = [batch, width, *sizes[1:]]
        return create_op("Reshape", kernel, [tensor], dtypes=[tensor.dtype.base_dtype], shapes=[shape]).outputs[0]

    def _merged(self, leaf: Any) -> Any:
        """[batch, beam, ...] as [batch * beam, ...]."""
        if isinstance(leaf, TensorArray) or (convert_to_tensor(leaf).shape.ndims or 0) < 2:
            return leaf
        tensor, batch = convert_to_tensor(leaf), known(self._batch_size)
        shape = [None if batch is None else batch * self._beam_width, *tensor.shape.as_list()[2:]]
        kernel = lambda rows: rows.flatten(0, 1)  # noqa: E731
        return create_op("Reshape", kernel, [tensor], dtypes=[tensor.dtype.base_dtype], shapes=[shape]).outputs[0]

    def initialize(self, name: str | None = None) -> Any:
        """The first beam of each row is all there is: the others have ended, and are impossible."""
        kind = self._dtype.torch_dtype

        def first(tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
            finished = torch.ones_like(tokens, dtype=torch.bool)
            finished[:, 0] = False
            log_probs = torch.zeros_like(tokens, dtype=kind).masked_fill(finished, -torch.inf)
            return finished, log_probs, torch.zeros_like(tokens, dtype=torch.int64)

        shape = self._start_tokens.shape
        op = create_op(
            "OneHot",
            first,
            [self._start_tokens],
            dtypes=[bool_, self._dtype, int64],
            shapes=[shape] * 3,
            attrs={"tuple": True},
        )
        finished, log_probs, lengths = op.outputs
        attended = _alignments(self._initial_cell_state) if self._covers else ()
        state = BeamSearchDecoderState(self._initial_cell_state, log_probs, finished, lengths, attended)
        return finished, self._start_inputs, state

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """One step of all beams, and the choice of the best."""
        merged = _pytree.map_leaves(self._merged, state.cell_state)
        outputs, cell_state = self._cell(_pytree.map_leaves(self._merged, inputs), merged)
        logits = self._apart(outputs)
        if self._output_layer is not None:
            logits = self._output_layer(logits)
        cell_state = _pytree.map_leaves(self._apart, cell_state)
        attended = self._attended(state, cell_state)
        scores, log_probs, tokens, parents, ended, lengths = self._chosen(state, logits, attended)
        new = BeamSearchDecoderState(
            cell_state=_pytree.map_leaves(lambda leaf: self._gathered(parents, leaf), cell_state),
            log_probs=log_probs,
            finished=ended,
            lengths=lengths,
            accumulated_attention_probs=self._gathered(parents, attended) if self._covers else (),
        )
        return BeamSearchDecoderOutput(scores, tokens, parents), new, self._embedding_fn(tokens), ended

    def _chosen(self, state: Any, logits: Any, attended: Any) -> list[Tensor]:
        covers = self._covers

        def kernel(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rows, log_probs, finished, lengths, end, length_weight, coverage_weight = values[:7]
            coverage = None
            if covers:
                coverage = coverage_weight * coverage_penalty(values[7]) * finished
            found = best_continuations(
                log_probs, finished, lengths, torch.log_softmax(rows, -1), int(end), float(length_weight), coverage
            )
            before = finished.gather(1, found.parents)
            ended = before | (found.tokens == int(end))
            counted = lengths.gather(1, found.parents) + (~before).long()
            return found.scores, found.log_probs, found.tokens.int(), found.parents.int(), ended, counted

        inputs = [logits, state.log_probs, state.finished, state.lengths, self._end_token]
        inputs += [convert_to_tensor(one) for one in (self._length_weight, self._coverage_weight)]
        op = create_op(
            "TopKV2",
            kernel,
            [*inputs, attended] if covers else inputs,
            dtypes=[self._dtype, self._dtype, int32, int32, bool_, int64],
            shapes=[[known(self._batch_size), self._beam_width]] * 6,
            attrs={"tuple": True},
        )
        return op.outputs

    def _gathered(self, parents: Tensor, leaf: Any) -> Any:
        if isinstance(leaf, TensorArray) or (leaf.shape.ndims or 0) < 2:
            return leaf
        return node("GatherV2", _of_parents, [parents, leaf], like=leaf)

    def _attended(self, state: Any, cell_state: Any) -> Any:
        """How much each place was looked at; beams that have ended look no more."""
        if not self._covers:
            return ()
        looking = tf.expand_dims(tf.cast(tf.logical_not(state.finished), self._dtype), 2)
        return state.accumulated_attention_probs + _alignments(cell_state) * looking

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """Whole sequences; arrays of the state in the order of the final beams."""
        longest = tf.reduce_max(final_state.lengths, axis=1)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorders:
            ordered = _pytree.map_leaves(
                lambda leaf: self._ordered(leaf, outputs.parent_ids, final_state.lengths), final_state.cell_state
            )
            final_state = final_state._replace(cell_state=ordered)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _ordered(self, leaf: Any, parents: Tensor, lengths: Tensor) -> Any:
        if not isinstance(leaf, TensorArray) or not self._can_order(leaf.element_shape):
            return leaf
        values = leaf.stack()
        kernel = lambda rows, up, counts: _beam_tree.gather_tree_from_array(rows, up.long(), counts)  # noqa: E731
        return node("Reshape", kernel, [values, parents, lengths], like=values)

    def _can_order(self, element: TensorShape) -> bool:
        """As TensorFlow decides: an array of elements [batch * beam, n] with both sizes known stays an array."""
        if not element.ndims:
            return False
        rows, *rest = element.as_list()
        batch, width = known(self._batch_size), self._beam_width
        if batch is None or rows is None:
            return True
        return rows == batch * width and (not rest or rest[0] is None or (rows, rest[0]) == (batch, width))


def _alignments(cell_state: Any) -> Any:
    """Where a step looked: the mean over mechanisms, and over the wrappers of a stack."""
    states = [cell_state] if isinstance(cell_state, AttentionWrapperState) else _pytree.children(cell_state)
    found = [_mean(one.alignments) for one in states if isinstance(one, AttentionWrapperState)]
    if not found:
        raise ValueError(
            "coverage_penalty_weight must be 0.0 if no cell is attentional; wrap it in an AttentionWrapper"
        )
    return _mean(tuple(found))


def _mean(parts: Any) -> Any:
    if not isinstance(parts, tuple):
        return parts
    return parts[0] if len(parts) == 1 else tf.add_n(list(parts)) / len(parts)
