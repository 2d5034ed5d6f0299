"""How the command starts: at once, since help needs neither torch nor matplotlib."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.covers("cli")


def imported_by(program: str) -> set[str]:
    """The top-level modules that are there after a program has run."""
    report = "import sys; print('\\n' + ' '.join(name for name in sys.modules if '.' not in name))"
    run = subprocess.run([sys.executable, "-c", f"{program}; {report}"], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())


def test_help_waits_for_nothing() -> None:
    shown = imported_by("from throughtime.cli import app; app(['train', '-h'], standalone_mode=False)")
    assert not shown & {"torch", "numpy", "matplotlib", "pyarrow", "safetensors"}


def test_no_command_imports_its_work_before_it_is_called() -> None:
    before = imported_by("import throughtime")
    added = imported_by("import throughtime.cli") - before
    assert not added & {"matplotlib", "pyarrow", "safetensors"}
