"""Messages say what is the matter in terms of what the user has."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_files import call, gestures, is_one_line_of_error, pairs, quickly, said
from throughtime.cli._result_files import rights
from throughtime.cli._user_errors import ROOM, listed

pytestmark = pytest.mark.covers("cli")


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert quickly(gestures(folder / "g.csv"), folder / "classify").exit_code == 0
    assert quickly(pairs(folder / "p.tsv"), folder / "translate").exit_code == 0
    return folder


@pytest.mark.parametrize(
    ("read_only", "why"),
    [(True, "which is on a read-only file system"), (False, "which you have no permission to write to")],
)
def test_a_place_that_cannot_be_written_to(read_only: bool, why: str, folder: Path, tmp_path: Path) -> None:
    with rights.change(can_write=lambda _: False, is_read_only=lambda _: read_only):
        result = call("predict", folder / "classify", folder / "g.csv", "--out", tmp_path / "p.csv")
    is_one_line_of_error(result, f"cannot write `--out` {tmp_path / 'p.csv'}: got {tmp_path}, {why}")


@pytest.mark.parametrize("length", [2, 500, 999])
def test_a_text_is_as_long_as_it_is(length: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * (length // 2) + "a" * (length % 2))
    message = f"too short to learn from: got {length} characters, expected at least 1,000,"
    is_one_line_of_error(quickly(tmp_path / "a.txt", tmp_path / "run"), message)


def test_as_much_text_as_is_asked_for_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * 500)
    assert quickly(tmp_path / "a.txt", tmp_path / "run").exit_code == 0


def test_texts_of_which_little_is_learned_from(tmp_path: Path) -> None:
    """Of two texts one is held out: which one, the seed says."""
    (tmp_path / "a.csv").write_text(f"text\n{'ab' * 750}\n{'ba' * 10}\n")
    results = [quickly(tmp_path / "a.csv", tmp_path / f"run {seed}", "--seed", seed) for seed in (0, 1, 2, 3)]
    assert {result.exit_code for result in results} == {0, 2}, [said(result) for result in results]
    bad = next(result for result in results if result.exit_code)
    is_one_line_of_error(bad, "got 1,520 characters, 19 of them to learn from, expected at least 1,000")


def test_sequences_without_steps_are_said_to_be(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(80.0).reshape(40, 2) / 7, lengths=[4, 0] * 10, kind=[0, 1] * 10)
    result = quickly(tmp_path / "a.npz", tmp_path / "run")
    is_one_line_of_error(
        result, "column `kind` has one class only: got '0' everywhere; 10 sequences of length 0 do not count"
    )
    assert "10 sequences of 4 steps; 10 sequences of length 0 do not count" in said(call("inspect", tmp_path / "a.npz"))


def test_files_without_rows_are_said_to_be(tmp_path: Path) -> None:
    for kind, rows in (("tap", "1,2\n3,4\n"), ("wave", "")):
        (tmp_path / "lab" / kind).mkdir(parents=True)
        for number in range(3 if rows else 1):
            (tmp_path / "lab" / kind / f"{number}.csv").write_text("x,y\n" + rows)
    is_one_line_of_error(
        quickly(tmp_path / "lab", tmp_path / "run"), "got 'tap' everywhere; 1 sequence of length 0 does not count"
    )


def test_nul_bytes_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,x\na,1\na,\x002\n")
    is_one_line_of_error(call("inspect", tmp_path / "a.csv"), "a.csv is not a text file: got NUL bytes")
    (tmp_path / "a.csv").write_bytes(b"id,x\na,\xff\n")
    is_one_line_of_error(call("inspect", tmp_path / "a.csv"), "a.csv is not a text file: got bytes that are not UTF-8")


def test_lists_of_names_end_with_a_name() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a, b"
    names = [f"steps_{place}" for place in range(60)]
    assert listed(names).startswith("steps_0, steps_1, ")
    assert listed(names).endswith("steps_12 and 47 more")
    assert listed(["x" * ROOM, "y"]) == "x" * ROOM + " and 1 more"
    is_one_line_of_error(call("train", "--order", "time"), "steps_11 and 2 more. Check the spelling.")


def test_a_full_disk_names_the_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("throughtime._atomic_files.sync_file", full)
    result = call("predict", folder / "classify", folder / "g.csv", "--out", tmp_path / "p.csv")
    is_one_line_of_error(result, f"{tmp_path / 'p.csv'} cannot be read or written: No space left on device.")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", [["decode", "translate", "abc"], ["predict", "classify", "{}/g.csv", "--out", "-"]])
def test_a_full_output_is_called_so(command: list[str], folder: Path) -> None:
    rest = [part.format(folder) for part in command[2:]]
    with Path("/dev/full").open("w") as nowhere:
        done = subprocess.run(
            [sys.executable, "-m", "throughtime", command[0], str(folder / command[1]), *rest],
            stdout=nowhere,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "Error: standard output cannot be read or written: No space left on device." in done.stderr


def test_a_full_disk_is_no_reason_to_start_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = gestures(tmp_path / "a.csv")
    with monkeypatch.context() as patch:
        patch.setattr("throughtime.train.save_weights", full)
        result = quickly(file, tmp_path / "run")
    run = tmp_path / "run"
    message = f"{run} cannot be written: got No space left on device", f"go on with `throughtime train --resume {run}`"
    is_one_line_of_error(result, *message)
    assert call("train", "--resume", run).exit_code == 0
