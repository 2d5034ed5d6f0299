"""`dynamic_decode`: a decoder until every row has ended."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import InvalidArgumentError, check_flag, check_name, problem, shape_of, type_name
from throughtime._tensors import rowwise
from throughtime.cells._base import begin_sequence, dims
from throughtime.decode._decoder import Decoder
from throughtime.decode._graph_break import beside_graphs
from throughtime.decode._integer_arguments import whole_numbers
from throughtime.decode._teacher_forced import decode_at_once
from throughtime.runtime.offload.tensor_pages import swapping
from throughtime.unroll._arguments import check_parallel_iterations, note_scope
from throughtime.unroll._jit_trace import check_not_traced

# TensorFlow's default, for a loop over steps. Where all steps are known nothing is gained by computing less at a time,
# and a default cannot be told from the same number said aloud: it leaves the choice to the engine.
PARALLEL_ITERATIONS = 32


@beside_graphs
def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int | None = PARALLEL_ITERATIONS,
    swap_memory: bool = False,
    scope: str | None = None,
) -> tuple[Any, Any, Tensor]:
    """Run `decoder` until every row has ended: `(outputs, final_state, lengths)`.

    Past a row's end its outputs are zeros, its state stays as it was, and its inputs are zeros: nothing there, not even
    NaN, reaches a result or a gradient. `lengths` [B] counts the steps of each row, that of its end token included;
    beam search has lengths [B, beam_width]. A `BasicDecoder` with a `TrainingHelper` knows all its inputs beforehand:
    it is run by `dynamic_rnn`, compiled like any other call.

    Args:
        decoder: A `Decoder`.
        output_time_major: Whether outputs come as [T, B, ...] rather than [B, T, ...].
        impute_finished: Insist on zeros and kept states past the end: an output or a state that does not have one row
            for each sequence is an error, where otherwise it would pass as it is.
        maximum_iterations: The most steps to run; None for as many as it takes.
        parallel_iterations: As in `dynamic_rnn`, for decoding that is run by it; 32, like None, lets the engine choose.
        swap_memory: Keep what the backward pass needs in pinned host memory.
        scope: The name of the cell's variables in a TensorFlow checkpoint; "decoder" if None.

    >>> import torch, throughtime as tt
    >>> cell, table = tt.GRUCell(8), torch.randn(8, 5)  # a table of embeddings for 8 tokens
    >>> helper = tt.decode.GreedyEmbeddingHelper(table, start_tokens=torch.tensor([1, 2, 3]), end_token=0)
    >>> decoder = tt.decode.BasicDecoder(cell, helper, cell.zero_state(3, torch.float32))
    >>> outputs, state, lengths = tt.decode.dynamic_decode(decoder, maximum_iterations=6)
    >>> outputs.rnn_output.shape[0], outputs.sample_id.shape[0], lengths.shape
    (3, 3, torch.Size([3]))
    """
    check_not_traced("dynamic_decode", "the number of its steps")
    if not isinstance(decoder, Decoder):
        fix = "Pass tt.decode.BasicDecoder(...), or a class of your own that inherits from tt.decode.Decoder."
        raise TypeError(
            problem("`decoder` is no Decoder", got=type_name(decoder), expected="a tt.decode.Decoder", fix=fix)
        )
    check_flag("output_time_major", output_time_major)
    check_flag("impute_finished", impute_finished)
    check_flag("swap_memory", swap_memory)
    parallel_iterations = check_parallel_iterations(parallel_iterations)
    scope = check_name("scope", scope) or "decoder"
    limit = _check_limit(maximum_iterations)
    if parallel_iterations == PARALLEL_ITERATIONS:
        parallel_iterations = None
    result = decode_at_once(
        decoder, limit, parallel_iterations=parallel_iterations, swap_memory=swap_memory, scope=scope
    )
    if result is None:
        result = _decode(decoder, limit, impute_finished, swap_memory)
    outputs, state, lengths = result
    outputs, state = decoder.finalize(outputs, state, lengths)
    note_scope(getattr(decoder, "cell", None), scope)
    if not output_time_major:
        outputs = _pytree.map_leaves(lambda leaf: leaf.transpose(0, 1), outputs)
    return outputs, state, lengths


def _decode(decoder: Decoder, limit: int | None, insist: bool, swap_memory: bool) -> tuple[Any, Any, Tensor]:
    """The loop, in the order of TensorFlow's: outputs are time-major."""
    cell = getattr(decoder, "cell", None)
    begin_sequence(cell)
    finished, inputs, state = _check_parts("initialize", decoder.initialize(), 3)
    finished = _check_finished(finished)
    lengths = torch.zeros(finished.shape, dtype=torch.int64, device=finished.device)
    steps: list[Any] = []
    with swapping(swap_memory, cell, (inputs, state)):
        while (limit is None or len(steps) < limit) and not bool(finished.all()):
            time = torch.tensor(len(steps))
            result = _check_parts("step", decoder.step(time, inputs, state), 4)
            output, next_state, next_inputs, ended = result
            ended = _check_finished(ended, finished)
            output = _pytree.conform(steps[0], output, "the output of `decoder.step`") if steps else output
            lengths = torch.where(finished, lengths, len(steps) + 1)
            if decoder.tracks_own_finished:
                lengths = getattr(next_state, "lengths", lengths)
            else:
                output = freeze(finished, None, output, "outputs", insist=insist)
                next_state = freeze(finished, state, next_state, "states", insist=insist)
                ended = ended | finished
                next_inputs = freeze(ended, None, next_inputs, "inputs", insist=False)
            steps.append(output)
            finished, inputs, state = ended, next_inputs, next_state
    return _stacked(decoder, steps, finished.device), state, lengths


def freeze(ended: Tensor, old: Any, new: Any, what: str, *, insist: bool) -> Any:
    """`new`, but in rows that have ended what was there before, or zeros if that is None."""
    if not bool(ended.any()):
        return new

    def frozen(new_leaf: Any, old_leaf: Any) -> Any:
        # Scalars and TensorArrays have no rows, and what has not changed needs no care.
        if not isinstance(new_leaf, Tensor) or not new_leaf.ndim or new_leaf is old_leaf:
            return new_leaf
        kept = new_leaf.new_zeros(()) if old_leaf is None else old_leaf
        fits = new_leaf.shape[: ended.ndim] == ended.shape and (old_leaf is None or old_leaf.shape == new_leaf.shape)
        if fits:
            return torch.where(rowwise(ended, new_leaf), kept, new_leaf)
        if not insist:
            return new_leaf
        fix = "Give one row for each sequence, of one shape from step to step, or pass `impute_finished=False`."
        expected = f"{shape_of(ended)} and whatever a row holds"
        raise ValueError(
            problem(f"the {what} of the decoder cannot be imputed", got=shape_of(new_leaf), expected=expected, fix=fix)
        )

    return _pytree.map_leaves(frozen, new, _pytree.map_leaves(lambda _: None, new) if old is None else old)


def _stacked(decoder: Decoder, steps: list[Any], device: torch.device) -> Any:
    """The outputs of all steps, [T, ...]; without a step, by what the decoder says of them."""
    if not steps:
        rows = decoder.batch_size
        return _pytree.map_leaves(
            lambda size, dtype: torch.zeros(0, rows, *dims(size), dtype=dtype, device=device),
            decoder.output_size,
            decoder.output_dtype,
        )
    leaves = zip(*map(_pytree.flatten, steps), strict=True)
    return _pytree.pack_as(steps[0], [torch.stack(leaf) for leaf in leaves])


def _check_limit(maximum_iterations: Any) -> int | None:
    """The most steps; None for no limit. As in TensorFlow, it must be a scalar."""
    if maximum_iterations is None:
        return None
    fix = "Pass the most steps to run; rows of different lengths end by their end tokens."
    limit = int(whole_numbers("maximum_iterations", maximum_iterations, 0, fix))
    if limit < 0:
        # TensorFlow would run no step, and say nothing; the error says how to ask for no limit.
        fix = "Pass None for no limit, 0 for no step."
        raise ValueError(problem("`maximum_iterations` is negative", got=limit, expected="at least 0", fix=fix))
    return limit


def _check_parts(method: str, result: Any, count: int) -> Any:
    expected = {3: "(finished, first_inputs, initial_state)", 4: "(outputs, next_state, next_inputs, finished)"}[count]
    if not isinstance(result, tuple | list) or len(result) != count:
        got = f"{len(result)} values" if isinstance(result, tuple | list) else type_name(result)
        fix = "Return () for what is not used."
        raise ValueError(problem(f"`decoder.{method}` gave something else", got=got, expected=expected, fix=fix))
    return result


def _check_finished(finished: Any, like: Tensor | None = None) -> Tensor:
    """Which rows have ended: as many truth values as at the start, or one for all."""
    fix = "Return a comparison, one truth value for each row."
    if isinstance(finished, bool):
        finished = torch.tensor(finished)
    if not isinstance(finished, Tensor) or finished.dtype != torch.bool:
        what = "`finished` must be a tensor of truth values"
        raise TypeError(problem(what, got=type_name(finished), expected="torch.bool, [B]", fix=fix))
    if like is not None and not finished.ndim:
        return finished.to(like.device).expand(like.shape)
    if not finished.ndim or (like is not None and finished.shape != like.shape):
        expected = "[B]" if like is None else shape_of(like)
        raise InvalidArgumentError(
            problem("`finished` has the wrong shape", got=shape_of(finished), expected=expected, fix=fix)
        )
    return finished
