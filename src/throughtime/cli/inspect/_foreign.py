"""Weights of others, which the command does not read: what they are, and how to bring them here."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from throughtime.cli._mistakes import refuse

# The last bytes of a table of variables, as TensorFlow writes it.
INDEX_END = bytes.fromhex("57fb808b247547db")
HDF5, PICKLE = b"\x89HDF\r\n\x1a\n", re.compile(rb"\x80[\x02-\x05]")
TENSORFLOW_NAME = re.compile(r".+\.(index|meta|pb|data-\d{5}-of-\d{5})")

TENSORFLOW_FIX = (
    "Read its variables where TensorFlow is installed, by `tf.train.load_checkpoint`: "
    "`tt.interop.tf_variables(cell)` has a cell's parameters by the same names."
)
PICKLE_FIX = (
    "Load it in Python, if you trust it, since a pickle may run any program; "
    "then `tt.train.save_weights(model, 'weights.safetensors')`."
)
KERAS_FIX = "Load it with Keras and save its arrays as safetensors."


def refuse_foreign(path: Path) -> None:
    """One line for weights that others have written; nothing for everything else."""
    if _is_tensorflow(path):
        _refuse(path, "a TensorFlow checkpoint", TENSORFLOW_FIX)
    if path.is_file():
        if _is_pickle(path):
            _refuse(path, "a pickle, as torch.save writes it", PICKLE_FIX)
        if _begins(path, len(HDF5)) == HDF5:
            _refuse(path, "an HDF5 file, as Keras writes it", KERAS_FIX)


def _refuse(path: Path, got: str, fix: str) -> None:
    expected = "data, a run, a checkpoint of ours, or safetensors"
    refuse(f"{path.name} cannot be inspected", got=got, expected=expected, fix=fix)


def _is_tensorflow(path: Path) -> bool:
    """A file of a checkpoint, the name that its files have in common, or a folder of them."""
    if path.is_dir():
        return (path / "saved_model.pb").exists() or any(_is_index(file) for file in path.glob("*.index"))
    if path.name == "checkpoint" and path.is_file():
        return _begins(path, 21) == b"model_checkpoint_path"
    return TENSORFLOW_NAME.fullmatch(path.name) is not None or path.with_name(f"{path.name}.index").is_file()


def _is_index(file: Path) -> bool:
    return file.is_file() and file.read_bytes()[-len(INDEX_END) :] == INDEX_END


def _is_pickle(path: Path) -> bool:
    """A bare pickle, or the archive around one."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    return PICKLE.match(_begins(path, 2)) is not None


def _begins(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)
