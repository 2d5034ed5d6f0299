"""Record checkpoints that TensorFlow 2.21 writes, and what the cells in them answer.

    python tools/record_checkpoints.py --out tests/goldens/checkpoints
    python tools/record_checkpoints.py --read PREFIX              # what TensorFlow reads there, as JSON

Needs tensorflow and tf_keras 2.21 and numpy, nothing else. See tools/README.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden_cells import OutputProjectionWrapper
from tensorflow1 import ONE_THREAD, tf

V1 = tf.train.SaverDef.V1
B, T, WIDTH = 3, 4, 3
LENGTHS = [4, 0, 2]
rnn_cell = tf.nn.rnn_cell

Answers = dict[str, Any]


class Recorder:
    """One case: a graph is built, its variables are drawn, run and saved."""

    def __init__(self, folder: Path, name: str) -> None:
        self.prefix = folder / name / "model.ckpt"
        self.prefix.parent.mkdir(parents=True)
        self.random = np.random.Generator(np.random.PCG64(sum(name.encode())))
        self.inputs = self.draw((B, T, WIDTH)) / 2
        self.answers: Answers = {"inputs": self.inputs}

    def draw(self, shape: Sequence[int]) -> NDArray[Any]:
        """Numbers that are exact in every dtype of floating point."""
        return self.random.integers(-127, 128, tuple(shape)).astype(np.float32) / 128

    def run(self, session: Any, nodes: Answers) -> None:
        """Draw all weights, and note what they make of the inputs."""
        session.run(tf.global_variables_initializer())
        for variable in sorted(tf.trainable_variables(), key=lambda each: each.op.name):
            if variable.dtype.base_dtype == tf.float32:
                session.run(variable.assign(self.draw(variable.shape.as_list())))
        self.answers |= session.run(nodes)

    def save(self, session: Any, variables: Any = None, **options: Any) -> None:
        saver = tf.train.Saver(variables, save_relative_paths=True, **options)
        saver.save(session, str(self.prefix), write_meta_graph=False)


def unrolled(case: Recorder, cell: Any, scope: str | None = None) -> Answers:
    outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(case.inputs), LENGTHS, dtype=tf.float32, scope=scope)
    return {"outputs": outputs} | {f"state/{i}": leaf for i, leaf in enumerate(tf.nest.flatten(state))}


def trained_lstm(case: Recorder, session: Any) -> None:
    """Peepholes, a projection, and what an optimiser keeps."""
    nodes = unrolled(case, rnn_cell.LSTMCell(4, use_peepholes=True, num_proj=2))
    step = tf.train.get_or_create_global_step()
    tf.train.AdamOptimizer().minimize(tf.reduce_sum(nodes["outputs"]), step)
    case.run(session, nodes)
    case.save(session)


def model(case: Recorder, session: Any) -> None:
    """A stack with wrappers in scopes of its own, an embedding in front and a dense layer behind."""
    table = tf.get_variable("embedding", [5, WIDTH])
    ids = case.random.integers(0, 5, (B, T))
    layers = [rnn_cell.DropoutWrapper(rnn_cell.BasicLSTMCell(3)), rnn_cell.ResidualWrapper(rnn_cell.GRUCell(3))]
    cell = OutputProjectionWrapper(rnn_cell.MultiRNNCell(layers), 2)
    inputs = tf.nn.embedding_lookup(table, ids)
    with tf.variable_scope("model"):
        outputs, _ = tf.nn.dynamic_rnn(cell, inputs, LENGTHS, dtype=tf.float32, scope="encoder")
        with tf.variable_scope("dense"):
            kernel, bias = tf.get_variable("kernel", [2, 4]), tf.get_variable("bias", [4])
    case.run(session, {"outputs": outputs, "logits": tf.einsum("bti,ij->btj", outputs, kernel) + bias})
    case.answers["ids"] = ids
    case.save(session)


def bidirectional(case: Recorder, session: Any) -> None:
    cells = rnn_cell.GRUCell(2), rnn_cell.LSTMCell(3)
    inputs = tf.constant(case.inputs)
    (forwards, backwards), _ = tf.nn.bidirectional_dynamic_rnn(*cells, inputs, LENGTHS, dtype=tf.float32)
    case.run(session, {"forwards": forwards, "backwards": backwards})
    case.save(session)


def renamed(names: dict[str, str]) -> Any:
    return {names[variable.op.name]: variable for variable in tf.global_variables()}


def names_of_1_1(case: Recorder, session: Any) -> None:
    """A GRU by the names of TensorFlow 1.1, in version 1 of the format."""
    case.run(session, unrolled(case, rnn_cell.GRUCell(4)))
    parts = [(gate, part) for gate in ("gates", "candidate") for part in ("kernel", "bias")]
    old = {"kernel": "weights", "bias": "biases"}
    names = {f"rnn/gru_cell/{gate}/{part}": f"rnn/gru_cell/{gate}/{old[part]}" for gate, part in parts}
    case.save(session, renamed(names), write_version=V1)


def names_of_0_12(case: Recorder, session: Any) -> None:
    """A stack by the names of TensorFlow 0.12, in version 1 of the format."""
    case.run(session, unrolled(case, rnn_cell.MultiRNNCell([rnn_cell.BasicLSTMCell(2), rnn_cell.BasicLSTMCell(3)])))
    old = {"kernel": "Linear/Matrix", "bias": "Linear/Bias"}
    names = {
        f"rnn/multi_rnn_cell/cell_{layer}/basic_lstm_cell/{part}": f"RNN/MultiRNNCell/Cell{layer}/BasicLSTMCell/{was}"
        for layer in range(2)
        for part, was in old.items()
    }
    case.save(session, renamed(names), write_version=V1)


def partitioned(case: Recorder, session: Any) -> None:
    """A kernel in slices, and variables that are cut along either axis, some of them more than 64 numbers long."""
    nodes = unrolled(case, rnn_cell.LSTMCell(4, num_unit_shards=2))
    for axis in range(2):
        cut = tf.fixed_size_partitioner(3, axis=axis)
        tf.get_variable(f"cut/{axis}", [200, 7][:: 1 - 2 * axis], partitioner=cut)
    case.run(session, nodes)
    case.answers |= session.run({f"cut/{axis}": tf.concat(_slices(f"cut/{axis}"), axis) for axis in range(2)})
    case.save(session)


def partitioned_1(case: Recorder, session: Any) -> None:
    """The same in version 1 of the format."""
    tf.get_variable("cut", [200, 7], partitioner=tf.fixed_size_partitioner(3))
    case.run(session, {})
    case.answers |= session.run({"cut": tf.concat(_slices("cut"), 0)})
    case.save(session, write_version=V1)


def _slices(name: str) -> list[Any]:
    return [variable for variable in tf.global_variables() if variable.op.name.startswith(f"{name}/")]


def sharded(case: Recorder, session: Any, **options: Any) -> None:
    """Variables on two devices, each with a file of its own."""
    with tf.device(lambda node: f"/cpu:{int('bias' in node.name)}" if "Variable" in node.type else ""):
        nodes = unrolled(case, rnn_cell.BasicRNNCell(4))
    case.run(session, nodes)
    case.save(session, sharded=True, **options)


def sharded_1(case: Recorder, session: Any) -> None:
    """The same in version 1 of the format."""
    sharded(case, session, write_version=V1)


NUMBERS = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128"


def dtypes(case: Recorder, session: Any, names: str = NUMBERS, **options: Any) -> None:
    """A variable of every dtype, and texts."""
    values = case.random.integers(-3, 4, (2, 3))
    for name in names.split():
        number = tf.cast(tf.constant(abs(values) if name[0] == "u" else values, tf.float32), name)
        tf.Variable(number, trainable=False, name=name)
    tf.Variable(tf.constant([-1, 2**40, -(2**62)], tf.int64), name="large")
    tf.Variable(tf.zeros([0, 3]), name="empty")
    tf.Variable(tf.constant(7, tf.int32), name="scalar")
    if not options:
        tf.Variable(tf.constant([["", "a"], ["τ" * 100, "\0"]]), name="string")
    case.run(session, {})
    case.answers["values"] = values
    case.save(session, **options)


def dtypes_1(case: Recorder, session: Any) -> None:
    """The same in version 1 of the format, which has fewer."""
    dtypes(case, session, "float32 float64 int8 int16 int32 int64 uint8 bool complex64 complex128", write_version=V1)


def objects(case: Recorder, session: Any) -> None:
    """A checkpoint of objects, in which keys are paths of attributes."""
    cell = rnn_cell.BasicLSTMCell(3)
    case.run(session, unrolled(case, cell))
    tf.train.Checkpoint(decoder=cell).write(str(case.prefix), session=session)


def keras(case: Recorder, session: Any) -> None:
    """A layer of Keras: its kernels are apart, and its names are paths."""
    network = tf.keras.Sequential([tf.keras.layers.LSTM(2, input_shape=(T, WIDTH))])
    case.run(session, {})
    tf.keras.backend.set_session(session)
    network.save_weights(str(case.prefix), save_format="tf")


CASES: list[Callable[[Recorder, Any], None]] = [
    trained_lstm, model, bidirectional, names_of_1_1, names_of_0_12, partitioned, partitioned_1, sharded, sharded_1,
    dtypes, dtypes_1, objects, keras,
]  # fmt: skip


def record(folder: Path) -> None:
    answers: Answers = {}
    config = tf.ConfigProto(device_count={"CPU": 2})
    config.MergeFrom(ONE_THREAD)
    for build in CASES:
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            case = Recorder(folder, build.__name__)
            build(case, session)
            answers |= {f"{build.__name__}/{key}": np.asarray(value) for key, value in case.answers.items()}
    np.savez_compressed(folder / "answers.npz", **answers)


def read(prefix: str) -> dict[str, Any]:
    """All variables of a checkpoint, as TensorFlow reads them."""
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    found = {name: reader.get_tensor(name) for name in names}
    return {name: [str(value.dtype), np.asarray(value, np.float64).tolist()] for name, value in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record checkpoints that TensorFlow writes.")
    parser.add_argument("--out", type=Path, help="the folder of checkpoints, which is written anew")
    parser.add_argument("--read", help="a checkpoint to read")
    options = parser.parse_args(arguments)
    if options.read:
        print(json.dumps(read(options.read)))
        return 0
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    record(options.out)
    files = [path for path in options.out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"{len(CASES)} checkpoints, {len(files)} files, {size / 1024:.0f} KiB in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
