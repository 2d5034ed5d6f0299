"""The Python in the README and in the pages of docs/ runs, top to bottom, and prints what the page says it prints."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.covers("docs")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A block of text shows what the code above it prints; a line of three dots stands for any lines.
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks_of(page: Path) -> list[tuple[str, int, str]]:
    """Kind, line and content of every block of Python, and of what it prints."""
    text = page.read_text()
    return [(found[1], text.count("\n", 0, found.start(2)), found[2]) for found in BLOCK.finditer(text)]


def run(page: Path, line: int, code: str, names: dict[str, Any]) -> str:
    """What a block prints; a traceback shows the page's own line."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, page, "exec"), names)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever a page saves belongs in a folder of its own.
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for kind, line, content in blocks_of(page):
        if kind == "python":
            printed = run(page, line, content, names)
        else:
            said = doctest.OutputChecker().check_output(content, printed, FLAGS)
            assert said, f"{page.name}, line {line}: it prints\n{printed}"


def test_the_readme_has_code_and_shows_what_it_prints() -> None:
    assert {kind for kind, _, _ in blocks_of(ROOT / "README.md")} == {"python", "text"}
