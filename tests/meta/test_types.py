"""What type checkers see: `typed_results.py` says of each call what its results are, and mypy agrees."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.covers("types")


def checked(path: Path, cache: Path) -> str:
    """What mypy says of a file that uses the package as installed: its errors, not those of the package."""
    # The settings are not those of the repository: a user has others, and the strictest are the test.
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={cache}"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(path)],
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not run.stderr, run.stderr
    return run.stdout


def test_results_are_typed(tmp_path: Path) -> None:
    cache = ROOT / ".mypy_cache"
    assert (
        checked(Path(__file__).parents[1] / "support" / "typed_results.py", cache)
        == "Success: no issues found in 1 source file\n"
    )
    # The same check must be able to fail.
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import torch, throughtime as tt\n"
        "outputs, state = tt.dynamic_rnn(tt.GRUCell(5), torch.ones(2, 3, 4), dtype=torch.float32)\n"
        "state.c\n"
        "tt.nn.LSTM(4, 5)(torch.ones(3, 4))[1].shape\n"
    )
    found = checked(wrong, cache)
    assert 'wrong.py:3: error: "Tensor" has no attribute "c"' in found
    assert 'wrong.py:4: error: "tuple[Tensor, Tensor]" has no attribute "shape"' in found


def test_the_package_says_that_it_is_typed() -> None:
    assert files("throughtime").joinpath("py.typed").is_file()
