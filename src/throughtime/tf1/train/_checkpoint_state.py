"""The file `checkpoint` of a folder: which checkpoints there are, and which is the latest."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from throughtime._atomic_files import whole
from throughtime.interop.checkpoints._resolve_path import STATE, read_state
from throughtime.tf1._errors import NotFoundError
from throughtime.tf1._namespace import exported
from throughtime.tf1.app import _logging as logging
from throughtime.tf1.files._gfile import glob_files
from throughtime.tf1.protos import CheckpointState

_TIMES = re.compile(r"^(all_model_checkpoint_timestamps|last_preserved_timestamp):\s*([-+.\deE]+)", re.MULTILINE)


@exported("train.generate_checkpoint_state_proto")
def generate_checkpoint_state_proto(
    save_dir: Any,
    model_checkpoint_path: Any,
    all_model_checkpoint_paths: Sequence[Any] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> CheckpointState:
    """What the file says: paths are relative to the folder unless the folder's own path is absolute."""
    paths = [os.fspath(path) for path in all_model_checkpoint_paths or []]
    latest = os.fspath(model_checkpoint_path)
    if latest not in paths:
        paths.append(latest)
    if not os.path.isabs(save_dir):  # noqa: PTH117
        paths, latest = [_relative(path, save_dir) for path in paths], _relative(latest, save_dir)
    return CheckpointState(
        model_checkpoint_path=latest,
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=all_model_checkpoint_timestamps,
        last_preserved_timestamp=last_preserved_timestamp,
    )


def _relative(path: str, folder: Any) -> str:
    return path if os.path.isabs(path) else os.path.relpath(path, folder)  # noqa: PTH117


@exported("train.update_checkpoint_state")
def update_checkpoint_state(
    save_dir: Any,
    model_checkpoint_path: Any,
    all_model_checkpoint_paths: Sequence[Any] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Write the file."""
    found = generate_checkpoint_state_proto(
        save_dir,
        model_checkpoint_path,
        all_model_checkpoint_paths,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )
    with whole(Path(save_dir or ".") / (latest_filename or STATE)) as new:
        new.write_text(str(found), encoding="utf-8")


@exported("train.get_checkpoint_state")
def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> CheckpointState | None:
    """What the file of a folder says, with whole paths; None if there is none."""
    if checkpoint_dir is None:
        return None
    place = Path(checkpoint_dir) / (latest_filename or STATE)
    found = read_state(place)
    latest = [path for every, path in found if not every]
    if not latest:
        return None
    times = _TIMES.findall(place.read_text(encoding="utf-8", errors="replace"))
    return CheckpointState(
        model_checkpoint_path=_within(latest[0], checkpoint_dir),
        all_model_checkpoint_paths=[_within(path, checkpoint_dir) for every, path in found if every],
        all_model_checkpoint_timestamps=[float(time) for name, time in times if name.startswith("all")],
        last_preserved_timestamp=next((float(time) for name, time in times if name.startswith("last")), None),
    )


def _within(path: str, folder: Any) -> str:
    return path if os.path.isabs(path) else os.path.join(folder, path)  # noqa: PTH117, PTH118


@exported("train.latest_checkpoint", "contrib.framework.latest_checkpoint")
def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The latest checkpoint of a folder, if its files are there."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None or not state.model_checkpoint_path:
        return None
    path: str = state.model_checkpoint_path
    moved = os.path.join(checkpoint_dir, os.path.basename(path))  # noqa: PTH118, PTH119
    for place in (path, moved):
        if checkpoint_exists(place):
            return place
    logging.error("Couldn't match files for checkpoint %s", path)
    return None


@exported("train.checkpoint_exists")
def checkpoint_exists(checkpoint_prefix: Any) -> bool:
    """Whether a checkpoint of either version of the format has this prefix."""
    prefix = os.fspath(checkpoint_prefix)
    if not Path(prefix).name:
        return False
    return Path(f"{prefix}.index").is_file() or Path(prefix).is_file() or bool(glob_files(f"{prefix}-?????-of-?????"))


@exported("train.get_checkpoint_mtimes")
def get_checkpoint_mtimes(checkpoint_prefixes: Sequence[Any]) -> list[float]:
    """When each checkpoint was written."""
    files = [Path(f"{prefix}.index") for prefix in checkpoint_prefixes]
    places = [file if file.is_file() else Path(prefix) for file, prefix in zip(files, checkpoint_prefixes, strict=True)]
    return [place.stat().st_mtime for place in places if place.is_file()]


@exported("train.remove_checkpoint")
def remove_checkpoint(
    checkpoint_prefix: Any, checkpoint_format_version: int = 2, meta_graph_suffix: str = "meta"
) -> None:
    """Remove the files of a checkpoint."""
    del checkpoint_format_version
    prefix = glob_escaped(os.fspath(checkpoint_prefix))
    patterns = [f"{prefix}.index", f"{prefix}.data-?????-of-?????", f"{prefix}.{meta_graph_suffix}"]
    patterns += [prefix, f"{prefix}-?????-of-?????"]
    for path in glob_files(patterns):
        if Path(path).is_file():
            Path(path).unlink()


def glob_escaped(path: str) -> str:
    """A path in which no character is a pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def missing_checkpoint(path: Any) -> NotFoundError:
    """The error for a prefix without files."""
    message = (
        f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {path}: "
        "got a prefix without "
        "files, expected what `Saver.save` returned. Check the path, or use tf.train.latest_checkpoint(folder)."
    )
    return NotFoundError(None, None, message)
