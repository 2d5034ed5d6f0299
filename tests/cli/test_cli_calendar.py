"""Forecasts of dated data have the dates that follow."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_files import call, is_one_line_of_error, quickly, said
from throughtime.cli._options import Columns
from throughtime.cli.predict._future_dates import dates_after
from throughtime.cli.tables._infer_schema import look_over

pytestmark = pytest.mark.covers("cli")

FOLLOWING = {
    "days": (["2024-02-26", "2024-02-27", "2024-02-28"], ["2024-02-29", "2024-03-01"]),
    "weeks": (["2023-12-18", "2023-12-25"], ["2024-01-01", "2024-01-08"]),
    "months": (["2023-10-15", "2023-11-15", "2023-12-15"], ["2024-01-15", "2024-02-15"]),
    "months alone": (["2023-10", "2023-11"], ["2023-12", "2024-01"]),
    "ends of months": (["2023-11-30", "2023-12-31"], ["2024-01-31", "2024-02-29"]),
    "quarters": (["2023-01-01", "2023-04-01", "2023-07-01"], ["2023-10-01", "2024-01-01"]),
    "years": (["2019-03-01", "2020-03-01", "2021-03-01"], ["2022-03-01", "2023-03-01"]),
    "hours": (["2024-01-31T22", "2024-01-31T23"], ["2024-02-01T00", "2024-02-01T01"]),
    "minutes": (["2024-01-31 23:15", "2024-01-31 23:30"], ["2024-01-31 23:45", "2024-02-01 00:00"]),
    "UTC": (["2024-01-31T22:00:00Z", "2024-01-31T23:00:00Z"], ["2024-02-01T00:00:00Z", "2024-02-01T01:00:00Z"]),
    "summer time begins": (
        ["2024-03-31T00:00+01:00", "2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"],
        ["2024-03-31T04:00+02:00", "2024-03-31T05:00+02:00"],
    ),
    "fractions": (
        ["2024-01-01T00:00:00.250", "2024-01-01T00:00:00.500"],
        ["2024-01-01T00:00:00.750", "2024-01-01T00:00:01.000"],
    ),
    "working days": (["2024-05-02", "2024-05-03", "2024-05-06"], None),
    "the same day": (["2024-05-02", "2024-05-02"], None),
    "a single one": (["2024-05-02"], None),
    "no dates": (["2/5/2024", "3/5/2024"], None),
    "half a day and no hour": (["2024-05-01", "2024-05-01 12:00", "2024-05-02"], None),
    "the end of time": (["9999-12-30", "9999-12-31"], None),
}


@pytest.mark.parametrize("case", FOLLOWING)
def test_what_follows(case: str) -> None:
    dates, following = FOLLOWING[case]
    assert dates_after(np.array(dates, object), 2) == following


def rows(*dates: str) -> str:
    return "".join(f"{date},{name},{place % 3}.5\n" for name in "ab" for place, date in enumerate(dates))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shops, ten days."""
    folder = tmp_path_factory.mktemp("dates")
    (folder / "a.csv").write_text("when,shop,x\n" + rows(*(f"2024-05-{day:02d}" for day in range(1, 11))))
    result = quickly(folder / "a.csv", folder / "run", "--horizon", 2)
    assert result.exit_code == 0, said(result)
    return folder / "run"


def predicted(run: Path, content: str, out: Path) -> list[tuple[str, ...]]:
    (out / "new.csv").write_text(content)
    result = call("predict", run, out / "new.csv", "--out", out / "p.csv")
    assert result.exit_code == 0, said(result)
    with (out / "p.csv").open(newline="") as file:
        return [tuple(row[:2]) for row in csv.reader(file)]


def test_the_days_to_come(run: Path, tmp_path: Path) -> None:
    content = "when,shop,x\n" + rows("2024-06-28", "2024-06-29")
    days = ["2024-06-30", "2024-07-01"]
    assert predicted(run, content, tmp_path) == [("shop", "when"), *((name, day) for name in "ab" for day in days)]


def test_gaps_in_other_sequences(run: Path, tmp_path: Path) -> None:
    """They go on in the stride of the first one: a result has one column."""
    steps = ["01,a", "02,a", "05,b", "07,c", "11,c", "12,c"]
    content = "when,shop,x\n" + "".join(f"2024-06-{step},1\n" for step in steps)
    found = predicted(run, content, tmp_path)
    assert [day for name, day in found if name in "bc"] == ["2024-06-06", "2024-06-07", "2024-06-13", "2024-06-14"]


def test_irregular_days(run: Path, tmp_path: Path) -> None:
    content = "when,shop,x\n" + rows("2024-05-02", "2024-05-03", "2024-05-06")
    assert predicted(run, content, tmp_path)[:3] == [("shop", "position"), ("a", "4"), ("a", "5")]


def test_a_sequence_without_dates(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("when,shop,x\n2024-06-01,a,1\n2024-06-02,a,1\nsoon,b,1\n")
    is_one_line_of_error(
        call("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p.csv"),
        "new.csv, line 4, column `when` cannot be continued: got sequence 'b' with something else than dates",
    )


COUNTS = [(7 * day) % 31 + 20 for day in range(120)]
DATED = {
    "month and day": ("month,day,y", lambda day, y: f"{day // 30 + 1},{day % 30 + 1},{y}", ["y"]),
    "month, day and another": ("month,day,t1,y", lambda day, y: f"{day // 30},{day % 30},{day % 9 / 2},{y}", ["y"]),
    "year and month": ("year,month,target", lambda day, y: f"{2000 + day // 12},{day % 12 + 1},{y}", ["target"]),
    "a date": ("date,y", lambda day, y: f"2024-{day // 28 + 1:02d}-{day % 28 + 1:02d},{y}", ["y"]),
    "a weekday in words": ("weekday,y", lambda day, y: f"{['mo', 'tu', 'we'][day % 3]},{y}", ["y"]),
}
CLASSES = {
    "yes or no beside a measurement": ("month,x,y", lambda day, y: f"{day // 30},{day % 7 / 2},{y % 2}"),
    "words": ("month,day,y", lambda day, y: f"{day // 30},{day % 30},{'abc'[y % 3]}"),
    "classes by name": ("month,day,label", lambda day, y: f"{day // 30},{day % 30},{y % 3}"),
}


def schema(path: Path, header: str, row: Any, **said: Any) -> Any:
    path.write_text(header + "\n" + "".join(row(day, y) + "\n" for day, y in enumerate(COUNTS)))
    return look_over(path, Columns(**said))


@pytest.mark.parametrize("case", DATED)
def test_whole_numbers_with_a_date_are_forecast(case: str, tmp_path: Path) -> None:
    header, row, target = DATED[case]
    _, layout, reasons = schema(tmp_path / "a.csv", header, row)
    assert layout.task == "forecast"
    assert [column.name for column in layout.targets] == target
    assert reasons[target[0]] == "input and target: numbers by date (`--task tag`: classes)"
    assert not {"month", "day", "year"} & set(target)
    result = quickly(tmp_path / "a.csv", tmp_path / "run")
    assert result.exit_code == 0, said(result)


@pytest.mark.parametrize("case", CLASSES)
def test_classes_stay_classes_beside_a_calendar(case: str, tmp_path: Path) -> None:
    _, layout, _ = schema(tmp_path / "a.csv", *CLASSES[case])
    assert layout.task == "tag"


def test_what_was_said_is_done(tmp_path: Path) -> None:
    header, row, _ = DATED["month and day"]
    assert schema(tmp_path / "a.csv", header, row, task="tag").layout.task == "tag"
    assert schema(tmp_path / "a.csv", header, row, categories=("y",)).layout.task == "tag"


def test_one_class_a_sequence_is_no_quantity_by_date(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,day,y\n" + "".join(f"{day // 4},{day % 4},{day // 4 % 2}\n" for day in range(40))
    )
    assert look_over(tmp_path / "a.csv", Columns()).layout.task == "classify"
