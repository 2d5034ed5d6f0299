"""Programs that TensorFlow 1.15 ran: optimisers over fifty steps, decays, averages, layers, losses and metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import throughtime.tf1 as tf
from tf1_layer_programs import PROGRAMS

pytestmark = pytest.mark.covers("tf1")

GOLDENS = Path(__file__).parents[1] / "goldens" / "training.npz"


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(GOLDENS) as arrays:
        for key in arrays:
            name, _, part = key.partition("|")
            found.setdefault(name, {})[part] = arrays[key]
    return found


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program_gives_tensorflows_numbers(name: str, recorded: dict[str, dict[str, np.ndarray]]) -> None:
    tf.reset_default_graph()
    found = PROGRAMS[name](tf)
    expected = recorded[name]
    assert set(found) == set(expected)
    for key, wanted in expected.items():
        value = np.asarray(found[key])
        assert value.shape == wanted.shape, key
        if wanted.dtype.kind in "US":
            assert value.tolist() == wanted.tolist(), key
        else:
            assert value.dtype == wanted.dtype, key
            np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=4e-6, err_msg=key)


def test_every_recording_has_its_program(recorded: dict[str, dict[str, np.ndarray]]) -> None:
    assert set(recorded) == set(PROGRAMS)
