"""What a reader is told beside the pictures: names, units, whole steps, signs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _reports import by_node, drawn

import throughtime as tt

pytestmark = [pytest.mark.covers("report"), by_node]


def test_all_classes_are_named_on_both_sides(tmp_path: Path) -> None:
    names = ["bearing", "ok", "overheat"]
    report = tt.train.Report("t")
    report.add_confusion(np.diag([4, 2, 3]), names)
    texts = drawn(report, tmp_path)["texts"]
    assert all(texts.count(name) == 2 for name in names)


@pytest.mark.parametrize("classes", [9, 30, 40])
def test_many_classes_with_long_names_are_named_in_short(classes: int, tmp_path: Path) -> None:
    names = [f"{place} is the number of a class" for place in range(classes)]
    report = tt.train.Report("t")
    report.add_confusion(np.eye(classes, dtype=int), names)
    texts = drawn(report, tmp_path)["texts"]
    for name in names:
        # Its row and its column say what there is room for, and all of it when they are pointed at.
        assert texts.count(name) == 2
        assert f"{name[:19]}…{name}" in texts
        assert f"{name[:13]}…{name}" in texts
