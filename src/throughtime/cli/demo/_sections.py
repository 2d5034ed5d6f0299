"""The three parts of the demo, as they appear on the screen."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from throughtime.cli.demo import _picture, _progress, _speakers, _static_vs_dynamic
from throughtime.data import JapaneseVowels, japanese_vowels


def run_parts(out: Path, seed: int, epochs: int) -> bool:
    """Show, train, draw; true when the classifier reached its goal."""
    console = Console(highlight=False)
    torch.manual_seed(seed)
    with one_thread():
        show_unrolled(console)
        data = japanese_vowels()
        model, history = train_speakers(console, data, epochs)
        path = out / "speakers.png"
        _picture.save(path, history, _picture.choose_utterance(model, data.test))
    console.print(Text("Picture: ").append(str(path), "bold"), soft_wrap=True)
    return history[-1].test_accuracy >= _speakers.GOAL


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread is fastest here, since the matrices are small, and makes results independent of the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def show_unrolled(console: Console) -> None:
    """Part one: static and dynamic unrolling side by side, without and with lengths."""
    console.rule("[bold]1. Four sequences through time", align="left")
    console.print("Two steps of three inputs, five neurons. Instance 1 has one step, and padding.\n")
    cell = _static_vs_dynamic.make_cell()
    tables, differences = [], []
    for lengths in (None, _static_vs_dynamic.LENGTHS):
        static, dynamic = _static_vs_dynamic.unroll_both(cell, lengths)
        tables.append(_static_vs_dynamic.table(static, dynamic, lengths))
        differences.append(_static_vs_dynamic.largest_difference(static, dynamic))
    console.print(Columns(tables, padding=(1, 6)))
    console.print()
    console.print(_static_vs_dynamic.LEGEND)
    console.print(_static_vs_dynamic.verdict(max(differences)), end="\n\n")


def train_speakers(
    console: Console, data: JapaneseVowels, epochs: int
) -> tuple[_speakers.SpeakerClassifier, list[_speakers.Epoch]]:
    """Part two: train on variable-length speech, and say how well it went."""
    console.rule("[bold]2. Who is speaking?", align="left")
    model = _speakers.SpeakerClassifier(data.train)
    console.print(_speakers.describe(model, data), end="\n\n")
    start = time.perf_counter()
    history = _progress.watch(console, _speakers.fit(model, data, epochs), epochs)
    console.print(_speakers.verdict(history[-1], len(data.test), time.perf_counter() - start))
    return model, history
