"""Record `literals.json`: what cells whose kernels are all 0.5 compute, according to TensorFlow itself.

Needs an environment with `tensorflow` and `tf_keras` (never this package's own). From the repository root:

    TF_USE_LEGACY_KERAS=1 CUDA_VISIBLE_DEVICES= python tests/tensorflow/record_literals.py

Core cells are run by TensorFlow. The contrib wrappers have no runnable copy left, so their numbers are worked out
here in float64 numpy from the published equations. Each case names its origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorflow as tf

v1 = tf.compat.v1
rnn_cell = v1.nn.rnn_cell

KERNEL = 0.5
ROWS = [[1.0, 1.0], [0.3, -0.7]]
WIDE_ROWS = [[1.0, 1.0, 1.0], [0.3, -0.7, 0.2]]
TWO_STEPS = [[[2.0, 2.0, 2.0]], [[1.0, -1.0, 0.5]]]
IDS = [[1], [2]]
# So little is kept that nothing is.
NOTHING = 1e-10


def rows(width: int, value: float = 0.1, count: int = 2) -> np.ndarray:
    """A state of one value."""
    return np.full((count, width), value)


def case(origin: str, inputs: list, state: Any, output: Any, final: Any) -> dict[str, Any]:
    """One recorded case; states are flat lists of their leaves, numbers are rounded to float32's noise."""
    flat = lambda nest: [np.asarray(leaf, np.float64).round(7).tolist() for leaf in tf.nest.flatten(nest)]  # noqa: E731
    return {
        "origin": origin,
        "inputs": inputs,
        "state": flat(state),
        "output": flat(output)[0],
        "final_state": flat(final),
    }


def run(make_cell: Callable[[], Any], inputs: list, state: Any, through_time: bool = False) -> dict[str, Any]:
    """One step, or a time-major run, of a core cell in a graph whose default initialiser is the constant."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, start = tf.constant(inputs, tf.float32), tf.nest.map_structure(lambda s: tf.constant(s, tf.float32), state)
        with v1.variable_scope("root", initializer=v1.constant_initializer(KERNEL)):
            cell = make_cell()
            fetched = (
                v1.nn.dynamic_rnn(cell, x, initial_state=start, time_major=True) if through_time else cell(x, start)
            )
        session.run(v1.global_variables_initializer())
        return case(f"tensorflow {tf.__version__}", inputs, state, *session.run(fetched))


def pair(make_layer: Callable[[], Any], as_tuple: bool) -> Callable[[], Any]:
    """Two equal layers."""
    return lambda: rnn_cell.MultiRNNCell([make_layer(), make_layer()], state_is_tuple=as_tuple)


def gru2() -> Any:
    return rnn_cell.GRUCell(2)


def lstm2() -> Any:
    return rnn_cell.BasicLSTMCell(2, state_is_tuple=False)


def dropped(**keep: float) -> Callable[[], Any]:
    """An LSTM cell of three units that loses one side of its traffic."""
    return lambda: rnn_cell.DropoutWrapper(rnn_cell.LSTMCell(3), **keep)


def core_cases() -> dict[str, Any]:
    """One step of each core cell, and two steps of an LSTM cell through dynamic_rnn."""
    memory = rnn_cell.LSTMStateTuple(rows(3, count=1), rows(3, count=1))
    return {
        "gru": run(gru2, ROWS, rows(2)),
        "gru_wide_input": run(gru2, WIDE_ROWS, rows(2)),
        "gru_pair_one_vector": run(pair(gru2, False), ROWS, rows(4)),
        "gru_pair_of_vectors": run(pair(gru2, True), ROWS, (rows(2), rows(2, 0.2))),
        "lstm_wide_input": run(lstm2, WIDE_ROWS, rows(4)),
        "lstm_pair_one_vector": run(pair(lstm2, False), ROWS, rows(8)),
        "lstm_pair_of_vectors": run(pair(lstm2, True), ROWS, (rows(4), rows(4, 0.2))),
        "lstm_through_time": run(dropped(), TWO_STEPS, memory, through_time=True),
        "lstm_without_inputs": run(dropped(input_keep_prob=NOTHING), TWO_STEPS, memory, through_time=True),
        "lstm_without_outputs": run(dropped(output_keep_prob=NOTHING), TWO_STEPS, memory, through_time=True),
        "lstm_without_state": run(dropped(state_keep_prob=NOTHING), TWO_STEPS, memory, through_time=True),
    }


def linear(x: np.ndarray, width: int) -> np.ndarray:
    """Every entry of the kernel 0.5, no bias."""
    return np.repeat(KERNEL * x.sum(1, keepdims=True), width, 1)


def gru(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """GRUCell: both gates are equal here, since all weights are; their bias is 1, the candidate's 0."""
    gate = 1 / (1 + np.exp(-1 - linear(np.hstack([x, h]), h.shape[1])))
    return gate * h + (1 - gate) * np.tanh(linear(np.hstack([x, gate * h]), h.shape[1]))


def contrib_cases() -> dict[str, Any]:
    """One step of each contrib wrapper around a GRU cell; row i of the embedding holds i / 2."""
    origin, x = "numpy float64, from the equations", np.array(ROWS)
    after = gru(x, rows(3))
    before = gru(linear(x, 3), rows(3))
    looked_up = gru(np.repeat(np.array(IDS) / 2, 2, 1), rows(2))
    return {
        "output_projection": case(origin, ROWS, rows(3), linear(after, 2), after),
        "input_projection": case(origin, ROWS, rows(3), before, before),
        "embedding": case(origin, IDS, rows(2), looked_up, looked_up),
    }


def main() -> None:
    """Write the file, a line for each field."""
    cases = core_cases() | contrib_cases()
    fields = lambda record: ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in record.items())  # noqa: E731
    text = ",\n".join(f'  "{name}": {{\n{fields(record)}\n  }}' for name, record in cases.items())
    target = Path(__file__).with_name("literals.json")
    target.write_text(f"{{\n{text}\n}}\n")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
