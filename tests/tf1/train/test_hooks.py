"""Monitored sessions, the supervisor and the coordinator."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf
from tf1_programs import numbers, training

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


class Counting(tf.train.SessionRunHook):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self) -> None:
        self.calls.append("begin")
        self.extra = tf.constant(5)

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append("session")

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs({"extra": self.extra})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        assert run_values.results == {"extra": 5}
        self.calls.append("run")

    def end(self, session: Any) -> None:
        self.calls.append("end")


def test_hooks_in_order() -> None:
    x, train = training(tf)
    hook = Counting()
    with tf.train.MonitoredSession(hooks=[hook, tf.train.StopAtStepHook(num_steps=3)]) as session:
        while not session.should_stop():
            session.run(train, {x: numbers(4, 3)})
    assert hook.calls == ["begin", "session", "run", "run", "run", "end"]


def test_training_goes_on_where_it_was(tmp_path: Path) -> None:
    steps = []
    for last in (4, 9):
        tf.reset_default_graph()
        x, train = training(tf)
        tf.summary.scalar("one", tf.constant(1.0))
        hooks = [tf.train.StopAtStepHook(last_step=last)]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=2, save_summaries_steps=1
        ) as session:
            steps.append(int(session.run(tf.train.get_global_step())))
            while not session.should_stop():
                session.run(train, {x: numbers(4, 3)})
    tf.summary.FileWriterCache.clear()
    assert steps == [0, 4]
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-9")
    events = [event for path in tmp_path.glob("events*") for event in tf.train.summary_iterator(str(path))]
    assert any(value.tag == "one" for event in events for value in event.summary.value)


def test_the_end_of_the_data_ends_the_session_and_errors_do_not_run_the_end() -> None:
    hook = Counting()
    with tf.train.MonitoredSession(hooks=[hook]):
        raise tf.errors.OutOfRangeError(None, None, "end of data")
    assert hook.calls[-1] == "end"
    tf.reset_default_graph()
    failing = Counting()
    with pytest.raises(KeyError), tf.train.MonitoredSession(hooks=[failing]):
        raise KeyError
    assert failing.calls == ["begin", "session"]


def test_a_loss_that_is_not_a_number() -> None:
    loss = tf.constant(np.nan)
    hooks = [tf.train.NanTensorHook(loss)]
    with pytest.raises(tf.train.NanLossDuringTrainingError), tf.train.MonitoredSession(hooks=hooks) as session:
        session.run(loss)


def test_the_supervisor_saves_and_restores(tmp_path: Path) -> None:
    for expected in (3, 6):
        tf.reset_default_graph()
        x, train = training(tf)
        supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, summary_op=None)
        with supervisor.managed_session() as session:
            for _ in range(3):
                assert not supervisor.should_stop()
                session.run(train, {x: numbers(4, 3)})
            assert int(session.run(supervisor.global_step)) == expected
            supervisor.saver.save(session, supervisor.save_path, global_step=supervisor.global_step)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-6")


def test_the_coordinator_raises_what_a_thread_raised() -> None:
    coordinator = tf.train.Coordinator()

    def work() -> None:
        with coordinator.stop_on_exception():
            raise KeyError("in a thread")

    threads = [threading.Thread(target=work), threading.Thread(target=coordinator.wait_for_stop)]
    for thread in threads:
        thread.start()
    with pytest.raises(KeyError, match="in a thread"):
        coordinator.join(threads)
    assert coordinator.should_stop()


def test_a_timer_by_steps() -> None:
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    found = []
    for step in range(8):
        if timer.should_trigger_for_step(step):
            timer.update_last_triggered_step(step)
            found.append(step)
    assert found == [0, 3, 6]
    with pytest.raises(ValueError, match="exactly one of"):
        tf.train.SecondOrStepTimer()
