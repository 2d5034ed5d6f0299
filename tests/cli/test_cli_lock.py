"""`throughtime train`: one run a folder, whether it is new or goes on; readers need no lock."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli_files import call, gestures, is_one_line_of_error, quickly, said
from throughtime.cli import _run_folder
from throughtime.train import _folder_lock

pytestmark = pytest.mark.covers("cli")

HELD = "is in use by another training: got process {} on "


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A run that another process is training, past its first checkpoint."""
    root = tmp_path_factory.mktemp("running")
    flags = ["--out", str(root / "run"), "--epochs", "100000", "--units", "8"]
    command = [sys.executable, "-m", "throughtime", "train", str(gestures(root / "a.csv")), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list((root / "run").glob("checkpoint-*")):
        assert time.monotonic() < until
        time.sleep(0.05)
    yield root, process.pid
    process.kill()
    process.wait()


def test_a_run_that_is_trained_is_not_resumed(running: tuple[Path, int]) -> None:
    root, process = running
    words = HELD.format(process), "expected one training a folder. Wait until it ends or stop it, or choose another"
    is_one_line_of_error(call("train", "--resume", root / "run"), *words)


def test_a_run_that_is_trained_is_not_overwritten(running: tuple[Path, int]) -> None:
    root, process = running
    is_one_line_of_error(quickly(root / "a.csv", root / "run"), HELD.format(process))


def test_readers_need_no_lock(running: tuple[Path, int]) -> None:
    root, _ = running
    for command in (["inspect", root / "run"], ["predict", root / "run", root / "a.csv", "--out", "-"]):
        result = call(*command)
        # A checkpoint may be replaced by the next one while it is read.
        assert result.exit_code == 0 or "cannot be read" in result.stderr, said(result)
    assert (root / "run" / _run_folder.LOCK).exists()


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    assert quickly(gestures(tmp_path / "a.csv"), tmp_path / "run").exit_code == 0
    (tmp_path / "run" / _run_folder.LOCK).write_text("process 1 on elsewhere since long ago\n")
    result = call("train", "--resume", tmp_path / "run")
    assert result.exit_code == 0, said(result)
    assert not (tmp_path / "run" / _run_folder.LOCK).exists()


def test_a_folder_of_a_run_killed_before_it_began_is_free(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in (_run_folder.LOCK, ".run.json.7-7.new"):
        (tmp_path / "run" / name).touch()
    assert quickly(gestures(tmp_path / "a.csv"), tmp_path / "run").exit_code == 0


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as held, ThreadPoolExecutor(8) as pool:
        started = [pool.submit(_run_folder.new_folder, None, "a", held, pytest.fail) for _ in range(8)]
        folders = [one.result().name for one in started]
        assert sorted(folders) == ["a", *(f"a-{number}" for number in range(2, 9))]


def test_where_there_are_no_locks_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_folder_lock, "fcntl", None)
    result = quickly(gestures(tmp_path / "a.csv"), tmp_path / "run")
    assert result.exit_code == 0
    assert said(result).count("Warning: ") == 1
    assert "run cannot be locked (no flock on this system): a second training in it would not be noticed" in said(
        result
    )
