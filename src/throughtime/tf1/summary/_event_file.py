"""Event files: what TensorBoard reads."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from throughtime.tf1.files._tfrecord import framed, read_records
from throughtime.tf1.protos import Event

# Writers of one process and second must not share a file.
_number = itertools.count()


class EventFile:
    """A file `events.out.tfevents.TIME.HOST` that grows by records; made when something is written."""

    def __init__(self, folder: Any, suffix: str = "", flush_secs: float = 120) -> None:
        self._folder, self._suffix, self._flush_secs = Path(os.fspath(folder)), suffix, flush_secs
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._flushed = time.monotonic()
        self.write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def write(self, event: Event) -> None:
        """Append an event."""
        with self._lock:
            if self._file is None:
                self._file = self._new_path().open("wb")
            self._file.write(framed(event.SerializeToString()))
            if time.monotonic() - self._flushed > self._flush_secs:
                self._flush()

    def _new_path(self) -> Path:
        number = next(_number)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        suffix = f"{self._suffix}" if not number else f".{os.getpid()}.{number}{self._suffix}"
        return self._folder / f"{name}{suffix}"

    def flush(self) -> None:
        """Write what is buffered."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Close the file; a later event begins another one."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __del__(self) -> None:
        # Programs seldom close their writers.
        if getattr(self, "_file", None) is not None:
            self.close()


def summary_iterator(path: Any) -> Iterator[Event]:
    """The events of an event file."""
    with Path(path).open("rb") as file:
        for data in read_records(file, os.fspath(path)):
            yield Event.FromString(data)
