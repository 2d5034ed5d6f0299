"""Record `literals.json`: what cells with simple kernels compute, according to TensorFlow itself.

A kernel is either one constant, as in TensorFlow's own tests, or a ramp, which also tells gates and rows apart.

Needs an environment with `tensorflow` and `tf_keras` (never this package's own). From the repository root:

    TF_USE_LEGACY_KERAS=1 CUDA_VISIBLE_DEVICES= python tests/contract/tf_tests/record_literals.py

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

KERNELS = {
    "constant": lambda shape: np.full(shape, 0.5),
    "ramp": lambda shape: np.linspace(-1, 1, np.prod(shape)).reshape(shape),
}
Kernel = Callable[[Any], np.ndarray]
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


def run(kernel: Kernel, make_cell: Callable[[], Any], inputs: list, state: Any) -> dict[str, Any]:
    """One step of a core cell, or a time-major run over inputs [T, B, I], where `kernel` makes every weight."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, start = tf.nest.map_structure(lambda value: tf.constant(value, tf.float32), (np.array(inputs), state))
        initializer = lambda shape, dtype, **_: tf.constant(kernel(shape), dtype)  # noqa: E731
        with v1.variable_scope("root", initializer=initializer):
            cell = make_cell()
            run_cell = cell if len(x.shape) == 2 else through_time(cell)
            fetched = run_cell(x, start)
        session.run(v1.global_variables_initializer())
        return case(f"tensorflow {tf.__version__}", inputs, state, *session.run(fetched))


def through_time(cell: Any) -> Callable[[Any, Any], Any]:
    """The cell unrolled, called like a cell."""
    return lambda x, start: v1.nn.dynamic_rnn(cell, x, initial_state=start, time_major=True)


def pair(make_layer: Callable[[], Any], as_tuple: bool) -> Callable[[], Any]:
    """Two equal layers."""
    return lambda: rnn_cell.MultiRNNCell([make_layer(), make_layer()], state_is_tuple=as_tuple)


def gru2() -> Any:
    return rnn_cell.GRUCell(2)


def lstm2() -> Any:
    return rnn_cell.BasicLSTMCell(2, state_is_tuple=False)


def lstm_projecting() -> Any:
    return rnn_cell.LSTMCell(4, use_peepholes=True, cell_clip=0.5, num_proj=2, proj_clip=0.3, state_is_tuple=False)


def dropped(**keep: float) -> Callable[[], Any]:
    """An LSTM cell of three units that loses one side of its traffic."""
    return lambda: rnn_cell.DropoutWrapper(rnn_cell.LSTMCell(3), **keep)


def core_cases(kernel: Kernel) -> dict[str, Any]:
    """One step of each core cell, and two steps of an LSTM cell through dynamic_rnn."""
    memory = rnn_cell.LSTMStateTuple(rows(3, count=1), rows(3, count=1))
    return {
        "gru": run(kernel, gru2, ROWS, rows(2)),
        "gru_wide_input": run(kernel, gru2, WIDE_ROWS, rows(2)),
        "gru_pair_one_vector": run(kernel, pair(gru2, False), ROWS, rows(4)),
        "gru_pair_of_vectors": run(kernel, pair(gru2, True), ROWS, (rows(2), rows(2, 0.2))),
        "lstm_wide_input": run(kernel, lstm2, WIDE_ROWS, rows(4)),
        "lstm_pair_one_vector": run(kernel, pair(lstm2, False), ROWS, rows(8)),
        "lstm_pair_of_vectors": run(kernel, pair(lstm2, True), ROWS, (rows(4), rows(4, 0.2))),
        "lstm_projecting": run(kernel, lstm_projecting, WIDE_ROWS, rows(6)),
        "lstm_through_time": run(kernel, dropped(), TWO_STEPS, memory),
        "lstm_without_inputs": run(kernel, dropped(input_keep_prob=NOTHING), TWO_STEPS, memory),
        "lstm_without_outputs": run(kernel, dropped(output_keep_prob=NOTHING), TWO_STEPS, memory),
        "lstm_without_state": run(kernel, dropped(state_keep_prob=NOTHING), TWO_STEPS, memory),
    }


def gru(kernel: Kernel, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """GRUCell, by its equations: the gates' bias is 1, the candidate's 0."""
    depth, units = x.shape[1] + h.shape[1], h.shape[1]
    r, u = np.split(1 / (1 + np.exp(-1 - np.hstack([x, h]) @ kernel((depth, 2 * units)))), 2, 1)
    return u * h + (1 - u) * np.tanh(np.hstack([x, r * h]) @ kernel((depth, units)))


def contrib_cases(kernel: Kernel) -> dict[str, Any]:
    """One step of each contrib wrapper around a GRU cell; biases of projections are 0."""
    origin, x = "numpy float64, from the equations", np.array(ROWS)
    after = gru(kernel, x, rows(3))
    before = gru(kernel, x @ kernel((2, 3)), rows(3))
    looked_up = gru(kernel, kernel((3, 2))[np.ravel(IDS)], rows(2))
    return {
        "output_projection": case(origin, ROWS, rows(3), after @ kernel((3, 2)), after),
        "input_projection": case(origin, ROWS, rows(3), before, before),
        "embedding": case(origin, IDS, rows(2), looked_up, looked_up),
    }


def main() -> None:
    """Write the file, a line for each case."""
    tables = []
    for name, kernel in KERNELS.items():
        cases = core_cases(kernel) | contrib_cases(kernel)
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(record)}" for key, record in cases.items())
        tables.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
    target = Path(__file__).with_name("literals.json")
    target.write_text("{\n" + ",\n".join(tables) + "\n}\n")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
