"""Sessions that initialise or restore by themselves, and run hooks."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from throughtime.tf1._errors import OutOfRangeError
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._variables import global_variables_initializer, group, local_variables_initializer
from throughtime.tf1.session._session import Session
from throughtime.tf1.train import _hooks as hooks_module
from throughtime.tf1.train._checkpoint_state import latest_checkpoint
from throughtime.tf1.train._coordinator import Coordinator, start_queue_runners
from throughtime.tf1.train._hooks import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from throughtime.tf1.train._saver import Saver

_ASK: Any = object()


@exported("train.Scaffold")
class Scaffold:
    """How a session begins: what initialises variables, the saver, the summary."""

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Any = None,
        init_fn: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Any = None,
    ) -> None:
        del ready_op, ready_for_local_init_op, copy_from_scaffold
        self._init_fn, self.init_feed_dict, self.local_init_feed_dict = init_fn, init_feed_dict, local_init_feed_dict
        self.init_op, self.local_init_op = init_op, local_init_op
        self.summary_op, self.saver = summary_op, saver

    @property
    def init_fn(self) -> Any:
        """A function of the session, called after the initialisers."""
        return None if self._init_fn is None else lambda session: self._init_fn(self, session)

    def finalize(self) -> Scaffold:
        """Make what is missing."""
        if self.init_op is None:
            self.init_op = global_variables_initializer()
        if self.local_init_op is None:
            self.local_init_op = group(local_variables_initializer(), *_table_initializers())
        if self.summary_op is None:
            self.summary_op = hooks_module.default_summary()
        if self.saver is None:
            self.saver = Saver(allow_empty=True)
        return self


def _table_initializers() -> list[Any]:
    return get_default_graph().get_collection("table_initializer")


@exported("train.ChiefSessionCreator", "train.WorkerSessionCreator")
class ChiefSessionCreator:
    """Makes a session: from the latest checkpoint of a folder, or by the initialisers."""

    def __init__(
        self, scaffold: Scaffold | None = None, master: str = "", config: Any = None, checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
    ) -> None:  # fmt: skip
        self._scaffold = scaffold or Scaffold()
        self._target, self._config, self._folder = master, config, checkpoint_dir
        self._path = checkpoint_filename_with_path

    def create_session(self) -> Session:
        """Make it."""
        scaffold = self._scaffold.finalize()
        get_default_graph().finalize()
        session = Session(self._target, config=self._config)
        path = self._path or (latest_checkpoint(self._folder) if self._folder else None)
        if path:
            scaffold.saver.restore(session, path)
        else:
            session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
            if scaffold.init_fn is not None:
                scaffold.init_fn(session)
        session.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)
        return session


@exported("train.MonitoredSession")
class MonitoredSession:
    """A session with hooks: `while not session.should_stop(): session.run(train_op)`."""

    def __init__(
        self, session_creator: Any = None, hooks: Sequence[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:  # fmt: skip
        self._hooks = list(hooks or [])
        self._grace = stop_grace_period_secs
        for hook in self._hooks:
            hook.begin()
        self._coordinator = Coordinator()
        self._session: Any = (session_creator or ChiefSessionCreator()).create_session()
        start_queue_runners(self._session, self._coordinator)
        for hook in self._hooks:
            hook.after_create_session(self._session, self._coordinator)

    def _tf_sess(self) -> Any:
        return self._session

    def raw_session(self) -> Any:
        """The session without hooks."""
        return self._session

    @property
    def graph(self) -> Any:
        """The graph."""
        return self._session.graph

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run, with what the hooks add."""
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._session)
        asked = {hook: hook.before_run(context) for hook in self._hooks}
        feeds = dict(feed_dict or {})
        wanted: dict[Any, Any] = {"caller": fetches}
        for number, (_hook, arguments) in enumerate(asked.items()):
            if arguments is not None:
                feeds.update(arguments.feed_dict or {})
                if arguments.fetches is not None:
                    wanted[number] = arguments.fetches
        results = self._session.run(wanted, feeds, options, run_metadata)
        for number, hook in enumerate(asked):
            hook.after_run(context, SessionRunValues(results.get(number), options, run_metadata))
        if context.stop_requested:
            self._coordinator.request_stop()
        return results["caller"]

    def run_step_fn(self, step_fn: Any) -> Any:
        """Call a function of a step context, which runs with hooks."""
        return step_fn(StepContext(self._session, self))

    def should_stop(self) -> bool:
        """Whether a hook or a thread asked to stop."""
        return self._session is None or self._coordinator.should_stop()

    def close(self) -> None:
        """End the hooks, then the session."""
        self._close(None)

    def _close(self, error: Any) -> None:
        if self._session is None:
            return
        try:
            if error is None:
                for hook in self._hooks:
                    hook.end(self._session)
        finally:
            self._coordinator.request_stop()
            self._coordinator.join(stop_grace_period_secs=self._grace, ignore_live_threads=True)
            session, self._session = self._session, None
            session.close()
            get_default_graph()._unsafe_unfinalize()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_end = kind is not None and issubclass(kind, OutOfRangeError | StopIteration)
        self._close(None if is_end else error)
        return is_end


class StepContext:
    """What a step function gets."""

    def __init__(self, session: Any, monitored: MonitoredSession) -> None:
        self.session, self._monitored = session, monitored

    def run_with_hooks(self, *args: Any, **options: Any) -> Any:
        """Run with hooks."""
        return self._monitored.run(*args, **options)

    def request_stop(self) -> None:
        """Stop."""
        raise StopIteration("step_fn has requested the iterations to stop.")


@exported("train.SingularMonitoredSession")
class SingularMonitoredSession(MonitoredSession):
    """A monitored session without recovery."""

    def __init__(
        self, hooks: Any = None, scaffold: Any = None, master: str = "", config: Any = None, checkpoint_dir: Any = None,
        stop_grace_period_secs: float = 120, checkpoint_filename_with_path: Any = None,
    ) -> None:  # fmt: skip
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks, stop_grace_period_secs)


@exported("train.MonitoredTrainingSession")
def MonitoredTrainingSession(  # noqa: N802
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: Any = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: Any = _ASK,
    save_summaries_steps: Any = _ASK,
    save_summaries_secs: Any = _ASK,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: Any = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = _ASK,
    summary_dir: Any = None,
) -> MonitoredSession:
    """A session that saves checkpoints and summaries now and then, and begins with the latest checkpoint."""
    del is_chief, max_wait_secs
    if save_summaries_steps is _ASK and save_summaries_secs is _ASK:
        save_summaries_steps = 100
    if save_checkpoint_secs is _ASK and save_checkpoint_steps is _ASK:
        save_checkpoint_secs = 600
    intervals = [save_summaries_steps, save_summaries_secs, save_checkpoint_steps, save_checkpoint_secs]
    summary_steps, summary_secs, steps, seconds = (None if each is _ASK else each for each in intervals)
    scaffold = scaffold or Scaffold()
    used = [*(hooks or []), *(chief_only_hooks or [])]
    if checkpoint_dir:
        folder = summary_dir or checkpoint_dir
        if log_step_count_steps:
            used.append(hooks_module.StepCounterHook(log_step_count_steps, output_dir=folder))
        if summary_steps or summary_secs:
            used.append(hooks_module.SummarySaverHook(summary_steps, summary_secs, folder, scaffold=scaffold))
        if steps or seconds:
            used.append(hooks_module.CheckpointSaverHook(checkpoint_dir, seconds, steps, scaffold=scaffold))
    creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    return MonitoredSession(creator, used, stop_grace_period_secs)
