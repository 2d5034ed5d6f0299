"""`Graph`: operations in creation order, their names, collections, and what is open around the program's line."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import DType
from throughtime.tf1.graph._names import Names
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._shape_cache import infer_once
from throughtime.tf1.graph._shape_inference import Inferred, ShapeRule, infer
from throughtime.tf1.graph._shapes import TensorShape, as_shape
from throughtime.tf1.graph._user_line import user_line

_SHORT_DEVICE = re.compile(r"^/?(cpu|gpu|tpu):", re.IGNORECASE)


class ControlScope:
    """An open `with tf.control_dependencies`: operations that others made inside run after."""

    def __init__(self, ops: list[Operation]):
        self.ops = ops
        self.made: set[Operation] = set()

    def needed_by(self, op: Operation) -> list[Operation]:
        """What a new operation depends on; nothing if one of its inputs was made inside and depends on it already."""
        inside = any(tensor.op in self.made for tensor in op.inputs)
        self.made.add(op)
        return [] if inside else self.ops


class Graph:
    """A graph of operations.

    `version` counts operations that were added, `edits` changes of those that are there: plans of a session serve until
    the next edit.
    """

    building_function = False

    def __init__(self) -> None:
        self.names = Names()
        self.collections: dict[Any, list[Any]] = {}
        self.seed: int | None = None
        self.version = 0
        self.edits = 0
        self.skipped_ids = 0
        self.finalized = False
        self.control: list[ControlScope] = []
        self.devices: list[Any] = []
        self.variable_store: Any = None  # set at the first variable scope; see _variable_scope.py
        self._ops: list[Operation] = []
        self._by_name: dict[str, Operation] = {}
        self.gradient_overrides: dict[str, str] = {}

    # Operations

    def next_number(self) -> int:
        """The creation number of the next operation; functions count with the graph around them."""
        return len(self._ops)

    def skip_ids(self, count: int) -> None:
        """Count operations that TensorFlow makes where this package makes one: seeds derive from the count."""
        self.skipped_ids += count

    def add(self, op: Operation) -> None:
        """Take a new operation."""
        if self.finalized:
            raise RuntimeError("Graph is finalized and cannot be modified; make operations before the session runs.")
        self._ops.append(op)
        self._by_name[op.name] = op
        self.version += 1

    def capture(self, tensor: Tensor) -> Tensor:
        """`tensor` as a tensor of this graph; a function's graph takes those of the graphs around it."""
        if tensor.graph is not self:
            raise ValueError(
                f"Tensor {tensor.name!r} must be from the same graph as the operation that takes it; "
                "make both inside of one `with graph.as_default():`"
            )
        return tensor

    def get_operations(self) -> list[Operation]:
        """All operations in creation order."""
        return list(self._ops)

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation called `name`."""
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        found = self.as_graph_element(name, allow_tensor=False)
        assert isinstance(found, Operation)
        return found

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The tensor called `name`, such as "scope/op:0"."""
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        found = self.as_graph_element(name, allow_operation=False)
        assert isinstance(found, Tensor)
        return found

    def as_graph_element(self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Tensor | Operation:
        """The tensor or operation that `obj` names or is."""
        if hasattr(obj, "_as_graph_element"):
            obj = obj._as_graph_element()
        if isinstance(obj, str):
            return self._named(obj, allow_tensor, allow_operation)
        if (isinstance(obj, Tensor) and allow_tensor) or (isinstance(obj, Operation) and allow_operation):
            if obj.graph is not self:
                kind = "Tensor" if isinstance(obj, Tensor) else "Operation"
                raise ValueError(f"{kind} {obj} is not an element of this graph.")
            return obj
        allowed = " or ".join(word for word, yes in (("Tensor", allow_tensor), ("Operation", allow_operation)) if yes)
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {allowed}.")

    def _named(self, name: str, allow_tensor: bool, allow_operation: bool) -> Tensor | Operation:
        if ":" in name and allow_tensor:
            op_name, _, place = name.rpartition(":")
            if not place.isdigit():
                raise ValueError(f"The name {name!r} looks like a Tensor name, but is none: use '<op_name>:<output>'.")
            op = self._by_name.get(op_name)
            if op is None or int(place) >= len(op.outputs):
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist in the graph.{self._near(op_name)}"
                )
            return op.outputs[int(place)]
        if ":" in name:
            raise ValueError(f"The name {name!r} appears to refer to a Tensor, not a Operation.")
        if name not in self._by_name:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.{self._near(name)}")
        if not allow_operation:
            raise ValueError(f"The name {name!r} refers to an Operation, not a Tensor: use '{name}:0'.")
        return self._by_name[name]

    def _near(self, name: str) -> str:
        import difflib  # noqa: PLC0415

        close = difflib.get_close_matches(name, self._by_name, 3)
        return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""

    # Names, devices, control dependencies

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` in the open scope, made unique."""
        return self.names.unique(name, mark_as_used)

    def name_scope(self, name: str | None) -> contextlib.AbstractContextManager[str]:
        """Open a name scope."""
        return self.names.open_scope(name)

    def get_name_scope(self) -> str:
        """The open name scope."""
        return self.names.scope

    @contextlib.contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Ask for a device; recorded, and read by sessions."""
        self.devices.append(device_name_or_function)
        try:
            yield
        finally:
            self.devices.pop()

    @contextlib.contextmanager
    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Iterator[None]:
        """Operations made inside run after `control_inputs`; None forgets those around."""
        saved = self.control
        if control_inputs is None:
            self.control = []
        else:
            found = [self.as_graph_element(getattr(one, "op", one)) for one in control_inputs]
            ops = [one.op if isinstance(one, Tensor) else one for one in found]
            self.control = [*saved, ControlScope(ops)]
        try:
            yield
        finally:
            self.control = saved

    @contextlib.contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Accepted: values of one session share a device."""
        del op, ignore_existing
        yield

    @contextlib.contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Accepted: each session has its own variables."""
        yield container_name

    @contextlib.contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Use registered gradients for operations made inside (see `tf.RegisterGradient`)."""
        saved = self.gradient_overrides
        self.gradient_overrides = {**saved, **op_type_map}
        try:
            yield
        finally:
            self.gradient_overrides = saved

    # Collections

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Append to a collection."""
        self.collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Append to several collections."""
        for name in (names,) if isinstance(names, str) else set(names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """The list itself."""
        return self.collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """A copy of the list; with `scope` the items with names that match it."""
        items = self.collections.get(name, [])
        if scope is None:
            return list(items)
        pattern = re.compile(scope)
        return [item for item in items if hasattr(item, "name") and pattern.match(item.name)]

    def get_all_collection_keys(self) -> list[Any]:
        """The names of the collections."""
        return [name for name in self.collections if isinstance(name, str)]

    def clear_collection(self, name: Any) -> None:
        """Forget a collection."""
        self.collections.pop(name, None)

    # The rest of TensorFlow's interface

    def as_default(self) -> contextlib.AbstractContextManager[Graph]:
        """Make operations in this graph."""
        return STACK.entered(self)

    def finalize(self) -> None:
        """Refuse new operations."""
        self.finalized = True

    def _unsafe_unfinalize(self) -> None:
        self.finalized = False

    def session_for(self, session: Any, what: str) -> Any:
        """`session`, or the default one."""
        if session is None:
            from throughtime.tf1.session._default import get_default_session  # noqa: PLC0415

            session = get_default_session()
        if session is None:
            raise ValueError(
                f"Cannot execute {what}: No default session is registered. "
                "Use `with sess.as_default()` or pass an explicit session."
            )
        if session.graph is not self:
            raise ValueError("Cannot use the given session to evaluate: the tensor's graph is not the session's graph.")
        return session

    def is_feedable(self, tensor: Any) -> bool:
        """Every tensor can be fed."""
        return isinstance(tensor, Tensor)

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        """Every tensor and operation can be fetched."""
        return isinstance(tensor_or_op, Tensor | Operation)

    def prevent_feeding(self, tensor: Any) -> None:
        """Accepted."""

    def prevent_fetching(self, op: Any) -> None:
        """Accepted."""

    def switch_to_thread_local(self) -> None:
        """Accepted."""

    @property
    def _last_id(self) -> int:
        return self.next_number() + self.skipped_ids

    def root(self) -> Graph:
        """The outermost graph."""
        return self


class _DefaultGraphs(threading.local):
    """The stack of default graphs of a thread; the graph at the bottom is shared."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    @contextlib.contextmanager
    def entered(self, graph: Graph) -> Iterator[Graph]:
        self.graphs.append(graph)
        try:
            yield graph
        finally:
            if not self.graphs or self.graphs.pop() is not graph:
                raise AssertionError("Nesting violated for the stack of default graphs")


def override_gradient(op: Operation, name: str) -> None:
    """Give an operation a registered gradient; functions/_custom_gradient.py sets it."""
    raise NotImplementedError


STACK = _DefaultGraphs()
_GLOBAL: list[Graph] = []


def get_default_graph() -> Graph:
    """The graph that new operations go to."""
    if STACK.graphs:
        return STACK.graphs[-1]
    if not _GLOBAL:
        _GLOBAL.append(Graph())
    return _GLOBAL[0]


def reset_default_graph() -> None:
    """Begin with a new default graph."""
    if STACK.graphs:
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared graph, "
            "exit the nesting and create a new graph."
        )
    _GLOBAL[:] = [Graph()]


def create_op(
    op_type: str,
    kernel: Callable[..., Any],
    inputs: Sequence[Tensor] = (),
    *,
    name: str | None = None,
    dtypes: Sequence[DType] | None = None,
    shapes: Sequence[Any] | None = None,
    shape_rule: ShapeRule | None = None,
    stateful: bool = False,
    differentiable: bool = True,
    mutates: Operation | None = None,
    attrs: dict[str, Any] | None = None,
    probe_key: Hashable | None = None,
) -> Operation:
    """Make an operation in the default graph: the only place that makes one.

    Args:
        op_type: TensorFlow's name of the kind, such as "MatMul"; also the default name.
        kernel: A function from the values of `inputs` to one value, or to a tuple of values. With `stateful`, the
            state of the run comes first.
        inputs: Tensors of this graph, or of a graph around it if this is a function's graph.
        name: The name in the open scope; "scope/" is taken as it is.
        dtypes: The dtypes of the outputs; None finds them by running the kernel on probes.
        shapes: The static shapes of the outputs; None finds them by running the kernel on probes.
        shape_rule: A function from the inputs to the shapes of the outputs, for kernels that need real values.
        stateful: Whether the kernel reads or writes a session's state, or must run in creation order.
        differentiable: Whether gradients pass through.
        mutates: The variable's operation that this one writes.
        attrs: Static arguments, for programs that ask `op.get_attr`.
        probe_key: What the results of probes depend on besides the inputs, to find them again.
    """
    graph = get_default_graph()
    taken = [graph.capture(tensor) for tensor in inputs]
    op = Operation(graph, op_type, graph.names.for_operation(name or op_type), taken, kernel, graph.next_number())
    op.stateful, op.differentiable, op.mutates, op.attrs = stateful, differentiable, mutates, attrs or {}
    op.line = user_line()
    op.device = _device_name(graph, op)
    op.control_inputs = [one for scope in graph.control for one in scope.needed_by(op)]
    inferred = infer_once(probe_key, op, lambda: _infer_outputs(op, dtypes, shapes, shape_rule))
    op.outputs = [Tensor(op, place, *found) for place, found in enumerate(inferred)]
    graph.add(op)
    if op_type in graph.gradient_overrides:
        override_gradient(op, graph.gradient_overrides[op_type])
    return op


def _infer_outputs(
    op: Operation, dtypes: Sequence[DType] | None, shapes: Sequence[Any] | None, rule: ShapeRule | None
) -> list[Inferred]:
    if shapes is None and rule is not None:
        shapes = rule(*op.inputs)
    if dtypes is not None and shapes is not None:
        return [(dtype, as_shape(shape), None) for dtype, shape in zip(dtypes, shapes, strict=True)]
    if op.stateful:
        found: list[Inferred] = [(dtype, TensorShape(None), None) for dtype in dtypes or ()]
    else:
        found = infer(op, dtypes)
    if shapes is not None:
        found = [(dtype, as_shape(shape), host) for (dtype, _, host), shape in zip(found, shapes, strict=True)]
    return found


def _device_name(graph: Graph, op: Operation) -> str:
    for device in reversed(graph.devices):
        if device is None:
            return ""
        name = device(op) if callable(device) else device
        if name:
            return _SHORT_DEVICE.sub(lambda found: f"/device:{found[1].upper()}:", str(name))
    return ""


__all__ = ["Graph", "GraphKeys", "create_op", "get_default_graph", "reset_default_graph"]
