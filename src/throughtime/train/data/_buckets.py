"""Batches of sequences of like length: little padding, shuffled, the same again for the same seed, shared fairly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from throughtime._errors import check_callable, check_flag, check_number, check_positive_int, problem
from throughtime._text import plural
from throughtime.train._distributed import this_worker
from throughtime.train.data._batches import Batch, pad


class Buckets(Sampler[list[int]]):
    """Batches of indices whose sequences have about the same length: a `batch_sampler` for torch's `DataLoader`.

    Each epoch sorts by length, cuts batches, and shuffles those. Lengths are compared with noise, of up to one step and
    `jitter` times themselves: sequences meet others in every epoch, and little padding is left. With `jitter=0` there
    is none. The order depends on `seed` and the epoch alone. `batch_size` is the most rows a batch has; all batches
    are of equal size, give or take one.

    With several `workers` (by default those of `torch.distributed`), each takes its part of every batch, dealt out so
    that all have about the same number of steps to do. So `batch_size` is that of all workers together, and another
    number of workers sees the same batches. `fit` and `evaluate` also take batches with fewer rows than there are
    workers, by `lend`.

    >>> import throughtime as tt
    >>> batches = tt.train.Buckets([5, 1, 5, 2, 1, 4], batch_size=2, shuffle=False)
    >>> list(batches)
    [[4, 1], [3, 5], [2, 0]]
    >>> round(batches.padding, 2)
    0.1
    """

    def __init__(
        self,
        lengths: Sequence[int] | torch.Tensor,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        jitter: float = 0.1,
        rank: int | None = None,
        workers: int | None = None,
    ) -> None:
        self.lengths = _check_lengths(lengths)
        self.batch_size = check_positive_int("batch_size", batch_size)
        self.shuffle = check_flag("shuffle", shuffle)
        self.seed = check_positive_int("seed", seed, minimum=0)
        self.jitter = check_number("jitter", jitter, minimum=0)
        here = this_worker()
        self.workers = here.size if workers is None else check_positive_int("workers", workers)
        self.rank = here.rank if rank is None else check_positive_int("rank", rank, minimum=0)
        self._epoch, self._start, self._lends = 0, 0, False
        if self.rank >= self.workers:
            fix = "Count from 0."
            raise ValueError(
                problem("`rank` is no worker", got=self.rank, expected=f"below workers={self.workers}", fix=fix)
            )

    def set_epoch(self, epoch: int) -> None:
        """Order everything anew, as in this epoch of every run with the same seed."""
        self._epoch = check_positive_int("epoch", epoch, minimum=0)

    def skip(self, batches: int) -> None:
        """Let the next iteration begin after a number of batches, where a run was interrupted."""
        self._start = check_positive_int("batches", batches, minimum=0)

    def lend(self) -> list[bool]:
        """Let the next iteration give a worker for which no row is left one that another has: in which of its batches.

        Such a batch must not be counted, so an iteration refuses it unless this was called before.
        """
        self._lends = True
        if self._fewest >= self.workers:
            return []
        return [self.rank >= len(batch) for batch in self._batches()[self._start :]]

    def __len__(self) -> int:
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        (start, lends), self._start, self._lends = (self._start, self._lends), 0, False
        if not lends and self._fewest < self.workers:
            what, fix = "a batch has fewer rows than there are workers", "Raise `batch_size`, or use fewer workers."
            got = plural(self._fewest, "row")
            raise ValueError(problem(what, got=got, expected=f"at least {self.workers}", fix=fix))
        for batch in self._batches()[start:]:
            yield self._share(batch).tolist()

    @property
    def padding(self) -> float:
        """The share of all steps of this epoch's batches that are padding."""
        return self._padding(self._batches())

    @property
    def padding_at_random(self) -> float:
        """The same, if sequences met by chance alone."""
        return self._padding(np.array_split(np.random.default_rng(self.seed).permutation(len(self.lengths)), len(self)))

    @property
    def _fewest(self) -> int:
        """The rows of the smallest batch."""
        return len(self.lengths) // len(self)

    def _padding(self, batches: list[np.ndarray]) -> float:
        padded = sum(int(self.lengths[batch].max()) * len(batch) for batch in batches)
        return 1 - int(self.lengths.sum()) / padded if padded else 0.0

    def _batches(self) -> list[np.ndarray]:
        """This epoch's batches, for all workers together."""
        random = np.random.default_rng([self.seed, self._epoch])
        reach = 1 + self.jitter * self.lengths if self.jitter and self.shuffle else 0
        noisy = self.lengths + reach * random.uniform(-1, 1, len(self.lengths))
        # Equal lengths are mixed in any case: data often comes sorted by class.
        order = random.permutation(len(self.lengths))
        by_length = order[np.argsort(noisy[order], kind="stable")]
        batches = np.array_split(by_length, len(self))
        return [batches[index] for index in random.permutation(len(batches))] if self.shuffle else batches

    def _share(self, batch: np.ndarray) -> np.ndarray:
        """This worker's part: dealt out like cards, there and back, longest first, so that the sums come out even."""
        if self.workers == 1:
            return batch
        longest_first = batch[np.argsort(-self.lengths[batch], kind="stable")]
        if self.rank >= len(batch):
            return longest_first[-1:]
        places = np.arange(len(batch)) % (2 * self.workers)
        mine = np.minimum(places, 2 * self.workers - 1 - places) == self.rank
        return np.asarray(longest_first[mine])


def filler_from(batches: Any) -> Iterator[bool]:
    """Whether each batch of the next iteration is lent; only `Buckets` does that."""
    sampler = getattr(batches, "batch_sampler", None)
    return itertools.chain(sampler.lend() if isinstance(sampler, Buckets) else (), itertools.repeat(False))


def _check_lengths(lengths: Any) -> np.ndarray:
    found = np.asarray(lengths)
    if found.ndim != 1 or not found.size or not np.issubdtype(found.dtype, np.integer) or found.min() < 0:
        got = f"shape {found.shape} of {found.dtype}" + (f", down to {found.min()}" if found.size else "")
        expected, fix = "whole numbers of at least 0, one a sequence", "Pass `[len(x) for x in sequences]`."
        raise ValueError(problem("`lengths` are no lengths", got=got, expected=expected, fix=fix))
    return found.astype(np.int64)


def loader(  # noqa: PLR0913 (public)
    examples: Sequence[Any],
    batch_size: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    lengths: Sequence[int] | torch.Tensor | None = None,
    collate_fn: Callable[[Sequence[Any]], Batch] = pad,
    num_workers: int = 0,
    rank: int | None = None,
    workers: int | None = None,
) -> DataLoader[Batch]:
    """torch's `DataLoader` over `examples`, with `Buckets` to choose the batches and `pad` to make them.

    An example is what `pad` takes, or what a `collate_fn` of your own makes batches of. `lengths` saves reading all
    examples once to learn how long they are.

    >>> import torch, throughtime as tt
    >>> examples = [(torch.ones(length, 2), length % 2) for length in [3, 7, 4, 6, 3, 7]]
    >>> batches = tt.train.loader(examples, batch_size=2, shuffle=False)
    >>> [batch.inputs.shape[1] for batch in batches]
    [3, 6, 7]
    """
    if not len(examples):
        what, fix = "`examples` are empty", "Check that the data is there."
        raise ValueError(problem(what, got="none", expected="at least one", fix=fix))
    if lengths is None:
        lengths = [len(example[0] if isinstance(example, tuple | list) else example) for example in examples]
    if len(lengths) != len(examples):
        fix = "Pass one length for each example."
        raise ValueError(problem("`lengths` do not fit", got=len(lengths), expected=len(examples), fix=fix))
    buckets = Buckets(lengths, batch_size, shuffle=shuffle, seed=seed, rank=rank, workers=workers)
    # A generator of its own: what the loader draws for its processes leaves the model's random numbers alone.
    own = torch.Generator().manual_seed(seed)
    check_callable("collate_fn", collate_fn, expected="a function", fix="Leave it out for tt.train.pad.")
    return DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=buckets,
        collate_fn=collate_fn,
        num_workers=num_workers,
        generator=own,
    )
