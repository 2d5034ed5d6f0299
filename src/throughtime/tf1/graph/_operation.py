"""`Operation` and `Tensor`: the nodes of a graph and the values between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from throughtime.tf1._errors import OperatorNotAllowedInGraphError
from throughtime.tf1.graph._dtypes import DType
from throughtime.tf1.graph._shapes import UNKNOWN, TensorShape, as_shape
from throughtime.tf1.graph._user_line import UserLine

if TYPE_CHECKING:
    from throughtime.tf1.graph._graph import Graph

HostValue = tuple[Any, Any]
"""What a small integer tensor is for the two probe sizes of unknown dimensions; equal for a constant."""


class NodeDef(NamedTuple):
    """A node as a graph's definition has it."""

    name: str
    op: str
    input: list[str]
    device: str


@dataclass(eq=False, repr=False)
class Operation:
    """A node: `kernel` computes the values of `outputs` from those of `inputs`.

    A `stateful` kernel takes the run's state as its first argument (see `session/_state.py`) and runs in creation
    order. `mutates` is the variable operation that it writes, if any.
    """

    graph: Graph
    type: str
    name: str
    inputs: list[Tensor]
    kernel: Callable[..., Any]
    number: int
    stateful: bool = False
    differentiable: bool = True
    mutates: Operation | None = None
    control_inputs: list[Operation] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    device: str = ""
    line: UserLine | None = None
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def values(self) -> Callable[[], list[Tensor]]:
        """TensorFlow's spelling of `outputs`."""
        return lambda: self.outputs

    @property
    def node_def(self) -> NodeDef:
        """What programs read of a node's definition."""
        return NodeDef(self.name, self.type, [tensor._as_node_def_input() for tensor in self.inputs], self.device)

    @property
    def op_def(self) -> NodeDef:
        """The kind of operation."""
        return NodeDef(self.type, self.type, [], "")

    def get_attr(self, name: str) -> Any:
        """A static argument of the operation."""
        if name not in self.attrs:
            raise ValueError(f"Operation {self.name!r} has no attr named {name!r}.")
        return self.attrs[name]

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Run this operation in `session`, or in the default one."""
        self.graph.session_for(session, "Operation.run").run(self, feed_dict)

    def colocation_groups(self) -> list[bytes]:
        """Each operation is a group of its own."""
        return [f"loc:@{self.name}".encode()]

    def _add_control_input(self, op: Operation) -> None:
        self.control_inputs.append(op)
        self.graph.edits += 1

    def _add_control_inputs(self, ops: Sequence[Operation]) -> None:
        for op in ops:
            self._add_control_input(op)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"

    def __str__(self) -> str:
        return f'name: "{self.name}"\nop: "{self.type}"\n' + "".join(f'input: "{t.op.name}"\n' for t in self.inputs)


class Tensor:
    """The value of one output of an operation; operators are set by `ops/_operators.py`."""

    __array_priority__ = 100
    __slots__ = (
        "__weakref__",
        "_keras_history",
        "_keras_mask",
        "_shape",
        "_uses_learning_phase",
        "dtype",
        "host",
        "index",
        "op",
    )

    def __init__(
        self, op: Operation, index: int, dtype: DType, shape: TensorShape = UNKNOWN, host: HostValue | None = None
    ):
        self.op = op
        self.index = index
        self.dtype = dtype
        self._shape = shape
        self.host = host

    @property
    def value_index(self) -> int:
        """Which output of the operation this is."""
        return self.index

    @property
    def graph(self) -> Graph:
        """The graph of the operation."""
        return self.op.graph

    @property
    def name(self) -> str:
        """`"operation:0"`."""
        return f"{self.op.name}:{self.index}"

    @property
    def device(self) -> str:
        """Where the operation was asked to run."""
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape."""
        return self._shape

    def get_shape(self) -> TensorShape:
        """What is known of the shape."""
        return self._shape

    @property
    def _shape_tuple(self) -> tuple[int | None, ...] | None:
        return self._shape.sizes

    def set_shape(self, shape: Any) -> None:
        """Add to what is known of the shape."""
        self._shape = self._shape.merge_with(as_shape(shape))

    def consumers(self) -> list[Operation]:
        """The operations that take this tensor."""
        return [op for op in self.graph.get_operations() if any(one is self for one in op.inputs)]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The value in `session`, or in the default one."""
        return self.graph.session_for(session, "Tensor.eval").run(self, feed_dict)

    def _as_node_def_input(self) -> str:
        return self.op.name if self.index == 0 else self.name

    def __iter__(self) -> Iterator[Tensor]:
        sizes = self._shape.sizes
        if sizes is None or not sizes or sizes[0] is None:
            raise OperatorNotAllowedInGraphError(
                f"Tensor {self.name!r} of shape {self._shape} is not iterable: the first dimension must be known; "
                "use tf.unstack with `num`, or tf.map_fn"
            )
        return (self[place] for place in range(sizes[0]))

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError  # set by ops/_slicing.py

    def __len__(self) -> int:
        raise TypeError(f"object of type 'Tensor' has no len(): use tf.shape({self.op.name})[0], or .shape[0]")

    def __bool__(self) -> bool:
        raise OperatorNotAllowedInGraphError(
            "Using a `tf.Tensor` as a Python `bool` is not allowed: it has no value before a session runs it. "
            "Use `if t is not None:`, or tf.cond for a condition in the graph."
        )

    __nonzero__ = __bool__

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Tensor ({self.name}) to a numpy array; run it in a session."
        )

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, _: Any) -> Tensor:
        return self

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self._shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        shape = "" if self._shape.sizes is None else f", shape={self._shape}"
        device = f", device={self.device}" if self.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'
