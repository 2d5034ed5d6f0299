"""Checkpoints: folders that are there whole or not at all, in safetensors and JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from throughtime._atomic_files import sync_file, sync_folder, whole
from throughtime._errors import InvalidArgumentError, problem, shape_of
from throughtime._json_files import read_json
from throughtime.train._serialization import decode, encode

MODEL, BEST, TENSORS, STATE = "model.safetensors", "best.safetensors", "training.safetensors", "training.json"
# One at the end of an epoch may be of the same step as one before it, and is newer.
_NAME = re.compile(r"checkpoint-(\d{8,})(-epoch)?")
_LEFT = re.compile(rf"\.{_NAME.pattern}\.(new|old)")

# What reading something else as safetensors raises: its shapes may be of any size, and torch refuses some of them.
_NOT_SAFETENSORS = (SafetensorError, TypeError, ValueError, KeyError, AttributeError, OverflowError, RuntimeError)


def one_line(error: Exception) -> str:
    """The first line of what an error of another library says."""
    return str(error).partition("\n")[0][:200]


def latest_checkpoint(folder: Path | str) -> Path | None:
    """The newest checkpoint in the folder of a run, or None.

    >>> import throughtime as tt
    >>> tt.train.latest_checkpoint("no such folder") is None
    True
    """
    return next(reversed(_in_order(Path(folder))), None)


def _in_order(folder: Path) -> list[Path]:
    """All checkpoints, oldest first."""
    found = [(_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*")]
    return [path for *_, path in sorted((int(name[1]), bool(name[2]), path) for name, path in found if name)]


def save_weights(model: nn.Module, path: Path | str) -> None:
    """Write the weights of `model` to a safetensors file, which is there whole or not at all.

    >>> import tempfile, torch, throughtime as tt
    >>> cell = tt.GRUCell(4, input_size=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tt.train.save_weights(cell, f"{folder}/cell.safetensors")
    ...     tt.train.load_weights(tt.GRUCell(4, input_size=3), f"{folder}/cell.safetensors")
    """
    with whole(Path(path)) as new:
        _write(new, weights_of(model))


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Read weights that `save_weights` or a checkpoint has written into a `model` of the same make.

    >>> import torch, throughtime as tt
    >>> try:
    ...     tt.train.load_weights(tt.GRUCell(4), "no such file")
    ... except ValueError as error:
    ...     print(error)
    the weights cannot be read: got no such file, expected a safetensors file. Check the path.
    """
    set_weights(model, _read(Path(path)))


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers, those that share memory once, under their first name."""
    state = model.state_dict(keep_vars=True)
    firsts = {id(tensor): name for name, tensor in reversed(state.items())}
    return {name: state[name].detach().cpu().contiguous().clone() for name in state if name in firsts.values()}


def set_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put copies of `weights` into the model, or say what does not fit."""
    check_weights(model, weights)
    model.load_state_dict(weights, strict=False)


def check_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Say what does not fit, if anything does not."""
    own = model.state_dict(keep_vars=True)
    present = {id(own[name]) for name in weights if name in own}
    missing = [name for name, tensor in own.items() if id(tensor) not in present]
    unknown = [name for name in weights if name not in own]
    wrong = [
        f"{name} {shape_of(tensor)}"
        for name, tensor in weights.items()
        if name in own and not hasattr(own[name], "materialize") and own[name].shape != tensor.shape
    ]
    for what, names in (("has no", missing), ("has an unknown", unknown), ("has another shape of", wrong)):
        if names:
            fix = "Make the model with the settings that the weights were trained with."
            expected = "the weights of this very model"
            raise ValueError(
                problem("the weights do not fit", got=f"a file that {what} {names[0]}", expected=expected, fix=fix)
            )


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def save(
        self, name: str, weights: dict[str, Tensor], best: dict[str, Tensor] | None, state: dict[str, Any]
    ) -> None:
        """Write a checkpoint elsewhere, make sure that it is on disk, and give it its name in one go."""
        target = self.folder / f"checkpoint-{name}"
        new = self.folder / f".{target.name}.new"
        for left in self.folder.glob(".checkpoint-*"):
            # By a run that was killed while it wrote or deleted; files of others have other names.
            if _LEFT.fullmatch(left.name) and left.is_dir():
                shutil.rmtree(left)
        tensors: dict[str, Tensor] = {}
        words = encode(state, tensors, "state")
        try:
            new.mkdir()
            _write(new / MODEL, weights)
            if best is not None:
                _write(new / BEST, best)
            _write(new / TENSORS, tensors)
            (new / STATE).write_text(json.dumps(words), encoding="utf-8")
            for file in new.iterdir():
                sync_file(file)
            sync_folder(new)
            new.rename(target)
        except OSError:
            # Half a checkpoint only takes room, and room is what is short.
            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_folder(self.folder)
        self._thin_out()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Tensor] | None, dict[str, Any]] | None:
        """Weights, best weights and state of the newest checkpoint; None if there is none."""
        path = latest_checkpoint(self.folder)
        if path is None:
            return None
        best = self._read(path / BEST) if (path / BEST).exists() else None
        words, tensors = self._read(path / STATE), self._read(path / TENSORS)
        try:
            state: dict[str, Any] = decode(words, tensors)
        except KeyError as error:
            raise self._unreadable(path / TENSORS, f"no tensor {error}") from None
        except (TypeError, ValueError):
            raise self._unreadable(path / STATE, "something else than the state of a training") from None
        if not isinstance(state, dict):
            raise self._unreadable(path / STATE, "something else than the state of a training")
        return self._read(path / MODEL), best, state

    def _read(self, path: Path) -> Any:
        """A file of a checkpoint."""
        try:
            return read_json(path) if path.name == STATE else load_file(path)
        except (OSError, ValueError, *_NOT_SAFETENSORS) as error:
            raise self._unreadable(path, one_line(error)) from None

    def _unreadable(self, path: Path, why: object) -> InvalidArgumentError:
        """A kill leaves no such thing: the disk has lost something, and the user should know before a run goes on."""
        before = _in_order(self.folder)[:-1]
        way = f"from {before[-1].name}" if before else "from the beginning"
        what, expected = "the checkpoint cannot be read", "the file as it was written"
        fix = f"Remove the folder {path.parent} to go on {way}."
        return InvalidArgumentError(problem(what, got=f"{path}: {why}", expected=expected, fix=fix))

    def _thin_out(self) -> None:
        for path in _in_order(self.folder)[: -self._keep]:
            # Its name goes first: a checkpoint half deleted must not look like one.
            shutil.rmtree(path.rename(self.folder / f".{path.name}.old"))


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    # What safetensors makes is for its owner alone; what Python makes is for whom the umask says.
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path)
        path.chmod(mode)
    except SafetensorError as error:
        # A disk that is full is no matter of the format.
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(*((int(code[1]), os.strerror(int(code[1]))) if code else (None, str(error))), str(path)) from None


def _read(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, *_NOT_SAFETENSORS) as error:
        is_there = not isinstance(error, FileNotFoundError)
        got, fix = (f"{path}: {one_line(error)}", "Take another file.") if is_there else (path, "Check the path.")
        message = problem("the weights cannot be read", got=got, expected="a safetensors file", fix=fix)
        raise InvalidArgumentError(message) from None
    return tensors
