"""`FileWriter`: summaries, graphs and logs of sessions, into event files."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, ClassVar, Self

from throughtime._errors import problem, type_name
from throughtime.tf1._namespace import export, exported
from throughtime.tf1.protos import Event, HistogramProto, SessionLog, Summary, SummaryMetadata, TaggedRunMetadata
from throughtime.tf1.summary._event_file import EventFile, summary_iterator
from throughtime.tf1.summary._graph_def import describe

for _name, _value in {
    "Summary": Summary,
    "summary.Summary": Summary,
    "summary.SummaryDescription": SummaryMetadata,
    "SummaryMetadata": SummaryMetadata,
    "HistogramProto": HistogramProto,
    "Event": Event,
    "summary.Event": Event,
    "SessionLog": SessionLog,
    "summary.SessionLog": SessionLog,
    "summary.TaggedRunMetadata": TaggedRunMetadata,
    "train.summary_iterator": summary_iterator,
    "python.summary.summary_iterator.summary_iterator": summary_iterator,
}.items():
    export(_name, _value)


@exported("summary.FileWriter", "train.SummaryWriter")
class FileWriter:
    """Writes what `session.run(merged)` returned into an event file of a folder.

    >>> import tempfile, throughtime.tf1 as tf
    >>> writer = tf.summary.FileWriter(tempfile.mkdtemp())
    >>> writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=0.5)]), 1)
    >>> writer.close()
    """

    def __init__(
        self,
        logdir: Any,
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        del max_queue, session
        self._logdir: str = os.fspath(logdir)
        self._file = EventFile(self._logdir, filename_suffix or "", flush_secs)
        self._closed = False
        # Which plugin shows a tag is written once.
        self._described: set[str] = set()
        if graph is not None or graph_def is not None:
            self.add_graph(graph if graph is not None else graph_def)

    def get_logdir(self) -> str:
        """The folder."""
        return self._logdir

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Write a summary, as a run returned it or as `tf.Summary`, for a step."""
        if hasattr(summary, "item") and not isinstance(summary, bytes):
            summary = summary.item()
        if not isinstance(summary, bytes | Summary):
            fix = "Pass the result of `session.run(merged)`."
            what = "`add_summary` takes a summary"
            raise TypeError(problem(what, got=type_name(summary), expected="bytes or a tf.Summary", fix=fix))
        found = Summary.FromString(summary if isinstance(summary, bytes) else summary.SerializeToString())
        self.add_event(Event(summary=self._described_once(found)), global_step)

    def _described_once(self, summary: Summary) -> Summary:
        for value in summary.value:
            if value.HasField("metadata"):
                if value.tag in self._described:
                    value.ClearField("metadata")
                self._described.add(value.tag)
        return summary

    def add_event(self, event: Event, global_step: Any = None) -> None:
        """Write an event."""
        if self._closed:
            self.reopen()
        if not event.wall_time:
            event.wall_time = time.time()
        if global_step is not None:
            event.step = int(global_step)
        self._file.write(event)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Write a graph's operations and the tensors between them."""
        wanted = graph if graph is not None else graph_def
        found = wanted if hasattr(wanted, "SerializeToString") else describe(wanted)
        self.add_event(Event(graph_def=found.SerializeToString()), global_step)

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Write a meta graph."""
        self.add_event(Event(meta_graph_def=meta_graph_def.SerializeToString()), global_step)

    def add_session_log(self, session_log: SessionLog, global_step: Any = None) -> None:
        """Write a session's start, stop or checkpoint."""
        self.add_event(Event(session_log=session_log), global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Write what was recorded of a run."""
        found = TaggedRunMetadata(tag=tag, run_metadata=run_metadata.SerializeToString())
        self.add_event(Event(tagged_run_metadata=found), global_step)

    def flush(self) -> None:
        """Write what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._closed = True

    def reopen(self) -> None:
        """Go on after `close`, in another file."""
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@exported("summary.FileWriterCache")
class FileWriterCache:
    """One writer for each folder."""

    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock = threading.Lock()

    @classmethod
    def get(cls, logdir: Any) -> FileWriter:
        """The writer of a folder."""
        with cls._lock:
            if os.fspath(logdir) not in cls._writers:
                cls._writers[os.fspath(logdir)] = FileWriter(logdir)
            return cls._writers[os.fspath(logdir)]

    @classmethod
    def clear(cls) -> None:
        """Close all."""
        with cls._lock:
            for writer in cls._writers.values():
                writer.close()
            cls._writers.clear()
