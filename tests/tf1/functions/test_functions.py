"""Functions of sub-graphs: captures, state, and what the body of a loop may do."""

from __future__ import annotations

import numpy as np
import pytest

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def test_a_loop_assigns_a_variable_and_reads_it_again() -> None:
    v = tf.Variable(1.0)
    total = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + tf.assign(v, v * 2)), (0, 0.0))[1]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(total) == 2 + 4 + 8
        assert session.run(v) == 8


def test_a_branch_that_is_not_taken_does_not_run() -> None:
    v = tf.Variable(0.0)
    flag = tf.placeholder(tf.bool, [])
    result = tf.cond(flag, lambda: tf.assign_add(v, 1.0), lambda: tf.constant(-1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(result, {flag: False}) == -1
        assert session.run(v) == 0
        assert session.run(result, {flag: True}) == 1


def test_variables_of_a_body_belong_to_the_graph() -> None:
    x = tf.placeholder(tf.float32, [None, 2])

    def body(i: object, h: object) -> tuple[object, object]:
        return i + 1, tf.matmul(h, tf.get_variable("w", [2, 2], initializer=tf.ones_initializer()))  # type: ignore[operator]

    with tf.variable_scope("loop", reuse=tf.AUTO_REUSE):
        y = tf.while_loop(lambda i, h: i < 2, body, (0, x))[1]
    gradient = tf.gradients(y, tf.trainable_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(y, {x: [[1, 2]]}), [[6, 6]])
        np.testing.assert_array_equal(session.run(gradient, {x: [[1, 2]]}), [[[5, 5], [7, 7]]])
    assert [v.name for v in tf.trainable_variables()] == ["loop/w:0"]


def test_gradients_inside_of_a_loop() -> None:
    x = tf.placeholder(tf.float32, [2])
    step = lambda i, h: (i + 1, h - 0.25 * tf.gradients(tf.reduce_sum(h * h), h)[0])  # noqa: E731
    y = tf.while_loop(lambda i, h: i < 3, step, (0, x))[1]
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(y, {x: [8.0, 4.0]}), [1.0, 0.5])


def test_control_dependencies_on_outer_operations() -> None:
    v = tf.Variable(0.0)
    up = tf.assign_add(v, 1.0)

    def body(i: object) -> object:
        with tf.control_dependencies([up]):
            return i + 1  # type: ignore[operator]

    result = tf.while_loop(lambda i: i < 2, body, [0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(result) == 2
        assert session.run(v) == 1


def test_an_array_of_the_wrong_shape() -> None:
    array = tf.TensorArray(tf.float32, size=2, element_shape=[2])
    with pytest.raises(ValueError, match="Inconsistent shapes"):
        array.write(0, tf.zeros([3]))


def test_print_shows_values(capfd: pytest.CaptureFixture[str]) -> None:
    x = tf.Print(tf.constant(1.0), [tf.constant([1, 2, 3, 4]), tf.constant(2.5)], "values: ")
    with tf.Session() as session:
        session.run(x)
    assert capfd.readouterr().err == "values: [1 2 3...][2.5]\n"
