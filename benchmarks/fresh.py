"""Measurements that need a process of their own: a first call, a peak of memory.

A script measures a case in `answer(case)`, starts itself again for every case with `ask`, and hands its
command line to `is_asked` first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

FLAG = "--in-a-fresh-process"
Case = dict[str, Any]


FIRST = "import sys, runpy, {}; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"
"""Runs a script after an import."""


def ask(
    script: str,
    case: Case,
    environment: dict[str, str] | None = None,
    python: Path | None = None,
    first: str = "",
) -> dict[str, Any]:
    """The answer of a fresh process of `script` to a case; of another interpreter, with a module imported `first`."""
    message = json.dumps({**case, "threads": torch.get_num_threads()})
    start = ["-c", FIRST.format(first), str(Path(script).parent)] if first else []
    finished = subprocess.run(
        [python or sys.executable, *start, Path(script), FLAG, message],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        raise RuntimeError(f"{case} failed in a fresh process:\n{finished.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return answer


def is_asked(answer: Callable[[Case], dict[str, Any]]) -> bool:
    """Whether this process is one that was asked; if so, it has answered now."""
    if FLAG not in sys.argv:
        return False
    case = json.loads(sys.argv[sys.argv.index(FLAG) + 1])
    torch.manual_seed(0)
    torch.set_num_threads(case.pop("threads"))
    print(json.dumps(answer(case)))
    return True
