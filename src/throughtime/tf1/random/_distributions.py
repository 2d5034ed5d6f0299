"""Distributions on Philox blocks, bit for bit as TensorFlow's CPU kernels draw them.

A float32 distribution takes one word for each number, a float64 or int64 one takes two. The numbers of a run fill
groups: group `g` is drawn from the block at position `g`. Where the words that a group needs vary (the truncated normal
rejects numbers), groups are so far apart that they cannot overlap: 256 words for each number of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughtime.native.libm import libm
from throughtime.tf1.random._philox import PhiloxStream, Words

Array = NDArray[Any]

RESERVED = 256
"""Positions that a run reserves for each number, and words that a number of varying cost may take."""
_TRUNCATION = 2.0
_SMALLEST_UNIFORM = 1e-7


def uniform(stream: PhiloxStream, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Numbers in [0, 1)."""
    return _fill(stream, shape, _per_block(dtype), lambda words: _unit(words, dtype))


def normal(stream: PhiloxStream, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Numbers of the standard normal distribution."""
    return _fill(stream, shape, _per_block(dtype), lambda words: _box_muller(words, dtype))


def integers(stream: PhiloxStream, shape: tuple[int, ...], low: int, high: int, dtype: str = "int32") -> Array:
    """Whole numbers in [low, high): the remainder of a word, as biased as TensorFlow's."""
    return _fill(stream, shape, _per_block(dtype), lambda words: _remainders(words, low, high, dtype))


def truncated_normal(stream: PhiloxStream, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Numbers of the standard normal distribution; those beyond two deviations are drawn once more."""
    count, group = math.prod(shape), _per_block(dtype)
    groups = -(-count // group)
    first = stream.reserve(count * RESERVED)
    stride = np.uint64(group * RESERVED // 4)
    positions = np.uint64(first) + np.arange(groups, dtype=np.uint64) * stride
    wide = "float64" if dtype == "float64" else "float32"
    result = np.zeros((groups, group), _of(wide))
    filled = np.zeros(groups, np.int64)
    pending = np.arange(groups)
    while len(pending):
        drawn = _box_muller(stream.blocks_at(positions[pending]), wide)
        _append_accepted(result, filled, pending, drawn)
        positions[pending] += np.uint64(1)
        pending = pending[filled[pending] < group]
    return result.reshape(-1)[:count].reshape(shape).astype(_of(dtype))


def _append_accepted(result: Array, filled: Array, pending: Array, drawn: Array) -> None:
    """Append the numbers of each pending group that are not truncated, up to the size of a group."""
    for column in range(drawn.shape[1]):
        numbers = drawn[:, column]
        accepted = (np.abs(numbers) < _TRUNCATION) & (filled[pending] < result.shape[1])
        rows = pending[accepted]
        result[rows, filled[rows]] = numbers[accepted]
        filled[rows] += 1


def permutation(stream: PhiloxStream, count: int) -> Array:
    """A permutation of `range(count)`: Fisher and Yates from the front."""
    order = list(range(count))
    if count > 1:
        first = stream.reserve((count - 1 + 3) // 4)
        words = stream.blocks(first, (count - 1 + 3) // 4).reshape(-1)[: count - 1]
        offsets = words % np.arange(count, 1, -1, dtype=np.uint32)
        for place, offset in enumerate(offsets.tolist()):
            order[place], order[place + offset] = order[place + offset], order[place]
    return np.array(order, np.int64)


def categorical(stream: PhiloxStream, logits: Array, samples: int) -> Array:
    """Classes `[batch, samples]` drawn with probabilities `softmax(logits)`, by inversion of the cumulated sum.

    TensorFlow splits a large batch among threads and skips positions between them; these are its numbers on one thread.
    """
    batch = logits.shape[0]
    # Two words for each number, in whole blocks.
    first = stream.reserve(batch * (-(-samples // 4) * 4) * 2 * RESERVED)
    drawn_units = _unit(stream.blocks(first, -(-batch * samples // 2)), "float64").reshape(-1)
    chances = drawn_units[: batch * samples].reshape(batch, samples)
    finite = np.isfinite(logits)
    largest = np.where(finite, logits, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    weights = np.where(finite, np.exp(logits.astype(np.float64) - largest), 0.0)
    sums = np.cumsum(weights, axis=1)
    drawn = [np.searchsorted(row, chance * row[-1], side="right") for row, chance in zip(sums, chances, strict=True)]
    return np.array(drawn, np.int64).reshape(batch, samples)


def gamma(stream: PhiloxStream, samples: int, alpha: Array) -> Array:
    """Numbers `[samples, alphas]` of the gamma distribution (Marsaglia and Tsang, 2000), in float64."""
    return _one_by_one(stream, samples, alpha, _one_gamma)


def poisson(stream: PhiloxStream, samples: int, rates: Array) -> Array:
    """Numbers `[samples, rates]` of the Poisson distribution, in float64 (Knuth; Hörmann from a rate of 10 on)."""
    return _one_by_one(stream, samples, rates, _one_poisson)


def _one_by_one(
    stream: PhiloxStream, samples: int, parameters: Array, draw: Callable[[_Doubles, float], float]
) -> Array:
    """Each number from positions of its own; the numbers of one parameter follow each other."""
    first = stream.reserve(samples * parameters.size * RESERVED)
    result = np.empty((samples, parameters.size))
    for number in range(samples * parameters.size):
        which, sample = divmod(number, samples)
        words = _Doubles(stream, first + number * RESERVED)
        result[sample, which] = draw(words, float(parameters.reshape(-1)[which]))
    return result


class _Doubles:
    """The float64 numbers of one draw: uniform and normal pairs, each pair from the next block, the second first."""

    def __init__(self, stream: PhiloxStream, position: int) -> None:
        self._stream = stream
        self._position = position
        self._left: dict[str, list[float]] = {"uniform": [], "normal": []}

    def next(self, kind: str) -> float:
        """The next number of this kind."""
        left = self._left[kind]
        if not left:
            words = self._stream.blocks(self._position, 1)
            self._position += 1
            pair = _unit(words, "float64") if kind == "uniform" else _box_muller(words, "float64")
            left.extend(pair.reshape(-1).tolist())
        return left.pop()


def _one_gamma(words: _Doubles, alpha: float) -> float:
    if alpha == 1:
        return -math.log(1 - words.next("uniform"))
    d = alpha + (2 / 3 if alpha < 1 else -1 / 3)
    c = 1 / 3 / math.sqrt(d)
    while True:
        x = words.next("normal")
        v = (1 + c * x) ** 3
        if v <= 0:
            continue
        u = words.next("uniform")
        if u < 1 - 0.0331 * (x * x) * (x * x) or math.log(u) < 0.5 * x * x + d * (1 - v + math.log(v)):
            return d * v * (words.next("uniform") ** (1 / alpha) if alpha < 1 else 1)


def _one_poisson(words: _Doubles, rate: float) -> float:
    if rate >= 10:
        return _transformed_rejection(words, rate)
    limit, product, count = math.exp(-rate), 1.0, 0
    while True:
        product *= words.next("uniform")
        if product <= limit:
            return count
        count += 1


def _transformed_rejection(words: _Doubles, rate: float) -> float:
    """Hörmann, "The transformed rejection method for generating Poisson random variables", 1993."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    while True:
        u, v = words.next("uniform") - 0.5, words.next("uniform")
        shifted = 0.5 - abs(u)
        k = math.floor((2 * a / shifted + b) * u + rate + 0.43)
        if shifted >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k < 0 or (shifted < 0.013 and v > shifted):
            continue
        if math.log(v * inverse_alpha / (a / (shifted * shifted) + b)) <= -rate + k * math.log(rate) - math.lgamma(
            k + 1
        ):
            return k


def _fill(stream: PhiloxStream, shape: tuple[int, ...], group: int, draw: Any) -> Array:
    count = math.prod(shape)
    first = stream.reserve(count * RESERVED)
    numbers: Array = draw(stream.blocks(first, -(-count // group)))
    return numbers.reshape(-1)[:count].reshape(shape)


def _per_block(dtype: str) -> int:
    """The numbers that one block gives."""
    return 2 if dtype in {"float64", "int64"} else 4


def _of(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype)


def _long(words: Words) -> NDArray[np.uint64]:
    """64-bit numbers: the first word of a pair is the low half."""
    wide = words.astype(np.uint64).reshape(len(words), -1, 2)
    return wide[..., 0] | wide[..., 1] << np.uint64(32)


def _unit(words: Words, dtype: str) -> Array:
    """Numbers in [0, 1): random mantissas below an exponent of zero, less one."""
    if dtype == "float64":
        bits = _long(words[:, [1, 0, 3, 2]]) & np.uint64((1 << 52) - 1) | np.uint64(1023 << 52)
        return bits.view(np.float64) - 1.0
    if dtype == "float16":
        small = words.astype(np.uint16) & np.uint16(0x3FF) | np.uint16(15 << 10)
        return small.view(np.float16) - np.float16(1)
    return (words & np.uint32(0x7FFFFF) | np.uint32(127 << 23)).view(np.float32) - np.float32(1)


def _box_muller(words: Words, dtype: str) -> Array:
    """Pairs of uniform numbers to pairs of normal ones."""
    wide = dtype == "float64"
    kind: type[np.floating[Any]] = np.float64 if wide else np.float32
    numbers = _unit(words, "float64" if wide else "float32")
    radius = np.sqrt(kind(-2) * libm("log", np.maximum(numbers[:, 0::2], kind(_SMALLEST_UNIFORM))))
    angle = (2 * np.pi * numbers[:, 1::2].astype(np.float64)).astype(kind)
    pairs = np.stack([libm("sin", angle) * radius, libm("cos", angle) * radius], axis=-1)
    return pairs.reshape(numbers.shape).astype(_of(dtype))


def _remainders(words: Words, low: int, high: int, dtype: str) -> Array:
    bits = _long(words) if dtype == "int64" else words
    return (bits % bits.dtype.type(high - low)).astype(_of(dtype)) + _of(dtype).type(low)
