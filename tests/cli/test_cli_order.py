"""The order of steps in what `predict` writes: a result can be joined with its file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from cli_files import call, is_one_line_of_error, quickly
from throughtime.cli.predict._task_outputs import position_beside, whole_numbers

pytestmark = pytest.mark.covers("cli")


def trained(content: str, folder: Path, *flags: object) -> Path:
    """A run on a file of some content."""
    (folder / "a.csv").write_text(content)
    result = quickly(folder / "a.csv", folder / "run", *flags)
    assert result.exit_code == 0, result.stderr
    return folder / "run"


def predicted(run: Path, content: str) -> list[dict[str, str]]:
    file, out = run.parent / "new.csv", run.parent / "p.csv"
    file.write_text(content)
    result = call("predict", run, file, "--out", out)
    assert result.exit_code == 0, result.stderr
    with out.open(newline="") as rows:
        return list(csv.DictReader(rows))


def words(order: str, start: float = 0, stride: float = 1) -> str:
    """Ten sentences of four words; the order is of the form that `format` knows."""
    lines = [
        f"s{row // 4},{order.format(start + stride * (row % 4))},w{row % 3},{'ABC'[row % 3]}\n" for row in range(40)
    ]
    return "sentence,step,word,tag\n" + "".join(lines)


@pytest.mark.parametrize(
    "content",
    [words("{:.0f}"), words("{:.0f}", 7, 2), words("{:.7f}", 1700000000.1234567, 0.5), words("2024-05-{:02.0f}", 1)],
    ids=["from 0", "by two", "many digits", "dates"],
)
def test_tags_keep_the_order_of_the_file(content: str, tmp_path: Path) -> None:
    rows = predicted(trained(content, tmp_path), content)
    known = list(csv.DictReader(content.splitlines()))
    assert list(rows[0]) == ["sentence", "step", "tag", "probability"]
    assert [(row["sentence"], row["step"]) for row in rows] == [(row["sentence"], row["step"]) for row in known]


def test_tags_of_numbers_that_parquet_holds(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    run = trained(words("{:.0f}"), tmp_path)
    times = [1700000000.125, 1700000000.25]
    parquet.write_table(
        pa.table({"sentence": ["a", "a"], "step": times, "word": ["w0", "w1"]}), tmp_path / "new.parquet"
    )
    for suffix in ("csv", "parquet"):
        assert call("predict", run, tmp_path / "new.parquet", "--out", tmp_path / f"p.{suffix}").exit_code == 0
    lines = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [float(line.split(",")[1]) for line in lines] == times
    assert parquet.read_table(tmp_path / "p.parquet")["step"].to_pylist() == times


def test_a_file_may_do_without_the_order(tmp_path: Path) -> None:
    rows = predicted(trained(words("{:.0f}"), tmp_path), "sentence,word\na,w0\na,w1\nb,w2\n")
    assert [(row["sentence"], row["position"]) for row in rows] == [("a", "1"), ("a", "2"), ("b", "1")]


def numbers(order: str, *steps: object) -> str:
    """Two sequences of some steps."""
    lines = [f"{name},{step},{place % 3}.5\n" for name in "ab" for place, step in enumerate(steps)]
    return f"id,{order},x\n" + "".join(lines)


@pytest.mark.parametrize(
    ("steps", "column", "to_come"),
    [
        (range(8), "step", ["8", "9"]),
        (range(100, 180, 10), "step", ["180", "190"]),
        ([0, 1, 2, 4, 5, 6, 7, 11], "step", ["12", "13"]),
        (["3.0"] * 8, "step", ["4", "5"]),
        (range(1700000000000000001, 1700000000000000009), "step", ["1700000000000000009", "1700000000000000010"]),
        ([place / 2 for place in range(8)], "position", ["9", "10"]),
        ([f"2024-05-{day:02d}" for day in range(1, 9)], "step", ["2024-05-09", "2024-05-10"]),
        ([f"2024-05-{day:02d}" for day in (1, 2, 3, 6, 7, 8, 9, 10)], "position", ["9", "10"]),
    ],
    ids=["from 0", "by ten", "a row missing", "at once", "nanoseconds", "halves", "dates", "working days"],
)
def test_a_forecast_goes_on_with_the_order(steps: object, column: str, to_come: list[str], tmp_path: Path) -> None:
    content = numbers("step", *steps)
    rows = predicted(trained(content, tmp_path, "--horizon", 2), content)
    assert list(rows[0]) == ["id", column, "x"]
    assert [row[column] for row in rows] == to_come * 2


def test_an_order_that_stops_counting_is_refused(tmp_path: Path) -> None:
    run = trained(numbers("t", *range(8)), tmp_path, "--horizon", 2)
    file = tmp_path / "new.csv"
    file.write_text("id,t,x\na,0,1\na,1,1\nb,0,1\nb,0.5,1\n")
    message = "new.csv, line 5, column `t` cannot be continued: got sequence 'b' with something else than whole numbers"
    is_one_line_of_error(call("predict", run, file, "--out", tmp_path / "p.csv"), message)
    assert not (tmp_path / "p.csv").exists()


def test_whole_numbers() -> None:
    assert whole_numbers(np.array(["0", " 1 ", "2.0", "1e3"], object)) == [0, 1, 2, 1000]
    assert whole_numbers(np.array([1.0, 2.0])) == [1, 2]
    for other in ("", "nan", "inf", "1.5", "2024-05-01"):
        assert whole_numbers(np.array(["1", other], object)) is None


def test_no_two_columns_of_one_name() -> None:
    assert position_beside(["id", "x"]) == "position"
    assert position_beside(["id", "position"]) == "position in sequence"


def test_the_help_says_so() -> None:
    assert "a column position counts the steps of each sequence from 1" in " ".join(
        call("predict", "--help").stdout.replace("`", "").split()
    )
