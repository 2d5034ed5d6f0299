"""Where time starts again, another sequence begins; and dates tell the time, whatever their column is called."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli_files import call, is_one_line_of_error, quickly, said
from throughtime.cli._options import Columns
from throughtime.cli.tables import open_table
from throughtime.cli.tables._infer_schema import InferredSchema, look_over
from throughtime.cli.tables._sequence_boundaries import sequence_by_restarts
from throughtime.cli.tables._table import piece_cells
from throughtime.cli.tables._timestamps import dates_of, instants

pytestmark = pytest.mark.covers("cli")


def look(path: Path, header: str, rows: Iterable[str], **wishes: object) -> InferredSchema:
    path.write_text("\n".join([header, *rows]) + "\n")
    return look_over(path, Columns(**wishes))


def day(number: int) -> str:
    return str(date(2022, 1, 1) + timedelta(number))


def sales(when: str = "date") -> tuple[str, list[str]]:
    """Three shops after one another, with the same days."""
    shops = ("north", "south", "east")
    return f"{when},store,sales,promo", [
        f"{day(step)},{shop},{step % 7}.5,{step % 5 == 0:d}" for shop in shops for step in range(40)
    ]


def machines(lengths: tuple[int, ...] = (4, 6, 5) * 8) -> tuple[str, list[str]]:
    """Runs of machines; the fault changes where the run does, but comes back."""
    return "machine run,time,vibration,mode,fault", [
        f"R{run},{step},{(run + step) % 5}.5,{'ab'[step % 2]},{['ok', 'worn', 'hot'][run % 3]}"
        for run, length in enumerate(lengths)
        for step in range(length)
    ]


def test_shops_one_after_another(tmp_path: Path) -> None:
    found, layout, reasons = look(tmp_path / "a.csv", *sales())
    assert (layout.task, layout.sequence, layout.order) == ("forecast", "store", "date")
    assert [column.name for column in layout.inputs] == ["sales", "promo"]
    assert found.lengths == [40] * 3
    assert reasons["store"] == "names the sequence: `date` starts again where it changes"


def test_runs_of_machines(tmp_path: Path) -> None:
    found, layout, _ = look(tmp_path / "a.csv", *machines())
    assert (layout.task, layout.sequence, layout.order) == ("classify", "machine run", "time")
    assert len(found.lengths) == 24


@pytest.mark.parametrize("cells", [7, 250_000])
def test_pieces_change_nothing(cells: int, tmp_path: Path) -> None:
    with piece_cells.use(cells):
        assert look(tmp_path / "a.csv", *machines()).layout.sequence == "machine run"
        assert look(tmp_path / "a.csv", *sales("when")).layout.sequence == "store"


def test_a_sequence_of_one_step_does_not_go_back(tmp_path: Path) -> None:
    """The column changes there too, and no other does: it is the one."""
    assert look(tmp_path / "a.csv", *machines((4, 1, 1, 6, 5) * 4)).layout.sequence == "machine run"


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("time,x,mode", [f"{row % 8},{row % 5}.5,{'ab'[row % 2]}" for row in range(80)]),
        ("time,x,label", [f"{row % 8},{row % 5}.5,{'abcdefghij'[row // 8]}" for row in range(80)]),
        ("time,x,code", [f"{row % 8},{row % 5}.5,n{row}" for row in range(80)]),
        ("time,x,run", [f"{row % 8},{row % 5}.5,{row // 8 % 3}" for row in range(80)]),
        ("time,x,run,shift", [f"{row % 8},{row % 5}.5,{row // 4},{row // 2}" for row in range(80)]),
    ],
    ids=["nothing", "a class", "a name a row", "a value that comes back", "two that differ"],
)
def test_what_names_no_sequence(header: str, rows: list[str], tmp_path: Path) -> None:
    assert look(tmp_path / "a.csv", header, rows).layout.sequence is None
    advice = "line 10: `time` goes back: got 0 after 7", "Train with `--sequence COLUMN`"
    is_one_line_of_error(quickly(tmp_path / "a.csv", tmp_path / "run"), *advice)
    inspected = call("inspect", tmp_path / "a.csv")
    assert inspected.exit_code == 0
    assert all(part in said(inspected) for part in ("Not ready to train on:", *advice))
    assert "Task:" not in said(inspected)


def test_two_columns_that_say_the_same(tmp_path: Path) -> None:
    rows = [f"{row % 8},{row // 8},shop {row // 8},{row % 5}.5" for row in range(80)]
    assert look(tmp_path / "a.csv", "time,number,shop,x", rows).layout.sequence == "shop"
    assert look(tmp_path / "a.csv", "time,number,shop,x", rows, ignore=("shop",)).layout.sequence == "number"


def test_what_is_said_is_not_asked(tmp_path: Path) -> None:
    header, rows = sales()
    assert look(tmp_path / "a.csv", header, rows, sequence="promo").layout.sequence == "promo"
    assert look(tmp_path / "a.csv", header, rows, ignore=("date",)).layout.sequence is None
    assert look(tmp_path / "a.csv", header, rows, inputs=("store", "sales")).layout.sequence is None


def test_time_that_goes_back_within_a_sequence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,time,x\n" + "".join(f"{row // 20},{row % 10},{row % 3}.5\n" for row in range(80))
    )
    message = "`time` goes back: got 0 after 9", "Sort the rows of each sequence by `time`"
    is_one_line_of_error(quickly(tmp_path / "a.csv", tmp_path / "run"), *message)


def test_inspect_says_what_train_says(tmp_path: Path) -> None:
    look(tmp_path / "a.csv", *sales())
    line = "names the sequence: `date` starts"
    inspected, trained = call("inspect", tmp_path / "a.csv"), quickly(tmp_path / "a.csv", tmp_path / "run")
    assert line in said(inspected)
    assert line in said(trained)
    assert "3 sequences of 40 steps" in said(inspected)
    assert trained.exit_code == 0, said(trained)
    assert call("predict", tmp_path / "run", tmp_path / "a.csv", "--out", tmp_path / "p.csv").exit_code == 0
    assert call("train", "--resume", tmp_path / "run").exit_code == 0


def test_no_restarts_no_sequence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,shop,x\n" + "".join(f"{row},{row // 8},1.5\n" for row in range(80)))
    assert sequence_by_restarts(open_table(tmp_path / "a.csv"), "time", ["shop"]) is None


MOMENTS = {
    "days": [day(step) for step in range(30)],
    "hours": [f"2024-04-0{1 + step // 24} {step % 24:02d}:00:00Z" for step in range(60)],
    "summer time ends": [f"2024-10-27T{hour}" for hour in ("01:30:00+02:00", "02:30:00+02:00", "02:00:00+01:00")],
    "months": [f"{2000 + step // 12}-{1 + step % 12:02d}" for step in range(30)],
    "many in a day": [day(step // 3) for step in range(30)],
}


@pytest.mark.parametrize("case", MOMENTS)
def test_dates_are_the_order_whatever_their_name(case: str, tmp_path: Path) -> None:
    rows = [f"{moment},{step % 3}.5" for step, moment in enumerate(MOMENTS[case])]
    _, layout, reasons = look(tmp_path / "a.csv", "opened,value", rows)
    assert (layout.task, layout.order, [column.name for column in layout.inputs]) == ("forecast", "opened", ["value"])
    assert reasons["opened"] == "order of steps: dates that go forward"


def test_dates_that_are_something_else(tmp_path: Path) -> None:
    mixed = [f"{row // 6},{row % 6},{day(row * 7 % 50)},{row % 3}.5" for row in range(60)]
    assert look(tmp_path / "a.csv", "id,step,due,x", mixed).layout.order == "step"
    _, layout, reasons = look(tmp_path / "a.csv", "id,n,due,x", mixed)
    assert (layout.order, reasons["due"]) == (None, "left out: dates that go back")
    assert "due" not in [column.name for column in layout.inputs], "days are no categories"
    steady = [f"{row // 6},{day(row // 6)},{row % 3}.5" for row in range(60)]
    assert look(tmp_path / "a.csv", "id,born,x", steady).layout.order is None, "it says who, not when"
    asked = look(
        tmp_path / "a.csv", "id,when,x", [f"1,{day(row)},{row % 3}.5" for row in range(60)], inputs=("when", "x")
    )
    assert asked.layout.order is None
    pairs = [f"{step}. of the year,{day(step)}" for step in range(30)]
    assert look(tmp_path / "a.csv", "said,meant", pairs).layout.task == "translate"


def test_dates_by_sequence_in_mixed_rows(tmp_path: Path) -> None:
    rows = [f"{'ab'[row % 2]},{day(row // 2 + 9 * (row % 2))},{row % 3}.5" for row in range(60)]
    found, layout, _ = look(tmp_path / "a.csv", "id,when,x", rows)
    assert not found.together
    assert layout.order == "when"


def test_what_differs_in_every_row_is_no_category(tmp_path: Path) -> None:
    rows = [f"{row // 10},{row % 7}.5,order {row},{'ab'[row // 10 % 2]}" for row in range(300)]
    _, layout, reasons = look(tmp_path / "a.csv", "id,x,invoice,kind", rows)
    assert [column.name for column in layout.inputs] == ["x"]
    assert reasons["invoice"] == "left out: different in nearly every row"
    asked = look(tmp_path / "a.csv", "id,x,invoice,kind", rows, inputs=("x", "invoice"))
    assert [column.name for column in asked.layout.inputs] == ["x", "invoice"]
    few = look(tmp_path / "a.csv", "id,x,invoice,kind", rows[:100])
    assert [column.name for column in few.layout.inputs] == ["x", "invoice"]
    last = look(tmp_path / "a.csv", "id,x,remark", [f"{row // 10},{row % 7}.5,remark {row}" for row in range(300)])
    assert (last.layout.task, last.layout.targets[0].name) == ("forecast", "x")


def test_instants() -> None:
    def of(*texts: str) -> object:
        found = instants(np.array(texts, object))
        return None if found is None else found.tolist()

    assert of("1", "2.5") == [1.0, 2.5]
    assert of("2024-10-27T02:30:00+02:00", "2024-10-27T02:00:00+01:00") == [1729989000000000, 1729990800000000]
    assert of("2024-05-01 noon", "2024-05-02 noon") == ["2024-05-01 noon", "2024-05-02 noon"]
    assert of("1/5/2024", "2/5/2024") is None
    assert dates_of(np.array(["2024-05-01T10:00", "2024-05-01T11:00Z"], object)) is None
    assert dates_of(np.array(["2024-05-01", ""], object)) is None
