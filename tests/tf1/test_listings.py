"""The listings of the documents that the project is built from, as printed, on `throughtime.tf1`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")

X_BATCH = np.array([[[0, 1, 2], [9, 8, 7]], [[3, 4, 5], [0, 0, 0]], [[6, 7, 8], [6, 5, 4]], [[9, 0, 1], [3, 2, 1]]])

PLACEHOLDERS = """
X0 = tf.placeholder(tf.float32, [None, n_inputs])
X1 = tf.placeholder(tf.float32, [None, n_inputs])
basic_cell = tf.contrib.rnn.BasicRNNCell(num_units=n_neurons)
output_seqs, states = tf.contrib.rnn.static_rnn(basic_cell, [X0, X1], dtype=tf.float32)
Y0, Y1 = output_seqs
"""
UNSTACKED = """
X = tf.placeholder(tf.float32, [None, n_steps, n_inputs])
X_seqs = tf.unstack(tf.transpose(X, perm=[1, 0, 2]))
basic_cell = tf.contrib.rnn.BasicRNNCell(num_units=n_neurons)
output_seqs, states = tf.contrib.rnn.static_rnn(basic_cell, X_seqs, dtype=tf.float32)
outputs = tf.transpose(tf.stack(output_seqs), perm=[1, 0, 2])
"""
DYNAMIC = """
X = tf.placeholder(tf.float32, [None, n_steps, n_inputs])
basic_cell = tf.contrib.rnn.BasicRNNCell(num_units=n_neurons)
outputs, states = tf.nn.dynamic_rnn(basic_cell, X, dtype=tf.float32, swap_memory=True)
"""
LENGTHS = """
seq_length = tf.placeholder(tf.int32, [None])
X = tf.placeholder(tf.float32, [None, n_steps, n_inputs])
basic_cell = tf.contrib.rnn.BasicRNNCell(num_units=n_neurons)
outputs, states = tf.nn.dynamic_rnn(basic_cell, X, dtype=tf.float32, sequence_length=seq_length)
"""
INITIAL_STATE = """
rnn_cell = tf.nn.rnn_cell.BasicRNNCell(hidden_size)
initial_state = rnn_cell.zero_state(batch_size, dtype=tf.float32)
outputs, state = tf.nn.dynamic_rnn(rnn_cell, input_data, initial_state=initial_state, dtype=tf.float32)
"""
TWO_LAYERS = """
rnn_layers = [tf.nn.rnn_cell.LSTMCell(size) for size in [128, 256]]
multi_rnn_cell = tf.nn.rnn_cell.MultiRNNCell(rnn_layers)
outputs, state = tf.nn.dynamic_rnn(cell=multi_rnn_cell, inputs=data, dtype=tf.float32)
"""
FIVE_LENGTHS = """
lens = [4, 9, 10, 5, 10]
cell = tf.nn.rnn_cell.LSTMCell(7)
input_sequences = tf.placeholder(tf.float32, shape=(None, 10, 20))
output, final_state = tf.nn.dynamic_rnn(cell, input_sequences, sequence_length=lens, dtype=tf.float32)
"""


def run(listing: str, **names: Any) -> dict[str, Any]:
    """The names that a listing leaves behind."""
    tf.reset_default_graph()
    scope: dict[str, Any] = {"tf": tf, "np": np, "n_steps": 2, "n_inputs": 3, "n_neurons": 5, **names}
    exec(listing, scope)
    return scope


def test_two_placeholders_share_one_cell() -> None:
    found = run(PLACEHOLDERS)
    init = tf.global_variables_initializer()
    with tf.Session() as sess:
        init.run()
        feed = {found["X0"]: X_BATCH[:, 0], found["X1"]: X_BATCH[:, 1]}
        first, second, state = sess.run([found["Y0"], found["Y1"], found["states"]], feed)
    assert first.shape == second.shape == (4, 5)
    np.testing.assert_array_equal(second, state)
    assert [v.name for v in tf.trainable_variables()] == ["rnn/basic_rnn_cell/kernel:0", "rnn/basic_rnn_cell/bias:0"]


@pytest.mark.parametrize("listing", [UNSTACKED, DYNAMIC], ids=["static", "dynamic"])
def test_one_tensor_for_all_steps(listing: str) -> None:
    found = run(listing)
    assert found["outputs"].shape.as_list() == [None, 2, 5]
    init = tf.global_variables_initializer()
    with tf.Session() as sess:
        init.run()
        outputs_val = found["outputs"].eval(feed_dict={found["X"]: X_BATCH})
        kernel, bias = sess.run(tf.trainable_variables())
    state = np.zeros((4, 5))
    for step in range(2):
        state = np.tanh(np.concatenate([X_BATCH[:, step], state], 1) @ kernel + bias)
        np.testing.assert_allclose(outputs_val[:, step], state, rtol=1e-4, atol=1e-5)


def test_zero_vectors_past_the_length() -> None:
    found = run(LENGTHS)
    init = tf.global_variables_initializer()
    with tf.Session() as sess:
        init.run()
        feed = {found["X"]: X_BATCH, found["seq_length"]: np.array([2, 1, 2, 2])}
        outputs_val, states_val = sess.run([found["outputs"], found["states"]], feed_dict=feed)
    np.testing.assert_array_equal(outputs_val[1, 1], np.zeros(5))
    np.testing.assert_array_equal(states_val[1], outputs_val[1, 0])
    np.testing.assert_array_equal(states_val[[0, 2, 3]], outputs_val[[0, 2, 3], 1])
    assert tf.explain(found["outputs"], feed_dict=feed, session=run_again(found)).backend == "cpu"


def run_again(found: dict[str, Any]) -> Any:
    session = tf.Session(graph=found["outputs"].graph)
    with session.graph.as_default():
        session.run(tf.global_variables_initializer())
    return session


def test_an_initial_state_of_zeros() -> None:
    tf.reset_default_graph()
    data = np.random.RandomState(0).standard_normal((3, 4, 2)).astype(np.float32)
    found: dict[str, Any] = {"tf": tf, "hidden_size": 6, "batch_size": 3, "input_data": tf.constant(data)}
    exec(INITIAL_STATE, found)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        outputs, state = sess.run([found["outputs"], found["state"]])
    assert found["outputs"].shape.as_list() == [3, 4, 6]
    np.testing.assert_array_equal(outputs[:, -1], state)


def test_two_layers_have_a_state_each() -> None:
    tf.reset_default_graph()
    found: dict[str, Any] = {"tf": tf, "data": tf.ones([2, 3, 10])}
    exec(TWO_LAYERS, found)
    assert found["outputs"].shape.as_list() == [2, 3, 256]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        state = sess.run(found["state"])
    assert [type(one).__name__ for one in state] == ["LSTMStateTuple"] * 2
    assert [one.c.shape for one in state] == [(2, 128), (2, 256)]
    assert [v.name for v in tf.trainable_variables()] == [
        f"rnn/multi_rnn_cell/cell_{place}/lstm_cell/{name}:0" for place in (0, 1) for name in ("kernel", "bias")
    ]


def test_lengths_as_a_list() -> None:
    found = run(FIVE_LENGTHS)
    assert found["output"].shape.as_list()[1:] == [10, 7]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        output = sess.run(found["output"], {found["input_sequences"]: np.ones((5, 10, 20))})
    for row, length in enumerate([4, 9, 10, 5, 10]):
        assert not output[row, length:].any()
        assert output[row, :length].all()
