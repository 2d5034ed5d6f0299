"""Values as summaries hold them: histograms with TensorFlow's buckets, PNG images, WAV sound, texts."""

from __future__ import annotations

import io
import struct
import sys
import wave
import zlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughtime._errors import problem
from throughtime.tf1._errors import InvalidArgumentError
from throughtime.tf1.protos import HistogramProto, Summary, SummaryMetadata, TensorProto, TensorShapeProto

_STRING = 7
# Colours of images by channels: PNG's number for grey, grey with alpha, RGB, RGBA.
_PNG_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}


@cache
def _limits() -> NDArray[np.float64]:
    """TensorFlow's bucket limits: from 1e-12 to 1e20 in steps of ten percent, both signs, and zero."""
    steps, limit = [], 1e-12
    while limit < 1e20:
        steps.append(limit)
        limit *= 1.1
    above = [*steps, sys.float_info.max]
    return np.array([*(-value for value in reversed(above)), 0.0, *above])


def histogram(values: Any) -> HistogramProto:
    """The histogram of all numbers; runs of empty buckets are one bucket."""
    numbers = np.asarray(values, np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        what, fix = "a histogram of values that are not finite", "Look for the operation that made them."
        raise InvalidArgumentError(None, None, problem(what, got="NaN or Inf", expected="finite numbers", fix=fix))
    limits = _limits()
    counts = np.bincount(np.searchsorted(limits, numbers, side="right"), minlength=len(limits)).astype(float)
    ends, totals = _without_empty_runs(limits, counts)
    largest = sys.float_info.max
    return HistogramProto(
        min=numbers.min() if numbers.size else largest,
        max=numbers.max() if numbers.size else -largest,
        num=float(numbers.size),
        sum=_sum(numbers),
        sum_squares=_sum(numbers * numbers),
        bucket_limit=ends,
        bucket=totals,
    )


def _sum(numbers: NDArray[np.float64]) -> float:
    """The sum from first to last, as TensorFlow adds; numpy's own sum adds in pairs."""
    return float(np.cumsum(numbers)[-1]) if numbers.size else 0.0


def _without_empty_runs(limits: NDArray[np.float64], counts: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """The limits and counts of buckets that hold something, and one empty bucket for each run of empty ones."""
    is_empty = counts <= 0
    # Of a run of empty buckets the last one stays: its limit is where the next bucket begins.
    stays = ~is_empty | np.append(is_empty[:-1] & ~is_empty[1:], is_empty[-1])
    return limits[stays].tolist(), counts[stays].tolist()


def png(image: NDArray[np.uint8]) -> bytes:
    """An image [height, width, channels] as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOURS[channels], 0, 0, 0)
    # Every row begins with the number of its filter: none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], 1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, data) for kind, data in chunks)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def image_bytes(image: NDArray[Any]) -> NDArray[np.uint8]:
    """An image of floats scaled to bytes as TensorFlow does; one of bytes as it is.

    Without negative values the largest becomes 255. With negative ones zero becomes 127 and the largest magnitude is
    scaled to the range. Values that are not finite become red.
    """
    if image.dtype == np.uint8:
        return image
    finite = np.isfinite(image).all(-1)
    valid = image[finite]
    low, high = (float(valid.min()), float(valid.max())) if valid.size else (0.0, 0.0)
    if low < 0:
        magnitude = max(abs(low), abs(high))
        scale, offset = (0.0 if magnitude < 1e-6 else 127.0 / magnitude), 128.0
    else:
        scale, offset = (0.0 if high < 1e-6 else 255.0 / high), 0.0
    found: NDArray[np.uint8] = np.zeros(image.shape, np.uint8)
    found[finite] = (valid * np.float32(scale) + np.float32(offset)).astype(np.uint8)
    found[~finite] = np.array([255, 0, 0, 255][: image.shape[-1]], np.uint8)
    return found


def sound(samples: NDArray[Any], sample_rate: float) -> Summary.Audio:
    """Samples [frames, channels] in [-1, 1] as a WAV file of 16 bits."""
    frames, channels = samples.shape
    numbers = np.clip(np.round(samples * 32767), -32768, 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(int(sample_rate))
        file.writeframes(numbers.tobytes())
    return Summary.Audio(
        sample_rate=sample_rate,
        num_channels=channels,
        length_frames=frames,
        encoded_audio_string=buffer.getvalue(),
        content_type="audio/wav",
    )


def texts(value: Any) -> TensorProto:
    """Texts of any shape."""
    array = np.asarray(value, object)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=side) for side in array.shape])
    strings = [each if isinstance(each, bytes) else str(each).encode() for each in array.reshape(-1)]
    return TensorProto(dtype=_STRING, tensor_shape=shape, string_val=strings)


TEXT_PLUGIN = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
