"""The checkpoints that TensorFlow wrote, and what it answered; `tools/record_checkpoints.py` has how."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parents[1] / "goldens" / "checkpoints"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
LENGTHS = [4, 0, 2]


@cache
def all_answers() -> dict[str, NDArray[np.generic]]:
    with np.load(FOLDER / "answers.npz") as stored:
        return dict(stored)


def answers(case: str) -> dict[str, NDArray[np.generic]]:
    """What was recorded of a case, by name."""
    return {key.removeprefix(f"{case}/"): value for key, value in all_answers().items() if key.startswith(f"{case}/")}


def prefix(case: str) -> Path:
    return FOLDER / case / "model.ckpt"
