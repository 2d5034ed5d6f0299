"""Event files: TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture(autouse=True)
def _fresh_graph() -> None:
    tf.reset_default_graph()


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"tensors": 10, "images": 10})
    found.Reload()
    return found


def test_all_kinds_are_read_by_tensorboard(tmp_path: Path) -> None:
    loss = tf.placeholder(tf.float32, [])
    tf.summary.scalar("loss", loss)
    tf.summary.histogram("weights", tf.constant([1.0, -2.0, 3.0]))
    tf.summary.image("picture", tf.constant(np.full((1, 3, 4, 3), 0.5, np.float32)))
    tf.summary.audio("sound", tf.constant(np.zeros((1, 8), np.float32)), 8000)
    tf.summary.text("words", tf.constant("hello"))
    merged = tf.summary.merge_all()
    with tf.Session() as session, tf.summary.FileWriter(str(tmp_path), session.graph) as writer:
        for step in range(3):
            writer.add_summary(session.run(merged, {loss: step / 2}), step)
    found = read(tmp_path)
    assert [(each.step, each.value) for each in found.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    histogram = found.Histograms("weights")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (-2.0, 3.0, 3.0, 2.0)
    assert (found.Images("picture/image/0")[0].width, found.Images("picture/image/0")[0].height) == (4, 3)
    assert found.Audio("sound/audio/0")[0].sample_rate == 8000
    assert [each.tensor_proto.string_val[0] for each in found.Tensors("words")] == [b"hello"] * 3
    nodes = {node.name: node.op for node in found.Graph().node}
    assert nodes["loss"] == "ScalarSummary"
    assert nodes["Placeholder"] == "Placeholder"


def test_summaries_of_the_programs_own(tmp_path: Path) -> None:
    writer = tf.summary.FileWriter(str(tmp_path))
    summary = tf.Summary()
    summary.value.add(tag="accuracy", simple_value=0.5)
    writer.add_summary(summary, global_step=np.int64(4))
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=2)]), 5)
    writer.flush()
    assert [(each.step, each.value) for each in read(tmp_path).Scalars("accuracy")] == [(4, 0.5)]
    writer.close()
    writer.add_summary(summary, 6)
    writer.close()
    events = [event for path in tmp_path.iterdir() for event in tf.train.summary_iterator(str(path))]
    assert sorted(event.step for event in events if event.HasField("summary")) == [4, 5, 6]
    assert {event.file_version for event in events if event.HasField("file_version")} == {"brain.Event:2"}


def test_one_writer_for_a_folder(tmp_path: Path) -> None:
    assert tf.summary.FileWriterCache.get(str(tmp_path)) is tf.summary.FileWriterCache.get(str(tmp_path))
    tf.summary.FileWriterCache.clear()
    assert len(list(tmp_path.iterdir())) == 1


def test_old_names(tmp_path: Path) -> None:
    tf.scalar_summary("a loss", tf.constant(3.0))
    tf.histogram_summary("weights", tf.constant([1.0]))
    with tf.Session() as session:
        data = session.run(tf.merge_all_summaries())
    writer = tf.train.SummaryWriter(str(tmp_path))
    writer.add_summary(data, 0)
    writer.close()
    assert read(tmp_path).Scalars("a loss")[0].value == 3.0


def test_errors(tmp_path: Path) -> None:
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected one number"):
            session.run(tf.summary.scalar("many", tf.constant([1.0, 2.0])))
        with pytest.raises(tf.errors.InvalidArgumentError, match="got NaN or Inf, expected finite numbers"):
            session.run(tf.summary.histogram("odd", tf.constant([np.nan])))
    with pytest.raises(TypeError, match=r"session.run\(merged\)"):
        tf.summary.FileWriter(str(tmp_path)).add_summary(None, 0)
    assert tf.summary.merge_all("none of these") is None
