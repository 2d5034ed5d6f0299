"""`docs/tensorflow-tests.md` and the tests of this folder say the same."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.covers("tf-tests")

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "tensorflow-tests.md"

# How many tests of each class TensorFlow 1.15 has in each file.
CORE = "tensorflow/python/kernel_tests/"
CONTRIB = "tensorflow/contrib/rnn/python/kernel_tests/"
SEQ2SEQ = "tensorflow/contrib/seq2seq/python/kernel_tests/"
CLASSES = {
    f"{CORE}rnn_test.py": {"N": 4, "E": 3, "T": 1, "S": 1, "C": 1, "K": 9},
    f"{CORE}rnn_cell_test.py": {"N": 40, "E": 3, "D": 2, "T": 5, "V": 13, "S": 2, "C": 4, "P": 5},
    f"{CONTRIB}rnn_test.py": {"N": 2, "V": 2},
    f"{CONTRIB}rnn_cell_test.py": {"N": 45, "E": 3, "K": 2, "X": 2},
    f"{CONTRIB}fused_rnn_cell_test.py": {"D": 2},
    f"{CONTRIB}gru_ops_test.py": {"N": 2, "D": 3, "S": 1},
    f"{CONTRIB}lstm_ops_test.py": {"N": 3, "D": 4, "V": 1, "S": 1},
    f"{SEQ2SEQ}attention_wrapper_test.py": {"N": 21, "S": 1},
    f"{SEQ2SEQ}basic_decoder_test.py": {"N": 12},
    f"{SEQ2SEQ}beam_search_decoder_test.py": {"N": 13, "E": 1, "K": 3},
    f"{SEQ2SEQ}beam_search_ops_test.py": {"N": 2, "E": 1, "P": 1},
    f"{SEQ2SEQ}decoder_test.py": {"N": 6},
    f"{SEQ2SEQ}loss_test.py": {"N": 5},
}


class Row(NamedTuple):
    """One of TensorFlow's tests, and our answer."""

    file: str
    name: str
    kind: str
    ours: list[str]
    remark: str


def read_rows() -> list[Row]:
    """The rows of the page, under the heading that names their file."""
    rows, file = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            file = line.strip("# `")
        elif file and line.startswith("| `"):
            name, kind, ours, remark = (part.strip() for part in line.strip("|").split("|"))
            rows.append(Row(file, name.strip("`"), kind, re.findall(r"`([^`]+)`", ours), remark))
    return rows


def collected_tests() -> set[str]:
    """`file::function` of every test in this folder but those of this file."""
    return {
        f"{path.name}::{node.name}"
        for path in HERE.glob("test_*.py")
        if path.name != Path(__file__).name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


ROWS = read_rows()


@pytest.mark.parametrize("file", CLASSES)
def test_every_test_of_tensorflows_has_a_row(file: str) -> None:
    """As many rows of each class as TensorFlow has tests, none twice."""
    rows = [row for row in ROWS if row.file == file]
    assert Counter(row.kind for row in rows) == CLASSES[file]
    assert len({row.name for row in rows}) == len(rows)


def test_named_tests_exist_and_all_are_named() -> None:
    """The page names no test that is not there, and leaves none out."""
    assert {name for row in ROWS for name in row.ours} == collected_tests()


def test_every_row_has_a_test_or_a_reason() -> None:
    """A row without a test says why; what TensorFlow's core tests ask about numbers always has one."""
    assert [row for row in ROWS if not row.ours and not row.remark] == []
    assert [row for row in ROWS if row.file.startswith(CORE) and row.kind in "NEDT" and not row.ours] == []


def test_sums_are_right() -> None:
    """The table at the top of the page counts what the page contains."""
    page = PAGE.read_text(encoding="utf-8")
    for file in [*CLASSES, None]:
        rows = [row for row in ROWS if file in (None, row.file)]
        restated = sum(bool(row.ours) for row in rows)
        shown = "all" if file is None else f"`{file}`"
        assert f"| {shown} | {len(rows)} | {restated} | {len(rows) - restated} |" in page
