"""Letters to phonemes: how is a word said that no dictionary has? Attention, an end token, and beam search.

    python examples/grapheme_to_phoneme.py                     # train, then say what is got right of a held-out tenth
    python examples/grapheme_to_phoneme.py --say throughtime   # train if need be, then read words aloud, in phonemes

Training keeps checkpoints in a folder; the same command goes on where it was stopped.
"""

import argparse
import lzma
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt

HERE = Path(__file__).parent
END, START = 0, 1
LETTERS = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz'-.", 1)}


class Word(NamedTuple):
    """How a word is written, and every way in which it is said."""

    letters: str
    phonemes: list[tuple[str, ...]]


def read_words(path: Path, limit: int | None) -> list[Word]:
    """The words of a dictionary in an order that has nothing to do with the alphabet, or the first of them."""
    said: dict[str, list[tuple[str, ...]]] = {}
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            written, *phonemes = line.split("#")[0].split()
            said.setdefault(written.split("(")[0], []).append(tuple(phonemes))
    words = [Word(*item) for item in said.items() if set(item[0]) <= set(LETTERS)]
    return sorted(words, key=lambda word: zlib.crc32(word.letters.encode()))[:limit]


def spelled(word: str) -> Tensor:
    """The letters of a word, as numbers."""
    return torch.tensor([LETTERS[letter] for letter in word])


def together(examples: Sequence[Any]) -> tt.train.Batch:
    """A batch whose width is a multiple of 4: attention is compiled for each width, and these are few."""
    batch = tt.train.pad(examples)
    return batch._replace(inputs=functional.pad(batch.inputs, (0, -batch.inputs.shape[1] % 4)))


class Reader(nn.Module):
    """Reads letters both ways, then says phonemes one by one, looking back at the letters."""

    def __init__(self, phonemes: int, units: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, 64)
        self.phonemes = nn.Embedding(phonemes, 64)
        self.forwards, self.backwards = (tt.LSTMCell(units, input_size=64) for _ in range(2))
        self.attention = tt.decode.BahdanauAttention(units, memory_size=2 * units)
        self.cell = tt.decode.AttentionWrapper(tt.LSTMCell(2 * units), self.attention, units, input_size=64)
        self.project = nn.Linear(units, phonemes)
        self.dropout = nn.Dropout(0.1)

    def read(self, letters: Tensor, counts: Tensor) -> tt.decode.AttentionWrapperState:
        """The state from which the word can be said."""
        outputs, states = tt.bidirectional_dynamic_rnn(
            self.forwards, self.backwards, self.dropout(self.letters(letters)), counts, dtype=torch.float32
        )
        self.attention.setup_memory(self.dropout(torch.cat(outputs, 2)), counts)
        start = tt.LSTMStateTuple(*(torch.cat(both, 1) for both in zip(*states, strict=True)))
        return self.cell.zero_state(len(letters), torch.float32).clone(cell_state=start)

    def forward(self, letters: Tensor, counts: Tensor, before: Tensor, steps: Tensor) -> Tensor:
        """Scores of each phoneme, given those before it; compiled, as all inputs are known."""
        helper = tt.decode.TrainingHelper(self.dropout(self.phonemes(before)), steps)
        decoder = tt.decode.BasicDecoder(self.cell, helper, self.read(letters, counts), self.project)
        outputs, _, _ = tt.decode.dynamic_decode(decoder)
        return outputs.rnn_output

    @torch.no_grad()
    def say(self, words: list[str], beam_width: int = 1) -> list[list[int]]:
        """The phonemes of each word, as numbers: the best of the beam, or greedily one after the other."""
        batch = together([spelled(word) for word in words])
        state, start = self.read(batch.inputs, batch.lengths), torch.full((len(words),), START)
        decoder: tt.decode.Decoder
        if beam_width == 1:
            helper = tt.decode.GreedyEmbeddingHelper(self.phonemes, start, END)
            decoder = tt.decode.BasicDecoder(self.cell, helper, state, self.project)
        else:
            tiled = tt.decode.tile_batch(state, beam_width)
            decoder = tt.decode.BeamSearchDecoder(
                self.cell, self.phonemes, start, END, tiled, beam_width, self.project, length_penalty_weight=0.6
            )
        outputs, _, _ = tt.decode.dynamic_decode(decoder, maximum_iterations=2 * batch.inputs.shape[1] + 4)
        ids = outputs.sample_id if beam_width == 1 else outputs.predicted_ids[:, :, 0]
        return [row[: row.index(END)] if END in row else row for row in ids.tolist()]


def measure(model: Reader, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    """Each phoneme is to be guessed from those before it, the end as well."""
    before = functional.pad(batch.targets[:, :-1], (1, 0), value=START)
    scores = model(batch.inputs, batch.lengths, before, batch.target_lengths)
    return {
        "loss": tt.train.cross_entropy(scores, batch.targets, batch.target_lengths),
        "accuracy": tt.train.accuracy(scores, batch.targets, batch.target_lengths),
    }


def errors(model: Reader, words: list[Word], numbers: dict[str, int], beam_width: int) -> tuple[float, float]:
    """The share of words said wrong, and of phonemes: the edits to the nearest way in which a word is said."""
    wrong = edits = length = 0
    ordered = sorted(words, key=lambda word: len(word.letters))
    for start in range(0, len(ordered), 256):
        part = ordered[start : start + 256]
        for word, said in zip(part, model.say([word.letters for word in part], beam_width), strict=True):
            right = [[numbers[phoneme] for phoneme in way] for way in word.phonemes]
            distance, steps = min((distance_between(said, way), len(way)) for way in right)
            wrong, edits, length = wrong + (distance > 0), edits + distance, length + steps
    return wrong / len(words), edits / length


def distance_between(one: list[int], other: list[int]) -> int:
    """The fewest insertions, deletions and changes that make one of the other."""
    row = list(range(len(other) + 1))
    for place, token in enumerate(one, 1):
        before, row[0] = row[0], place
        for column, target in enumerate(other, 1):
            before, row[column] = row[column], min(before + (token != target), row[column] + 1, row[column - 1] + 1)
    return row[-1]


def main(argv: list[str] | None = None) -> dict[str, tuple[float, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "cmudict.dict.xz", help="a dictionary, as xz")
    parser.add_argument("--words", type=int, help="use only this number of words")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--beam", type=int, default=5, help="the width of the beam")
    parser.add_argument("--folder", type=Path, default=Path("grapheme_to_phoneme"), help="where checkpoints go")
    parser.add_argument("--say", nargs="*", default=[], metavar="WORD", help="words to read aloud")
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    words = read_words(args.data, args.words)
    sounds = sorted({sound for word in words for way in word.phonemes for sound in way})
    numbers = {sound: number for number, sound in enumerate(sounds, 2)}
    held_out, known = words[: len(words) // 10], words[len(words) // 10 :]
    examples = [
        (spelled(word.letters), torch.tensor([*(numbers[sound] for sound in way), END]))
        for word in known
        for way in word.phonemes
    ]
    model = Reader(len(numbers) + 2, args.units)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(known):,} words to learn from, {len(held_out):,} held out, {count:,} parameters")

    batches = tt.train.loader(examples, args.batch, collate_fn=together)
    optimizer = torch.optim.Adam(model.parameters())
    history = tt.train.fit(
        model,
        measure,
        batches,
        optimizer=optimizer,
        schedule=torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=3e-3, total_steps=args.epochs * len(batches), pct_start=0.1
        ),
        epochs=args.epochs,
        clip_norm=1.0,
        folder=args.folder,
        checkpoint_every=100,
        resume=True,
        callbacks=[tt.train.Progress()],
    )
    print(f"trained for {sum(epoch.seconds for epoch in history.epochs) / 60:.1f} minutes")

    model.eval()
    results = {}
    for name, width in (("greedily", 1), (f"with a beam of {args.beam}", args.beam)):
        results[name] = errors(model, held_out, numbers, width)
        print(f"{name}: {results[name][0]:.2%} of the held-out words wrong, {results[name][1]:.2%} of their phonemes")
    for word, said in zip(args.say, model.say(args.say, args.beam) if args.say else [], strict=True):
        print(f"{word}: {' '.join(sounds[number - 2] for number in said)}")
    return results


if __name__ == "__main__":
    main()
