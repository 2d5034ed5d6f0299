"""The tables of the documentation are those of the newest benchmark results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.covers("docs")

TOOL = Path(__file__).parents[1] / "tools" / "tables.py"


def test_tables_are_up_to_date() -> None:
    finished = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
