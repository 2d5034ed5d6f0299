"""One training a folder: the second is refused, and the death of the first frees it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from _task import measure, parts

import throughtime as tt
from throughtime.train import _folder_lock
from throughtime.train._folder_lock import LOCK_FILE, flock, locked

pytestmark = pytest.mark.covers("training")

JOB = Path(__file__).with_name("_lock_job.py")


class Elsewhere:
    """Another thread that holds a folder: to `flock`, another open file is another holder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held, self._done = folder, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with locked(self._folder):
            self._held.set()
            self._done.wait(60)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._held.wait(60)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def is_free(folder: Path) -> bool:
    try:
        with locked(folder):
            return True
    except tt.InvalidArgumentError:
        return False


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_training_is_refused(resume: bool, tmp_path: Path) -> None:
    message = (
        rf"{re.escape(str(tmp_path))} is in use by another training: got process {os.getpid()} on \S+ since "
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, expected one training a folder\. "
        r"Wait until it ends or stop it, or choose another folder\.$"
    )
    with Elsewhere(tmp_path), pytest.raises(tt.InvalidArgumentError, match=message):
        tt.train.fit(**parts(), epochs=1, folder=tmp_path, resume=resume)
    assert not list(tmp_path.iterdir()), "nothing was trained, and nothing is left"
    tt.train.fit(**parts(), epochs=1, folder=tmp_path, resume=resume)


def test_the_folder_is_held_from_the_first_step_to_the_last(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(model: Any, batch: tt.train.Batch) -> Any:
        thread = threading.Thread(target=lambda: seen.append(is_free(tmp_path)))
        thread.start()
        thread.join()
        return measure(model, batch)

    tt.train.fit(**parts() | {"measure": look}, epochs=1, folder=tmp_path)
    assert seen
    assert not any(seen)
    assert is_free(tmp_path)
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_training_that_fails_frees_its_folder(tmp_path: Path) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tt.train.fit(**parts() | {"measure": fail}, epochs=1, folder=tmp_path)
    assert is_free(tmp_path)


def test_the_thread_that_holds_it_may_enter_again(tmp_path: Path) -> None:
    with locked(tmp_path):
        with locked(tmp_path / ".." / tmp_path.name):
            pass
        assert (tmp_path / LOCK_FILE).exists(), "still held by the first"
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_killed_process_frees_its_folder_though_its_children_live(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, str(JOB), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        assert not is_free(tmp_path)
        process.kill()
        process.wait()
        os.kill(child, 0)
        # The child closes the file as it starts, maybe only now.
        until = time.monotonic() + 10
        while not is_free(tmp_path):
            assert time.monotonic() < until
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_a_forked_child_that_leaves_the_block_frees_nothing(tmp_path: Path) -> None:
    with locked(tmp_path):
        inode = (tmp_path / LOCK_FILE).stat().st_ino
        child = os.fork()
        if not child:
            # What `with` does at its end, in the child.
            code = int(bool(_folder_lock._held))
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child holds nothing"
        assert (tmp_path / LOCK_FILE).stat().st_ino == inode
        free: list[bool] = []
        thread = threading.Thread(target=lambda: free.append(is_free(tmp_path)))
        thread.start()
        thread.join()
        assert free == [False]


def test_the_file_of_a_dead_holder_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("process 1 on elsewhere since long ago\n" * 100)
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text().startswith(f"process {os.getpid()} on ")
        assert "elsewhere" not in (tmp_path / LOCK_FILE).read_text()


def test_a_file_that_was_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    """The last holder removes the file after we have opened it: our lock would be on a file without a name."""
    real, calls = flock.value, []

    def late(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            (tmp_path / LOCK_FILE).unlink()
        real(descriptor)

    with flock.use(late), locked(tmp_path):
        assert len(calls) == 2
        assert (tmp_path / LOCK_FILE).exists()


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    (tmp_path / LOCK_FILE).symlink_to(target)
    with pytest.raises(OSError, match=LOCK_FILE), locked(tmp_path):
        pass
    assert target.read_text() == "mine"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_a_run_goes_on_and_says_so(code: int, tmp_path: Path) -> None:
    def none(_: int) -> None:
        raise OSError(code, os.strerror(code))

    message = re.escape(f"{tmp_path} cannot be locked ({os.strerror(code)}): a second training in it would not be")
    with pytest.warns(RuntimeWarning, match=message), flock.use(none):
        tt.train.fit(**parts(), epochs=1, folder=tmp_path)
    assert (tmp_path / "history.jsonl").exists()
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_system_without_flock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_folder_lock, "fcntl", None)
    with pytest.warns(RuntimeWarning, match="no flock on this system"), locked(tmp_path):
        pass
