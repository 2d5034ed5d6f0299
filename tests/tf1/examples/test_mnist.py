"""`input_data.read_data_sets` on files in the form of MNIST's."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import throughtime.tf1 as tf

pytestmark = pytest.mark.covers("tf1")

NAMES = {"train": 12, "t10k": 4}


def idx(array: np.ndarray) -> bytes:
    return np.array([2048 + array.ndim, *array.shape], ">u4").tobytes() + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, count in NAMES.items():
        images = np.arange(count, dtype=np.uint8)[:, None, None] * np.ones((1, 28, 28), np.uint8)
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8) % 10))
    return tmp_path


def test_batches(folder: Path) -> None:
    found = tf.examples.tutorials.mnist.input_data.read_data_sets(str(folder), one_hot=True, validation_size=2)
    assert [each.num_examples for each in found] == [10, 2, 4]
    assert found.test.images.shape == (4, 784)
    np.testing.assert_allclose(found.test.images[3], 3 / 255)
    seen = []
    for _ in range(5):
        images, labels = found.train.next_batch(4)
        assert images.shape == (4, 784)
        numbers = np.round(images[:, 0] * 255).astype(int)
        assert (labels.argmax(1) == numbers % 10).all()
        seen += numbers.tolist()
    assert found.train.epochs_completed == 1
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(2, 12))


def test_missing_and_damaged_files(folder: Path) -> None:
    read = tf.examples.tutorials.mnist.input_data.read_data_sets
    (folder / "t10k-labels-idx1-ubyte").write_bytes(b"short")
    with pytest.raises(ValueError, match="expected an IDX file of MNIST"):
        read(str(folder), validation_size=2)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(tf.errors.NotFoundError, match="Copy the four files"):
        read(str(folder), validation_size=2)
    with pytest.raises(ValueError, match="Validation size should be between 0 and 12"):
        read(str(folder))
