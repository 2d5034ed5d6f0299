"""`Session`: runs fetches of a graph with feeds, and holds the values of variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from throughtime._lru import LruCache
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import Graph, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._program import Program, compile_program
from throughtime.tf1.session._default import SESSIONS
from throughtime.tf1.session._feeds import feed_value, flatten_feeds
from throughtime.tf1.session._fetches import Build, fetched, open_fetches
from throughtime.tf1.session._state import SessionState

_MOST_PLANS = 256
Key = tuple[int, Any, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """A program for one set of fetches and fed tensors."""

    program: Program
    feeds: tuple[Tensor, ...]
    leaves: list[Tensor | Operation]
    places: list[int | None]
    build: Build


_DEVICE = torch.device("cpu")
"""Of all sessions: kernels that make tensors, such as `tf.zeros` and random numbers, make them there."""


class BaseSession:
    """What `Session` and `InteractiveSession` share."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None):
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        if not isinstance(target, str | bytes):
            raise TypeError(f"target must be a string, but got {type(target)}")
        self._graph = graph or get_default_graph()
        self._config = config
        self._closed = False
        self.state = SessionState(device=_DEVICE)
        self.state.session = self
        self._plans: LruCache[Key, Plan] = LruCache(_MOST_PLANS)

    @property
    def graph(self) -> Graph:
        """The graph that this session runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The graph's definition."""
        return self._graph.as_graph_def()  # type: ignore[attr-defined]

    @property
    def sess_str(self) -> str:
        """The target."""
        return ""

    @property
    def values(self) -> dict[Operation, Any]:
        """The values of variables by their operations."""
        return self.state.values

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """The values of `fetches`, in their structure, with `feed_dict` in place of the tensors it names."""
        del options, run_metadata
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        pairs = flatten_feeds(self._graph, feed_dict)
        plan = self._plan(fetches, tuple(dict(pairs)))
        device = self.state.device
        given = {tensor: feed_value(tensor, value, device) for tensor, value in pairs}
        with torch.set_grad_enabled(plan.program.records):
            values = plan.program(self.state, *[given[tensor] for tensor in plan.feeds])
        return plan.build([None if place is None else fetched(values[place], self._storages) for place in plan.places])

    def tensors(self, fetches: Sequence[Tensor], feed_dict: Any = None) -> list[Any]:
        """The values of tensors as the kernels see them, not as arrays."""
        pairs = flatten_feeds(self._graph, feed_dict)
        given = {tensor: feed_value(tensor, value, self.state.device) for tensor, value in pairs}
        program = compile_program(list(fetches), list(given), (), self.state.device)
        with torch.set_grad_enabled(program.records):
            return program(self.state, *given.values())

    def _plan(self, fetches: Any, feeds: tuple[Tensor, ...]) -> Plan:
        key: Key = (self._graph.edits, _identity(fetches), tuple(map(id, feeds)))
        plan = self._plans.lookup(key)
        if plan is None:
            plan = self._new_plan(fetches, feeds)
            self._plans.insert(key, plan)
        return plan

    def _new_plan(self, fetches: Any, feeds: tuple[Tensor, ...]) -> Plan:
        leaves, build = open_fetches(self._graph, fetches)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        targets = [leaf for leaf in leaves if isinstance(leaf, Operation)]
        places = {tensor: place for place, tensor in enumerate(tensors)}
        program = compile_program(tensors, feeds, targets, self.state.device)
        return Plan(program, feeds, leaves, [places.get(leaf) for leaf in leaves], build)  # type: ignore[arg-type]

    def _storages(self) -> set[int]:
        """Where the values of variables lie."""
        values = self.state.values.values()
        return {value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor)}

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        """A function of the values of `feed_list` that gives the values of `fetches`."""
        del accept_options
        feeds = list(feed_list or [])
        return lambda *values, **_: self.run(fetches, dict(zip(feeds, values, strict=False)))

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        """Not supported."""
        raise NotImplementedError("partial_run is not supported: use run with all feeds")

    def list_devices(self) -> list[Any]:
        """The device of this session."""
        return [self.state.device]

    def close(self) -> None:
        """Forget the values of variables."""
        self._closed = True
        self.state.values.clear()
        self.state.resources.clear()
        self._plans = LruCache(_MOST_PLANS)

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Any]:
        """Make this the default session."""
        SESSIONS.stack.append(self)
        try:
            yield self
        finally:
            SESSIONS.stack.remove(self)


def _identity(fetches: Any) -> Any:
    """What tells structures of fetches apart, cheap to make and to compare; it holds the objects."""
    if isinstance(fetches, list | tuple):
        return (type(fetches), *map(_identity, fetches))
    if isinstance(fetches, dict):
        return (type(fetches), *((key, _identity(value)) for key, value in fetches.items()))
    return fetches if isinstance(fetches, str | bytes) else _ById(fetches)


class _ById:
    """An object as a key of its identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.value is self.value


@exported("Session")
class Session(BaseSession):
    """A session: `with tf.Session() as sess: sess.run(fetches, feed_dict)`."""

    def __enter__(self) -> Self:
        self._contexts = contextlib.ExitStack()
        self._contexts.enter_context(self._graph.as_default())
        self._contexts.enter_context(self.as_default())
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()
        self.close()

    @staticmethod
    def reset(target: str, containers: Any = None, config: Any = None) -> None:
        """Accepted: each session has its own variables."""


@exported("InteractiveSession")
class InteractiveSession(BaseSession):
    """A session that is the default one from its construction on."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None):
        super().__init__(target, graph, config)
        self._explicit = graph is not None
        self._contexts = contextlib.ExitStack()
        if self._explicit:
            self._contexts.enter_context(self._graph.as_default())
        SESSIONS.stack.append(self)

    def close(self) -> None:
        """Forget the values of variables; another session is the default one."""
        super().close()
        if self in SESSIONS.stack:
            SESSIONS.stack.remove(self)
        self._contexts.close()
