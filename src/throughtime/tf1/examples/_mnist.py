"""`tensorflow.examples.tutorials.mnist.input_data`: the digits of MNIST, from files that are there already."""

from __future__ import annotations

import gzip
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from throughtime._errors import problem
from throughtime.tf1._errors import NotFoundError
from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._dtypes import as_dtype, float32

_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
# Bytes before the numbers of an IDX file: a magic number, then a size for each axis.
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049


class DataSet:
    """Images and labels, in batches; after the last one they are shuffled and begin again."""

    def __init__(
        self, images: Any, labels: Any, fake_data: bool = False, one_hot: bool = False, dtype: Any = float32,
        reshape: bool = True, seed: int | None = None,
    ) -> None:  # fmt: skip
        del fake_data, one_hot
        self._draws = np.random.RandomState(seed)
        found = images.reshape(len(images), -1) if reshape else images
        is_float = as_dtype(dtype).base_dtype == float32
        self._images: NDArray[Any] = found.astype(np.float32) / np.float32(255) if is_float else found
        self._labels: NDArray[Any] = labels
        self._epochs, self._at = 0, 0

    @property
    def images(self) -> NDArray[Any]:
        """All images."""
        return self._images

    @property
    def labels(self) -> NDArray[Any]:
        """All labels."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """The number of images."""
        return len(self._images)

    @property
    def epochs_completed(self) -> int:
        """How often all images were given."""
        return self._epochs

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The next images and labels; a batch at the end goes on with the beginning of the next epoch."""
        del fake_data
        if self._epochs == 0 and self._at == 0 and shuffle:
            self._shuffle()
        end = self._at + batch_size
        if end <= self.num_examples:
            start, self._at = self._at, end
            return self._images[start:end], self._labels[start:end]
        self._epochs += 1
        rest = self._images[self._at :], self._labels[self._at :]
        if shuffle:
            self._shuffle()
        self._at = end - self.num_examples
        return np.concatenate([rest[0], self._images[: self._at]]), np.concatenate([rest[1], self._labels[: self._at]])

    def _shuffle(self) -> None:
        order = self._draws.permutation(self.num_examples)
        self._images, self._labels = self._images[order], self._labels[order]


class Datasets(NamedTuple):
    """Images to learn from, to choose by, and to test with."""

    train: DataSet
    validation: DataSet
    test: DataSet


@exported(
    "examples.tutorials.mnist.input_data.read_data_sets", "contrib.learn.python.learn.datasets.mnist.read_data_sets"
)
def read_data_sets(
    train_dir: Any, fake_data: bool = False, one_hot: bool = False, dtype: Any = float32, reshape: bool = True,
    validation_size: int = 5000, seed: int | None = None, source_url: Any = None,
) -> Datasets:  # fmt: skip
    """MNIST from the four IDX files of a folder, compressed or not; nothing is downloaded."""
    del fake_data, source_url
    images, labels = _read(Path(train_dir), "train", one_hot)
    if not 0 <= validation_size <= len(images):
        raise ValueError(f"Validation size should be between 0 and {len(images)}. Received: {validation_size}.")
    options = {"dtype": dtype, "reshape": reshape, "seed": seed}
    parts = ((images[validation_size:], labels[validation_size:]), (images[:validation_size], labels[:validation_size]))
    return Datasets(*(DataSet(*part, **options) for part in (*parts, _read(Path(train_dir), "test", one_hot))))


def _read(folder: Path, part: str, one_hot: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    images = _numbers(folder, _FILES[part][0], _IMAGES_MAGIC)
    labels = _numbers(folder, _FILES[part][1], _LABELS_MAGIC)
    return images[..., None], np.eye(10)[labels] if one_hot else labels


def _numbers(folder: Path, name: str, magic: int) -> NDArray[np.uint8]:
    """The numbers of an IDX file."""
    places = [folder / f"{name}.gz", folder / name]
    place = next((each for each in places if each.is_file()), None)
    if place is None:
        fix = f"Copy the four files of MNIST into {folder}; torchvision.datasets.MNIST leaves them in its folder raw/."
        message = problem(f"{name} is not there", got=folder, expected=f"{name}.gz or {name} in it", fix=fix)
        raise NotFoundError(None, None, message)
    data = gzip.decompress(place.read_bytes()) if place.suffix == ".gz" else place.read_bytes()
    axes = magic % 256
    start = 4 + 4 * axes
    kind, *shape = np.frombuffer(data[:start].ljust(start, b"\0"), ">u4").tolist()
    if kind != magic or len(data) != start + prod(shape):
        fix = "Copy the file once more."
        message = problem(f"{place} is damaged", got=f"{len(data):,} bytes", expected="an IDX file of MNIST", fix=fix)
        raise ValueError(message)
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


export("examples.tutorials.mnist.input_data.DataSet", DataSet)
export("contrib.learn.python.learn.datasets.mnist.DataSet", DataSet)
