"""The tool that compares source trees reads the files that the benchmark suites write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import compare_trees

pytestmark = pytest.mark.covers("architecture")

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("suite", compare_trees.SUITES)
def test_every_row_has_a_label_of_its_own_and_a_time(suite: str) -> None:
    latest = max(RESULTS.glob(f"*-{suite.replace('_', '-')}.json"))
    rows = json.loads(latest.read_text())["results"]
    assert len({compare_trees.label_of(suite, row) for row in rows}) == len(rows) > 0
    assert all(compare_trees.time_of(row) > 0 for row in rows)


def test_the_fastest_run_of_each_shape_counts() -> None:
    assert compare_trees.fastest([{"a": 2.0, "b": 1.0}, {"a": 1.5, "b": 3.0}]) == {"a": 1.5, "b": 1.0}


def test_the_geometric_mean_does_not_depend_on_the_order_of_trees() -> None:
    ratios = [0.5, 1.25, 1.6]
    inverse = compare_trees.geometric_mean([1 / ratio for ratio in ratios])
    assert compare_trees.geometric_mean(ratios) == pytest.approx(1 / inverse) == pytest.approx(1.0)
