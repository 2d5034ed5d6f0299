"""The embedded data: what ships is whole, in the original split, and safe to change."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch

from throughtime.data import JapaneseVowels, japanese_vowels

pytestmark = pytest.mark.covers("cli")

# The number of test utterances of each speaker, from the data's own description.
TEST_UTTERANCES = [31, 35, 88, 44, 29, 24, 40, 50, 29]


@pytest.fixture(scope="module")
def data() -> JapaneseVowels:
    return japanese_vowels()


def test_split_is_the_original(data: JapaneseVowels) -> None:
    train, test = data
    assert train.speakers.bincount().tolist() == [30] * 9
    assert test.speakers.bincount().tolist() == TEST_UTTERANCES
    assert int(train.lengths.sum()) + int(test.lengths.sum()) == 9961


@pytest.mark.parametrize("split", ["train", "test"])
def test_utterances_are_sound(data: JapaneseVowels, split: str) -> None:
    utterances = getattr(data, split)
    assert {tuple(s.shape[1:]) for s in utterances.sequences} == {(12,)}
    assert {s.dtype for s in utterances.sequences} == {torch.float32}
    assert utterances.speakers.dtype == utterances.lengths.dtype == torch.int64
    assert 7 <= utterances.lengths.min() <= utterances.lengths.max() <= 29
    assert torch.cat(utterances.sequences).abs().max() < 3


@pytest.mark.parametrize("split", ["train", "test"])
def test_padded_is_the_sequences_then_zeros(data: JapaneseVowels, split: str) -> None:
    utterances = getattr(data, split)
    inputs, lengths, speakers = utterances.padded()
    assert inputs.shape == (len(utterances), lengths.max(), 12)
    assert torch.equal(speakers, utterances.speakers)
    for row, sequence, length in zip(inputs, utterances.sequences, lengths.tolist(), strict=True):
        assert torch.equal(row[:length], sequence)
        assert not row[length:].any()


def test_first_numbers_are_the_published_ones(data: JapaneseVowels) -> None:
    assert data.train.sequences[0][0, :3].tolist() == pytest.approx([1.860936, -0.207383, 0.261557])
    assert data.test.lengths[:4].tolist() == [19, 17, 19, 18]


def test_every_call_gives_fresh_tensors(data: JapaneseVowels) -> None:
    copy = japanese_vowels()
    copy.train.sequences[0].zero_()
    assert japanese_vowels().train.sequences[0].any()
    assert torch.equal(data.train.sequences[1], copy.train.sequences[1])


def test_repr_is_short(data: JapaneseVowels) -> None:
    assert repr(data.test) == "Utterances(370 of 7 to 29 steps, 9 speakers)"


def test_attribution_ships_with_the_data() -> None:
    text = files("throughtime.data").joinpath("README.md").read_text()
    for needed in ("Kudo", "Toyama", "Shimbo", "UCI", "CC BY 4.0"):
        assert needed in text
