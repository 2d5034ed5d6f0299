"""TensorFlow's messages that programs touch: their fields, with the numbers of the files they are stored in."""

from __future__ import annotations

from typing import ClassVar

from throughtime.tf1.protos._message import Field, Message

Fields = dict[str, Field]


class TensorShapeProto(Message):
    """A shape."""

    class Dim(Message):
        """A dimension."""

        FIELDS: ClassVar[Fields] = {"size": Field(1, "int64"), "name": Field(2, "string")}

    FIELDS: ClassVar[Fields] = {"dim": Field(2, Dim, True), "unknown_rank": Field(3, "bool")}


class TensorProto(Message):
    """A tensor's value."""

    FIELDS: ClassVar[Fields] = {
        "dtype": Field(1, "enum"),
        "tensor_shape": Field(2, TensorShapeProto),
        "version_number": Field(3, "int32"),
        "tensor_content": Field(4, "bytes"),
        "float_val": Field(5, "float", True),
        "double_val": Field(6, "double", True),
        "int_val": Field(7, "int32", True),
        "string_val": Field(8, "bytes", True),
        "int64_val": Field(10, "int64", True),
        "bool_val": Field(11, "bool", True),
        "half_val": Field(13, "int32", True),
    }


class HistogramProto(Message):
    """A histogram: statistics, and counts up to each limit."""

    FIELDS: ClassVar[Fields] = {
        "min": Field(1, "double"),
        "max": Field(2, "double"),
        "num": Field(3, "double"),
        "sum": Field(4, "double"),
        "sum_squares": Field(5, "double"),
        "bucket_limit": Field(6, "double", True),
        "bucket": Field(7, "double", True),
    }


class SummaryMetadata(Message):
    """Which plugin of TensorBoard shows a value."""

    class PluginData(Message):
        """The plugin's name and its own data."""

        FIELDS: ClassVar[Fields] = {"plugin_name": Field(1, "string"), "content": Field(2, "bytes")}

    FIELDS: ClassVar[Fields] = {
        "plugin_data": Field(1, PluginData),
        "display_name": Field(2, "string"),
        "summary_description": Field(3, "string"),
    }


class Summary(Message):
    """Values by tag, as `FileWriter.add_summary` takes them."""

    class Image(Message):
        """An encoded image."""

        FIELDS: ClassVar[Fields] = {
            "height": Field(1, "int32"),
            "width": Field(2, "int32"),
            "colorspace": Field(3, "int32"),
            "encoded_image_string": Field(4, "bytes"),
        }

    class Audio(Message):
        """Encoded sound."""

        FIELDS: ClassVar[Fields] = {
            "sample_rate": Field(1, "float"),
            "num_channels": Field(2, "int64"),
            "length_frames": Field(3, "int64"),
            "encoded_audio_string": Field(4, "bytes"),
            "content_type": Field(5, "string"),
        }

    class Value(Message):
        """One value and its tag."""

        FIELDS: ClassVar[Fields] = {}

    FIELDS: ClassVar[Fields] = {"value": Field(1, Value, True)}


Summary.Value.FIELDS = {
    "tag": Field(1, "string"),
    "simple_value": Field(2, "float", oneof="value"),
    "obsolete_old_style_histogram": Field(3, "bytes", oneof="value"),
    "image": Field(4, Summary.Image, oneof="value"),
    "histo": Field(5, HistogramProto, oneof="value"),
    "audio": Field(6, Summary.Audio, oneof="value"),
    "node_name": Field(7, "string"),
    "tensor": Field(8, TensorProto, oneof="value"),
    "metadata": Field(9, SummaryMetadata),
}


class LogMessage(Message):
    """A line of a log."""

    UNKNOWN, DEBUGGING, INFO, WARN, ERROR, FATAL = 0, 10, 20, 30, 40, 50
    FIELDS: ClassVar[Fields] = {"level": Field(1, "enum"), "message": Field(2, "string")}


class SessionLog(Message):
    """A session's start, stop or checkpoint."""

    STATUS_UNSPECIFIED, START, STOP, CHECKPOINT = range(4)
    FIELDS: ClassVar[Fields] = {
        "status": Field(1, "enum"),
        "checkpoint_path": Field(2, "string"),
        "msg": Field(3, "string"),
    }


class TaggedRunMetadata(Message):
    """What was recorded of a run."""

    FIELDS: ClassVar[Fields] = {"tag": Field(1, "string"), "run_metadata": Field(2, "bytes")}


class Event(Message):
    """An entry of an event file."""

    FIELDS: ClassVar[Fields] = {
        "wall_time": Field(1, "double"),
        "step": Field(2, "int64"),
        "file_version": Field(3, "string", oneof="what"),
        "graph_def": Field(4, "bytes", oneof="what"),
        "summary": Field(5, Summary, oneof="what"),
        "log_message": Field(6, LogMessage, oneof="what"),
        "session_log": Field(7, SessionLog, oneof="what"),
        "tagged_run_metadata": Field(8, TaggedRunMetadata, oneof="what"),
        "meta_graph_def": Field(9, "bytes", oneof="what"),
    }


class BytesList(Message):
    """Texts of a feature."""

    FIELDS: ClassVar[Fields] = {"value": Field(1, "bytes", True)}


class FloatList(Message):
    """Numbers of a feature."""

    FIELDS: ClassVar[Fields] = {"value": Field(1, "float", True)}


class Int64List(Message):
    """Whole numbers of a feature."""

    FIELDS: ClassVar[Fields] = {"value": Field(1, "int64", True)}


class Feature(Message):
    """One feature of an example: a list of one of three kinds."""

    FIELDS: ClassVar[Fields] = {
        "bytes_list": Field(1, BytesList, oneof="kind"),
        "float_list": Field(2, FloatList, oneof="kind"),
        "int64_list": Field(3, Int64List, oneof="kind"),
    }


class Features(Message):
    """Features by name."""

    FIELDS: ClassVar[Fields] = {"feature": Field(1, Feature, keys="string")}


class FeatureList(Message):
    """A feature at every step of a sequence."""

    FIELDS: ClassVar[Fields] = {"feature": Field(1, Feature, True)}


class FeatureLists(Message):
    """Features of a sequence by name."""

    FIELDS: ClassVar[Fields] = {"feature_list": Field(1, FeatureList, keys="string")}


class Example(Message):
    """A record of a TFRecord file."""

    FIELDS: ClassVar[Fields] = {"features": Field(1, Features)}


class SequenceExample(Message):
    """A record of a TFRecord file with features at every step."""

    FIELDS: ClassVar[Fields] = {"context": Field(1, Features), "feature_lists": Field(2, FeatureLists)}


class CheckpointState(Message):
    """Which checkpoints a folder has."""

    FIELDS: ClassVar[Fields] = {
        "model_checkpoint_path": Field(1, "string"),
        "all_model_checkpoint_paths": Field(2, "string", True),
        "all_model_checkpoint_timestamps": Field(3, "double", True),
        "last_preserved_timestamp": Field(4, "double"),
    }


class SaverDef(Message):
    """A saver's settings."""

    LEGACY, V1, V2 = range(3)
    FIELDS: ClassVar[Fields] = {
        "filename_tensor_name": Field(1, "string"),
        "save_tensor_name": Field(2, "string"),
        "restore_op_name": Field(3, "string"),
        "max_to_keep": Field(4, "int32"),
        "sharded": Field(5, "bool"),
        "keep_checkpoint_every_n_hours": Field(6, "float"),
        "version": Field(7, "enum"),
    }
