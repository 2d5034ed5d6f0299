"""`TensorShape`, `Dimension` and static shapes that probes find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf
from throughtime.tf1.ops._convert import constant_value

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def test_arithmetic_of_dimensions() -> None:
    known, unknown = tf.Dimension(3), tf.Dimension(None)
    assert (known + 2).value == 5
    assert (2 * known).value == 6
    assert (7 // known).value == 2
    assert (known - unknown).value is None
    assert known == 3
    assert (known == unknown) is None
    assert int(known) == 3
    with pytest.raises(TypeError, match=r"tf\.shape"):
        int(unknown)
    with pytest.raises(ValueError, match=">= 0"):
        tf.Dimension(-1)


def test_shapes_merge_and_compare() -> None:
    first, second = tf.TensorShape([None, 3]), tf.TensorShape([2, None])
    assert first.merge_with(second).as_list() == [2, 3]
    assert first.is_compatible_with([5, 3])
    assert not first.is_compatible_with([5, 4])
    assert not first.is_compatible_with([3])
    assert first.concatenate([4]).as_list() == [None, 3, 4]
    assert tf.TensorShape(None).ndims is None
    assert first[1:].as_list() == [3]
    with pytest.raises(ValueError, match="incompatible"):
        first.merge_with([2, 4])
    with pytest.raises(ValueError, match="rank 3"):
        first.with_rank(3)


def test_sizes_flow_through_integer_tensors() -> None:
    x = tf.placeholder(tf.float32, [None, 4])
    batch = tf.shape(x)[0]
    assert tf.zeros([batch * 2, 7]).shape.as_list() == [None, 7]
    assert tf.zeros([tf.shape(x)[1] * 2, 7]).shape.as_list() == [8, 7]
    assert constant_value(tf.shape(x)[1]) == 4
    assert constant_value(batch) is None


def test_an_index_of_unknown_value_gives_the_shape_of_an_element() -> None:
    x, i = tf.placeholder(tf.float32, [5, 4]), tf.placeholder(tf.int32, [])
    assert x[i].shape.as_list() == [4]
    assert x[i:].shape.as_list() == [None, 4]


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ([None, 3], [5, 3], [5, 3]),
        ([None, 3], [1, 3], [None, 3]),
        ([None, 3], [3], [None, 3]),
        ([None], [None], [None]),
    ],
)
def test_unknown_sizes_broadcast(first: Any, second: Any, result: Any) -> None:
    x, y = tf.placeholder(tf.float32, first), tf.placeholder(tf.float32, second)
    assert (x + y).shape.as_list() == result
    assert (y * x).shape.as_list() == result


def test_results_of_probes_are_found_again() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    first, second = tf.reduce_sum(x, 1), tf.reduce_sum(x, 1)
    assert first.shape == second.shape
    assert tf.reduce_sum(x, 0).shape.as_list() == [3]
    assert tf.reduce_sum(x, 1, keepdims=True).shape.as_list() == [None, 1]
    assert tf.split(x, 3, 1)[0].shape.as_list() == tf.split(x, 3, 1)[2].shape.as_list() == [None, 1]
    with tf.Session() as session:
        values = session.run([first, second], {x: np.ones((2, 3))})
    np.testing.assert_array_equal(values, [[3, 3], [3, 3]])
