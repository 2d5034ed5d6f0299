"""`throughtime train` under torchrun: one of two workers is killed, the other says how to go on, and so it does."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_files import many_series
from throughtime.cli import _run_folder

pytestmark = pytest.mark.covers("cli")

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def start(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """torchrun, with what each worker writes in a file of its own."""
    return subprocess.Popen(
        [*TORCHRUN, f"--log-dir={root / 'logs'}", "--redirects=3", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


def process_in(folder: Path) -> int:
    """The first worker, by the lock that it holds; there is a checkpoint to go on from."""
    until = time.monotonic() + 120
    while not list(folder.glob("checkpoint-*")):
        assert time.monotonic() < until
        time.sleep(0.05)
    return int((folder / _run_folder.LOCK).read_text().split()[1])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_worker(how: signal.Signals, tmp_path: Path) -> None:
    file, folder = many_series(tmp_path / "a.csv", 48), tmp_path / "run"
    flags = ["--out", str(folder), "--epochs", "200", "--units", "8", "--batch-size", "16"]
    run = start(tmp_path, "--nproc-per-node=2", "-m", "throughtime", "train", str(file), *flags)
    os.kill(process_in(folder), how)
    _, error = run.communicate(timeout=120)
    assert run.returncode == 1, error
    second = next(tmp_path.glob("logs/*/attempt_0/1/stderr.log")).read_text()
    found = re.fullmatch(
        r"Error: rank 0 of 2 has died: got process \d+ on \S+ gone, killed or crashed, expected all workers until the "
        r"end\. Go on with `torchrun --nproc-per-node 2 -m throughtime train --resume (\S+)`\.\n",
        second,
    )
    assert found
    assert found[1] == str(folder)
    if how is signal.SIGKILL:
        # What it says is what helps; the lock of the dead is free.
        command = shlex.split(second.partition("`torchrun ")[2].rstrip("`.\n"))
        run = start(tmp_path, *command)
        process_in(folder)
        run.terminate()
        _, error = run.communicate(timeout=120)
        logs = [path.read_text() for path in tmp_path.glob("logs/*/attempt_0/*/stderr.log") if path.stat().st_size]
        assert logs == [second], "no error of the second start"
