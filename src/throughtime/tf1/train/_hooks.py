"""Hooks: what a monitored session does before and after each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from throughtime.tf1._namespace import exported
from throughtime.tf1.app import _logging as logging
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.protos import SessionLog, Summary
from throughtime.tf1.summary._writer import FileWriterCache
from throughtime.tf1.train._global_step import get_global_step


@exported("train.SessionRunArgs")
class SessionRunArgs(NamedTuple):
    """What a hook adds to a run."""

    fetches: Any
    feed_dict: Any = None
    options: Any = None


@exported("train.SessionRunValues")
class SessionRunValues(NamedTuple):
    """What a hook gets from a run."""

    results: Any
    options: Any = None
    run_metadata: Any = None


@exported("train.SessionRunContext")
class SessionRunContext:
    """A run: what was asked for, and the request to stop after it."""

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self.original_args, self.session, self.stop_requested = original_args, session, False

    def request_stop(self) -> None:
        """Let the session's `should_stop` be True from now on."""
        self.stop_requested = True


@exported("train.SessionRunHook")
class SessionRunHook:
    """Base class of hooks: every method may be overridden."""

    def begin(self) -> None:
        """Called before the session is made: the graph may still change."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called when the session is made."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """What to fetch and feed besides."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called with what `before_run` asked for."""

    def end(self, session: Any) -> None:
        """Called at the end, unless there was an error."""


@exported("train.SecondOrStepTimer")
class SecondOrStepTimer:
    """Whether it is time again: every number of seconds or of steps."""

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if (every_secs is None) == (every_steps is None):
            raise ValueError("exactly one of every_secs and every_steps should be provided.")
        self._secs, self._steps = every_secs, every_steps
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is time."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._secs is not None:
            return time.time() >= self._last_time + self._secs
        return step >= self._last_step + (self._steps or 1)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that it was done; the time and the steps since it was done before."""
        now = time.time()
        since = (None, None) if self._last_step is None else (now - self._last_time, step - self._last_step)
        self._last_time, self._last_step = now, step
        return since

    def last_triggered_step(self) -> int | None:
        """The step at which it was done last."""
        return self._last_step


@exported("train.StopAtStepHook")
class StopAtStepHook(SessionRunHook):
    """Stops after a number of steps, or at a step."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise ValueError("One of num_steps or last_step must be specified.")
        self._count, self._last = num_steps, last_step

    def begin(self) -> None:
        """Find the global step."""
        self._step = _needed_step("StopAtStepHook")

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here."""
        del coord
        if self._last is None:
            self._last = int(session.run(self._step)) + (self._count or 0)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Stop if the step is reached."""
        del run_values
        if int(run_context.session.run(self._step)) >= (self._last or 0):
            run_context.request_stop()


def _needed_step(who: str) -> Any:
    found = get_global_step()
    if found is None:
        raise RuntimeError(f"Global step should be created to use {who}.")
    return found


@exported("train.LoggingTensorHook")
class LoggingTensorHook(SessionRunHook):
    """Writes values of tensors to the log now and then."""

    def __init__(
        self, tensors: Any, every_n_iter: int | None = None, every_n_secs: float | None = None, at_end: bool = False,
        formatter: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:  # fmt: skip
        self._names = list(tensors) if isinstance(tensors, dict) else [getattr(each, "name", each) for each in tensors]
        self._tensors = list(tensors.values()) if isinstance(tensors, dict) else list(tensors)
        self._formatter = formatter
        self._at_end = at_end
        always = at_end and every_n_iter is None and every_n_secs is None
        self._timer = None if always else SecondOrStepTimer(every_n_secs, every_n_iter)
        self._iterations = 0

    def begin(self) -> None:
        """Find the tensors."""
        graph = get_default_graph()
        found = [graph.as_graph_element(each) for each in self._tensors]
        self._fetches = dict(zip(self._names, found, strict=True))

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch if it is time."""
        del run_context
        self._due = self._timer is not None and self._timer.should_trigger_for_step(self._iterations)
        return SessionRunArgs(self._fetches) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write if it is time."""
        del run_context
        if self._due:
            self._log(run_values.results)
        self._iterations += 1

    def end(self, session: Any) -> None:
        """Write once more, if asked for."""
        if self._at_end:
            self._log(session.run(self._fetches))

    def _log(self, values: Mapping[str, Any]) -> None:
        elapsed = self._timer.update_last_triggered_step(self._iterations)[0] if self._timer else None
        if self._formatter is not None:
            logging.info(self._formatter(values))
            return
        text = ", ".join(f"{name} = {values[name]}" for name in self._names)
        logging.info("%s" if elapsed is None else f"%s ({elapsed:.3f} sec)", text)


@exported("train.CheckpointSaverHook")
class CheckpointSaverHook(SessionRunHook):
    """Saves a checkpoint now and then, at the beginning and at the end."""

    def __init__(
        self, checkpoint_dir: Any, save_secs: float | None = None, save_steps: int | None = None, saver: Any = None,
        checkpoint_basename: str = "model.ckpt", scaffold: Any = None, listeners: Sequence[Any] | None = None,
        save_graph_def: bool = True,
    ) -> None:  # fmt: skip
        del save_graph_def
        self._folder, self._path = checkpoint_dir, str(Path(checkpoint_dir) / checkpoint_basename)
        self._saver, self._scaffold, self._listeners = saver, scaffold, list(listeners or [])
        self._timer = SecondOrStepTimer(save_secs, save_steps)

    def begin(self) -> None:
        """Find the global step."""
        self._step = _needed_step("CheckpointSaverHook")
        for each in self._listeners:
            each.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Save the first one."""
        del coord
        self._save(session, int(session.run(self._step)))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Save if it is time."""
        del run_values
        step = int(run_context.session.run(self._step))
        if self._timer.should_trigger_for_step(step):
            self._save(run_context.session, step)

    def end(self, session: Any) -> None:
        """Save the last one."""
        step = int(session.run(self._step))
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for each in self._listeners:
            each.end(session, step)

    def _save(self, session: Any, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        logging.info("Saving checkpoints for %d into %s.", step, self._path)
        for each in self._listeners:
            each.before_save(session, step)
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        (self._saver or self._scaffold.saver).save(session, self._path, global_step=step)
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=self._path)
        FileWriterCache.get(self._folder).add_session_log(log, step)
        for each in self._listeners:
            each.after_save(session, step)


@exported("train.CheckpointSaverListener")
class CheckpointSaverListener:
    """Called around the saving of checkpoints; every method may be overridden."""

    def begin(self) -> None:
        """Called before the session is made."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before a checkpoint is written."""

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Called after a checkpoint is written."""

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end."""


@exported("train.SummarySaverHook")
class SummarySaverHook(SessionRunHook):
    """Writes a summary now and then."""

    def __init__(
        self, save_steps: int | None = None, save_secs: float | None = None, output_dir: Any = None,
        summary_writer: Any = None, scaffold: Any = None, summary_op: Any = None,
    ) -> None:  # fmt: skip
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._folder, self._writer, self._scaffold, self._op = output_dir, summary_writer, scaffold, summary_op

    def begin(self) -> None:
        """Find the global step and the writer."""
        self._step = _needed_step("SummarySaverHook")
        if self._writer is None and self._folder:
            self._writer = FileWriterCache.get(self._folder)

    def _summary(self) -> Any:
        return self._op if self._op is not None else getattr(self._scaffold, "summary_op", None)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the step, and the summary if it is time."""
        step = int(run_context.session.run(self._step))
        self._due = self._timer.should_trigger_for_step(step) and self._summary() is not None
        fetches = {"step": self._step}
        if self._due:
            fetches["summary"] = self._summary()
        return SessionRunArgs(fetches)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the summary if it is time."""
        del run_context
        step = int(run_values.results["step"])
        if self._due and self._writer is not None:
            self._timer.update_last_triggered_step(step)
            found = run_values.results["summary"]
            for each in found if isinstance(found, list) else [found]:
                self._writer.add_summary(each, step)

    def end(self, session: Any) -> None:
        """Write what is buffered."""
        del session
        if self._writer is not None:
            self._writer.flush()


@exported("train.StepCounterHook")
class StepCounterHook(SessionRunHook):
    """Writes steps per second to the log and to a summary."""

    def __init__(
        self, every_n_steps: int | None = 100, every_n_secs: float | None = None, output_dir: Any = None,
        summary_writer: Any = None,
    ) -> None:  # fmt: skip
        self._timer = SecondOrStepTimer(every_n_secs, None if every_n_secs is not None else every_n_steps)
        self._folder, self._writer = output_dir, summary_writer

    def begin(self) -> None:
        """Find the global step."""
        self._step = _needed_step("StepCounterHook")
        if self._writer is None and self._folder:
            self._writer = FileWriterCache.get(self._folder)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write if it is time."""
        del run_values
        step = int(run_context.session.run(self._step))
        if not self._timer.should_trigger_for_step(step):
            return
        seconds, steps = self._timer.update_last_triggered_step(step)
        if seconds and steps:
            name = self._step.op.name
            logging.info("%s/sec: %g", name, steps / seconds)
            if self._writer is not None:
                value = Summary.Value(tag=f"{name}/sec", simple_value=steps / seconds)
                self._writer.add_summary(Summary(value=[value]), step)


@exported("train.NanLossDuringTrainingError")
class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number."""

    def __str__(self) -> str:
        return "NaN loss during training."


@exported("train.NanTensorHook")
class NanTensorHook(SessionRunHook):
    """Stops, or raises, when a loss is not a number."""

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss, self._fails = loss_tensor, fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the loss."""
        del run_context
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Look at it."""
        if np.isnan(run_values.results):
            logging.error("Model diverged with loss = NaN.")
            if self._fails:
                raise NanLossDuringTrainingError
            run_context.request_stop()


@exported("train.FinalOpsHook")
class FinalOpsHook(SessionRunHook):
    """Runs something at the end."""

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self._ops, self._feeds, self.final_ops_values = final_ops, final_ops_feed_dict, None

    def end(self, session: Any) -> None:
        """Run it."""
        if self._ops is not None:
            self.final_ops_values = session.run(self._ops, feed_dict=self._feeds)


@exported("train.FeedFnHook")
class FeedFnHook(SessionRunHook):
    """Feeds what a function returns."""

    def __init__(self, feed_fn: Callable[[], Any]) -> None:
        self._feed = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Feed it."""
        del run_context
        return SessionRunArgs(fetches=None, feed_dict=self._feed())


def default_summary() -> Any:
    """The summary that programs have named, or all of them merged."""
    graph = get_default_graph()
    named = graph.get_collection(GraphKeys.SUMMARY_OP)
    if named:
        return named[0]
    from throughtime.tf1.summary._summaries import merge_all  # noqa: PLC0415

    return merge_all()
