"""The tables and pictures of the documentation are those of the newest benchmark results, and say what was missed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pictures
import tables
from goals import GOALS, of_row, verdicts
from layouts import LAYOUTS
from suite import with_least

pytestmark = pytest.mark.covers("docs")

ROOT = Path(__file__).parents[2]
SHAPE = {"B": 2, "T": 3, "I": 4, "H": 5}


def test_tables_are_up_to_date() -> None:
    tool = ROOT / "tools" / "tables.py"
    finished = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def times(milliseconds: float) -> dict[str, float]:
    return {"median_ms": milliseconds, "lower_quartile_ms": milliseconds, "upper_quartile_ms": milliseconds}


def result(cell: str, ratio: float | None) -> dict[str, Any]:
    return {"cell": cell, "shape": SHAPE, "throughtime": times(10), "torch": times(10 * (ratio or 1)), "ratio": ratio}


def test_the_least_is_that_of_the_best_moment() -> None:
    """Where others were on the machine while one case ran, it could have been as fast as it was beside another."""
    rows = [
        {"operations": 6_000_000, "full_speed": 1_000_000_000},
        {"operations": 6_000_000, "full_speed": 3_000_000_000, "around_ms": 5.0},
        {"cell": "one that multiplies nothing"},
    ]
    assert [row.get("least_ms") for row in with_least(rows)] == [2.0, 7.0, None]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results."""
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    return tmp_path


def record(folder: Path, name: str, rows: list[dict[str, Any]], date: str = "2026-01-01") -> None:
    about = {"processor": "a processor", "threads": 2, "gpu": None, "versions": {"torch": "2.0"}}
    goals = verdicts(name, rows) if name in GOALS else []
    content = {"benchmark": name, "date": date, "machine": about, "goals": goals, "results": rows}
    (folder / f"{date}-{name}.json").write_text(json.dumps(content))


def test_what_is_missed_is_said(results: Path) -> None:
    record(results, "dense-training", [result("LSTM", 4.0), result("LSTM", 1.0), result("GRU", 0.5)])
    page = tables.table("dense-training")
    assert re.findall(r"\| (met|missed) \|$", page, re.MULTILINE) == ["met", "met", "missed"]
    assert "**missed**: training, dense, against torch.nn: geometric mean 1.26, goal ≥ 1.3" in page
    assert "**missed**: training, dense, against torch.nn: least 0.5, goal ≥ 1" in page
    assert "**met**: LSTM, training, dense, against torch.nn: geometric mean 2, goal ≥ 1.3" in page
    assert (
        "| training, dense, against torch.nn | geometric mean ≥ 1.3, least ≥ 1 | 1.26, 0.5 | missed |"
        in tables.all_goals()
    )


def test_a_bound_from_above(results: Path) -> None:
    row = {"cell": "LSTM", "T": 10, "first_s": 4.0, "next_s": 0.0, "extra_s": 4.0}
    record(results, "first-call", [{**row, "cache": "cold"}, {**row, "cache": "disk"}])
    page = tables.all_goals()
    assert "| first call of a new cell, cold | most ≤ 5 s | 4 s | met |" in page
    assert "| first call of a new cell, from the disk cache | most ≤ 0.5 s | 4 s | missed |" in page


def test_what_no_peer_measured_is_not_called_met(results: Path) -> None:
    # One shape was compared with the faster of two, the other with torch alone.
    record(results, "inference", [result("LSTM", 9.0), result("LSTM", None)])
    line = next(line for line in tables.all_goals().splitlines() if "the faster of" in line)
    assert line.endswith("| not measured, not measured | not measured |")
    assert of_row(result("LSTM", None), verdicts("inference", [result("LSTM", None)])) == ""


def test_before_the_first_measurement_every_goal_is_listed(results: Path) -> None:
    assert tables.table("memory") == tables.UNMEASURED
    page = tables.all_goals()
    assert "met |" not in page
    assert all(goal.what in page for goals in GOALS.values() for goal in goals)


def test_the_newest_results_count_and_names_are_not_confused(results: Path) -> None:
    for date, ratio in (("2026-01-02", 2.0), ("2026-01-01", 1.0)):
        record(results, "dense-training", [result("LSTM", ratio)], date)
    record(results, "swap-memory", [], "2026-01-03")
    newest = tables.newest("dense-training")
    assert newest is not None
    assert newest["date"] == "2026-01-02"
    assert tables.newest("memory") is None


def test_only_what_is_between_the_comments_changes(results: Path) -> None:
    page = "before\n<!-- table: memory -->\nold\n<!-- end -->\nafter\n"
    new = tables.rewritten(page)
    assert new == f"before\n<!-- table: memory -->\n\n{tables.UNMEASURED}\n<!-- end -->\nafter\n"
    assert tables.rewritten(new) == new
    with pytest.raises(SystemExit, match="got a table 'nothing', expected one of: goals"):
        tables.table("nothing")


def test_every_suite_has_a_layout_a_script_and_a_place_on_the_page() -> None:
    # Swapping is a matter of memory too: it has a table of its own, on the page about that.
    assert [name for name in GOALS if name != "swap-memory"] == list(LAYOUTS)
    makefile, pages = (
        (ROOT / "Makefile").read_text(),
        {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("speed", "memory")},
    )
    for name in GOALS:
        page = pages["memory" if name == "swap-memory" else "speed"]
        script = name.replace("-", "_")
        assert (ROOT / "benchmarks" / f"{script}.py").exists()
        assert re.search(rf"\b{script}\b", makefile)
        assert f"<!-- table: {name} -->" in page


def test_pictures_are_drawn(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "FOLDER", results)
    record(results, "dense-training", [result("LSTM", 4.0), result("GRU", 0.5)])
    record(results, "inference", [result("LSTM", None)])
    record(results, "gpu-cudnn", [{**result("LSTM", 3.0), "family": family} for family in ("training", "packed")])
    steps = [
        {"shape": SHAPE, "parallel_iterations": value, "peak_mib": 1.0, "throughtime": times(1)} for value in (None, 1)
    ]
    record(
        results, "parallel-iterations", [{**row, "mode": mode} for mode in ("training", "inference") for row in steps]
    )
    pictures.main()
    assert sorted(path.name for path in results.glob("*.png")) == sorted(pictures.PICTURES)
