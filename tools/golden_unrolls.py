"""Every unroll on the TensorFlow side, with one signature: `(case, cells, inputs, states) -> (outputs, state)`.

`inputs` leaves are [B, T, ...] or, when the case is time-major, [T, B, ...]; so are the leaves of `outputs`.
`cells` and `states` are what the case describes: one, a pair, or two lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golden_file import Case
from tensorflow1 import tf

Result = tuple[Any, Any]
Unroll = Callable[[Case, Any, Any, Any], Result]


def step(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    first = tf.nest.map_structure(lambda x: x[:, 0], inputs)
    with tf.variable_scope("rnn"):
        return cell(first, state)


def dynamic_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    return tf.nn.dynamic_rnn(
        cell, inputs, _lengths(case), state, case.dtype, time_major=case.time_major, scope=case.scope
    )


def static_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    outputs, state = tf.nn.static_rnn(cell, _unstacked(case, inputs), state, case.dtype, _lengths(case))
    return _stacked(outputs), state


def static_state_saving_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    leaves = tf.nest.flatten(state)
    names = [f"state_{index}" for index in range(len(leaves))]
    saver = _StateSaver(dict(zip(names, leaves, strict=True)))
    named = tf.nest.pack_sequence_as(cell.state_size, names)
    outputs, state = tf.nn.static_state_saving_rnn(cell, _unstacked(case, inputs), saver, named, _lengths(case))
    return _stacked(outputs), (state, [saver.saved[name] for name in names])


def bidirectional_dynamic_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    return tf.nn.bidirectional_dynamic_rnn(
        *cells, inputs, _lengths(case), *(states or (None, None)), dtype=case.dtype, time_major=case.time_major
    )


def static_bidirectional_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    outputs, *final = tf.nn.static_bidirectional_rnn(
        *cells, _unstacked(case, inputs), *(states or (None, None)), dtype=case.dtype, sequence_length=_lengths(case)
    )
    return _stacked(outputs), tuple(final)


def stack_bidirectional_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    def layer(cell_fw: Any, cell_bw: Any, xs: Any, starts: Any) -> Any:
        outputs, *final = tf.nn.static_bidirectional_rnn(
            cell_fw, cell_bw, xs, *starts, dtype=case.dtype, sequence_length=_lengths(case)
        )
        return outputs, final

    outputs, final = _layers(layer, cells, _unstacked(case, inputs), states)
    return _stacked(outputs), final


def stack_bidirectional_dynamic_rnn(case: Case, cells: Any, inputs: Any, states: Any) -> Result:
    def layer(cell_fw: Any, cell_bw: Any, xs: Any, starts: Any) -> Any:
        outputs, final = tf.nn.bidirectional_dynamic_rnn(
            cell_fw, cell_bw, xs, _lengths(case), *starts, dtype=case.dtype, time_major=case.time_major
        )
        return tf.concat(outputs, 2), final

    return _layers(layer, cells, inputs, states)


def raw_rnn(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    loop_fn = LOOP_FNS[case.loop_fn or ""](case, cell, inputs, state)
    emitted, final, loop_state = tf.nn.raw_rnn(cell, loop_fn)
    outputs = tf.nest.map_structure(lambda each: each.stack(), emitted)
    return (outputs, [] if loop_state is None else [loop_state]), final


def while_loop(case: Case, cell: Any, inputs: Any, state: Any) -> Result:
    """A hand-written unroll: arrays in, arrays out, a nested state between."""
    arriving = tf.TensorArray(inputs.dtype, case.steps).unstack(inputs)

    def body(time: Any, state: Any, leaving: Any) -> Any:
        output, state = cell(arriving.read(time), state)
        return time + 1, state, leaving.write(time, output)

    with tf.variable_scope("rnn"):
        start = (tf.constant(0), state, tf.TensorArray(inputs.dtype, case.steps))
        _, final, leaving = tf.while_loop(lambda time, *_: time < case.steps, body, start)
    return leaving.stack(), final


def _read_inputs(case: Case, cell: Any, inputs: Any, state: Any) -> Callable[..., Any]:
    """dynamic_rnn, written with raw_rnn."""

    def loop_fn(time: Any, output: Any, carried: Any, loop_state: Any) -> Any:
        return time >= _lengths(case), _at(case, inputs, time), state if output is None else carried, output, None

    return loop_fn


def _feed_back(case: Case, cell: Any, inputs: Any, state: Any) -> Callable[..., Any]:
    """Each output is the next input."""

    def loop_fn(time: Any, output: Any, carried: Any, loop_state: Any) -> Any:
        finished = time >= _lengths(case)
        if output is None:
            return finished, inputs[0], state, None, None
        return finished, output, carried, output, None

    return loop_fn


def _own_emission(case: Case, cell: Any, inputs: Any, state: Any) -> Callable[..., Any]:
    """Emissions of another structure than the outputs, and a loop state that adds up what running rows put out."""

    def loop_fn(time: Any, output: Any, carried: Any, total: Any) -> Any:
        finished, entering = time >= _lengths(case), _at(case, inputs, time)
        if output is None:
            rows = (tf.zeros([2], case.dtype), tf.zeros([], case.dtype))
            return finished, entering, state, rows, tf.zeros([], case.dtype)
        sums = tf.reduce_sum(output, 1)
        # TensorFlow goes on computing rows that have finished; their outputs are not used.
        ran = tf.cast(time <= _lengths(case), case.dtype)
        return finished, entering, carried, (2 * output[:, :2], sums), total + tf.reduce_sum(ran * sums)

    return loop_fn


class _StateSaver:
    """The least that static_state_saving_rnn asks of a state saver."""

    def __init__(self, held: dict[str, Any]) -> None:
        self._held = held
        self.saved: dict[str, Any] = {}

    def state(self, name: str) -> Any:
        return self._held[name]

    def save_state(self, name: str, value: Any) -> Any:
        self.saved[name] = value
        return tf.no_op()


def _layers(layer: Callable[..., Any], cells: Any, inputs: Any, states: Any) -> Result:
    """contrib's stacking, gone from TensorFlow 2: each layer reads both directions of the one below."""
    final_fw, final_bw = [], []
    with tf.variable_scope("stack_bidirectional_rnn"):
        for index, pair in enumerate(zip(*cells, strict=True)):
            starts = (states[0][index], states[1][index]) if states else (None, None)
            with tf.variable_scope(f"cell_{index}"):
                inputs, (fw, bw) = layer(*pair, inputs, starts)
            final_fw.append(fw)
            final_bw.append(bw)
    return inputs, (tuple(final_fw), tuple(final_bw))


def _at(case: Case, inputs: Any, time: Any) -> Any:
    """The inputs at `time`; past the end, where they are not used, the last."""
    return tf.gather(inputs, tf.minimum(time, case.steps - 1))


def _lengths(case: Case) -> Any:
    return None if case.lengths is None else tf.constant(case.lengths, tf.int32)


def _unstacked(case: Case, inputs: Any) -> list[Any]:
    return [tf.nest.map_structure(lambda x, t=t: x[:, t], inputs) for t in range(case.steps)]


def _stacked(outputs: list[Any]) -> Any:
    return tf.nest.map_structure(lambda *steps: tf.stack(steps, 1), *outputs)


LOOP_FNS = {"read_inputs": _read_inputs, "feed_back": _feed_back, "own_emission": _own_emission}
UNROLLS: dict[str, Unroll] = {
    unroll.__name__: unroll
    for unroll in (
        step,
        dynamic_rnn,
        static_rnn,
        static_state_saving_rnn,
        bidirectional_dynamic_rnn,
        static_bidirectional_rnn,
        stack_bidirectional_rnn,
        stack_bidirectional_dynamic_rnn,
        raw_rnn,
        while_loop,
    )
}
