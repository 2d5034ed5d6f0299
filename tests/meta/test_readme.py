"""The Python and the commands in the README and in every page of docs/ run, and print what the page says they print."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from throughtime.cli import app

pytestmark = pytest.mark.covers("docs")

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "_site"
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if SITE not in page.parents)]
# A block of text shows what the code above it prints; a line of three dots stands for any lines. A block of `sh` has
# commands of ours. Blocks without a language are shown only: other programs, trees of files.
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LANGUAGES = {"python", "sh", "text", ""}
FENCE = re.compile(r"^```(\S*)$", re.MULTILINE)
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


def command(content: str) -> str:
    """What the commands of a block print."""
    printed = ""
    for line in content.splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert name == "throughtime", line
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        printed += result.output
    return printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever a page saves belongs in a folder of its own.
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for kind, line, content in blocks_of(page):
        if kind == "python":
            printed = run(page, line, content, names)
        elif kind == "sh":
            printed = command(content)
        else:
            said = doctest.OutputChecker().check_output(content, printed, FLAGS)
            assert said, f"{page.name}, line {line}: it prints\n{printed}"


def test_the_readme_has_code_and_shows_what_it_prints() -> None:
    assert {kind for kind, _, _ in blocks_of(ROOT / "README.md")} == {"python", "text"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    """A block of Python under another name would not be run."""
    opening = FENCE.findall(page.read_text())[::2]
    assert {*opening} <= LANGUAGES


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "zensical.toml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]]
    assert [page for page in pages if f'"{page}"' not in listed] == []
