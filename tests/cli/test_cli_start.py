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


INTERRUPTED_IN = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from throughtime.cli import main
sys.argv = ["throughtime", "bench", "lstm"]
main()
"""


@pytest.mark.parametrize("module", ["typer", "throughtime.cli.demo", "throughtime.cli._timing"])
def test_ctrl_c_while_it_starts_is_one_line(module: str) -> None:
    program = INTERRUPTED_IN.format(module=module)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.strip()) == (130, "Interrupted")


def test_ctrl_c_before_there_is_a_command_is_one_line() -> None:
    program = (
        "from throughtime.cli import _app\n"
        "def interrupt():\n    raise KeyboardInterrupt\n"
        "_app.app = interrupt\n_app.main()\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.strip()) == (130, "Interrupted")
