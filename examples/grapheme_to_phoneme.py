"""Letters to phonemes: how is a word said that no dictionary has? Attention, an end token, and beam search.

    python examples/grapheme_to_phoneme.py                     # train, then say what is got right of a held-out tenth
    python examples/grapheme_to_phoneme.py --say throughtime   # train if need be, then read words aloud, in phonemes

Training writes a checkpoint every minute or so; the same command goes on where it stopped.
"""

import argparse
import lzma
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import throughtime as tt

HERE = Path(__file__).parent
END, START = 0, 1
LETTERS = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz'-.", 1)}
console = Console()


class Word(NamedTuple):
    """How a word is written, and every way in which it is said."""

    letters: str
    phonemes: list[tuple[str, ...]]


def read_words(path: Path, limit: int | None) -> list[Word]:
    """The words of a dictionary in an order that has nothing to do with the alphabet, or the first so many of them."""
    said: dict[str, list[tuple[str, ...]]] = {}
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            written, *phonemes = line.split("#")[0].split()
            said.setdefault(written.split("(")[0], []).append(tuple(phonemes))
    words = [Word(*item) for item in said.items() if set(item[0]) <= set(LETTERS)]
    return sorted(words, key=lambda word: zlib.crc32(word.letters.encode()))[:limit]


class Batch(NamedTuple):
    """Words as tensors: `letters` [B, S], and what is said with START in front (`inputs`) or END behind (`targets`)."""

    letters: Tensor
    letter_counts: Tensor
    inputs: Tensor
    targets: Tensor
    counts: Tensor


def written(words: list[str]) -> tuple[Tensor, Tensor]:
    """Letters as numbers [B, S], and their counts. S is a multiple of 4: few widths, so few programs to compile."""
    rows = [torch.tensor([LETTERS[letter] for letter in word]) for word in words]
    rows.append(torch.zeros(-(-max(map(len, rows)) // 4) * 4, dtype=torch.int64))
    return pad_sequence(rows, batch_first=True)[:-1], torch.tensor([len(word) for word in words])


def make_batch(pairs: list[tuple[str, tuple[str, ...]]], numbers: dict[str, int]) -> Batch:
    """A batch of words, each with one way to say it."""
    letters, letter_counts = written([word for word, _ in pairs])
    said = [torch.tensor([START, *(numbers[phoneme] for phoneme in phonemes), END]) for _, phonemes in pairs]
    rows = pad_sequence(said, batch_first=True)
    return Batch(letters, letter_counts, rows[:, :-1], rows[:, 1:], torch.tensor([len(row) - 1 for row in said]))


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

    def forward(self, batch: Batch) -> Tensor:
        """The loss when each phoneme is to be guessed from those before it; compiled, as the inputs are known."""
        state = self.read(batch.letters, batch.letter_counts)
        helper = tt.decode.TrainingHelper(self.dropout(self.phonemes(batch.inputs)), batch.counts)
        decoder = tt.decode.BasicDecoder(self.cell, helper, state, self.project)
        outputs, _, _ = tt.decode.dynamic_decode(decoder)
        real = torch.arange(batch.targets.shape[1]) < batch.counts.unsqueeze(1)
        return tt.decode.sequence_loss(outputs.rnn_output, batch.targets, real.float())

    @torch.no_grad()
    def say(self, words: list[str], beam_width: int = 1) -> list[list[int]]:
        """The phonemes of each word, as numbers: the best of the beam, or greedily one after the other."""
        letters, counts = written(words)
        state, start = self.read(letters, counts), torch.full((len(words),), START)
        decoder: tt.decode.Decoder
        if beam_width == 1:
            helper = tt.decode.GreedyEmbeddingHelper(self.phonemes, start, END)
            decoder = tt.decode.BasicDecoder(self.cell, helper, state, self.project)
        else:
            tiled = tt.decode.tile_batch(state, beam_width)
            decoder = tt.decode.BeamSearchDecoder(
                self.cell, self.phonemes, start, END, tiled, beam_width, self.project, length_penalty_weight=0.6
            )
        outputs, _, _ = tt.decode.dynamic_decode(decoder, maximum_iterations=2 * letters.shape[1] + 4)
        ids = outputs.sample_id if beam_width == 1 else outputs.predicted_ids[:, :, 0]
        return [row[: row.index(END)] if END in row else row for row in ids.tolist()]


def batches_of(pairs: list[tuple[str, tuple[str, ...]]], size: int, epoch: int) -> list[list]:
    """Batches in an order of this epoch's own; words of about one length lie together, so little is padding."""
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(epoch)).tolist()
    found = []
    for start in range(0, len(order), 64 * size):
        block = sorted(
            (pairs[place] for place in order[start : start + 64 * size]), key=lambda p: (len(p[0]), len(p[1]))
        )
        found += [block[place : place + size] for place in range(0, len(block), size)]
    return [
        found[place] for place in torch.randperm(len(found), generator=torch.Generator().manual_seed(epoch)).tolist()
    ]


def errors(model: Reader, words: list[Word], numbers: dict[str, int], beam_width: int) -> tuple[float, float]:
    """The share of words said wrong, and of phonemes: the edits to the nearest way in which a word is said."""
    model.eval()
    wrong = edits = length = 0
    ordered = sorted(words, key=lambda word: len(word.letters))
    for start in range(0, len(ordered), 256):
        part = ordered[start : start + 256]
        for word, said in zip(part, model.say([word.letters for word in part], beam_width), strict=True):
            right = [[numbers[phoneme] for phoneme in way] for way in word.phonemes]
            distance, steps = min((distance_between(said, way), len(way)) for way in right)
            wrong, edits, length = wrong + (distance > 0), edits + distance, length + steps
    model.train()
    return wrong / len(words), edits / length


def distance_between(one: list[int], other: list[int]) -> int:
    """The fewest insertions, deletions and changes that make one of the other."""
    row = list(range(len(other) + 1))
    for place, token in enumerate(one, 1):
        before, row[0] = row[0], place
        for column, target in enumerate(other, 1):
            before, row[column] = row[column], min(before + (token != target), row[column] + 1, row[column - 1] + 1)
    return row[-1]


class Training:
    """A run that can be stopped at any batch and taken up again; it counts seconds, and seconds of all cores' work."""

    COUNTS = ("done", "seconds", "work", "loss")

    def __init__(self, model: Reader, total: int, path: Path) -> None:
        self.model, self.path = model, path
        self.optimizer = torch.optim.Adam(model.parameters())
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=3e-3, total_steps=total, pct_start=0.1
        )
        self.done, self.seconds, self.work, self.loss = 0, 0.0, 0.0, float("nan")
        if path.exists():
            kept = torch.load(path, weights_only=True)
            model.load_state_dict(kept["model"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.schedule.load_state_dict(kept["schedule"])
            self.done, self.seconds, self.work, self.loss = (kept[name] for name in self.COUNTS)
            torch.set_rng_state(kept["random"])

    def step(self, batch: Batch) -> None:
        began, worked = time.perf_counter(), time.process_time()
        loss = self.model(batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.done += 1
        self.loss = loss.item() if self.done == 1 else 0.99 * self.loss + 0.01 * loss.item()
        self.seconds += time.perf_counter() - began
        self.work += time.process_time() - worked

    def spent(self) -> str:
        return f"{self.seconds / 60:.1f} minutes ({self.work / 60:.1f} of work)"

    def save(self) -> None:
        parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        kept = {name: part.state_dict() for name, part in parts.items()}
        kept |= {name: getattr(self, name) for name in self.COUNTS} | {"random": torch.get_rng_state()}
        unfinished = self.path.with_suffix(".part")
        torch.save(kept, unfinished)
        unfinished.replace(self.path)


def train(training: Training, pairs: list, numbers: dict[str, int], args: argparse.Namespace, note) -> bool:
    """Train until all epochs are done (True), or until `--minutes` have passed."""
    began = saved = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    per_epoch = -(-len(pairs) // args.batch)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("learning to read", total=per_epoch * args.epochs, completed=training.done, status="")
        while training.done < per_epoch * args.epochs:
            epoch, place = divmod(training.done, per_epoch)
            for rows in batches_of(pairs, args.batch, epoch)[place:]:
                training.step(make_batch(rows, numbers))
                status = (
                    f"epoch {epoch + 1} of {args.epochs}, loss {training.loss:.3f}, {training.seconds / 60:.1f} min"
                )
                progress.update(bar, completed=training.done, status=status)
                if time.monotonic() - saved > 60:
                    training.save()
                    saved = time.monotonic()
                if args.minutes is not None and time.monotonic() - began > 60 * args.minutes:
                    training.save()
                    return False
            note(f"epoch {epoch + 1} of {args.epochs}: loss {training.loss:.3f} after {training.spent()}")
    training.save()
    return True


def main(argv: list[str] | None = None) -> dict[str, tuple[float, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "cmudict.dict.xz", help="a dictionary, as xz")
    parser.add_argument("--words", type=int, help="use only so many words")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--beam", type=int, default=5, help="the width of the beam")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on from there")
    parser.add_argument("--checkpoint", type=Path, default=Path("grapheme_to_phoneme.pt"))
    parser.add_argument("--log", type=Path, help="a file to write the lines of the run to")
    parser.add_argument("--say", nargs="*", default=[], metavar="WORD", help="words to read aloud")
    args = parser.parse_args(argv)

    def note(line: str) -> None:
        console.print(line, highlight=False)
        if args.log is not None:
            with args.log.open("a", encoding="utf-8") as log:
                log.write(line + "\n")

    torch.manual_seed(0)
    words = read_words(args.data, args.words)
    numbers = {
        phoneme: number
        for number, phoneme in enumerate(sorted({p for w in words for way in w.phonemes for p in way}), 2)
    }
    held_out, known = words[: len(words) // 10], words[len(words) // 10 :]
    pairs = [(word.letters, way) for word in known for way in word.phonemes]
    model = Reader(len(numbers) + 2, args.units)
    training = Training(model, -(-len(pairs) // args.batch) * args.epochs, args.checkpoint)
    if not training.done:
        count = sum(parameter.numel() for parameter in model.parameters())
        note(f"{len(known):,} words to learn from, {len(held_out):,} held out, {count:,} parameters")
    if not train(training, pairs, numbers, args, note):
        console.print(f"stopped after {training.spent()}: run the same command to go on")
        return {}
    results = {}
    for name, width in (("greedily", 1), (f"with a beam of {args.beam}", args.beam)):
        results[name] = errors(model, held_out, numbers, width)
        note(f"{name}: {results[name][0]:.2%} of the held-out words wrong, {results[name][1]:.2%} of their phonemes")
    model.eval()
    names = {number: phoneme for phoneme, number in numbers.items()}
    for word, said in zip(args.say, model.say(args.say, args.beam) if args.say else [], strict=True):
        note(f"{word}: {' '.join(names[number] for number in said)}")
    return results


if __name__ == "__main__":
    main()
