"""`Coordinator`: threads that stop together."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from throughtime.tf1._errors import OutOfRangeError
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.session._default import get_default_session


@exported("train.Coordinator")
class Coordinator:
    """A request to stop, shared by threads; the first error is raised where they are joined."""

    def __init__(self, clean_stop_exception_types: tuple[type[BaseException], ...] | None = None) -> None:
        self._clean = clean_stop_exception_types or (OutOfRangeError,)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._threads: set[threading.Thread] = set()
        self._joined = False

    @property
    def joined(self) -> bool:
        """Whether `join` has returned."""
        return self._joined

    def request_stop(self, ex: Any = None) -> None:
        """Ask all threads to stop, because of an error if one is given."""
        error = ex[1] if isinstance(ex, tuple) else ex
        if error is not None and self._error is None and not isinstance(error, self._clean):
            self._error = error
        self._stop.set()

    def clear_stop(self) -> None:
        """Forget the request."""
        self._joined, self._error = False, None
        self._stop.clear()

    def should_stop(self) -> bool:
        """Whether threads should stop."""
        return self._stop.is_set()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until threads should stop."""
        return self._stop.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Join a thread too."""
        self._threads.add(thread)

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Turn an error inside of the block into a request to stop."""
        try:
            yield
        except BaseException as error:
            self.request_stop(error)

    def join(
        self, threads: Iterable[threading.Thread] | None = None, stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:  # fmt: skip
        """Wait for threads; after a request to stop, at most the grace period. Raise the error that stopped them."""
        waiting = [*self._threads.union(threads or ())]
        while any(thread.is_alive() for thread in waiting) and not self.wait_for_stop(0.05):
            pass
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waiting:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._joined = True
        self._threads.clear()
        self.raise_requested_exception()
        alive = [thread.name for thread in waiting if thread.is_alive()]
        if alive and not ignore_live_threads:
            raise RuntimeError(f"Coordinator stopped with threads still running: {' '.join(alive)}")

    def raise_requested_exception(self) -> None:
        """Raise the error that stopped the threads, if there was one."""
        if self._error is not None:
            raise self._error


@exported("train.LooperThread")
class LooperThread(threading.Thread):
    """A thread that calls a function again and again until its coordinator stops."""

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Any = None,
        args: Any = None,
        kwargs: Any = None,
    ) -> None:
        super().__init__(daemon=True)
        self._coord, self._interval = coord, timer_interval_secs
        self._call, self._call_args, self._call_options = target, args or (), kwargs or {}
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator, timer_interval_secs: float | None, target: Any, args: Any = None, kwargs: Any = None
    ) -> LooperThread:
        """Start such a thread."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """Call the function until the coordinator stops."""
        with self._coord.stop_on_exception():
            while not self._coord.wait_for_stop(self._interval or 0):
                self.run_loop()

    def run_loop(self) -> None:
        """One call."""
        if self._call is not None:
            self._call(*self._call_args, **self._call_options)


@exported("train.start_queue_runners")
def start_queue_runners(
    sess: Any = None, coord: Any = None, daemon: bool = True, start: bool = True,
    collection: Any = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:  # fmt: skip
    """Start the threads that fill queues."""
    session = sess or get_default_session()
    if session is None:
        raise ValueError(
            "Cannot start queue runners: No default session is registered. Use `with sess.as_default()` or pass an "
            "explicit session to tf.start_queue_runners(sess=sess)"
        )
    graph = getattr(session, "graph", None) or get_default_graph()
    runners = graph.get_collection(collection)
    return [thread for each in runners for thread in each.create_threads(session, coord, daemon, start)]
