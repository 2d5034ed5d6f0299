"""The readers that `fuzz_readers.py` tries: for each, inputs, how they are read, and which errors are documented."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

import fuzz_inputs as inputs
import throughtime as tt
from fuzz_inputs import Draw
from throughtime.cli import _run_folder
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError
from throughtime.cli.inspect import _show
from throughtime.cli.inspect._foreign_formats import refuse_foreign
from throughtime.cli.tables._infer_schema import look_over
from throughtime.cli.tables._schema import Column, Layout
from throughtime.cli.tasks._defaults import Recipe
from throughtime.cli.tasks._examples import read_examples
from throughtime.cli.tasks._models import Shape
from throughtime.cli.train._run import Plan, as_json
from throughtime.interop import TFCheckpoint
from throughtime.interop.checkpoints._object_graph import full_names
from throughtime.train._checkpoint import STATE, TENSORS, Checkpoints

# A clear error is one line that says what was got and what was expected.
CLEAR = (": got ", ", expected ")


class Target(NamedTuple):
    """A reader: its inputs, what reads them in a folder, and its share of all inputs in thousandths."""

    make: inputs.Maker
    read: Callable[[bytes, Path, Draw], None]
    share: int
    errors: tuple[type[Exception], ...] = (UserError,)


def is_clear(error: BaseException, target: Target) -> bool:
    """Whether an error is one of those that the reader documents, in the form of every message."""
    text = str(error)
    return isinstance(error, target.errors) and all(part in text for part in CLEAR) and "\n" not in text


def _read_table(suffix: str) -> Callable[[bytes, Path, Draw], None]:
    def read(data: bytes, folder: Path, draw: Draw) -> None:
        path = folder / f"a{suffix}"
        path.write_bytes(data)
        if draw.random() < 0.15:
            _inspect(path)
            return
        look = look_over(path, Columns())
        if draw.random() < 0.5:
            read_examples(look.found.table, look.layout, together=look.found.together, seed=0)

    return read


def _inspect(path: Path) -> None:
    """What `throughtime inspect` does, with its output thrown away."""
    refuse_foreign(path)
    _show.show(path)


def _read_bundle(data: bytes, folder: Path, draw: Draw) -> None:
    (folder / "model.ckpt.index").write_bytes(data)
    (folder / "model.ckpt.data-00000-of-00001").write_bytes(bytes(64))
    _read_checkpoint(folder / "model.ckpt", draw)


def _read_version1(data: bytes, folder: Path, draw: Draw) -> None:
    (folder / "model.ckpt").write_bytes(data)
    _read_checkpoint(folder / "model.ckpt", draw)


def _read_state(data: bytes, folder: Path, draw: Draw) -> None:
    (folder / "checkpoint").write_bytes(data)
    if not (folder / "model.ckpt.index").exists():
        tt.interop.save_tf_checkpoint(tt.BasicRNNCell(2, input_size=1), folder / "model.ckpt")
        (folder / "checkpoint").write_bytes(data)
    _read_checkpoint(folder, draw)


def _read_checkpoint(path: Path, draw: Draw) -> None:
    if draw.random() < 0.1:
        _inspect(path)
        return
    checkpoint = TFCheckpoint(path)
    str(checkpoint)
    errors = []
    for name in checkpoint:
        try:
            checkpoint[name]
        except ValueError as error:
            errors.append(error)
    full_names(checkpoint)
    # One variable may be damaged and others not: each error is looked at, the first is handed on.
    for found in errors:
        if not all(part in str(found) for part in CLEAR):
            raise found
    if errors:
        raise errors[0]


def _read_weights(data: bytes, folder: Path, draw: Draw) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    if draw.random() < 0.3:
        _inspect(path)
    else:
        tt.train.load_weights(tt.BasicRNNCell(2, input_size=1), path)


def _read_history(data: bytes, folder: Path, _: Draw) -> None:
    (folder / "history.jsonl").write_bytes(data)
    tt.train.History.read(folder)


def _read_training(data: bytes, folder: Path, draw: Draw) -> None:
    place = folder / "checkpoint-00000001"
    place.mkdir(exist_ok=True)
    if not (place / TENSORS).exists():
        tensors = {"state.optimizer.0": torch.zeros(2)}
        Checkpoints(folder, 3).save("00000002", tensors, tensors, {"a": tensors["state.optimizer.0"]})
        for file in (folder / "checkpoint-00000002").iterdir():
            file.replace(place / file.name)
        (folder / "checkpoint-00000002").rmdir()
    (place / STATE).write_bytes(data)
    if draw.random() < 0.2:
        _show.show(place)
    else:
        Checkpoints(folder, 3).load()


def _read_run(data: bytes, folder: Path, _: Draw) -> None:
    (folder / _run_folder.RUN).write_bytes(data)
    _run_folder.read_run(folder)


def _training_state(draw: Draw) -> bytes:
    value = {
        "optimizer": {"$pairs": [[0, {"$tuple": [1, {"$tensor": "state.a"}]}]]},
        "schedule": None,
        "random": {"torch": {"$tensor": "state.a"}, "python": {"$tuple": [3, [1, 2], None]}},
        "epoch": 1,
    }
    return inputs.json_file(value, draw)


def run_values() -> dict[str, Any]:
    """A `run.json` that is as it should be."""
    column = Column("x", "number")
    layout = Layout("classify", (column,), (Column("y", "category", categories=("a", "b")),), "id", None, None)
    plan = Plan(Path("a.csv"), Columns(), 0, layout, Shape("lstm", 8), Recipe(2, 32, 0.01), None, None, {})
    return {name: value for name, value in as_json(plan).items() if name != "parts"}


def _run_values(draw: Draw) -> bytes:
    return inputs.json_file(run_values(), draw)


LIBRARY = (ValueError, FileNotFoundError, TypeError, UserError)
TARGETS = {
    "checkpoint index": Target(inputs.index_file, _read_bundle, 190, LIBRARY),
    "checkpoint version 1": Target(inputs.version1_file, _read_version1, 140, LIBRARY),
    "checkpoint state": Target(inputs.state_file, _read_state, 60, LIBRARY),
    "csv": Target(inputs.csv_file, _read_table(".csv"), 120),
    "csv.gz": Target(inputs.packed_file(gzip.compress), _read_table(".csv.gz"), 10),
    "csv.bz2": Target(inputs.packed_file(bz2.compress), _read_table(".csv.bz2"), 10),
    "csv.xz": Target(inputs.packed_file(lzma.compress), _read_table(".csv.xz"), 10),
    "text": Target(inputs.text_file, _read_table(".txt"), 60),
    "npz": Target(inputs.npz_file, _read_table(".npz"), 120),
    "parquet": Target(inputs.parquet_file, _read_table(".parquet"), 80),
    "safetensors": Target(inputs.safetensors_file, _read_weights, 70, LIBRARY),
    "history": Target(inputs.history_file, _read_history, 50, LIBRARY),
    "training state": Target(_training_state, _read_training, 40, LIBRARY),
    "run.json": Target(_run_values, _read_run, 40),
}


def quiet() -> None:
    """Throw away what `inspect` prints."""
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    _show.Console = lambda **_: Console(file=sys.stdout, highlight=False, force_terminal=False)  # type: ignore[assignment,misc]


def first(name: str, count: int, seed: int) -> list[Any]:
    """Some inputs of a target."""
    return [TARGETS[name].make(draw_of(seed, name, number)) for number in itertools.islice(itertools.count(), count)]


def draw_of(seed: int, name: str, number: int) -> Draw:
    """The generator that makes an input, and decides how it is read."""
    return Draw(f"{seed}/{name}/{number}")
