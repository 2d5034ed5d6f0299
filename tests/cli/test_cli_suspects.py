"""Tables that would be learned from wrongly: recognised, or refused with one line that says how to go on."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import pytest

from cli_files import call, is_one_line_of_error, quickly, said
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError
from throughtime.cli.tables._infer_schema import InferredSchema, look_over

pytestmark = pytest.mark.covers("cli")


def write(path: Path, header: str, rows: Iterable[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def look(path: Path, header: str, rows: Iterable[str], **wishes: object) -> InferredSchema:
    return look_over(write(path, header, rows), Columns(**wishes))


def names(columns: Iterable[object]) -> list[str]:
    return [column.name for column in columns]


def day(number: int) -> str:
    return str(date(2022, 1, 1) + timedelta(number))


def series_in_rows(count: int = 30, steps: int = 100) -> list[list[str]]:
    """One row a series: a class, then its values."""
    draw = random.Random(0)
    return [
        [str(row % 2), *(f"{math.sin(step / 9 * (1 + row % 2)) + draw.gauss(0, 0.1):.3f}" for step in range(steps))]
        for row in range(count)
    ]


WIDE = {
    "label first": ("label", "t{}", False),
    "label last": ("class", "V{}", True),
    "steps called by numbers": ("target", "{}", False),
    "a name first": ("id", "x_{}", False),
    "letters, label first": ("class", "sensor {}", False),
    "letters, label last": ("y", "sensor {}", True),
}


def lettered(step: int) -> str:
    return "abcdefghij"[step // 10] + "abcdefghij"[step % 10]


@pytest.mark.parametrize("case", WIDE)
def test_one_row_a_series_is_refused(case: str, tmp_path: Path) -> None:
    label, form, is_last = WIDE[case]
    steps = [form.format(lettered(step - 1) if "letters" in case else step) for step in range(1, 101)]
    cells = series_in_rows()
    if case == "a name first":
        cells = [[f"s{row}", *values[1:]] for row, values in enumerate(cells)]
    header = [*steps, label] if is_last else [label, *steps]
    rows = [",".join([*row[1:], row[0]] if is_last else row) for row in cells]
    file = write(tmp_path / "a.csv", ",".join(header), rows)
    message = f"got 30 rows with 100 columns `{steps[0]}` to `{steps[-1]}` of one kind, expected one row a step"
    way_on = "NPZ file", "melt in pandas", "`--task forecast`"
    is_one_line_of_error(quickly(file, tmp_path / "run"), "a.csv seems to have one row a series", message, *way_on)
    assert not (tmp_path / "run").exists()
    assert "Not ready to train on:" in said(call("inspect", file))
    assert look_over(file, Columns(task="forecast")).layout.task == "forecast", "who says so is believed"


def test_channels_of_a_step_are_not_series(tmp_path: Path) -> None:
    header = ",".join(["id", *(f"mfcc{place}" for place in range(40)), "label"])
    rows = [
        ",".join([str(row // 5), *(f"{row * place % 7}.5" for place in range(40)), "ab"[row // 5 % 2]])
        for row in range(60)
    ]
    assert look(tmp_path / "a.csv", header, rows).layout.task == "classify"
    dated = ",".join(["time", *(f"s{place}" for place in range(40))])
    rows = [",".join([str(row), *(f"{row * place % 7}.5" for place in range(40))]) for row in range(60)]
    assert look(tmp_path / "a.csv", dated, rows).layout.task == "forecast"


def test_series_without_a_header(tmp_path: Path) -> None:
    """As archives of time series have them; numbers may well be alike."""
    file = tmp_path / "a.tsv"
    file.write_text("1\t0.5\t0.5\t0.7\n2\t0.1\t0.2\t0.3\n")
    is_one_line_of_error(quickly(file, tmp_path / "run"), "a.tsv has no header", "Add a first line that names them.")


def test_moments_that_repeat_name_the_series(tmp_path: Path) -> None:
    rows = [f"{day(step)},s{shop},{step % 7}.5" for step in range(30) for shop in range(4)]
    found, layout, reasons = look(tmp_path / "a.csv", "date,shop,sales", rows)
    assert (layout.sequence, layout.order, names(layout.targets)) == ("shop", "date", ["sales"])
    assert found.lengths == [30] * 4
    assert not found.together
    assert reasons["shop"] == "names the sequence: each of its values has every `date` once"
    assert quickly(tmp_path / "a.csv", tmp_path / "run").exit_code == 0
    numbered = [f"{day(step)},{shop},{step % 7}.5" for step in range(30) for shop in range(4)]
    assert look(tmp_path / "a.csv", "date,shop,sales", numbered).layout.sequence == "shop"


def test_moments_that_repeat_without_a_reason_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "date,sales", [f"{day(step // 4)},{step * 7 % 11}.5" for step in range(120)])
    message = "line 3: `date` repeats: got 2022-01-01 again, as in 90 of 120 rows"
    is_one_line_of_error(quickly(file, tmp_path / "run"), message, "`--sequence COLUMN`", "`--ignore date`")
    assert message in said(call("inspect", file))
    assert quickly(file, tmp_path / "run", "--ignore", "date").exit_code == 0


def test_a_clock_that_is_changed_repeats_once(tmp_path: Path) -> None:
    hours = [f"{day(step // 24)} {step % 24:02d}:00" for step in range(240)]
    hours.insert(51, hours[50])
    rows = [f"{hour},{step % 5}.5" for step, hour in enumerate(hours)]
    assert quickly(write(tmp_path / "a.csv", "time,x", rows), tmp_path / "run").exit_code == 0


def test_years_that_go_back(tmp_path: Path) -> None:
    rows = [f"{land},{1990 + step // 4},{1 + step % 4},{100 + step * 7 % 13}.5" for land in "abc" for step in range(40)]
    found, layout, reasons = look(tmp_path / "a.csv", "land,year,quarter,gdp", rows)
    assert (layout.sequence, names(layout.targets)) == ("land", ["gdp"])
    assert found.lengths == [40] * 3
    assert reasons["land"] == "names the sequence: `year` starts again where it changes"
    file = write(tmp_path / "a.csv", "year,quarter,gdp", [row[2:] for row in rows])
    is_one_line_of_error(quickly(file, tmp_path / "run"), "line 42: `year` goes back: got 1990 after 1999")


def test_dates_that_go_back_in_one_sequence(tmp_path: Path) -> None:
    """Nothing says which rows belong together: they would be learned from as one sequence."""
    file = write(tmp_path / "a.csv", "opened,x", [f"{day(step % 20)},{step % 7}.5" for step in range(60)])
    is_one_line_of_error(quickly(file, tmp_path / "run"), "`opened` goes back: got 2022-01-01 after 2022-01-20")
    assert quickly(file, tmp_path / "run", "--ignore", "opened").exit_code == 0


def test_a_time_that_cannot_be_checked_is_called_so(tmp_path: Path) -> None:
    rows = [f"{1 + step // 28}/{1 + step % 28}/2024,{step * 7 % 11}.5" for step in range(60)]
    reasons = look(tmp_path / "a.csv", "date,x", rows).reasons
    assert reasons["date"] == "order of steps, which is not checked: neither numbers nor dates such as 2024-05-01"
    for known in (day, str):
        known_rows = [f"{known(step)},{step * 7 % 11}.5" for step in range(60)]
        assert look(tmp_path / "a.csv", "date,x", known_rows).reasons["date"] == "order of steps"


def test_the_calendar_is_no_target(tmp_path: Path) -> None:
    rows = [f"{1960 + step // 4},{1 + step % 4},{100 + step * 7 % 13}.5" for step in range(120)]
    _, layout, reasons = look(tmp_path / "a.csv", "Year,quarter,gdp", rows)
    assert (names(layout.targets), names(layout.inputs)) == (["gdp"], ["Year", "quarter", "gdp"])
    assert reasons["quarter"] == "input: number, 1 to 4; of the calendar"
    asked = look(tmp_path / "a.csv", "Year,quarter,gdp", rows, target=("quarter",))
    assert names(asked.layout.targets) == ["quarter"], "what is said is done"
    days = [f"{day(step)},{step * 7 % 13}.5,{['Mon', 'Tue', 'Wed'][step % 3]}" for step in range(60)]
    _, layout, _ = look(tmp_path / "a.csv", "date,sales,weekday", days)
    assert (layout.task, names(layout.targets)) == ("forecast", ["sales"])
    with pytest.raises(UserError, match="besides those of the calendar"):
        look(tmp_path / "a.csv", "year,month", [f"{2000 + step // 12},{1 + step % 12}" for step in range(60)])


@pytest.mark.parametrize("when", [str, day])
def test_the_long_format_of_forecasts(when: object, tmp_path: Path) -> None:
    """`unique_id, ds, y`: whole numbers are what is forecast, not tags."""
    rows = [f"{name},{when(step)},{20 + (step * 7 + name) % 13}" for name in range(3) for step in range(40)]
    _, layout, _ = look(tmp_path / "a.csv", "unique_id,ds,y", rows)
    assert (layout.task, layout.sequence, layout.order, names(layout.targets)) == ("forecast", "unique_id", "ds", ["y"])
    alone = look(tmp_path / "a.csv", "ds,y", [row.split(",", 1)[1] for row in rows[:40]]).layout
    assert (alone.task, alone.order, names(alone.targets)) == ("forecast", "ds", ["y"])
    tagged = look(tmp_path / "a.csv", "unique_id,ds,y,x", [f"{row},{len(row)}" for row in rows], task="tag")
    assert (tagged.layout.task, names(tagged.layout.targets)) == ("tag", ["y"]), "what is said is done"


def test_what_never_changes_is_not_forecast(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "date,x", [f"{day(step)},5" for step in range(60)])
    is_one_line_of_error(quickly(file, tmp_path / "run"), "column `x` never changes: got 5 everywhere")
    file = write(tmp_path / "a.csv", "date,x,z", [f"{day(step)},5,{step * 7 % 11}.5" for step in range(60)])
    assert names(look_over(file, Columns()).layout.targets) == ["z"]
    asked = quickly(file, tmp_path / "run", "--task", "forecast", "--target", "x")
    is_one_line_of_error(asked, "column `x` never changes: got 5 everywhere", "Name another column")


def test_counters_of_rows_are_left_out(tmp_path: Path) -> None:
    rows = [f"{row},{row * 7 % 11}.5" for row in range(60)]
    _, layout, reasons = look(tmp_path / "a.csv", "index,temp", rows)
    assert (names(layout.inputs), names(layout.targets)) == (["temp"], ["temp"])
    assert reasons["index"] == "left out: counts the rows of the file"
    asked = look(tmp_path / "a.csv", "index,temp", rows, inputs=("index", "temp")).layout
    assert names(asked.inputs) == ["index", "temp"]
    # In a file sorted by its classes the number of a row says which one it is.
    rows = [f"{row // 6},{row},{row * 7 % 11}.5,{'ab'[row > 60]}" for row in range(120)]
    assert names(look(tmp_path / "a.csv", "id,no,x,kind", rows).layout.inputs) == ["x"]


def test_the_only_column_is_kept_and_told(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x", map(str, range(60)))
    found = look_over(file, Columns()).found
    assert found.notes == ["Note: `x` counts the rows of the file, and there is nothing else to learn from: check it."]
    assert found.notes[0] in said(quickly(file, tmp_path / "run"))


def test_copies_of_the_target_are_left_out(tmp_path: Path) -> None:
    rows = [f"{row // 6},{row * 7 % 11}.5,{row // 6 % 3},{'abc'[row // 6 % 3]}" for row in range(180)]
    _, layout, reasons = look(tmp_path / "a.csv", "id,x,code,kind", rows)
    assert names(layout.inputs) == ["x"]
    assert reasons["code"] == "left out: another name of `kind`"
    assert names(look(tmp_path / "a.csv", "id,x,code,kind", rows, inputs=("x", "code")).layout.inputs) == ["x", "code"]
    # As often, but not for the same rows.
    other = [f"{row // 6},{row * 7 % 11}.5,{row % 3},{'abc'[row // 6 % 3]}" for row in range(180)]
    assert names(look(tmp_path / "a.csv", "id,x,code,kind", other).layout.inputs) == ["x", "code"]


def test_other_names_of_sequences_are_left_out(tmp_path: Path) -> None:
    rows = [f"{row // 6},p{row // 6},{7 * (row // 6)},{row * 7 % 11}.5,{'ab'[row // 6 % 2]}" for row in range(120)]
    _, layout, reasons = look(tmp_path / "a.csv", "id,patient,case_no,x,kind", rows)
    assert names(layout.inputs) == ["x"]
    assert {reasons["patient"], reasons["case_no"]} == {"left out: another name of each sequence"}


def test_sequences_of_one_row_are_told(tmp_path: Path) -> None:
    rows = [f"{row},{row * 7 % 11}.5,{row * 5 % 7}.5,{'ab'[row % 2]}" for row in range(40)]
    file = write(tmp_path / "a.csv", "id,x,z,kind", rows)
    assert "Note: each sequence has one row only" in said(call("inspect", file))


def test_missing_cells_are_counted_and_told(tmp_path: Path) -> None:
    rows = [
        f"{row // 6},{'' if row % 7 == 0 else row % 5},{'NA' if row % 9 == 0 else row % 4}.5"
        f",{'' if row % 11 == 0 else 'uv'[row % 2]},{'ab'[row // 6 % 2]}".replace("NA.5", "NA")
        for row in range(120)
    ]
    file = write(tmp_path / "a.csv", "id,x,z,c,kind", rows)
    line = "Missing: 43 of 480 cells (x 18, z 14, c 11); a number is read as the mean of its column, a category"
    result = quickly(file, tmp_path / "run")
    assert line in said(result)
    assert line in said(call("inspect", file))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["missing"] == {"x": 18, "z": 14, "c": 11}
    assert '["missing cells","x 18, z 14, c 11"]' in (tmp_path / "run" / "report.html").read_text()


def test_missing_values_to_forecast_are_told(tmp_path: Path) -> None:
    rows = [f"{step},{'' if step % 7 == 0 else step * 7 % 11}" for step in range(100)]
    told = said(call("inspect", write(tmp_path / "a.csv", "step,x", rows)))
    assert "input and target, 15 missing" in told
    assert "Missing: 15 of 100 cells (x 15); a number is read as the mean of its column, and does not count" in told
    full = write(tmp_path / "a.csv", "step,x", [f"{step},{step * 7 % 11}" for step in range(100)])
    assert "Missing" not in said(call("inspect", full))
