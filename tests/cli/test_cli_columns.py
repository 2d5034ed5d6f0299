"""What the table of columns says, and targets that no task learns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli_files import call, gestures, is_one_line_of_error, quickly, said
from throughtime.cli._options import Columns
from throughtime.cli.tables._infer_schema import look_over

pytestmark = pytest.mark.covers("cli")


def one_number_each(path: Path) -> Path:
    """Thirty sequences of three steps, each with a number to tell."""
    rows = (f"{row // 3},{row % 3},{row // 3 * 0.37:.2f}\n" for row in range(90))
    path.write_text("id,x,label\n" + "".join(rows))
    return path


def test_a_number_for_each_sequence_is_no_forecast(tmp_path: Path) -> None:
    result = quickly(one_number_each(tmp_path / "a.csv"), tmp_path / "run")
    message = "`label` is one number for each sequence: got 0 to 10.73, the same in all steps of a sequence"
    is_one_line_of_error(result, message, "to tell a number is not a task here", "`--ignore label`")
    assert not (tmp_path / "run").exists()


def test_what_is_said_is_done(tmp_path: Path) -> None:
    path = one_number_each(tmp_path / "a.csv")
    assert look_over(path, Columns(task="forecast", target=("label",))).layout.targets[0].name == "label"
    assert look_over(path, Columns(ignore=("label",))).layout.targets[0].name == "x"


def test_columns_that_are_the_same_everywhere(tmp_path: Path) -> None:
    rows = "".join(f"{row // 3},{row % 3},5,lab,{'ab'[row // 3 % 2]}\n" for row in range(90))
    (tmp_path / "a.csv").write_text("id,x,level,place,kind\n" + rows)
    reasons = look_over(tmp_path / "a.csv", Columns()).reasons
    assert reasons["level"] == "input: the same number everywhere, which tells nothing"
    assert reasons["place"] == "input: the same category everywhere, which tells nothing"
    _, layout, reasons = look_over(tmp_path / "a.csv", Columns(ignore=("kind", "place")))
    assert reasons["level"] == "input: the same number everywhere, which tells nothing"
    assert reasons["x"] == "input and target"
    assert [column.name for column in layout.targets] == ["x"], "what never changes is not forecast"


@pytest.mark.parametrize("module", ["throughtime", "throughtime.cli"])
def test_both_names_of_the_module_run(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("throughtime ")


def test_inspect_shows_all_columns_of_a_run(tmp_path: Path) -> None:
    assert quickly(gestures(tmp_path / "a.csv", split=True), tmp_path / "run").exit_code == 0
    assert "inputs x, y targets kind sequence id order step split split learns from" in said(
        call("inspect", tmp_path / "run")
    )
