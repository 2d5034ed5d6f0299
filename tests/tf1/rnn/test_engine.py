"""Unrolls of TensorFlow programs on the engine: a user's cell is compiled, and what cannot be says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")

X = np.random.RandomState(0).standard_normal((4, 5, 3)).astype(np.float32)
LENGTHS = [5, 2, 0, 4]


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


class Gated(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc,name-defined]
    """As programs of 2016 wrote cells: no constructor of the base class, variables at every call."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def state_size(self) -> int:
        return self._size

    @property
    def output_size(self) -> int:
        return self._size

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        with tf.variable_scope(scope or "gated"):
            both = tf.concat([inputs, state], 1)
            w = tf.get_variable("w", [both.get_shape()[1], 2 * self._size])
            b = tf.get_variable("b", [2 * self._size], initializer=tf.constant_initializer(0.5))
            gate, new = tf.split(tf.matmul(both, w) + b, 2, 1)
            gate = tf.nn.sigmoid(gate)
            new = gate * state + (1.0 - gate) * tf.tanh(new)
        return new, new


class Stepped(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc,name-defined]
    """A cell that counts its steps in a scalar."""

    state_size = (3, tf.TensorShape([]))
    output_size = 3

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return tf.zeros([batch_size, 3]), tf.zeros([], tf.int32)

    def call(self, inputs: Any, state: Any) -> Any:
        total = state[0] + inputs
        return total, (total, state[1] + 1)


def unrolled(cell: Any) -> tuple[Any, Any, Any]:
    x = tf.placeholder(tf.float32, [None, 5, 3])
    outputs, _ = tf.nn.dynamic_rnn(cell, x, LENGTHS, dtype=tf.float32)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return outputs, session, {x: X}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gated(4),
        lambda: tf.nn.rnn_cell.BasicLSTMCell(4),
        lambda: tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(4), Gated(3)]),
        lambda: tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.LSTMCell(4), output_keep_prob=0.5),
    ],
    ids=["own", "lstm", "stack", "dropout"],
)
def test_cells_are_compiled(make: Any) -> None:
    outputs, session, feed = unrolled(make())
    plan = tf.explain(outputs, session, feed)
    assert plan.backend == "cpu", plan.reasons
    assert plan.source
    assert session.run(outputs, feed).shape[:2] == (4, 5)


def test_a_compiled_cell_gives_what_steps_by_hand_give() -> None:
    cell = Gated(4)
    outputs, session, feed = unrolled(cell)
    state, by_hand = tf.zeros([4, 4]), []
    (x,) = feed
    with tf.variable_scope("rnn", reuse=True):
        for step in range(5):
            output, new = cell(x[:, step], state)
            running = np.array([[step < length] for length in LENGTHS], np.float32)
            by_hand.append(output * running)
            state = new * running + state * (1 - running)
    joined = tf.stack(by_hand, 1)
    variables = tf.trainable_variables()
    with session.as_default():
        values = session.run([outputs, joined], feed)
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)
        gradients = [tf.gradients(tf.reduce_sum(y * y), [*variables, x]) for y in (outputs, joined)]
        for one, other in zip(*session.run(gradients, feed), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_state_without_a_batch_axis_runs_in_a_plain_loop() -> None:
    outputs, session, feed = unrolled(Stepped())
    assert "no batch axis" in tf.explain(outputs, session, feed)
    found = session.run(outputs, feed)
    np.testing.assert_allclose(found[0], np.cumsum(X[0], 0), rtol=1e-5, atol=1e-6)
    assert not found[1, 2:].any()


def test_a_memory_of_the_whole_batch_runs_in_a_plain_loop() -> None:
    memory = tf.constant(X[:, 0])

    class Reading(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc,name-defined]
        state_size = output_size = 3

        def call(self, inputs: Any, state: Any) -> Any:
            return state + memory, state + inputs

    outputs, session, feed = unrolled(Reading())
    assert "whole batch" in tf.explain(outputs, session, feed)
    np.testing.assert_allclose(session.run(outputs, feed)[3, 0], X[3, 0])


def test_dropout_scales_what_it_keeps() -> None:
    x = tf.placeholder(tf.float32, [None, 5, 3])
    keep = tf.placeholder_with_default(1.0, [])
    cell = tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.GRUCell(64), output_keep_prob=keep)
    outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        whole = session.run(outputs, {x: X})
        dropped = session.run(outputs, {x: X, keep: 0.5})
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-5)


def test_one_variational_mask_serves_all_steps() -> None:
    cell = tf.nn.rnn_cell.DropoutWrapper(
        tf.nn.rnn_cell.GRUCell(16), output_keep_prob=0.5, variational_recurrent=True, dtype=tf.float32
    )
    x = tf.placeholder(tf.float32, [None, 5, 3])
    outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = (session.run(outputs, {x: X}) != 0 for _ in range(2))
    assert (first == first[:1, :1]).all()
    assert (first != second).any()


def test_explain_needs_an_unroll() -> None:
    with pytest.raises(ValueError, match="does not depend on an unroll"):
        tf.explain(tf.constant(1.0) + 1)
