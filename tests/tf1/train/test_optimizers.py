"""Optimisers in programs: subclasses of the user's, several losses in one run, slots, constraints, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def run(fetches: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


class HalfStep(tf.train.Optimizer):
    """A program's own optimiser, in the style of TensorFlow's tutorials."""

    def __init__(self, rate: float) -> None:
        super().__init__(use_locking=False, name="HalfStep")
        self._rate = rate

    def _prepare(self) -> None:
        self._rate_tensor = tf.convert_to_tensor(self._rate, name="rate")

    def _create_slots(self, var_list: list[Any]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "last", self._name)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        last = self.get_slot(var, "last")
        saved = last.assign(grad)
        with tf.control_dependencies([saved]):
            return tf.assign_sub(var, self._rate_tensor * grad / 2).op


def test_a_programs_own_optimizer() -> None:
    weights = tf.Variable([1.0, 2.0], name="weights")
    optimizer = HalfStep(0.5)
    train = optimizer.minimize(tf.reduce_sum(weights * weights))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(weights), [0.5, 1.0])
        np.testing.assert_allclose(session.run(optimizer.get_slot(weights, "last")), [2.0, 4.0])
    assert optimizer.get_slot(weights, "last").op.name == "weights/HalfStep"
    assert train.name == "HalfStep"


class Scaled(tf.train.AdamOptimizer):
    """A subclass of a built-in optimiser that changes the gradients."""

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return super()._apply_dense(grad * 0.0, var)


def test_a_subclass_of_adam_advances_its_powers() -> None:
    weights = tf.Variable([1.0, 2.0], name="weights")
    optimizer = Scaled(0.1)
    train = optimizer.minimize(tf.reduce_sum(weights * weights))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        session.run(train)
        np.testing.assert_array_equal(session.run(weights), [1.0, 2.0])
        powers = [session.run(each) for each in optimizer._get_beta_accumulators()]
    np.testing.assert_allclose(powers, [0.9**3, 0.999**3], rtol=1e-6)


def test_two_losses_in_one_run_see_the_same_weights() -> None:
    """The second gradient needs the weights from before the first update, which must not overwrite them."""
    weights = tf.Variable([2.0], name="weights")
    cube = tf.reduce_sum(weights * weights * weights)
    first = tf.train.GradientDescentOptimizer(0.1).minimize(cube)
    second = tf.train.GradientDescentOptimizer(0.01).minimize(cube * 2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([first, second])
        np.testing.assert_allclose(session.run(weights), [2.0 - 0.1 * 12 - 0.01 * 24], rtol=1e-6)


def test_a_loss_after_an_update_sees_the_new_weights() -> None:
    weights = tf.Variable([2.0], name="weights")
    first = tf.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(weights * weights))
    with tf.control_dependencies([first]):
        again = tf.reduce_sum(weights * weights * weights)
    second = tf.train.GradientDescentOptimizer(0.1).minimize(again)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([again, second])[0] == 1.0
        np.testing.assert_allclose(session.run(weights), [1.0 - 0.1 * 3], rtol=1e-6)


def test_what_was_fetched_is_not_changed_by_later_steps() -> None:
    weights = tf.Variable(np.ones((300, 300), np.float32))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(weights * weights))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(weights)
        session.run(train)
        assert (before == 1).all()
        assert (session.run(weights) != 1).all()


def test_a_constraint_follows_the_update() -> None:
    weights = tf.get_variable("w", initializer=[0.5, 3.0], constraint=lambda value: tf.clip_by_value(value, 0.0, 1.0))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(-tf.reduce_sum(weights))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(weights), [0.6, 1.0])


def test_gradients_of_lookups_are_slices_and_others_are_dense() -> None:
    table, other = tf.Variable(np.ones((4, 2), np.float32)), tf.Variable(np.ones((4, 2), np.float32))
    ids = tf.constant([1, 1, 3])
    loss = (
        tf.reduce_sum(tf.nn.embedding_lookup(table, ids)) + tf.reduce_sum(tf.gather(other, ids)) + tf.reduce_sum(other)
    )
    slices, dense = tf.gradients(loss, [table, other])
    assert isinstance(slices, tf.IndexedSlices)
    assert isinstance(dense, tf.Tensor)
    found, whole, value = run([slices, dense, tf.convert_to_tensor(slices)])
    np.testing.assert_array_equal(found.indices, [1, 1, 3])
    np.testing.assert_array_equal(found.values, np.ones((3, 2)))
    np.testing.assert_array_equal(value[:, 0], [0, 2, 0, 1])
    np.testing.assert_array_equal(whole[:, 0], [1, 3, 1, 2])


def test_slots_are_named_in_the_open_variable_scope() -> None:
    weights = tf.get_variable("weights", initializer=[1.0])
    with tf.variable_scope("training"):
        optimizer = tf.train.AdamOptimizer()
        optimizer.minimize(tf.reduce_sum(weights))
    names = [each.op.name for each in optimizer.variables()]
    assert names == ["training/beta1_power", "training/beta2_power", "training/weights/Adam", "training/weights/Adam_1"]
    assert optimizer.get_slot_names() == ["m", "v"]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda o, w: o.minimize(tf.constant(1.0), var_list=[w]), ValueError, "No gradients provided for any variable"),
        (lambda o, w: o.apply_gradients([]), ValueError, "No variables provided"),
        (lambda o, w: o.apply_gradients([(None, w)]), ValueError, "No gradients provided for any variable"),
        (lambda o, w: o.minimize(lambda: w), RuntimeError, "expected a tensor"),
        (lambda o, w: o.minimize(tf.reduce_sum(w), gate_gradients=7), ValueError, "gate_gradients must be one of"),
        (lambda o, w: tf.train.Optimizer(False, ""), ValueError, "Must specify the optimizer name"),
        (lambda o, w: tf.train.AdagradOptimizer(0.1, -1.0), ValueError, "must be positive"),
        (lambda o, w: tf.train.FtrlOptimizer(0.1, 0.5), ValueError, "needs to be negative or zero"),
    ],
)
def test_wrong_calls(call: Any, kind: type[Exception], words: str) -> None:
    weights = tf.Variable([1.0])
    with pytest.raises(kind, match=words):
        call(tf.train.GradientDescentOptimizer(0.1), weights)


def test_without_variables() -> None:
    with pytest.raises(ValueError, match="No variables to optimize"):
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0))
