"""Philox 4x32-10 against its published test vectors, and large draws against digests recorded from TensorFlow 1.15."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from throughtime.tf1.random import _distributions as distributions
from throughtime.tf1.random._philox import PhiloxStream, philox_blocks

pytestmark = pytest.mark.covers("tf1")

ALL_ONES = (1 << 64) - 1


@pytest.mark.parametrize(
    ("key", "high", "position", "expected"),
    [
        (0, 0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (ALL_ONES, ALL_ONES, ALL_ONES, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_published_vectors(key: int, high: int, position: int, expected: tuple[int, ...]) -> None:
    assert tuple(philox_blocks(key, high, np.array([position], np.uint64))[0].tolist()) == expected


# Seeds (3, 11), shape (1000003,), two runs in a session: CRC-32 of the bytes of each run.
DIGESTS = {
    ("uniform", "float32"): [1774306869, 2874937459],
    ("uniform", "float64"): [3437026024, 3966208745],
    ("uniform", "float16"): [678426016, 1833947162],
    ("normal", "float32"): [3456212032, 2599210118],
    ("normal", "float64"): [1512030493, 1425452502],
    ("normal", "float16"): [1727291542, 1294908800],
    ("truncated_normal", "float32"): [1459509596, 3140353143],
    ("truncated_normal", "float64"): [1589184424, 1591672416],
    ("truncated_normal", "float16"): [978550812, 784920896],
}


@pytest.mark.parametrize(("kind", "dtype"), DIGESTS)
def test_a_million_numbers_are_tensorflows(kind: str, dtype: str) -> None:
    stream = PhiloxStream(3, 11)
    draw: Any = getattr(distributions, kind)
    found = [zlib.crc32(np.ascontiguousarray(draw(stream, (1000003,), dtype)).tobytes()) for _ in range(2)]
    assert found == DIGESTS[kind, dtype]


def test_a_stream_continues_behind_what_a_run_reserved() -> None:
    stream = PhiloxStream(1, 2)
    distributions.uniform(stream, (3, 5))
    assert stream.position == 15 * distributions.RESERVED


@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated_normal"])
def test_an_empty_draw(kind: str) -> None:
    assert getattr(distributions, kind)(PhiloxStream(1, 2), (0, 3)).shape == (0, 3)


def test_truncated_numbers_stay_within_two_deviations() -> None:
    drawn = distributions.truncated_normal(PhiloxStream(5, 6), (10_000,))
    assert np.abs(drawn).max() < 2


def test_a_permutation_has_every_number_once() -> None:
    assert sorted(distributions.permutation(PhiloxStream(5, 6), 100).tolist()) == list(range(100))
