"""Candidate samplers: classes drawn as negatives, with TensorFlow's very numbers for given seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._dtypes import float32, int32, int64
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.random._draw import as_tensor, draw
from throughtime.tf1.random._philox import PhiloxStream

_WORDS = 2048
"""Words that a run reserves for each sample."""


class _Sampler(Protocol):
    """A distribution over classes."""

    def sample(self, words: Iterator[int]) -> int:
        """One class."""

    def probability(self, value: int) -> float:
        """The probability of a class."""


def _words(stream: PhiloxStream, samples: int) -> Iterator[int]:
    first = stream.reserve(_WORDS * samples // 4)
    block = 0
    while True:
        yield from stream.blocks(first + block, 64).reshape(-1).tolist()
        block += 64


def _uniform_double(words: Iterator[int]) -> float:
    high, low = next(words), next(words)
    bits = np.array([1023 << 52 | (high & 0xFFFFF) << 32 | low], np.uint64)
    return float(bits.view(np.float64)[0]) - 1.0


def _below(limit: int, draw_one: Callable[[], int], bits: int) -> int:
    """A whole number below `limit`, without bias: draws that would give some numbers an advantage are repeated."""
    if limit & (limit - 1) == 0:
        return draw_one() & (limit - 1)
    rest = ((1 << bits) - 1) % limit + 1
    number = draw_one()
    while number < rest:
        number = draw_one()
    return number % limit


def _below_32(words: Iterator[int], limit: int) -> int:
    return _below(limit, lambda: next(words), 32)


class _Uniform:
    def __init__(self, count: int):
        self.count = count

    def sample(self, words: Iterator[int]) -> int:
        return _below(self.count, lambda: next(words) | next(words) << 32, 64)

    def probability(self, value: int) -> float:
        return 1 / self.count


class _LogUniform:
    """Probabilities that fall like those of words sorted by frequency (Zipf)."""

    def __init__(self, count: int):
        self.count = count
        self.log_range = math.log1p(count)

    def sample(self, words: Iterator[int]) -> int:
        value = int(math.exp(_uniform_double(words) * self.log_range)) - 1
        return value % self.count

    def probability(self, value: int) -> float:
        return math.log((value + 2) / (value + 1)) / self.log_range


class _Learned:
    """Probabilities in proportion to how often classes occurred so far, one more each."""

    def __init__(self, count: int):
        self.weights = [1] * count

    def sample(self, words: Iterator[int]) -> int:
        target = _below_32(words, sum(self.weights))
        return int(np.searchsorted(np.cumsum(self.weights), target, side="right"))

    def probability(self, value: int) -> float:
        return self.weights[value] / sum(self.weights)


class _Fixed:
    """Given probabilities: Walker's alias method."""

    def __init__(self, weights: list[float]):
        self.weights = weights
        self.total = sum(weights)
        self.share, self.other = self._table([weight * len(weights) / self.total for weight in weights])

    @staticmethod
    def _table(share: list[float]) -> tuple[list[float], list[int]]:
        other = list(range(len(share)))
        low = [place for place, one in enumerate(share) if one < 1]
        high = [place for place, one in enumerate(share) if one >= 1]
        while low and high:
            small, large = low.pop(), high.pop()
            other[small] = large
            share[large] -= 1 - share[small]
            (low if share[large] < 1 else high).append(large)
        for place in [*low, *high]:
            share[place], other[place] = 1.0, place
        return share, other

    def sample(self, words: Iterator[int]) -> int:
        chance = float(np.array([next(words) & 0x7FFFFF | 127 << 23], np.uint32).view(np.float32)[0]) - 1
        place = _below_32(words, len(self.share))
        return place if chance < np.float32(self.share[place]) else self.other[place]

    def probability(self, value: int) -> float:
        return self.weights[value] / self.total


def _drawn(sampler: _Sampler, words: Iterator[int], count: int, unique: bool) -> tuple[list[int], int]:
    """The classes, and the number of tries that they took."""
    if not unique:
        return [sampler.sample(words) for _ in range(count)], count
    found: dict[int, None] = {}
    tries = 0
    while len(found) < count:
        tries += 1
        found.setdefault(sampler.sample(words))
    return list(found), tries


def _expected(probability: float, count: int, tries: int) -> float:
    """How often a class is expected among the samples."""
    return probability * count if tries == count else -math.expm1(tries * math.log1p(-probability))


def _sampler(name: str, make: Callable[..., _Sampler], learns: bool = False) -> None:
    def function(
        true_classes: Any,
        num_true: int,
        num_sampled: int,
        unique: bool,
        range_max: int,
        seed: int | None = None,
        name: str | None = None,
    ) -> Any:
        return _node(
            op_name, lambda: make(range_max), (true_classes, num_true, num_sampled, unique), seed, name, learns
        )

    op_name = "".join(part.title() for part in name.split("_")[:-2]) + "CandidateSampler"
    function.__doc__ = "Classes drawn as negatives, and how often true and drawn classes are expected among them."
    for space in ("nn", "random"):
        export(f"{space}.{name}", function)


def _node(
    op_name: str,
    make: Callable[[], _Sampler],
    arguments: tuple[Any, int, int, bool],
    seed: int | None,
    name: str | None,
    learns: bool,
) -> Any:
    true_classes, num_true, count, unique = arguments
    classes = convert_to_tensor(true_classes, int64)
    rows = None if classes.shape.sizes is None else classes.shape.sizes[0]
    learned: list[_Sampler] = []

    def kernel(stream: PhiloxStream, given: torch.Tensor) -> Any:
        sampler = learned[0] if learned else make()
        if learns and not learned:
            learned.append(sampler)
        sampled, tries = _drawn(sampler, _words(stream, count), count, unique)
        own = [[_expected(sampler.probability(one), count, tries) for one in row] for row in given.tolist()]
        others = [_expected(sampler.probability(one), count, tries) for one in sampled]
        if learns:
            _learn(sampler, given.reshape(-1).tolist())
        return (
            as_tensor(np.array(sampled, np.int64)),
            torch.tensor(own, dtype=torch.float32),
            torch.tensor(others, dtype=torch.float32),
        )

    return draw(
        op_name,
        kernel,
        [classes],
        seed=seed,
        name=name or op_name,
        dtypes=[int64, float32, float32],
        shapes=[(count,), (rows, num_true), (count,)],
    )


def _learn(sampler: Any, classes: list[int]) -> None:
    for one in classes:
        sampler.weights[one] += 1


_sampler("uniform_candidate_sampler", _Uniform)
_sampler("log_uniform_candidate_sampler", _LogUniform)
_sampler("learned_unigram_candidate_sampler", _Learned, learns=True)


@exported("nn.fixed_unigram_candidate_sampler", "random.fixed_unigram_candidate_sampler")
def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Classes drawn with probabilities in proportion to `unigrams ** distortion`."""
    if vocab_file or num_shards != 1:
        raise NotImplementedError(
            "tf.nn.fixed_unigram_candidate_sampler: give `unigrams`; files and shards are not supported"
        )
    weights = [0.0] * num_reserved_ids + [float(one) ** distortion for one in unigrams]
    make = lambda: _Fixed(weights)  # noqa: E731
    return _node(
        "FixedUnigramCandidateSampler", make, (true_classes, num_true, num_sampled, unique), seed, name, learns=False
    )


@exported("nn.all_candidate_sampler", "random.all_candidate_sampler")
def all_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: int | None = None, name: str | None = None
) -> Any:
    """All classes, each expected once."""
    classes = convert_to_tensor(true_classes, int64)

    def kernel(given: torch.Tensor) -> Any:
        return torch.arange(num_sampled), torch.ones_like(given, dtype=torch.float32), torch.ones(num_sampled)

    return tuple(
        create_op(
            "AllCandidateSampler",
            kernel,
            [classes],
            name=name,
            dtypes=[int64, float32, float32],
            shapes=[(num_sampled,), classes.shape, (num_sampled,)],
        ).outputs
    )


@exported("nn.compute_accidental_hits")
def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None, name: str | None = None
) -> Any:
    """Where drawn classes are true ones: rows, places among the samples, and a weight of minus infinity."""
    inputs = [convert_to_tensor(true_classes, int64), convert_to_tensor(sampled_candidates, int64)]

    def kernel(true: torch.Tensor, sampled: torch.Tensor) -> Any:
        hits = torch.nonzero((true.unsqueeze(2) == sampled).any(1))
        weights = torch.full((len(hits),), -torch.finfo(torch.float32).max)
        return hits[:, 0].to(torch.int32), hits[:, 1], weights

    return tuple(
        create_op(
            "ComputeAccidentalHits",
            kernel,
            inputs,
            name=name,
            dtypes=[int32, int64, float32],
            shapes=[(None,), (None,), (None,)],
        ).outputs
    )
