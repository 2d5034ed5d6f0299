"""Batches of sequences: padded, bucketed by length, shuffled reproducibly, shared among workers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

import throughtime as tt
from throughtime.train import Batch, Buckets, loader, pad, streams
from throughtime.train._distributed import Worker
from throughtime.train.data._batches import StandIn, brought, share_of

pytestmark = pytest.mark.covers("training")

LENGTHS = np.random.default_rng(0).integers(1, 100, 1000).tolist()


def test_pad_one_target_for_each_sequence() -> None:
    batch = pad([(torch.ones(3, 2), 4), (np.ones((1, 2), np.float32), torch.tensor(5))])
    assert batch.inputs.tolist() == [[[1, 1]] * 3, [[1, 1], [0, 0], [0, 0]]]
    assert (batch.lengths.tolist(), batch.targets.tolist(), batch.target_lengths) == ([3, 1], [4, 5], None)
    assert (batch.steps, batch.padded_steps) == (4, 6)


def test_pad_targets_of_their_own_length() -> None:
    batch = pad([(torch.ones(2), torch.tensor([7, 8, 9])), (torch.ones(3), torch.tensor([6]))])
    assert (batch.lengths.tolist(), batch.target_lengths.tolist()) == ([2, 3], [3, 1])
    assert batch.targets.tolist() == [[7, 8, 9], [6, 0, 0]]


@pytest.mark.parametrize("lengths", [[3, 1, 2], [2, 2], [0, 0], [0, 4], [5]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("rest", [(), (2,), (2, 3)], ids=str)
def test_pad_is_that_of_torch(lengths: list[int], dtype: torch.dtype, rest: tuple[int, ...]) -> None:
    sequences = [(9 * torch.randn(length, *rest)).to(dtype) for length in lengths]
    batch = pad(sequences)
    assert torch.equal(batch.inputs, pad_sequence(sequences, batch_first=True))
    assert batch.inputs.dtype == dtype
    assert batch.lengths.tolist() == lengths


def test_pad_without_targets() -> None:
    assert pad([torch.ones(2, 3)]).targets is None


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "a batch needs an example: got none"),
        ([(1, 2, 3)], "an example is `inputs`, or a pair of `inputs` and a target: got examples of [3] parts"),
        (
            [torch.ones(2, 3), torch.ones(2, 4)],
            "`inputs` do not fit into one batch: got ['(2, 3) torch.float32', '(2, 4)",
        ),
        ([torch.tensor(1.0)], "`inputs` do not fit into one batch"),
        ([(torch.ones(2), torch.ones(1)), (torch.ones(2), torch.ones(1, 2))], "`targets` do not fit into one batch"),
        ([torch.ones(0), torch.ones(2, 3)], "`inputs` do not fit into one batch"),
        ([torch.ones(2), torch.ones(2, dtype=torch.int64)], "`inputs` do not fit into one batch"),
        ([(torch.ones(2), 1), (torch.ones(2), torch.ones(2))], "`targets` do not fit into one batch"),
        ([(torch.ones(2), "cat")], "an example holds something that is no numbers: got 'cat'"),
    ],
)
def test_what_makes_no_batch(examples: list[Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        pad(examples)


def test_windows_cut_everything_in_the_same_places() -> None:
    batch = pad([(torch.arange(5.0), torch.arange(5)), (torch.arange(2.0), torch.arange(2))])
    windows = list(batch.windows(2))
    assert [window.lengths.tolist() for window in windows] == [[2, 2], [2, 0], [1, 0]]
    assert [window.targets.tolist() for window in windows] == [[[0, 1], [0, 1]], [[2, 3], [0, 0]], [[4], [0]]]
    with pytest.raises(ValueError, match="a batch is cut along time only with a target for each step: got one target"):
        list(pad([(torch.ones(3), 1)]).windows(2))


def test_streams() -> None:
    batch = streams(torch.arange(11), 3)
    assert batch.inputs.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert torch.equal(batch.targets, batch.inputs + 1)
    with pytest.raises(
        ValueError, match="`sequence` is too short for `batch_size` streams: got 3 steps, expected at least 4"
    ):
        streams(torch.arange(3), 3)


def test_every_sequence_once_an_epoch_in_batches_of_like_size() -> None:
    buckets = Buckets(LENGTHS, 32)
    for epoch in range(3):
        buckets.set_epoch(epoch)
        batches = list(buckets)
        assert sorted(index for batch in batches for index in batch) == list(range(1000))
        assert {len(batch) for batch in batches} <= {31, 32}
        assert len(batches) == len(buckets) == 32


def test_little_padding() -> None:
    buckets = Buckets(LENGTHS, 32)
    assert Buckets(LENGTHS, 32, jitter=0).padding < 0.04 < buckets.padding
    assert buckets.padding < 0.12
    assert buckets.padding_at_random > 0.4


def test_same_seed_same_order_other_epoch_other_order() -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        buckets = Buckets(LENGTHS, 32, seed=seed)
        buckets.set_epoch(epoch)
        return list(buckets)

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    # Not only other places: other companions.
    assert {frozenset(batch) for batch in order(0, 1)}.isdisjoint({frozenset(batch) for batch in order(0, 2)})


def test_skipping_is_for_one_epoch() -> None:
    buckets = Buckets(LENGTHS, 32)
    everything = list(buckets)
    buckets.skip(30)
    assert list(buckets) == everything[30:]
    assert list(buckets) == everything


@given(st.lists(st.integers(0, 50), min_size=8, max_size=60), st.integers(8, 20), st.integers(1, 4), st.integers(0, 3))
def test_workers_share_every_batch_fairly(lengths: list[int], size: int, workers: int, epoch: int) -> None:
    """All parts together are the batches of one worker, none is empty, and none has much more to do."""
    alone = Buckets(lengths, size)
    alone.set_epoch(epoch)
    parts = [Buckets(lengths, size, rank=rank, workers=workers) for rank in range(workers)]
    for part in parts:
        part.set_epoch(epoch)
    for whole, *shares in zip(alone, *parts, strict=True):
        assert sorted(index for share in shares for index in share) == sorted(whole)
        steps = [sum(lengths[index] for index in share) for share in shares]
        rows = [len(share) for share in shares]
        assert min(rows) >= 1
        assert max(rows) - min(rows) <= 1
        assert max(steps) - min(steps) <= 2 * max(lengths)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": []}, "`lengths` are no lengths: got shape (0,)"),
        ({"lengths": [1.5]}, "`lengths` are no lengths: got shape (1,) of float64"),
        ({"lengths": [3, -1]}, "`lengths` are no lengths: got shape (2,) of int64, down to -1"),
        ({"batch_size": 0}, "`batch_size` is too small"),
        ({"rank": 2, "workers": 2}, "`rank` is no worker: got 2, expected below workers=2"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Buckets(**{"lengths": [1, 2, 3], "batch_size": 3, **arguments})


def test_a_row_is_lent_only_to_those_who_ask() -> None:
    workers = [Buckets([5, 2, 4, 3, 1], 2, shuffle=False, rank=rank, workers=2) for rank in (0, 1)]
    message = "a batch has fewer rows than there are workers: got 1 row, expected at least 2"
    with pytest.raises(ValueError, match=message):
        list(workers[1])
    assert [worker.lend() for worker in workers] == [[False] * 3, [False, False, True]]
    assert [list(worker) for worker in workers] == [[[1], [2], [0]], [[4], [3], [0]]]
    with pytest.raises(ValueError, match=message):
        list(workers[0])
    workers[1].skip(1)
    assert workers[1].lend() == [False, True]
    assert list(workers[1]) == [[3], [0]]


def test_a_stand_in_stays_one() -> None:
    batch = pad([(torch.ones(5, 1), torch.ones(5)), (torch.ones(4, 1), torch.ones(4))])
    shares = [share_of(batch, Worker(rank, 3, torch.device("cpu"))) for rank in range(3)]
    assert [type(share) for share in shares] == [Batch, Batch, StandIn]
    assert torch.equal(shares[2].inputs, batch.inputs[:1])
    parts = [shares[2].to("cpu"), *shares[2].windows(2), brought(shares[2], torch.device("cpu"))]
    assert {type(part) for part in parts} == {StandIn}


def test_a_batch_of_ones_own_kind_is_not_lent() -> None:
    class Own(tt.train.Batch):
        pass

    batch = Own(*tt.train.pad([torch.ones(2, 1)]))
    with pytest.raises(TypeError, match=r"fewer rows than there are workers: got Own, expected a tt.train.Batch"):
        brought(batch, torch.device("cpu"), lent=True)
    assert type(brought(batch, torch.device("cpu"))) is Own


@pytest.mark.parametrize("processes", [0, 2])
def test_loader_gives_batches(processes: int) -> None:
    examples = [(torch.full((length, 2), float(length)), length) for length in LENGTHS[:50]]
    batches = list(loader(examples, 8, num_workers=processes))
    assert all(isinstance(batch, Batch) for batch in batches)
    assert sorted(int(target) for batch in batches for target in batch.targets) == sorted(LENGTHS[:50])
    for batch in batches:
        assert torch.equal(batch.lengths, batch.targets)


def test_loader_leaves_the_random_numbers_alone() -> None:
    """What a model draws does not depend on who loads its data."""
    batches = tt.train.loader([torch.ones(3)] * 4, 2)
    before = torch.get_rng_state()
    list(batches)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="`lengths` do not fit: got 1, expected 4"):
        loader([torch.ones(3)] * 4, 2, lengths=[3])


def test_batches_of_ones_own() -> None:
    def even(examples: list) -> tt.train.Batch:
        batch = tt.train.pad(examples)
        return batch._replace(inputs=torch.nn.functional.pad(batch.inputs, (0, 0, 0, batch.inputs.shape[1] % 2)))

    examples = [torch.ones(length, 1) for length in (1, 2, 3, 5)]
    batches = tt.train.loader(examples, 2, shuffle=False, collate_fn=even)
    assert [batch.inputs.shape[1] for batch in batches] == [2, 6]
    with pytest.raises(TypeError, match=r"`collate_fn` must be callable: got .pad., expected a function"):
        tt.train.loader(examples, 2, collate_fn="pad")


def test_no_examples() -> None:
    with pytest.raises(ValueError, match="`examples` are empty: got none"):
        tt.train.loader([], 2)
