"""Docstrings, comments, messages and pages use plain words: no people for machines, no number without a number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.covers("architecture")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "throughtime"
RETIRED = re.compile(r"\b(nobody|somebody|anybody|whoever|so many|the way back)\b", re.IGNORECASE)
KINDS = {".py", ".md", ".js", ".html", ".ll", ".toml"}
# Not yet rewritten.
LEFT = [PACKAGE / name for name in ("backends", "compiler", "layout", "native", "runtime", "unroll")]
# Generated or recorded, and the two tests that list the words.
LEFT += [ROOT / "docs" / "_site", ROOT / "benchmarks" / "results", ROOT / "tests" / "goldens"]
LEFT += [ROOT / "tests" / "meta" / name for name in ("test_names.py", "test_prose.py")]


def texts() -> list[Path]:
    folders = ("benchmarks", "docs", "examples", "src", "tests", "tools")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in KINDS)
    return [path for path in files if not any(left == path or left in path.parents for left in LEFT)]


def wrong_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if RETIRED.search(line)]


def test_retired_words_are_not_used() -> None:
    files = texts()
    assert len(files) > 300
    found = {path.relative_to(ROOT).as_posix(): wrong_lines(path.read_text()) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_retired_words_are_noticed() -> None:
    text = "It is read.\nNobody reads it.\nafter so many steps\non the way\n# Whoever waits"
    assert wrong_lines(text) == ["Nobody reads it.", "after so many steps", "# Whoever waits"]
