"""Sub-graphs as functions: what a Python function builds, with the tensors of the graph around it as captures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1.graph._dtypes import DType
from throughtime.tf1.graph._graph import Graph, create_op, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._program import Program, compile_program, variable_of, written_by
from throughtime.tf1.graph._shapes import TensorShape, as_shape


class FuncGraph(Graph):
    """The graph of a function's body. Names, collections and variables are those of the graph around it."""

    building_function = True

    def __init__(self, outer: Graph):
        super().__init__()
        self.outer = outer
        self.names = outer.names
        self.collections = outer.collections
        self.seed = outer.seed
        self.devices = outer.devices
        self.captures: dict[Tensor, Tensor] = {}
        self.outer_controls: list[Operation] = []

    def root(self) -> Graph:
        """The outermost graph."""
        return self.outer.root()

    def capture(self, tensor: Tensor) -> Tensor:
        """`tensor` itself, or the argument that brings an outer tensor in; constants are copied."""
        if tensor.graph is self:
            return tensor
        if tensor not in self.captures:
            self.captures[tensor] = self._captured(tensor)
        return self.captures[tensor]

    def _captured(self, tensor: Tensor) -> Tensor:
        outer = self.outer.capture(tensor)
        constant = tensor.op.type == "Const"
        op = Operation(
            self, "Const" if constant else "Capture", f"{tensor.op.name}/capture", [], tensor.op.kernel, len(self._ops)
        )
        op.attrs = dict(tensor.op.attrs) if constant else {"outer": outer, "variable": variable_of(tensor)}
        op.line = tensor.op.line
        op.outputs = [Tensor(op, 0, tensor.dtype, tensor.shape, tensor.host)]
        self._ops.append(op)
        return op.outputs[0]

    def captured(self) -> list[tuple[Tensor, Tensor]]:
        """Pairs of a tensor of the graph around this one and the argument that stands for it."""
        inner = [tensor for tensor in self.captures.values() if tensor.op.type == "Capture"]
        return [(tensor.op.attrs["outer"], tensor) for tensor in inner]

    def argument(self, dtype: DType, shape: Any, name: str) -> Tensor:
        """A new argument of the function."""

        def unfed() -> Any:
            raise AssertionError(f"the argument {name} has no value")

        return create_op("Argument", unfed, name=name, dtypes=[dtype], shapes=[as_shape(shape)]).outputs[0]

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Any:
        """Those of the graph around become dependencies of the node that calls this function."""
        if control_inputs is None:
            return super().control_dependencies(None)
        found = [getattr(one, "op", one) for one in control_inputs]
        self.outer_controls += [op for op in found if op.graph is not self]
        return super().control_dependencies([op for op in found if op.graph is self])


@dataclass(eq=False)
class Function:
    """A built function: arguments and captures to outputs, by a program for each device."""

    graph: FuncGraph
    arguments: list[Tensor]
    outputs: list[Tensor]
    targets: list[Operation]
    structure: Any
    outer: list[Tensor] = field(default_factory=list)
    _programs: dict[Any, Program] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pairs = self.graph.captured()
        self.outer = [outer for outer, _ in pairs]
        self.inner = [inner for _, inner in pairs]

    def __getstate__(self) -> dict[str, Any]:
        # Programs are generated code: they are made again.
        return {**vars(self), "_programs": {}}

    @functools.cached_property
    def writes(self) -> list[Operation]:
        """Variables that the body assigns."""
        return [variable for op in self.graph.get_operations() for variable in written_by(op)]

    @property
    def stateful(self) -> bool:
        """Whether the body needs a session's state."""
        return self.program(None).stateful

    @functools.cached_property
    def _rereads(self) -> list[tuple[int, Operation]]:
        found = ((place, tensor.op.attrs.get("variable")) for place, tensor in enumerate(self.inner))
        return [(place, variable) for place, variable in found if variable in self.writes and variable is not None]

    def program(self, device: torch.device | None) -> Program:
        """The program, with constants on `device`."""
        if device not in self._programs:
            inputs = [*self.inner, *self.arguments]
            self._programs[device] = compile_program(self.outputs, inputs, self.targets, device)
        return self._programs[device]

    def __call__(self, state: Any, captures: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The values of the outputs."""
        if self._rereads and state is not None:
            captures = list(captures)
            for place, variable in self._rereads:
                captures[place] = state.values.get(variable, captures[place])
        program = self.program(None if state is None else state.device)
        if not program.records or torch.is_grad_enabled():
            return program(state, *captures, *arguments)
        # The body differentiates by itself; around it nothing does.
        with torch.enable_grad():
            found = program(state, *captures, *arguments)
        return [value.detach() if isinstance(value, torch.Tensor) else value for value in found]


Spec = tuple[DType, TensorShape]


def build_function(
    function: Callable[..., Any],
    specs: Sequence[Spec],
    template: Any = None,
    *,
    name: str = "arg",
    convert: Callable[[Any], Tensor],
) -> Function:
    """Run `function` once on arguments of these dtypes and shapes and take what it returns.

    With `template`, a nest, the arguments are packed like it and `function` gets its children one by one.
    """
    outer = get_default_graph()
    graph = FuncGraph(outer)
    with graph.as_default():
        arguments = [graph.argument(dtype, shape, f"{name}_{place}") for place, (dtype, shape) in enumerate(specs)]
        packed = arguments if template is None else _pytree.children(_pytree.pack_as(template, arguments))
        result = function(*packed)
        outputs: list[Tensor] = []
        targets: list[Operation] = []
        leaves = [] if result is None else _pytree.flatten(result)
        for leaf in leaves:
            if isinstance(leaf, Operation):
                targets.append(leaf)
            elif leaf is not None:
                outputs.append(graph.capture(convert(leaf)))
    return Function(graph, arguments, outputs, targets, result)


def call_node(
    op_type: str,
    kernel: Callable[..., Any],
    inputs: Sequence[Tensor],
    functions: Sequence[Function],
    *,
    name: str | None,
    dtypes: Sequence[DType],
    shapes: Sequence[Any],
) -> Operation:
    """A node that runs functions: `kernel(state, *inputs)`. It depends and writes as they do."""
    pure = not any(function.stateful for function in functions)
    writes = [variable for function in functions for variable in function.writes]
    op = create_op(
        op_type,
        kernel,
        inputs,
        name=name,
        dtypes=dtypes,
        shapes=shapes,
        stateful=True,
        attrs={"pure": pure, "writes": writes, "tuple": True, "functions": list(functions)},
    )
    for function in functions:
        op.control_inputs.extend(control for control in function.graph.outer_controls if control.graph is op.graph)
    return op
