"""`run.json` edited by hand: every field replaced and removed, in runs of every task, before every command."""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from cli_files import call, gestures, is_one_line_of_error, many_series, pairs, quickly, tags, text
from throughtime.cli import _run_folder
from throughtime.cli._user_errors import UserError

pytestmark = pytest.mark.covers("cli")

FILES = {
    "classify": (gestures, "a.csv"),
    "tag": (tags, "a.csv"),
    "forecast": (many_series, "a.csv"),
    "generate": (text, "a.txt"),
    "translate": (pairs, "a.tsv"),
}
NESTED: Any = [[[{"a": [{}]}]]]
# What a hand or a program may put in the place of anything.
VALUES = {
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "a fraction": 0.5,
    "huge": 10**12,
    "larger than 64 bits": 10**40,
    "larger than a float": 10**400,
    "huge and a fraction": 1e300,
    "tiny": 5e-324,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "empty text": "",
    "text": "nonsense",
    "long text": "x" * 100_000,
    "NUL": "a\0b",
    "half a surrogate": "\ud800",
    "empty list": [],
    "list": ["nonsense"],
    "list of numbers": [1, 2],
    "nested": NESTED,
    "empty object": {},
    "object": {"nonsense": 1},
}
GONE = object()
COMMANDS, INSPECT = 4, 1


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a file, containers included; of long lists the first and the last."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} if value else {}):
            yield from places(value[index], (*path, index))


def with_change(run: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(run)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def mutations(run: Any) -> Iterator[tuple[str, Any]]:
    """Every file that differs from `run` in one place, and what was done there."""
    for path in places(run):
        where = ".".join(map(str, path))
        for name, value in VALUES.items():
            yield f"{where}: {name}", with_change(run, path, value)
        if path:
            yield f"{where}: gone", with_change(run, path, GONE)
        inner = run
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict):
            yield f"{where}: one more", with_change(run, (*path, "nonsense"), 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for task, (make, name) in FILES.items():
        (root / f"of {task}").mkdir()
        result = quickly(make(root / f"of {task}" / name), root / task)
        assert result.exit_code == 0, result.stderr
    return root


@pytest.fixture(scope="module")
def changes(runs: Path) -> dict[str, set[str]]:
    """For each task the names of all changes of its file."""
    return {task: {name for name, _ in mutations(json.loads((runs / task / "run.json").read_text()))} for task in FILES}


def commands(task: str, run: Path, file: Path) -> list[list[Any]]:
    """Every command that reads a run; each does its work on an unchanged run."""
    use = ["decode", run, "--length", 5] if task == "generate" else ["predict", run, file, "--out", "-"]
    return [use, ["inspect", run], ["explain", run], ["train", "--resume", run]]


def commands_here(task: str, name: str, names: dict[str, set[str]]) -> Iterator[int]:
    """Which commands are tried with a change in this task: all tasks that know the change share all commands."""
    sharing = [other for other in FILES if name in names[other]]
    for number in range(COMMANDS):
        if sharing[(number + crc32(name.encode())) % len(sharing)] == task:
            yield number


def write(folder: Path, values: Any) -> None:
    (folder / "run.json").write_text(json.dumps(values))


def refusal(folder: Path) -> str | None:
    """What is said when the file is read; None if it may be so."""
    try:
        _run_folder.read_run(folder)
    except UserError as mistake:
        return str(mistake)
    return None


@pytest.mark.parametrize("task", FILES)
def test_every_field(task: str, runs: Path, changes: dict[str, set[str]], tmp_path: Path) -> None:
    """Refused with the name of the field where the file is read, or harmless in every command."""
    folder, file = tmp_path / "run", runs / f"of {task}" / FILES[task][1]
    shutil.copytree(runs / task, folder)
    whole = json.loads((folder / "run.json").read_text())
    accepted, refused = {}, 0
    for name, changed in mutations(whole):
        write(folder, changed)
        message = refusal(folder)
        if message is None:
            accepted[name] = changed
            continue
        refused += 1
        field = name.partition(":")[0].rpartition(".")[2]
        assert "\n" not in message
        assert "run.json: " in message
        assert not field or field.isdigit() or field in message, (name, message)
        assert len(message) < 500, name
    assert refused > 700
    assert len(accepted) < 0.2 * refused, list(accepted)
    for name, changed in accepted.items():
        # What was measured is only shown.
        measured, every = name.startswith("metrics."), commands(task, folder, file)
        for number in [INSPECT] if measured else commands_here(task, name, changes):
            shutil.rmtree(folder)
            shutil.copytree(runs / task, folder)
            write(folder, changed)
            began = time.perf_counter()
            result = call(*every[number])
            if result.exit_code != 0:
                is_one_line_of_error(result)
            assert result.exception is None or isinstance(result.exception, SystemExit), name
            assert time.perf_counter() - began < 20, name


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("shape", "units"), -3, "`shape.units` is wrong: got -3, expected a whole number from 1 to 1,000,000."),
        (("recipe", "learning_rate"), "fast", "`recipe.learning_rate` is wrong: got 'fast', expected a finite number."),
        (("layout", "inputs", 1, "kind"), "colour", "`layout.inputs[1].kind` is wrong: got 'colour', expected one of"),
        (("layout", "inputs", 0, "kind"), "text", "`layout.inputs` is wrong: got a list of 2, expected one column"),
        (("layout", "targets"), [], "`layout.targets` is wrong: got a list of 0, expected one column or more."),
        (("layout", "task"), "generate", "`layout.inputs[0].kind` is wrong: got 'number', expected text, for a task"),
        (("layout", "targets", 0, "categories"), ["a", "a"], "expected a list without repetitions."),
        (("throughtime",), "99.0.0", "it was written by a newer version: got 99.0.0, expected at most"),
        (("data", "blake2b"), "0", "`data.blake2b` is wrong: got '0', expected a hash of 32 hexadecimal digits."),
        (("seed",), GONE, "`seed` is missing: got nothing, expected what `throughtime train` wrote."),
        (("spokes",), 3, "`spokes` is unknown: got 3, expected only throughtime, file, data, said, seed"),
    ],
)
def test_the_line_names_the_field(path: tuple[Any, ...], value: Any, words: str, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "classify", folder)
    write(folder, with_change(json.loads((folder / "run.json").read_text()), path, value))
    for command in commands("classify", folder, runs / "of classify" / "a.csv"):
        is_one_line_of_error(call(*command), f"{folder / 'run.json'}: ", words, "Undo the change in the file, or take")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "got Expecting value"),
        (b"\xff\xfe{}", "got 'utf-8' codec can't decode"),
        (b"[" * 100_000, "got JSON that is nested too deep"),
        (b'{"seed": ' + b"9" * 5_000 + b"}", "got Exceeds the limit"),
        (b'{"seed": 1, "seed": 2}', "got a key that is there twice"),
    ],
)
def test_what_is_no_json(content: bytes, words: str, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(content)
    for command in commands("tag", tmp_path, runs / "of tag" / "a.csv"):
        is_one_line_of_error(call(*command), "run.json cannot be read: ", words)


def with_shape(folder: Path, **change: int) -> None:
    values = json.loads((folder / "run.json").read_text())
    write(folder, values | {"shape": values["shape"] | change})


@pytest.mark.parametrize("change", [{"units": 1_000_000}, {"units": 60_000}, {"layers": 1_000}, {"horizon": 1_000_000}])
def test_huge_sizes_are_not_allocated(change: dict[str, int], runs: Path, tmp_path: Path) -> None:
    """The weights on disk say how large the model is."""
    folder = tmp_path / "run"
    shutil.copytree(runs / "forecast", folder)
    with_shape(folder, **change)
    for command in commands("forecast", folder, runs / "of forecast" / "a.csv"):
        if command[0] != "inspect":
            is_one_line_of_error(call(*command), "model.safetensors: the weights do not fit")


def test_a_model_larger_than_memory_is_not_begun(runs: Path, tmp_path: Path) -> None:
    units = 1_000_000
    folder, file = tmp_path / "run", runs / "of forecast" / "a.csv"
    shutil.copytree(runs / "forecast", folder)
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)
    with_shape(folder, units=units)
    for command in (["train", "--resume", folder], ["train", file, "--units", units, "--out", tmp_path / "new"]):
        is_one_line_of_error(call(*command), "the model is larger than memory: got ", "Choose fewer units or layers.")
    assert not (tmp_path / "new").exists()


def test_a_run_of_another_length_does_not_go_on(runs: Path, tmp_path: Path) -> None:
    """Its schedule is made for the steps that were planned."""
    folder = tmp_path / "run"
    shutil.copytree(runs / "tag", folder)
    values = json.loads((folder / "run.json").read_text())
    write(folder, values | {"recipe": values["recipe"] | {"epochs": 1_000_000}})
    is_one_line_of_error(
        call("train", "--resume", folder), "the run began otherwise: got total_steps 1000000, expected"
    )
