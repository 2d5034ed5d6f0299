"""What a model has never met is answered for all the same, and said at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_files import call, pairs, quickly, tags

pytestmark = pytest.mark.covers("cli")


def told(run: Path, content: str, suffix: str = "csv") -> list[str]:
    """The last lines on standard error, after that which says where the results are."""
    file = run.parent / f"new.{suffix}"
    file.write_text(content)
    result = call("predict", run, file, "--out", run.parent / "p.csv")
    assert result.exit_code == 0, result.stderr
    lines = result.stderr.splitlines()
    return lines[lines.index(f"Results: {run.parent / 'p.csv'}") + 1 :]


def test_categories(tmp_path: Path) -> None:
    assert quickly(tags(tmp_path / "a.csv"), tmp_path / "run").exit_code == 0
    head = "sentence;word;weight\n"
    assert told(tmp_path / "run", head + "a;w0;1\na;;1\nb;w1;1\n") == []
    assert told(tmp_path / "run", head + "a;w0;1\na;what;1\n") == [
        "1 value of `word` was never seen in training: 'what'."
    ]
    many = "".join(f"{row // 5};{'TURBO' if row % 5 else 'w1'};1\n" for row in range(2000))
    assert told(tmp_path / "run", head + many) == [
        "1,600 values of `word` were never seen in training, such as 'TURBO'."
    ]


def test_texts(tmp_path: Path) -> None:
    assert quickly(pairs(tmp_path / "a.tsv"), tmp_path / "letters").exit_code == 0
    assert told(tmp_path / "letters", "word\nabe\nefa\n") == [
        "3 characters of `word` were never seen in training, such as 'e'."
    ]
    rows = "".join(f"the {kind} sat,el {kind} sentado\n" for kind in ("cat", "dog", "cow") * 8)
    (tmp_path / "b.csv").write_text("english,spanish\n" + rows)
    assert quickly(tmp_path / "b.csv", tmp_path / "words").exit_code == 0
    assert told(tmp_path / "words", "english\nthe cat sat\nthe zebra sat\n") == [
        "1 word of `english` was never seen in training: 'zebra'."
    ]
