"""Small files of sequences, and the command to try on them."""

from __future__ import annotations

import math
import random
from pathlib import Path

from typer.testing import CliRunner, Result

from throughtime.cli import app

KINDS = ("swipe", "tap", "wave")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def gestures(path: Path, sequences: int = 24, split: bool = False) -> Path:
    """Three kinds of movement, long format: a class for each sequence."""
    draw = random.Random(0)
    lines = ["id,step,x,y,kind" + (",split" if split else "")]
    for number in range(sequences):
        kind = number % 3
        for step in range(draw.randint(4, 9)):
            angle = step * (kind + 1) / 2
            x, y = math.sin(angle) + draw.gauss(0, 0.05), math.cos(angle) + draw.gauss(0, 0.05)
            tail = f",{'test' if number >= sequences - 6 else 'train'}" if split else ""
            lines.append(f"g{number},{step},{x:.4f},{y:.4f},{KINDS[kind]}{tail}")
    path.write_text("\n".join(lines) + "\n")
    return path


def tags(path: Path, sequences: int = 20) -> Path:
    """A tag for each step, from a word and a number."""
    draw = random.Random(1)
    lines = ["sentence;word;weight;tag"]
    for number in range(sequences):
        for _ in range(draw.randint(2, 8)):
            word = draw.randrange(6)
            lines.append(f"{number};w{word};{draw.random():.3f};{'ABC'[word % 3]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def series(path: Path, steps: int = 120) -> Path:
    """One sequence of numbers with dates."""
    dates = (f"2024-01-{1 + step // 24:02d}T{step % 24:02d}" for step in range(steps))
    rows = (f"{date},{math.sin(step / 4):.4f},{50 + step % 7}" for step, date in enumerate(dates))
    lines = ["date,level,load", *rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def many_series(path: Path, sequences: int = 24) -> Path:
    """Several sequences of one number."""
    lines = ["series,value"]
    for number in range(sequences):
        lines += [f"{number},{math.sin(step / 3 + number):.4f}" for step in range(12 + number % 5)]
    path.write_text("\n".join(lines) + "\n")
    return path


def text(path: Path) -> Path:
    """A text that is easy to guess."""
    path.write_text("the cat sat on the mat. " * 90)
    return path


def pairs(path: Path, rows: int = 40) -> Path:
    """Letters, and their names the other way round."""
    draw = random.Random(2)
    lines = ["word\tphonemes"]
    for _ in range(rows):
        word = "".join(draw.choices("abcd", k=draw.randint(2, 5)))
        lines.append(f"{word}\t{' '.join(letter.upper() * 2 for letter in reversed(word))}")
    path.write_text("\n".join(lines) + "\n")
    return path


def quickly(file: Path, out: Path, *flags: object) -> Result:
    """A tiny training run."""
    return call("train", file, "--out", out, "--epochs", 2, "--units", 8, *flags)


def said(result: Result) -> str:
    """Everything on one line, since a terminal wraps where it likes."""
    return " ".join((result.stdout + result.stderr).split())


def is_one_line_of_error(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.stdout + result.stderr + repr(result.exception)
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("Error: ")
    for word in words:
        assert word in result.stderr, result.stderr
