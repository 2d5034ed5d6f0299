"""Notebooks as programs: the code cells in order, without magics and shell lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

# Cell magics around code that is run all the same.
_TRANSPARENT = ("%%time", "%%timeit", "%%capture", "%%prun")
_SKIPPED = re.compile(r"^(\s*)(%|!|\?|\w[\w.]*\?{1,2}\s*$)")


class Cell(NamedTuple):
    """The code of a cell, its number, and the lines that are left out."""

    number: int
    source: str
    skipped: list[str]


def code_cells(path: Path) -> list[Cell]:
    """The code cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))
    # Version 3 has worksheets.
    listed = cells.get("cells") or [cell for sheet in cells.get("worksheets", []) for cell in sheet["cells"]]
    code = [cell.get("source", cell.get("input", "")) for cell in listed if cell.get("cell_type") == "code"]
    texts = ["".join(lines) if isinstance(lines, list) else lines for lines in code]
    return [_cleaned(number, text) for number, text in enumerate(texts, 1) if text.strip()]


def _cleaned(number: int, text: str) -> Cell:
    """A cell whose magics and shell lines are comments, so that line numbers stay."""
    lines = text.splitlines()
    if lines[0].startswith("%%") and not lines[0].startswith(_TRANSPARENT):
        return Cell(number, "", [lines[0]])
    kept, skipped = [], []
    for line in lines:
        found = _SKIPPED.match(line)
        if found is None:
            kept.append(line)
        else:
            # `pass` is a statement, where the line was the only one of a block.
            kept.append(f"{found[1]}pass")
            skipped.append(line.strip())
    return Cell(number, "\n".join(kept), skipped)
