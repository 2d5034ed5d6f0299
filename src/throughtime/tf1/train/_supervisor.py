"""`Supervisor`: a session that begins with the latest checkpoint, and saves now and then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from throughtime.tf1._errors import OutOfRangeError
from throughtime.tf1._namespace import exported
from throughtime.tf1.app import _logging as logging
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._variables import global_variables_initializer, group, local_variables_initializer
from throughtime.tf1.session._session import Session
from throughtime.tf1.summary._writer import FileWriter
from throughtime.tf1.train._checkpoint_state import latest_checkpoint
from throughtime.tf1.train._coordinator import Coordinator, start_queue_runners
from throughtime.tf1.train._global_step import get_global_step
from throughtime.tf1.train._hooks import default_summary
from throughtime.tf1.train._saver import Saver

_DEFAULT: Any = 0


@exported("train.Supervisor")
class Supervisor:
    """`with supervisor.managed_session() as session: while not supervisor.should_stop(): ...`.

    Checkpoints and summaries that are due are written after a run of the session, in the same thread.
    """

    USE_DEFAULT = _DEFAULT

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = _DEFAULT,
        ready_for_local_init_op: Any = _DEFAULT,
        is_chief: bool = True,
        init_op: Any = _DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = _DEFAULT,
        logdir: Any = None,
        summary_op: Any = _DEFAULT,
        saver: Any = _DEFAULT,
        global_step: Any = _DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = _DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        del ready_op, ready_for_local_init_op, is_chief, recovery_wait_secs, session_manager, local_init_run_options
        self._graph = graph or get_default_graph()
        self._logdir, self._feeds, self._init_fn, self._grace = logdir, init_feed_dict, init_fn, stop_grace_secs
        self._secs = {"model": save_model_secs, "summary": save_summaries_secs}
        self._due = dict.fromkeys(self._secs, 0.0)
        with self._graph.as_default():
            self.init_op = global_variables_initializer() if _is_default(init_op) else init_op
            tables = self._graph.get_collection("table_initializer")
            local = group(local_variables_initializer(), *tables)
            self.local_init_op = local if _is_default(local_init_op) else local_init_op
            self.summary_op = default_summary() if _is_default(summary_op) else summary_op
            self.saver = Saver(allow_empty=True) if _is_default(saver) else saver
            self.global_step = get_global_step() if _is_default(global_step) else global_step
        self.save_path = str(Path(logdir) / checkpoint_basename) if logdir else None
        made = FileWriter(logdir) if logdir and _is_default(summary_writer) else None
        self.summary_writer = made if _is_default(summary_writer) else summary_writer
        self._coordinator = Coordinator()
        self._graph.finalize()

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the threads."""
        return self._coordinator

    @property
    def is_chief(self) -> bool:
        """There is one process."""
        return True

    @property
    def session_manager(self) -> Supervisor:
        """The supervisor itself."""
        return self

    def prepare_or_wait_for_session(
        self, master: str = "", config: Any = None, wait_for_checkpoint: bool = False, max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:  # fmt: skip
        """A session, from the latest checkpoint or by the initialiser."""
        del wait_for_checkpoint, max_wait_secs
        self._coordinator.clear_stop()
        session = Session(master, graph=self._graph, config=config)
        path = latest_checkpoint(self._logdir) if self._logdir and self.saver else None
        if path:
            self.saver.restore(session, path)
        else:
            if self.init_op is not None:
                session.run(self.init_op, feed_dict=self._feeds)
            if self._init_fn is not None:
                self._init_fn(session)
        if self.local_init_op is not None:
            session.run(self.local_init_op)
        start_queue_runners(session, self._coordinator)
        if start_standard_services and self._logdir:
            self._write_after_runs(session)
        return session

    def _write_after_runs(self, session: Session) -> None:
        """Let each run of a session write what is due."""
        plain = session.run

        def run(*args: Any, **options: Any) -> Any:
            found = plain(*args, **options)
            self._write(session, plain)
            return found

        session.run = run  # type: ignore[method-assign]
        self._write(session, plain)

    def _write(self, session: Session, run: Callable[..., Any]) -> None:
        now = time.monotonic()
        step = None if self.global_step is None else int(run(self.global_step))
        if self._is_due("model", now) and self.saver is not None:
            self.saver.save(session, self.save_path, global_step=step)
        if self._is_due("summary", now) and self.summary_op is not None and self.summary_writer is not None:
            self._due["summary"] = now + self._secs["summary"]
            try:
                self.summary_writer.add_summary(run(self.summary_op), step)
            except Exception as error:
                # Summaries that need feeds are written by the program itself.
                logging.warn("The summary cannot be computed without feeds; pass summary_op=None: %s", error)
                self.summary_op = None

    def _is_due(self, what: str, now: float) -> bool:
        if not self._secs[what] or now < self._due[what]:
            return False
        self._due[what] = now + self._secs[what]
        return True

    @contextlib.contextmanager
    def managed_session(
        self, master: str = "", config: Any = None, start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Session]:  # fmt: skip
        """A session for a `with` block; `OutOfRangeError` ends it."""
        session = self.prepare_or_wait_for_session(master, config, start_standard_services=start_standard_services)
        try:
            with session.as_default(), self._graph.as_default():
                yield session
        except OutOfRangeError as error:
            self.request_stop(error)
        finally:
            self.stop(close_summary_writer=close_summary_writer)
            session.close()

    def should_stop(self) -> bool:
        """Whether to stop."""
        return self._coordinator.should_stop()

    def request_stop(self, ex: Any = None) -> None:
        """Ask to stop."""
        self._coordinator.request_stop(ex)

    def stop(self, threads: Any = None, close_summary_writer: bool = True, ignore_live_threads: bool = False) -> None:
        """Stop the threads and close the writer."""
        del ignore_live_threads
        self._coordinator.request_stop()
        self._coordinator.join(threads, self._grace, ignore_live_threads=True)
        if close_summary_writer and self.summary_writer is not None:
            self.summary_writer.close()
        self._graph._unsafe_unfinalize()

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Write a summary that the program has computed."""
        if self.summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer: pass `logdir`.")
        if global_step is None and self.global_step is not None:
            global_step = int(sess.run(self.global_step))
        self.summary_writer.add_summary(summary, global_step)

    def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> list[Any]:
        """Start the threads that fill queues."""
        del queue_runners
        return start_queue_runners(sess, self._coordinator)

    def loop(self, timer_interval_secs: float, target: Any, args: Any = None, kwargs: Any = None) -> Any:
        """Call a function now and then in a thread."""
        from throughtime.tf1.train._coordinator import LooperThread  # noqa: PLC0415

        return LooperThread.loop(self._coordinator, timer_interval_secs, target, args, kwargs)


def _is_default(value: Any) -> bool:
    return isinstance(value, int) and value == _DEFAULT
