"""Messages without protobuf: the bytes are those that protobuf writes, and reads."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import config_pb2, event_pb2, summary_pb2

import throughtime.tf1 as tf
from throughtime.tf1 import protos

pytestmark = pytest.mark.covers("tf1")

NUMBERS = st.floats(width=32, allow_nan=False)
VALUES = st.builds(lambda tag, number: {"tag": tag, "simple_value": number}, st.text(max_size=5), NUMBERS)


@given(st.lists(VALUES, max_size=4), st.lists(st.floats(allow_nan=False), max_size=4), st.integers(-(2**63), 2**63 - 1))
def test_events_as_protobuf_writes_them(values: list[dict[str, object]], limits: list[float], step: int) -> None:
    ours = protos.Event(step=step, summary=protos.Summary(value=values))
    ours.summary.value.add(tag="h").histo.bucket_limit.extend(limits)
    data = ours.SerializeToString()
    theirs = event_pb2.Event.FromString(data)
    assert theirs.SerializeToString() == data
    assert [each.tag for each in theirs.summary.value] == [each.tag for each in ours.summary.value]
    assert protos.Event.FromString(data) == ours


def test_settings_as_programs_write_them() -> None:
    config = tf.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})
    config.gpu_options.allow_growth = True
    config.gpu_options.per_process_gpu_memory_fraction = 0.4
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    config.inter_op_parallelism_threads = 2
    theirs = config_pb2.ConfigProto.FromString(config.SerializeToString())
    assert theirs.gpu_options.allow_growth
    assert theirs.device_count["GPU"] == 0
    assert theirs.graph_options.optimizer_options.global_jit_level == 1
    assert theirs.SerializeToString(deterministic=True) == config.SerializeToString()
    assert tf.Session(config=config).run(tf.constant(1)) == 1


def test_presence_and_oneofs() -> None:
    value = protos.Summary.Value(tag="a")
    assert value.WhichOneof("value") is None
    value.simple_value = 0.0
    assert value.HasField("simple_value")
    assert value.SerializeToString() == summary_pb2.Summary.Value(tag="a", simple_value=0.0).SerializeToString()
    value.image.height = 3
    value.image.SetInParent()
    config = protos.ConfigProto()
    assert not config.HasField("gpu_options")
    assert config.gpu_options.allow_growth is False
    assert not config.HasField("gpu_options")
    config.gpu_options.CopyFrom(protos.GPUOptions(allow_growth=True))
    assert config.HasField("gpu_options")
    config.ClearField("gpu_options")
    assert config.SerializeToString() == b""


def test_examples_with_maps() -> None:
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, -2])),
                "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"q"])),
            }
        )
    )
    # What TensorFlow 1.15 wrote.
    data = bytes.fromhex("0a270a160a03696473120f1a0d0a0b01feffffffffffffffff010a0d0a047465787412050a030a0171")
    assert example.SerializeToString() == data
    found = tf.train.Example.FromString(data)
    assert list(found.features.feature["ids"].int64_list.value) == [1, -2]
    assert found.features.feature["text"].bytes_list.value[0] == b"q"
    assert found.features.feature["text"].WhichOneof("kind") == "bytes_list"
    assert copy.deepcopy(found) == found == pickle.loads(pickle.dumps(found))


def test_text() -> None:
    summary = protos.Summary(value=[protos.Summary.Value(tag='a "b"', simple_value=0.5)])
    assert str(summary) == 'value {\n  tag: "a \\"b\\""\n  simple_value: 0.5\n}\n'


def test_wrong_fields() -> None:
    with pytest.raises(AttributeError, match="ConfigProto has no such field: got alow_soft_placement"):
        protos.ConfigProto(alow_soft_placement=True)
    with pytest.raises(TypeError, match="got str, expected an int"):
        protos.ConfigProto(inter_op_parallelism_threads="2")
    with pytest.raises(AttributeError, match="expected a change in place"):
        protos.ConfigProto().gpu_options = protos.GPUOptions()
    with pytest.raises(ValueError, match="not a message"):
        protos.ConfigProto.FromString(b"\x32\x7f")
