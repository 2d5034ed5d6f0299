"""Errors name the tensor, what was got and expected, the fix, and the line of the user's program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def test_a_placeholder_without_a_value() -> None:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as found:
        session.run(x * 2)
    assert "You must feed a value for placeholder tensor 'x'" in str(found.value)
    assert "feed_dict={x: value}" in str(found.value)
    assert "(made at test_errors.py:" in str(found.value)
    assert found.value.op is x.op


def test_an_uninitialised_variable() -> None:
    v = tf.Variable(1.0, name="weights")
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError) as found:
        session.run(v + 1)
    assert "uninitialized value weights" in str(found.value)
    assert "tf.global_variables_initializer()" in str(found.value)
    assert "test_errors.py:" in str(found.value)


def test_shapes_that_do_not_fit() -> None:
    a, b = tf.placeholder(tf.float32, [None, 3]), tf.zeros([4, 2])
    with pytest.raises(ValueError, match=r"'MatMul' .*\(\?, 3\), \(4, 2\).*test_errors.py:"):
        tf.matmul(a, b)


def test_shapes_that_do_not_fit_at_run_time() -> None:
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    product = tf.matmul(a, b, name="product")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=r"product.*test_errors.py:"):
        session.run(product, {a: np.ones((2, 3)), b: np.ones((2, 3))})


def test_a_fed_shape() -> None:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    with (
        tf.Session() as session,
        pytest.raises(ValueError, match=r"shape \(3,\) for Tensor 'x:0'.*'\(\?, 2\)'.*reshape"),
    ):
        session.run(x, {x: [1, 2, 3]})


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"Did you mean tf\.reduce_sum"):
        _ = tf.reduce_summ


def test_a_tensor_name_that_is_not_there() -> None:
    tf.constant(1.0, name="weights")
    with pytest.raises(KeyError, match="Did you mean 'weights'"):
        tf.get_default_graph().get_tensor_by_name("weigths:0")


FED: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.text(),
    st.floats(),
    st.integers(),
    st.lists(st.floats(width=32), max_size=3),
    st.lists(st.lists(st.integers(), max_size=3), max_size=3),
    st.dictionaries(st.text(), st.integers(), max_size=2),
    arrays.arrays(st.sampled_from([np.float64, np.int64, np.bool_, np.dtype("U3")]), arrays.array_shapes(max_dims=3)),
)


@hypothesis.given(FED)
def test_whatever_is_fed_runs_or_is_refused(value: Any) -> None:
    tf.reset_default_graph()
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    with tf.Session() as session:
        try:
            found = session.run(x + 0, {x: value})
        except (TypeError, ValueError):
            return
    with np.errstate(over="ignore"):
        expected = np.asarray(value, np.float32)
    assert expected.shape == found.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (lambda: tf.get_variable("a b", [1]), ValueError),
        (lambda: tf.constant([1, "a"]), TypeError),
        (lambda: tf.constant(1.0) + "a", TypeError),
        (lambda: tf.Variable(tf.placeholder(tf.float32, [None])), ValueError),
        (lambda: tf.Session(graph=3), TypeError),
        (lambda: tf.TensorShape([-1]), ValueError),
    ],
)
def test_misuse_has_tensorflows_types(build: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        build()
