"""Weights of others: TensorFlow's checkpoints, which are read, and what is not, with the way to bring it here."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from pathlib import Path

from throughtime.cli._archives import open_archive
from throughtime.cli._user_errors import refuse

# The last bytes of a table of variables, as TensorFlow writes it.
TABLE_END = bytes.fromhex("57fb808b247547db")
STATE = b"model_checkpoint_path"
HDF5, PICKLE = b"\x89HDF\r\n\x1a\n", re.compile(rb"\x80[\x02-\x05]")
TENSORFLOW_NAME = re.compile(r".+(\.(index|meta)|[.-](data-)?\d{5}-of-\d{5})")

GRAPH_FIX = "Name the checkpoint that has its variables, or the folder of the SavedModel."
PICKLE_FIX = (
    "Load it in Python, if you trust it, since a pickle may run any program; "
    "then `tt.train.save_weights(model, 'weights.safetensors')`."
)
KERAS_FIX = "Load it with Keras and save its arrays as safetensors."


def refuse_foreign(path: Path) -> None:
    """One line for weights that others have written; nothing for everything else."""
    if path.is_file():
        if path.suffix == ".pb":
            _refuse(path, "a graph of TensorFlow's, without variables", GRAPH_FIX)
        if _is_pickle(path):
            _refuse(path, "a pickle, as torch.save writes it", PICKLE_FIX)
        if _begins(path, len(HDF5)) == HDF5:
            _refuse(path, "an HDF5 file, as Keras writes it", KERAS_FIX)


def _refuse(path: Path, got: str, fix: str) -> None:
    expected = "data, a run, a checkpoint, or safetensors"
    refuse(f"{path.name} cannot be inspected", got=got, expected=expected, fix=fix)


def is_tensorflow(path: Path) -> bool:
    """A file of a checkpoint, the name that its files have in common, or a folder of them."""
    if path.is_dir():
        return (path / "saved_model.pb").exists() or any(map(_is_table, path.glob("*.index"))) or _is_state(path)
    if path.name == "checkpoint" and path.is_file():
        return _is_state(path.parent)
    named = TENSORFLOW_NAME.fullmatch(path.name) is not None
    return named or path.with_name(f"{path.name}.index").is_file() or _is_table(path)


def _is_state(folder: Path) -> bool:
    """Whether a folder has a file that names its latest checkpoint."""
    state = folder / "checkpoint"
    return state.is_file() and _begins(state, len(STATE)) == STATE


def _is_table(path: Path) -> bool:
    """Whether a file ends as tables of variables do: its name may be any."""
    if not path.is_file() or path.stat().st_size < len(TABLE_END):
        return False
    with path.open("rb") as file:
        file.seek(-len(TABLE_END), os.SEEK_END)
        return file.read() == TABLE_END


def _is_pickle(path: Path) -> bool:
    """A bare pickle, or the archive around one."""
    if zipfile.is_zipfile(path):
        try:
            with open_archive(path) as archive:
                return any(name.endswith("data.pkl") for name in archive.namelist())
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
            # A damaged archive: what reads it will say so.
            return False
    return PICKLE.match(_begins(path, 2)) is not None


def _begins(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)
