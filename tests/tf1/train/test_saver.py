"""Checkpoints: TensorFlow's own restored, ours read as TensorFlow reads them, the files of a folder, graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf
from tf1_programs import named, trained_between, training
from throughtime.interop import TFCheckpoint

pytestmark = pytest.mark.covers("tf1")

RECORDED = Path(__file__).parents[1] / "goldens" / "checkpoint"


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def test_training_goes_on_from_a_checkpoint_of_tensorflow() -> None:
    x, train = training(tf)
    with tf.Session() as session:
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(str(RECORDED)))
        trained_between(session, train, x, 10, 15)
        found = named(tf, session)
    with np.load(RECORDED / "after.npz") as expected:
        assert set(found) == set(expected)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_our_checkpoint_is_tensorflows(tmp_path: Path) -> None:
    x, train = training(tf)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        trained_between(session, train, x, 0, 10)
        path = tf.train.Saver().save(session, str(tmp_path / "model"), global_step=10)
    ours, theirs = TFCheckpoint(path), TFCheckpoint(RECORDED)
    assert ours.dtypes == theirs.dtypes
    assert ours.shapes == theirs.shapes
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)


def saved(folder: Path, count: int, **options: Any) -> tuple[tf.train.Saver, list[str]]:
    weights = tf.Variable([1.0], name="weights")
    saver = tf.train.Saver(**options)
    with tf.Session() as session:
        session.run(weights.initializer)
        return saver, [saver.save(session, str(folder / "model.ckpt"), global_step=step) for step in range(count)]


def test_the_oldest_checkpoints_are_removed(tmp_path: Path) -> None:
    saver, paths = saved(tmp_path, 4, max_to_keep=2)
    assert saver.last_checkpoints == paths[2:]
    left = {path.name.split(".")[1] for path in tmp_path.iterdir() if path.name != "checkpoint"}
    assert left == {"ckpt-2", "ckpt-3"}
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == paths[-1]
    assert list(state.all_model_checkpoint_paths) == paths[2:]
    assert tf.train.latest_checkpoint(str(tmp_path)) == paths[-1]


def test_every_so_many_hours_one_is_left(tmp_path: Path) -> None:
    _, paths = saved(tmp_path, 4, max_to_keep=1, keep_checkpoint_every_n_hours=0.0)
    assert all(tf.train.checkpoint_exists(path) for path in paths)


def test_zero_means_all(tmp_path: Path) -> None:
    _, paths = saved(tmp_path, 7, max_to_keep=0)
    assert all(tf.train.checkpoint_exists(path) for path in paths)


def test_a_folder_that_was_moved(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    saved(tmp_path / "old", 1)
    (tmp_path / "old").rename(tmp_path / "new")
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "model.ckpt-0")


def test_relative_paths_in_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    saved(Path("runs"), 1)
    assert 'model_checkpoint_path: "model.ckpt-0"' in Path("runs/checkpoint").read_text()
    assert tf.train.latest_checkpoint("runs") == "runs/model.ckpt-0"
    # A prefix without a folder is saved where the program runs.
    tf.reset_default_graph()
    saved(Path(), 1)
    assert tf.train.latest_checkpoint(".") == "./model.ckpt-0"


def test_names_of_a_dict_and_a_subset(tmp_path: Path) -> None:
    first, second = tf.Variable([1.0], name="first"), tf.Variable([2.0], name="second")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver({"other": first}).save(session, str(tmp_path / "model"))
        session.run(tf.assign(first, [5.0]))
        tf.train.Saver({"other": second}).restore(session, path)
        assert session.run([first, second]) == [5.0, 1.0]
    assert tf.train.list_variables(path) == [("other", [1])]
    assert tf.train.load_variable(path, "other").tolist() == [1.0]
    reader = tf.train.NewCheckpointReader(path)
    assert reader.get_variable_to_shape_map() == {"other": [1]}
    assert reader.get_variable_to_dtype_map() == {"other": tf.float32}
    assert reader.has_tensor("other")


def test_variables_begin_with_a_checkpoint(tmp_path: Path) -> None:
    _, (path,) = saved(tmp_path, 1)
    tf.reset_default_graph()
    with tf.variable_scope("inside"):
        weights = tf.get_variable("weights", [1])
    tf.train.init_from_checkpoint(path, {"/": "inside/"})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(weights) == [1.0]


@pytest.mark.parametrize(
    ("shape", "name", "kind", "words"),
    [
        ([2], "weights", tf.errors.InvalidArgumentError, r"got shape \[1\], expected shape \(2,\)"),
        ([1], "weight", tf.errors.NotFoundError, "Key weight not found in checkpoint"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, shape: list[int], name: str, kind: Any, words: str) -> None:
    _, (path,) = saved(tmp_path, 1)
    tf.reset_default_graph()
    tf.get_variable(name, shape)
    with tf.Session() as session, pytest.raises(kind, match=words):
        tf.train.Saver().restore(session, path)


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No variables to save"):
        tf.train.Saver()
    weights = tf.Variable([1.0])
    saver = tf.train.Saver()
    with tf.Session() as session:
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            saver.restore(session, str(tmp_path / "missing"))
        with pytest.raises(ValueError, match="when it is None"):
            saver.restore(session, None)
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            saver.save(session, str(tmp_path / "model"))
        session.run(weights.initializer)
        with pytest.raises(ValueError, match="Parent directory of"):
            saver.save(session, str(tmp_path / "missing" / "model"))
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


IMPORTING = """
import sys, numpy as np, throughtime.tf1 as tf
with tf.Session() as session:
    saver = tf.train.import_meta_graph(sys.argv[1] + ".meta")
    saver.restore(session, sys.argv[1])
    graph = tf.get_default_graph()
    feeds = {graph.get_tensor_by_name("x:0"): np.ones((2, 4, 3), "f"), "y:0": [[1.0], [0.0]]}
    for _ in range(3):
        session.run("train", feeds)
    print(session.run(tf.get_collection("predictions")[0], feeds).tolist())
    print([variable.op.name for variable in tf.trainable_variables()])
"""


def test_a_graph_comes_back_in_another_process(tmp_path: Path) -> None:
    x, y = tf.placeholder(tf.float32, [None, 4, 3], name="x"), tf.placeholder(tf.float32, [None, 1], name="y")
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(5), x, dtype=tf.float32)
    predictions = tf.cond(tf.constant(True), lambda: tf.layers.dense(outputs[:, -1], 1), lambda: y)
    tf.add_to_collection("predictions", predictions)
    loss = tf.losses.mean_squared_error(y, predictions)
    train = tf.train.AdamOptimizer(0.01).minimize(loss, name="train")
    feeds = {x: np.ones((2, 4, 3), np.float32), y: [[1.0], [0.0]]}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, feeds)
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
        for _ in range(3):
            session.run(train, feeds)
        expected = session.run(predictions, feeds)
    done = subprocess.run([sys.executable, "-c", IMPORTING, path], capture_output=True, text=True, check=True)
    values, names = done.stdout.splitlines()
    np.testing.assert_allclose(eval(values), expected, rtol=1e-6)
    assert "rnn/gru_cell/gates/kernel" in names


def test_a_graph_with_code_of_the_program_says_so(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    tf.add_to_collection("own", tf.py_func(lambda value: value + 1, [x], tf.float32))
    path = str(tmp_path / "graph.meta")
    tf.train.export_meta_graph(path)
    tf.reset_default_graph()
    tf.train.import_meta_graph(path)
    with tf.Session() as session, pytest.raises(Exception, match="Python code of the program that saved the graph"):
        session.run(tf.get_collection("own"), {"x:0": [1.0, 2.0]})


def test_imports_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="does not exist"):
        tf.train.import_meta_graph(str(tmp_path / "missing.meta"))
    (tmp_path / "theirs.meta").write_bytes(b"")
    with pytest.raises(NotImplementedError, match="not saved by throughtime"):
        tf.train.import_meta_graph(str(tmp_path / "theirs.meta"))
    tf.Variable([1.0])
    path = str(tmp_path / "ours.meta")
    tf.train.export_meta_graph(path)
    with pytest.raises(ValueError, match="needs an empty graph"):
        tf.train.import_meta_graph(path)
