"""Japanese Vowels: who is speaking? 640 short utterances of nine speakers, 7 to 29 steps each."""

from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class PaddedUtterances(NamedTuple):
    """Utterances as one batch: `inputs` [N, T, 12] padded with zeros, `lengths` [N], `speakers` [N]."""

    inputs: Tensor
    lengths: Tensor
    speakers: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Utterances:
    """One split of the data.

    Attributes:
        sequences: one float32 tensor [T_i, 12] an utterance: 12 LPC cepstrum coefficients a step.
        speakers: int64 [N], 0 to 8.
    """

    sequences: tuple[Tensor, ...]
    speakers: Tensor

    @property
    def lengths(self) -> Tensor:
        """Steps of each utterance, int64 [N]."""
        return torch.tensor([len(sequence) for sequence in self.sequences])

    def padded(self) -> PaddedUtterances:
        """The whole split as one batch-major batch, ready for `dynamic_rnn`."""
        return PaddedUtterances(pad_sequence(list(self.sequences), batch_first=True), self.lengths, self.speakers)

    def __len__(self) -> int:
        return len(self.sequences)

    def __repr__(self) -> str:
        shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        return f"Utterances({len(self)} of {shortest} to {longest} steps, {len(self.speakers.unique())} speakers)"


class JapaneseVowels(NamedTuple):
    """The data set in its original split."""

    train: Utterances
    test: Utterances


def japanese_vowels() -> JapaneseVowels:
    """Load the embedded Japanese Vowels data (Kudo, Toyama, Shimbo 1999; UCI repository; CC BY 4.0).

    Nine men said the two vowels /ae/; the task is to tell who said it. Every call returns fresh tensors.

    >>> from throughtime.data import japanese_vowels
    >>> train, test = japanese_vowels()
    >>> train
    Utterances(270 of 7 to 26 steps, 9 speakers)
    >>> inputs, lengths, speakers = test.padded()
    >>> inputs.shape, lengths[:4].tolist()
    (torch.Size([370, 29, 12]), [19, 17, 19, 18])
    """
    with files(__package__).joinpath("japanese_vowels.npz").open("rb") as file, np.load(file) as arrays:
        steps, lengths, speakers, is_test = (arrays[name] for name in ("steps", "lengths", "speaker", "is_test"))
    sequences = np.split(steps, np.cumsum(lengths)[:-1])
    return JapaneseVowels(*(_select(sequences, speakers, is_test == wanted) for wanted in (False, True)))


def _select(sequences: list[np.ndarray], speakers: np.ndarray, chosen: np.ndarray) -> Utterances:
    """The chosen utterances, each in memory of its own."""
    picked = tuple(torch.tensor(sequences[index]) for index in np.flatnonzero(chosen))
    return Utterances(picked, torch.tensor(speakers[chosen], dtype=torch.int64))
