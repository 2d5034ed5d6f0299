"""`Decoder`, what a program may subclass, and `dynamic_decode`, the loop that runs one."""

from __future__ import annotations

import contextlib
from typing import Any

from throughtime import _pytree
from throughtime import tf1 as tf
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._tensor_array import TensorArray
from throughtime.tf1.functions._while_loop import while_loop
from throughtime.tf1.graph._dtypes import bool_, int32
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.seq2seq._nodes import known, swapped, unless, unless_zero


@exported("contrib.seq2seq.Decoder")
class Decoder:
    """One step of decoding: `outputs, next_state, next_inputs, finished = step(time, inputs, state)`."""

    @property
    def batch_size(self) -> Any:
        """The number of sequences."""
        raise NotImplementedError

    @property
    def output_size(self) -> Any:
        """Sizes of the outputs of a step."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> Any:
        """Dtypes of the outputs of a step."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> Any:
        """`(finished, inputs, state)` before the first step."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """One step."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """What becomes of the outputs of all steps."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether `finished` of a step replaces the one before; else a sequence stays finished."""
        return False


@exported("contrib.seq2seq.dynamic_decode")
def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
    **_: Any,
) -> tuple[Any, Any, Any]:
    """`(outputs, final_state, lengths)` of steps of `decoder` until all sequences have ended."""
    if not isinstance(decoder, Decoder):
        raise TypeError(
            f"Expected decoder to be type Decoder, but saw: {type(decoder)}; make a BasicDecoder, or subclass Decoder"
        )
    with variable_scope(scope, "decoder"):
        limit = _limit(maximum_iterations)
        variables = _Loop(decoder, impute_finished, limit)
        arrays, state, lengths = variables.run(parallel_iterations, swap_memory)
        outputs = _pytree.map_leaves(lambda array: array.stack(), arrays)
        # A decoder without `finalize` gives the outputs of its steps.
        with contextlib.suppress(NotImplementedError):
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = _pytree.map_leaves(swapped, outputs)
    return outputs, state, lengths


def _limit(maximum_iterations: Any) -> Tensor | None:
    if maximum_iterations is None:
        return None
    limit = convert_to_tensor(maximum_iterations, int32, name="maximum_iterations")
    if limit.shape.ndims not in {None, 0}:
        raise ValueError(f"maximum_iterations must be a scalar, got shape {limit.shape}; pass one number")
    return limit


class _Loop:
    """Time, outputs, state, inputs, what has ended and how long each sequence is."""

    def __init__(self, decoder: Any, impute_finished: bool, limit: Tensor | None):
        self.decoder, self.imputes, self.limit = decoder, impute_finished, limit
        finished, inputs, state = decoder.initialize()
        self.finished = convert_to_tensor(finished, bool_)
        if limit is not None:
            self.finished = tf.logical_or(self.finished, tf.greater_equal(0, limit))
        self.inputs = _pytree.map_leaves(convert_to_tensor, inputs)
        self.state = _pytree.map_leaves(_tensor_or_array, state)
        self.arrays = _pytree.map_leaves(self._array, decoder.output_size, decoder.output_dtype)

    def _array(self, size: Any, dtype: Any) -> TensorArray:
        shape = None
        if isinstance(size, TensorShape) and size.ndims != 0:
            shape = TensorShape([known(self.decoder.batch_size)]).concatenate(size)
        return TensorArray(dtype, size=0, dynamic_size=True, element_shape=shape)

    def run(self, parallel_iterations: int, swap_memory: bool) -> tuple[Any, Any, Any]:
        lengths = tf.zeros_like(self.finished, dtype=int32)
        result = while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            self._body,
            (tf.constant(0, int32), self.arrays, self.state, self.inputs, self.finished, lengths),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
            maximum_iterations=self.limit,
        )
        return result[1], result[2], result[5]

    def _body(self, time: Any, arrays: Any, state: Any, inputs: Any, finished: Any, lengths: Any) -> Any:
        outputs, new_state, new_inputs, done = self.decoder.step(time, inputs, state)
        ended = done if self.decoder.tracks_own_finished else tf.logical_or(done, finished)
        new_state = _pytree.map_leaves(_with_shape_of, state, _pytree.pack_as(state, _pytree.flatten(new_state)))
        new_inputs = _pytree.map_leaves(_with_shape_of, inputs, new_inputs)
        if self.imputes:
            outputs = _pytree.map_leaves(lambda new: unless_zero(finished, new), outputs)
            new_state = _pytree.map_leaves(lambda old, new: unless(finished, old, new), state, new_state)
        arrays = _pytree.map_leaves(lambda array, new: array.write(time, new), arrays, outputs)
        lengths = tf.where(finished, lengths, tf.zeros_like(lengths) + (time + 1))
        return time + 1, arrays, new_state, new_inputs, _with_shape_of(finished, ended), lengths


def _tensor_or_array(leaf: Any) -> Any:
    return leaf if isinstance(leaf, TensorArray) else convert_to_tensor(leaf)


def _with_shape_of(old: Any, new: Any) -> Any:
    if isinstance(new, TensorArray):
        return new
    tensor = convert_to_tensor(new, old.dtype if not isinstance(new, Tensor) else None)
    tensor.set_shape(old.shape)
    return tensor
