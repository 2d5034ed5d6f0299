"""Files that are there whole or not at all, also with several writers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch import nn

import throughtime as tt
from throughtime._atomic_files import whole
from throughtime.cli._result_files import results
from throughtime.cli._run_folder import RUN, write_run
from throughtime.train import History
from throughtime.train._history import Log

pytestmark = pytest.mark.covers("training")


def write_results(path: Path) -> None:
    with results(path, ["word"]) as rows:
        rows.write([["new"]])


WRITERS: dict[str, Callable[[Path], object]] = {
    "page.html": lambda path: tt.train.Report("A run").write(path),
    "cell.safetensors": lambda path: tt.train.save_weights(nn.Linear(2, 2), path),
    History.FILE: lambda path: Log(path.parent, History()).close(),
    RUN: lambda path: write_run(path.parent, {"layout": {}}),
    "out.csv": write_results,
    "out.tsv": write_results,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_takes_the_place_of_the_one_before(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("old")
    WRITERS[name](tmp_path / name)
    assert (tmp_path / name).read_bytes() != b"old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_file_before_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / name).write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        WRITERS[name](tmp_path / name)
    assert (tmp_path / name).read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def stopped() -> None:
        with whole(tmp_path / "file") as new:
            new.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert not list(tmp_path.iterdir())


def test_threads_have_a_file_each(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(10):
            with whole(tmp_path / "file") as new:
                new.write_text(f"{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_two_at_a_time_have_a_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one wins; neither sees anything of the other."""
    with whole(tmp_path / "file") as one:
        one.write_text("one")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with whole(tmp_path / "file") as other:
            other.write_text("other")
        assert (tmp_path / "file").read_text() == "other"
    assert (tmp_path / "file").read_text() == "one"
