"""Lengths of sequences, made up and real.

Japanese Vowels ships with the package. Of PLAID (Gao et al. 2014, appliances by their electric current) only the
lengths are kept here, in `plaid_lengths.json`. They were read from the wheel of sktime, which carries the data:

    pip download sktime --no-deps && python benchmarks/lengths.py sktime-*.whl
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np

from throughtime.data import japanese_vowels

PLAID = Path(__file__).with_name("plaid_lengths.json")
SEED = 0


def uniform(B: int, T: int) -> list[int]:
    """Uniform in 1..T; one of them is T, so that nothing could be cut away."""
    lengths: list[int] = np.random.default_rng(SEED).integers(1, T, endpoint=True, size=B).tolist()
    lengths[0] = T
    return lengths


def of_japanese_vowels(B: int) -> list[int]:
    """The lengths of a random batch of spoken vowels: 7 to 29 steps."""
    return _batch(japanese_vowels().train.lengths.tolist(), B)


def of_plaid(B: int) -> list[int]:
    """The lengths of a random batch of PLAID: 100 to 1344 steps."""
    return _batch(json.loads(PLAID.read_text())["lengths"], B)


def _batch(lengths: list[int], B: int) -> list[int]:
    chosen: list[int] = np.random.default_rng(SEED).choice(lengths, size=B, replace=False).tolist()
    return chosen


def record_plaid(wheel: Path) -> None:
    """Write the lengths of PLAID's training and test series, in their order, from a wheel of sktime."""
    lengths = []
    with zipfile.ZipFile(wheel) as archive:
        for part in ("TRAIN", "TEST"):
            text = archive.read(f"sktime/datasets/data/PLAID/PLAID_{part}.ts").decode()
            series = text.partition("@data")[2].strip().splitlines()
            # A line is the values with commas between them, then a colon and the class.
            lengths += [line.rpartition(":")[0].count(",") + 1 for line in series]
    about = f"the lengths of the {len(lengths)} series of PLAID, from {wheel.name} by benchmarks/lengths.py"
    PLAID.write_text(json.dumps({"about": about, "lengths": lengths}) + "\n")


if __name__ == "__main__":
    record_plaid(Path(sys.argv[1]))
