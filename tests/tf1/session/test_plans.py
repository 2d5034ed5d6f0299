"""Plans: what runs, in which order, and what a run leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def counted(calls: list[Any]) -> Any:
    return tf.py_func(lambda: calls.append(1) or np.float32(len(calls)), [], tf.float32)


def test_only_what_is_fetched_runs() -> None:
    calls: list[Any] = []
    unused = counted(calls)
    used = tf.constant(2.0) * 3
    with tf.Session() as session:
        assert session.run(used) == 6
        assert calls == []
        session.run([unused, unused, used])
    assert len(calls) == 1


def test_a_feed_cuts_the_graph() -> None:
    calls: list[Any] = []
    inner = counted(calls)
    with tf.Session() as session:
        assert session.run(inner + 1, {inner: 4.0}) == 5
    assert calls == []


def test_operations_run_in_the_order_of_the_program() -> None:
    v = tf.Variable(1.0)
    before = v.read_value()
    doubled = tf.assign(v, v * 2)
    with tf.control_dependencies([doubled]):
        after = v.read_value()
        late = tf.identity(v) + 0
    added = v.assign_add(10.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([before, after, late, added, v]) == [1, 2, 2, 12, 12]


def test_values_never_share_memory_with_variables() -> None:
    v = tf.Variable(np.zeros((200, 200), np.float32))
    x = tf.placeholder(tf.float32, [200, 200])
    loaded = v.assign(x)
    view = tf.reshape(v, [-1])
    given = np.ones((200, 200), np.float32)
    with tf.Session() as session:
        session.run(loaded, {x: given})
        given[:] = 5
        first, flat = session.run([v, view])
        first[:] = 7
        flat[:] = 8
        assert (session.run(v) == 1).all()


def test_nothing_is_recorded_without_a_gradient() -> None:
    v = tf.Variable([1.0, 2.0])
    seen: list[bool] = []
    y = tf.py_func(lambda a: seen.append(torch.is_grad_enabled()) or a, [v * 2], tf.float32)
    gradient = tf.gradients(v * v, v)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(y)
        session.run([y, gradient])
    assert seen == [False, True]


def test_a_plan_serves_while_operations_are_added() -> None:
    x = tf.placeholder(tf.float32, [])
    y = x * 2
    with tf.Session() as session:
        session.run(y, {x: 1.0})
        plan = session._plan(y, (x,))
        _ = y + 1
        assert session._plan(y, (x,)) is plan
        assert session.run(y + 1, {x: 1.0}) == 3


def test_a_watched_constant_keeps_its_value() -> None:
    x = tf.constant([1.0, 2.0])
    y = x * 3
    gradient = tf.gradients(y * y, x)[0]
    with tf.Session() as session:
        values = session.run([x, y, gradient])
    np.testing.assert_array_equal(values, [[1, 2], [3, 6], [18, 36]])


def test_sessions_have_values_of_their_own() -> None:
    v = tf.Variable(1.0)
    one, two = tf.Session(), tf.Session()
    for session in (one, two):
        session.run(v.initializer)
    one.run(v.assign(5.0))
    assert (one.run(v), two.run(v)) == (5.0, 1.0)


def test_make_callable() -> None:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    with tf.Session() as session:
        assert session.make_callable(x - y, [x, y])(5.0, 3.0) == 2


def test_one_placeholder_twice_under_two_names_is_an_error() -> None:
    with tf.Session() as session, pytest.raises(TypeError, match="Cannot interpret feed_dict key as Tensor"):
        session.run(tf.constant(1.0), {object(): 1.0})
