"""The Python in the README and in the pages of docs/ runs: top to bottom, one page at a time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.covers("docs")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def code_of(page: Path) -> str:
    """The page with everything but its Python blanked out, so that a traceback shows the page's own line."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block.group(1).splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever a page saves belongs in a folder of its own.
    monkeypatch.chdir(tmp_path)
    exec(compile(code_of(page), page, "exec"), {"__name__": "__main__"})


def test_the_readme_has_code() -> None:
    assert "import throughtime as tt" in code_of(ROOT / "README.md")
