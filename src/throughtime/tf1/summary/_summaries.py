"""`tf.summary`: operations that encode values for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from throughtime._errors import problem
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import string
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.protos import Summary, TensorProto, TensorShapeProto
from throughtime.tf1.summary import _encoders as encoders

_WRONG = re.compile(r"[^-/\w.]")


def _clean(name: str) -> str:
    """A tag without the characters that TensorBoard does not take."""
    return _WRONG.sub("_", name).lstrip("/")


def array_of(value: Any) -> Any:
    """A value of a run as a numpy array."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _summary(
    op_type: str,
    name: str,
    inputs: list[Any],
    values: Callable[..., Iterator[Any]],
    collections: Any,
    family: str | None,
) -> Any:
    """An operation that encodes `values(tag, *arrays)`; its tag is its own name."""
    graph = get_default_graph()
    clean = _clean(name)
    with graph.name_scope(f"{_clean(family)}/{clean}" if family else clean) as scope:
        tag = scope.rstrip("/")
        tag = f"{_clean(family)}/{tag}" if family else tag
        tensors = [convert_to_tensor(each) for each in inputs]

        def kernel(*arrays: Any) -> Any:
            found = Summary(value=values(tag, *map(array_of, arrays))).SerializeToString()
            return _scalar(found)

        op = create_op(op_type, kernel, tensors, name=scope, dtypes=[string], shapes=[()], differentiable=False)
    graph.add_to_collections([GraphKeys.SUMMARIES] if collections is None else collections, op.outputs[0])
    return op.outputs[0]


def _scalar(data: bytes) -> Any:
    found = np.empty((), object)
    found[()] = data
    return found


@exported("summary.scalar", "contrib.deprecated.scalar_summary_v2")
def scalar(name: str, tensor: Any, collections: Any = None, family: str | None = None) -> Any:
    """A number under a tag."""

    def values(tag: str, array: Any) -> Iterator[Any]:
        if array.size != 1:
            what, fix = f"the summary {tag!r} is not a scalar", "Reduce it, as with tf.reduce_mean."
            raise ValueError(problem(what, got=f"shape {array.shape}", expected="one number", fix=fix))
        yield Summary.Value(tag=tag, simple_value=float(array.reshape(())))

    return _summary("ScalarSummary", name, [tensor], values, collections, family)


@exported("summary.histogram")
def histogram(name: str, values: Any, collections: Any = None, family: str | None = None) -> Any:
    """The distribution of numbers."""

    def encoded(tag: str, array: Any) -> Iterator[Any]:
        yield Summary.Value(tag=tag, histo=encoders.histogram(array))

    return _summary("HistogramSummary", name, [values], encoded, collections, family)


@exported("summary.image")
def image(name: str, tensor: Any, max_outputs: int = 3, collections: Any = None, family: str | None = None) -> Any:
    """Images [batch, height, width, channels] of 1, 3 or 4 channels."""

    def values(tag: str, array: Any) -> Iterator[Any]:
        for number, each in enumerate(array[:max_outputs]):
            bytes_ = encoders.image_bytes(each)
            height, width, channels = bytes_.shape
            encoded = Summary.Image(
                height=height, width=width, colorspace=channels, encoded_image_string=encoders.png(bytes_)
            )
            yield Summary.Value(tag=_numbered(tag, "image", number, max_outputs), image=encoded)

    return _summary("ImageSummary", name, [tensor], values, collections, family)


def _numbered(tag: str, kind: str, number: int, most: int) -> str:
    return f"{tag}/{kind}" if most == 1 else f"{tag}/{kind}/{number}"


@exported("summary.audio")
def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int = 3, collections: Any = None, family: str | None = None
) -> Any:
    """Sounds [batch, frames] or [batch, frames, channels] with samples in [-1, 1]."""

    def values(tag: str, array: Any, rate: Any) -> Iterator[Any]:
        for number, each in enumerate(array[:max_outputs]):
            encoded = encoders.sound(each.reshape(len(each), -1), float(rate))
            yield Summary.Value(tag=_numbered(tag, "audio", number, max_outputs), audio=encoded)

    rate = convert_to_tensor(sample_rate, preferred_dtype="float32")
    return _summary("AudioSummaryV2", name, [tensor, rate], values, collections, family)


@exported("summary.text")
def text(name: str, tensor: Any, collections: Any = None) -> Any:
    """Texts; TensorBoard shows them as Markdown."""

    def values(tag: str, array: Any) -> Iterator[Any]:
        yield Summary.Value(tag=tag, metadata=encoders.TEXT_PLUGIN, tensor=encoders.texts(array))

    return _summary("TensorSummaryV2", name, [tensor], values, collections, None)


@exported("summary.tensor_summary")
def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: Any = None,
    collections: Any = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: Any = None,
) -> Any:
    """A tensor as it is."""
    dtype = convert_to_tensor(tensor).dtype.as_datatype_enum
    del summary_description, display_name

    def values(tag: str, array: Any) -> Iterator[Any]:
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=side) for side in array.shape])
        content = TensorProto(dtype=dtype, tensor_shape=shape, tensor_content=array.tobytes())
        stored = encoders.texts(array) if array.dtype == object else content
        yield Summary.Value(tag=tag, tensor=stored, metadata=summary_metadata)

    return _summary("TensorSummaryV2", name, [tensor], values, collections, family)


@exported("summary.merge", "merge_summary", "contrib.deprecated.merge_summary")
def merge(inputs: Any, collections: Any = None, name: str | None = None) -> Any:
    """One summary of several."""
    tensors = [convert_to_tensor(each) for each in inputs]

    def kernel(*parts: Any) -> Any:
        # A message that follows another adds its values.
        return _scalar(b"".join(bytes(np.asarray(part, object).item()) for part in parts))

    op = create_op(
        "MergeSummary",
        kernel,
        tensors,
        name=name or "Merge/MergeSummary",
        dtypes=[string],
        shapes=[()],
        differentiable=False,
    )
    get_default_graph().add_to_collections(collections or [], op.outputs[0])
    return op.outputs[0]


@exported("summary.merge_all", "merge_all_summaries", "contrib.deprecated.merge_all_summaries")
def merge_all(key: Any = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None) -> Any:
    """One summary of all in a collection; None if there are none."""
    found = get_default_graph().get_collection(key, scope)
    return merge(found, name=name) if found else None


@exported("scalar_summary", "contrib.deprecated.scalar_summary")
def scalar_summary(tags: Any, values: Any, collections: Any = None, name: str | None = None) -> Any:
    """`summary.scalar` of old releases: the tag is written as it is, or each of several tags."""
    del name

    def encoded(_: str, array: Any) -> Iterator[Any]:
        wanted = np.asarray(tags, object).reshape(-1)
        for tag, number in zip(wanted, array.reshape(-1), strict=True):
            yield Summary.Value(tag=tag, simple_value=float(number))

    return _summary("ScalarSummary", "ScalarSummary", [values], encoded, collections, None)


@exported("histogram_summary", "contrib.deprecated.histogram_summary")
def histogram_summary(tag: str, values: Any, collections: Any = None, name: str | None = None) -> Any:
    """`summary.histogram` of old releases: the tag is written as it is."""
    del name

    def encoded(_: str, array: Any) -> Iterator[Any]:
        yield Summary.Value(tag=tag, histo=encoders.histogram(array))

    return _summary("HistogramSummary", "HistogramSummary", [values], encoded, collections, None)


@exported("image_summary", "contrib.deprecated.image_summary")
def image_summary(tag: str, tensor: Any, max_images: int = 3, collections: Any = None, name: str | None = None) -> Any:
    """`summary.image` of old releases."""
    del name
    return image(tag, tensor, max_images, collections)
