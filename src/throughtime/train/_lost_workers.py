"""The death of a worker, reported by the remaining ones: which one, how, and how to resume.

When a process of a distributed training dies, the others fail in their next collective with an error of gloo or NCCL
that names an address and no rank. Each worker therefore writes its host and process to the store of the group, and the
reason if it ends with an error; torchrun hosts the store, so it outlives the workers.

torchrun sends SIGTERM to all workers when it is ended itself, and to the remaining ones when one has died. The two are
told apart by order: a worker that SIGTERM ends writes this to the store before it exits, and waits until the store has
it. A process that is gone and has written nothing died of something else.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from torch import distributed

from throughtime._errors import problem

# Seconds to wait until it is known why a connection was lost: torchrun looks for dead workers every 0.1 s.
NEWS_WITHIN = 2.0
# Characters of an error that the others are told.
MOST_CHARACTERS = 1_000
_OF_THE_CONNECTION = re.compile(r"gloo|nccl|connection (was )?(closed|reset|refused)|broken pipe|socket", re.IGNORECASE)


class WorkerLostError(RuntimeError):
    """Another process of a distributed training has died, so that this one cannot continue.

    `reasons` has what is known of each rank that is lost; it is empty if only the connection is known to be. `speaks`
    is True on one of the workers that raise it, so that a program can report it once.

    >>> import throughtime as tt
    >>> tt.train.WorkerLostError("rank 1 of 2 has died", {1: "killed"}, speaks=True).reasons
    {1: 'killed'}
    """

    def __init__(self, message: str, reasons: dict[int, str], *, speaks: bool) -> None:
        super().__init__(message)
        self.reasons, self.speaks = reasons, speaks


class _Terminated(BaseException):
    """SIGTERM was received: torchrun ends the remaining workers in this way."""


@contextlib.contextmanager
def in_the_store() -> Iterator[None]:
    """Write to the store how the other workers can check this one and, if the block fails, why it ended."""
    store, rank = _store(), distributed.get_rank()
    store.set(_key(rank, "process"), f"{os.getpid()} {socket.gethostname()}")
    try:
        yield
    except (WorkerLostError, _Terminated):
        # It ends because of another process: no failure of its own.
        _tell(store, rank, "")
        raise
    except BaseException as error:
        _tell(store, rank, f"{type(error).__name__}: {' '.join(str(error).split())}"[:MOST_CHARACTERS])
        raise


def _tell(store: Any, rank: int, reason: str) -> None:
    with contextlib.suppress(RuntimeError):
        store.set(_key(rank, "ended"), reason)
        # `set` returns before the store has the value; a request that it answers comes after it.
        store.check([_key(rank, "ended")])


@contextlib.contextmanager
def lost_workers_told(fix: str) -> Iterator[None]:
    """Turn a lost connection, or the end by torchrun that follows one, into a `WorkerLostError`."""
    try:
        yield
    except WorkerLostError:
        raise
    except RuntimeError as error:
        if not _is_connected() or not _OF_THE_CONNECTION.search(str(error)):
            raise
        # SIGTERM stays effective: if it comes while this waits, it decides.
        _raise_lost(_lost_within(NEWS_WITHIN), str(error), fix)
    except _Terminated:
        _raise_if_lost(fix)
        raise


@contextlib.contextmanager
def sigterm_raised(fix: str) -> Iterator[None]:
    """Let SIGTERM end the block as an exception, so that a lost worker is reported; then the process ends by it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    owner = os.getpid()

    def terminate(*_: Any) -> None:
        if os.getpid() != owner:
            # A forked child inherits the handler, and has nothing to report.
            _end_by_sigterm()
        _ignore_sigterm()
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except WorkerLostError:
        # Still ignored: torchrun must not end this process before the error is printed.
        raise
    except _Terminated:
        # Again: the signal may have interrupted a block within that was about to do so.
        _raise_if_lost(fix)
        if _is_connected():
            _tell(_store(), distributed.get_rank(), "")
        _end_by_sigterm()
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ignore_sigterm() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _is_connected() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _store() -> Any:
    return distributed.distributed_c10d._get_default_store()


def _key(rank: int, what: str) -> str:
    return f"throughtime/{rank}/{what}"


def _lost_within(seconds: float) -> dict[int, str]:
    """The ranks that are known to have died or failed, and how; waits until one is known."""
    until = time.monotonic() + seconds
    while True:
        lost = {rank: how for rank, how in ((rank, _fate(rank)) for rank in _others()) if how}
        if lost or time.monotonic() >= until:
            return lost
        time.sleep(0.05)


def _others() -> list[int]:
    mine = distributed.get_rank()
    return [rank for rank in range(distributed.get_world_size()) if rank != mine]


def _fate(rank: int) -> str | None:
    """How a rank ended; None if it runs, was ended because of another, or nothing is known."""
    process, _, host = (_read(rank, "process") or "").partition(" ")
    gone = bool(process) and host == socket.gethostname() and _is_gone(int(process))
    # Read after the process was checked: one that is gone has written everything that it was going to write.
    reason = _read(rank, "ended")
    if reason is not None:
        return reason or None
    return f"process {process} on {host} gone, killed or crashed" if gone else None


def _read(rank: int, what: str) -> str | None:
    try:
        store, key = _store(), _key(rank, what)
        return str(store.get(key).decode("utf-8", "replace")) if store.check([key]) else None
    except RuntimeError:
        # The store is gone, with the process that hosts it.
        return None


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
        # One that torchrun has not waited for yet is a zombie.
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in "ZX"


def _raise_if_lost(fix: str) -> None:
    """After SIGTERM: torchrun sends it after it has seen the death of a worker, so there is nothing to wait for."""
    lost = _lost_within(0.0) if _is_connected() else {}
    if lost:
        _raise_lost(lost, "", fix)


def _raise_lost(lost: dict[int, str], error: str, fix: str) -> NoReturn:
    _ignore_sigterm()
    size = distributed.get_world_size()
    names = ", ".join(map(str, lost))
    what = f"rank {names} of {size} has died" if len(lost) == 1 else f"ranks {names} of {size} have died"
    got = "; ".join(lost.values())
    if not lost:
        what, got = "the connection to another worker is lost", " ".join(error.split())[-MOST_CHARACTERS:]
    message = problem(what, got=got, expected="all workers until the end", fix=fix)
    raise WorkerLostError(message, lost, speaks=_is_first_to_speak()) from None


def _is_first_to_speak() -> bool:
    """Whether no other worker has said so yet: which ones SIGTERM ends without a word is not known."""
    try:
        return bool(_store().add("throughtime/speaks", 1) == 1)
    except RuntimeError:
        return True
