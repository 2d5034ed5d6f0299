"""Whole programs against what TensorFlow 1.15 gave: values, gradients, names, static shapes, types of errors."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import throughtime.tf1 as tf

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from programs.answers import programs_of, split  # noqa: E402

pytestmark = pytest.mark.covers("tf1")

MODULES = {
    name: importlib.import_module(f"programs.{name}")
    for name in ("recurrence", "functions", "graphs", "sessions", "seq2seq")
    if (HERE / "programs" / f"{name}.py").exists()
}
PROGRAMS = [(module, name) for module, found in MODULES.items() for name in programs_of(found)]


def recorded(module: str, program: str) -> tuple[dict[str, Any], dict[str, Any]]:
    place = HERE / "goldens" / f"programs_{module}"
    with np.load(f"{place}.npz") as arrays:
        numbers = {name: arrays[name] for name in arrays.files if name.startswith(f"{program}/")}
    words = json.loads(Path(f"{place}.json").read_text())
    return numbers, {name: value for name, value in words.items() if name.startswith(f"{program}/")}


@pytest.mark.parametrize(("module", "program"), PROGRAMS, ids=lambda value: value)
def test_program_gives_what_tensorflow_gave(module: str, program: str) -> None:
    tf.reset_default_graph()
    numbers, words = split(program, programs_of(MODULES[module])[program](tf))
    expected_numbers, expected_words = recorded(module, program)
    assert words == expected_words
    assert numbers.keys() == expected_numbers.keys()
    for name, value in numbers.items():
        expected = expected_numbers[name]
        assert value.dtype == expected.dtype, name
        assert value.shape == expected.shape, name
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6, err_msg=name)
