"""`TFCheckpoint`: the variables of a checkpoint by name, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from throughtime._errors import problem
from throughtime.interop.checkpoints._partitioned_variables import Shape
from throughtime.interop.checkpoints._resolve_path import locate
from throughtime.interop.checkpoints._v1_saved_slices import SavedSlices
from throughtime.interop.checkpoints._v2_tensor_bundle import Bundle
from throughtime.interop.checkpoints._variable import Value, Variable


class TFCheckpoint(Mapping[str, Value]):
    """A TensorFlow checkpoint as a mapping from the names of its variables to tensors, without TensorFlow.

    Both versions of the format are read, in one file or in many; variables that were partitioned are joined. Opening
    reads the names alone, so a large checkpoint is listed at once. A variable is read, and its checksum verified, each
    time it is asked for: the tensor is yours. Texts come as numpy arrays of bytes.

    Args:
        path: What `tf.train.Saver.save` returned, as `model.ckpt-1000`; or one of the checkpoint's files; or a folder,
            of which the latest checkpoint is taken.

    >>> import tempfile, throughtime as tt
    >>> folder = tempfile.mkdtemp()
    >>> path = tt.interop.save_tf_checkpoint(tt.GRUCell(2, input_size=3), f"{folder}/model.ckpt")
    >>> checkpoint = tt.interop.TFCheckpoint(path)
    >>> list(checkpoint)[:2]
    ['rnn/gru_cell/candidate/bias', 'rnn/gru_cell/candidate/kernel']
    >>> checkpoint.variables["rnn/gru_cell/gates/kernel"]
    Variable(dtype='float32', shape=(5, 4), nbytes=80)
    >>> checkpoint["rnn/gru_cell/gates/bias"]
    tensor([1., 1., 1., 1.])
    """

    def __init__(self, path: Any) -> None:
        found = locate(path)
        self._prefix = found.prefix
        self._reader = SavedSlices(found.tables) if found.tables else Bundle(found.prefix)

    @property
    def prefix(self) -> Path:
        """The name that the checkpoint's files have in common."""
        return self._prefix

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Dtype, shape and size of every variable, by name; nothing is read for them."""
        return MappingProxyType(self._reader.variables)

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shape of every variable."""
        return {name: found.shape for name, found in self.variables.items()}

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of every variable, as TensorFlow calls it."""
        return {name: found.dtype for name, found in self.variables.items()}

    @property
    def nbytes(self) -> int:
        """The bytes of all variables."""
        return sum(found.nbytes for found in self.variables.values())

    def __getitem__(self, name: str) -> Value:
        if name not in self.variables:
            near = nearest(name, self.variables)
            fix = f"The nearest: {near[0]!r}." if near else "`list(checkpoint)` has its names."
            raise KeyError(problem(f"{self.prefix} has no such variable", got=name, expected="one of its own", fix=fix))
        return self._reader.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __repr__(self) -> str:
        return f"TFCheckpoint({str(self.prefix)!r}): {len(self):,} variables, {self.nbytes:,} bytes"

    def __str__(self) -> str:
        """A line for each variable."""
        rows = [(name, found.dtype, str(found.shape), f"{found.nbytes:,}") for name, found in self.variables.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def nearest(name: Any, names: Mapping[str, Any]) -> list[str]:
    """Names that are almost this one: first those that differ in what is around it."""
    if not isinstance(name, str):
        return []
    around = [other for other in names if other.endswith(f"/{name}") or name.endswith(f"/{other}")]
    return around[:1] or get_close_matches(name, names, 1, 0.5)
