"""A worker of torchrun that dies: the others say which one it was, and nothing of gloo."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed

import throughtime as tt
from throughtime.train import _lost_workers

pytestmark = pytest.mark.covers("training")

JOB = Path(__file__).with_name("_lost_worker_job.py")
FIX = "Start all of them again: with `resume=True`, `tt.train.fit` goes on from its last checkpoint."


def said_by_workers(how: str, root: Path) -> tuple[int, list[str]]:
    """The exit code of torchrun, and what each of two workers wrote to standard error."""
    flags = ["--standalone", "--nproc-per-node=2", f"--log-dir={root / 'logs'}", "--redirects=3"]
    paths = os.pathsep.join([str(JOB.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *flags, str(JOB), how, str(root / "run")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        timeout=180,
        check=False,
    )
    logs = [next(root.glob(f"logs/*/attempt_0/{rank}/stderr.log")).read_text() for rank in (0, 1)]
    assert (root / "run" / "history.jsonl").exists(), done.stderr + "".join(logs)
    return done.returncode, logs


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("killed", "gone, killed or crashed"),
        ("killed while others compute", "gone, killed or crashed"),
        ("fails", "got ValueError: a row that is wrong"),
    ],
)
def test_the_other_says_which_rank_died(how: str, why: str, tmp_path: Path) -> None:
    code, (first, second) = said_by_workers(how, tmp_path)
    assert code != 0
    last = first.strip().splitlines()[-1]
    # torch puts the rank before every line of an exception.
    assert last.startswith("[rank0]: throughtime.train._lost_workers.WorkerLostError: rank 1 of 2 has died: got ")
    assert why in last
    assert last.endswith(f"expected all workers until the end. {FIX}")
    assert "gloo" not in first
    assert "Connection" not in first
    assert "During handling" not in first
    assert ("ValueError: a row" in second) is (how == "fails"), second
    assert not (tmp_path / "run" / ".lock").exists(), "freed by the worker that is left"


@pytest.mark.parametrize("how", ["ended from outside", "ended from outside while others wait"])
def test_an_end_from_outside_is_no_death_of_a_worker(how: str, tmp_path: Path) -> None:
    code, logs = said_by_workers(how, tmp_path)
    assert code != 0
    assert logs == ["", ""]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[distributed.HashStore]:
    """The store of a group of two, of which this process is rank 0."""
    store = distributed.HashStore()
    monkeypatch.setattr(_lost_workers, "_store", lambda: store)
    monkeypatch.setattr(_lost_workers, "_is_connected", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    store.set("throughtime/1/process", f"{os.getpid()} {socket.gethostname()}")
    before = signal.getsignal(signal.SIGTERM)
    yield store
    signal.signal(signal.SIGTERM, before)


def test_a_worker_that_ends_while_it_is_checked_is_not_dead(
    store: distributed.HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_now(_: int) -> bool:
        store.set("throughtime/1/ended", "")
        return True

    monkeypatch.setattr(_lost_workers, "_is_gone", ends_now)
    assert _lost_workers._fate(1) is None


@pytest.mark.usefixtures("store")
def test_sigterm_that_interrupts_the_report_of_a_death_does_not_prevent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lost_workers, "_is_gone", lambda _: True)
    with (
        pytest.raises(tt.train.WorkerLostError, match="rank 1 of 2 has died") as caught,
        _lost_workers.sigterm_raised("Again."),
    ):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.speaks
    with pytest.raises(tt.train.WorkerLostError) as caught, _lost_workers.lost_workers_told("Again."):
        raise RuntimeError("gloo: connection closed")
    assert not caught.value.speaks, "one worker has said it"


def test_what_is_no_matter_of_workers_stays_as_it_is() -> None:
    for error in (RuntimeError("shapes do not match"), RuntimeError("NCCL error"), ValueError("gloo")):
        with pytest.raises(type(error)) as caught, _lost_workers.lost_workers_told("Again."):
            raise error
        assert caught.value is error, "there is one worker alone"


def test_sigterm_has_its_meaning_again_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _lost_workers.sigterm_raised("Again."):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ValueError, match="mine"), _lost_workers.sigterm_raised("Again."):
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGTERM) is before
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with _lost_workers.sigterm_raised("Again."):
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "the handler of the caller stays"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not _lost_workers._is_gone(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _lost_workers._is_gone(child.pid)
    child.communicate()
    assert _lost_workers._is_gone(child.pid)


def test_one_of_those_left_speaks() -> None:
    error = tt.train.WorkerLostError("rank 1 of 3 has died", {1: "killed"}, speaks=False)
    assert isinstance(error, RuntimeError)
    assert (error.reasons, error.speaks) == ({1: "killed"}, False)
