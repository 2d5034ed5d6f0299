"""`throughtime train --resume` goes on with the data that the run began with, and with no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_files import call, gestures, is_one_line_of_error, quickly, said
from throughtime.cli.tables._fingerprint import fingerprint

pytestmark = pytest.mark.covers("cli")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    assert quickly(gestures(tmp_path / "a.csv"), tmp_path / "run").exit_code == 0
    return tmp_path / "run"


def test_other_numbers_are_other_data(run: Path) -> None:
    """Means to six digits, columns and categories are the same: it is the content that tells."""
    file = run.parent / "a.csv"
    lines = file.read_text().splitlines()
    lines[1], lines[2] = lines[2].replace(",1,", ",0,"), lines[1].replace(",0,", ",1,")
    file.write_text("\n".join(lines) + "\n")
    is_one_line_of_error(
        call("train", "--resume", run),
        "a.csv has changed since the run began: got other content in the same",
        "start a new run without `--resume`",
    )


def test_more_rows_are_other_data(run: Path) -> None:
    file = run.parent / "a.csv"
    before = file.stat().st_size
    file.write_text(file.read_text() + "g23,99,0.5,0.5,wave\n")
    message = f"has changed since the run began: got {before + 20:,} bytes, expected {before:,}."
    is_one_line_of_error(call("train", "--resume", run), message)


def test_runs_that_do_not_know_go_on(run: Path) -> None:
    values = json.loads((run / "run.json").read_text())
    assert values.pop("data")["files"] == 1
    (run / "run.json").write_text(json.dumps(values))
    file = run.parent / "a.csv"
    file.write_text(file.read_text() + "\n")
    result = call("train", "--resume", run)
    assert result.exit_code == 0, said(result)


def test_folders_are_all_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    (folder / "tap").mkdir(parents=True)
    for name in ("1", "2"):
        (folder / "tap" / f"{name}.csv").write_text(f"x\n{name}\n")
    before = fingerprint(folder)
    assert before[:2] == (2, 8)
    (folder / ".hidden.csv").write_text("x\n")
    assert fingerprint(folder) == before, "what is not read does not count"
    (folder / "tap" / "2.csv").rename(folder / "tap" / "3.csv")
    assert fingerprint(folder).difference(before)[0] == "other content in the same 8 bytes"
    (folder / "tap" / "2.csv").write_text("x\n2\n")
    assert fingerprint(folder).difference(before) == ("3 files", "2")
