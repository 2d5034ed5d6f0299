"""Recomputation of all steps of a chunk together.

If the state before every step is saved, the steps are independent of each other: what the loop computed in one small
matmul for each step is recomputed in a few large ones. A state whose recurrence has no matmul need not be saved: an
elementwise scan recomputes it from the state before the first step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime.backends.aten.fuse_pointwise import unsupported_reason
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Graph, Node, Program, Value, taken_by
from throughtime.compiler.ir.ops import RecomputePolicy
from throughtime.compiler.pipeline import accumulate_in_place, optimize_section
from throughtime.layout.previous_step import previous
from throughtime.layout.step_layout import StepLayout
from throughtime.runtime.offload.batched_nodes import BatchedNodes, ElementwiseScan, device_of

aten = torch.ops.aten


class Recompute:
    """The recomputation of the steps of a chunk.

    `states` are the indices of the states that it reads as of the chunk's first step; those that it does not recompute
    are saved for every later step. `gives` are the recomputed values, `products` the matmuls that this takes.
    """

    def __init__(
        self,
        program: Program,
        parts: _Partition,
        scanned: Sequence[int],
        wanted: Sequence[Value],
        products: Sequence[Node],
        transposes: Sequence[Node],
    ) -> None:
        self.gives, self.products = set(wanted), products
        self._program, self._scanned = program, list(scanned)
        takes = {value for part in parts if part is not None for value in part.takes}
        olds = list(program.state)
        self._known = [index for index, old in enumerate(olds) if old in takes and index not in self._scanned]
        self.states = [*self._known, *self._scanned]
        self._parts = parts
        nodes = [*program.invariant.nodes, *transposes]
        wanted = [value for node in nodes for value in node.results if value in takes]
        nodes = Graph(nodes).needed_for(wanted)
        self._invariant = SectionFunction(program.invariant.name, nodes, wanted)

    @property
    def source(self) -> str:
        """The generated code of all parts."""
        return "\n\n".join(part.source for part in self._parts if part is not None)

    @classmethod
    def of(
        cls,
        program: Program,
        there: set[Value],
        wanted: Sequence[Value],
        scanned: Sequence[int],
        *,
        on_gpu: bool,
        light: bool = False,
    ) -> Recompute | None:
        """The recomputation of the `wanted` values from available ones (`there`) and states; None if it is impossible.

        States with an index in `scanned` are available before the first step only: a scan recomputes the others.
        If it is to be `light`, it has no matmul.
        """
        apart = {*program.inputs, *program.random.gives, *program.invariant.gives, *program.tensors, *program.literals}
        there = there | apart
        there |= {old for index, (old, new) in enumerate(program.states) if new in there and index not in scanned}
        carried = [program.states[index] for index in scanned]
        gives = list(dict.fromkeys([*wanted, *(new for _, new in carried)]))
        nodes = leading_to(program, gives, there)
        taken = set(taken_by(nodes, wanted))
        if not wanted or not taken <= there | {old for old, _ in carried} or (light and not all(map(_is_light, nodes))):
            return None
        products = [node for node in nodes if node.name == "mm"]
        nodes = optimize_section(accumulate_in_place(nodes, gives), gives, on_gpu=on_gpu)
        nodes, transposes = _column_major(nodes) if on_gpu else (nodes, [])
        parts = _split(nodes, carried, list(dict.fromkeys(wanted)), on_gpu=on_gpu)
        return None if parts is None else cls(program, parts, scanned, wanted, products, transposes)

    def run_invariant(self, env: Env) -> None:
        """Add the values that depend on the cell's tensors alone."""
        self._invariant.run(0, env)

    def run(self, env: Env, starts: Mapping[int, Tensor], steps: StepLayout) -> None:
        """Add the recomputed values of a chunk, and the states before each step."""
        for index in self._known:
            old, new = self._program.states[index]
            if old not in env:
                env[old] = previous(steps, env[new], starts[index])
        first, scan, last = self._parts
        local = dict(env)
        with _current(device_of(env)):
            first.run(steps.total, local)
            if scan is not None:
                scan.run(local, [starts[index] for index in self._scanned], steps)
            last.run(steps.total, local)
        env.update({value: local[value] for value in self.gives})


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Kernels are launched on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


class _Partition(NamedTuple):
    """Partition into: independent of the recurrence, elementwise recurrence, dependent on the recurrence."""

    first: BatchedNodes
    scan: ElementwiseScan | None
    last: BatchedNodes


def _split(
    nodes: list[Node], carried: list[tuple[Value, Value]], wanted: list[Value], *, on_gpu: bool
) -> _Partition | None:
    """The nodes in three parts; None if the recurrence contains a matmul."""
    if not carried:
        return _Partition(BatchedNodes(nodes, wanted, on_gpu=on_gpu), None, BatchedNodes([], [], on_gpu=on_gpu))
    first, scanned, last = _partitioned(nodes, carried)
    late = {value for node in last for value in node.results}
    if not on_gpu or not late.isdisjoint(new for _, new in carried):
        return None
    ends = _light_ends(first)
    scanned = [*(node for node in first if id(node) in ends), *scanned]
    first = [node for node in first if id(node) not in ends]
    scanned = _with_views(scanned, first)
    in_scan = dict.fromkeys([*(value for node in scanned for value in node.results), *(old for old, _ in carried)])
    wanted_of_it = {*wanted, *(value for node in last for value in node.values)}
    gives = [value for value in in_scan if value in wanted_of_it]
    if not gives or ElementwiseScan.unsupported_reason(scanned, carried, gives) is not None:
        return None
    scan = ElementwiseScan(scanned, carried, gives)
    wanted_of_first = wanted_of_it | set(scan.takes)
    made = [value for node in first for value in node.results]
    return _Partition(
        BatchedNodes(first, [v for v in made if v in wanted_of_first and v not in in_scan], on_gpu=on_gpu),
        scan,
        BatchedNodes(last, [value for value in wanted if value in late], on_gpu=on_gpu),
    )


def _partitioned(nodes: list[Node], carried: list[tuple[Value, Value]]) -> tuple[list[Node], list[Node], list[Node]]:
    """Nodes independent of the recurrence, those of an elementwise recurrence, and those that depend on it."""
    reached, late = {old for old, _ in carried}, set[Value]()
    first, scanned, last = list[Node](), list[Node](), list[Node]()
    in_recurrence = set(map(id, Graph(nodes).needed_for([new for _, new in carried])))
    for node in nodes:
        is_reached = not reached.isdisjoint(node.values)
        # To reduce rows at every step takes longer than for all steps together.
        is_heavy = unsupported_reason([node]) is not None or not (_is_plain(node) or id(node) in in_recurrence)
        if not late.isdisjoint(node.values) or (is_reached and is_heavy):
            late.update(node.results)
            last.append(node)
        elif is_reached:
            reached.update(node.results)
            scanned.append(node)
        else:
            first.append(node)
    return first, scanned, last


def _column_major(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The same with column-major float32 matrices, which is faster for TF32, and the nodes that transpose them.

    A matmul of 8192 rows, 1024 features and 4096 columns takes 174 µs instead of 201; other dtypes are unaffected.
    """
    made = {value for node in nodes for value in node.results}
    changed: list[Node] = []
    transposes: dict[Value, list[Node]] = {}
    for node in nodes:
        matrix = node.args[-1] if node.name in ("mm", "addmm", "addmm_") else None
        if not isinstance(matrix, Value) or matrix in made or matrix.has_rows or matrix.dtype != torch.float32:
            changed.append(node)
            continue
        if matrix not in transposes:
            rows, columns = matrix.shape
            across, copied = (Value(f"{matrix.name}_{how}", (columns, rows), matrix.dtype) for how in ("t", "copied"))
            transposed = Value(f"{matrix.name}_turned", matrix.shape, matrix.dtype)
            transposes[matrix] = [
                Node(aten.t.default, (matrix,), {}, (across,)),
                Node(aten.clone.default, (across,), {"memory_format": torch.contiguous_format}, (copied,)),
                Node(aten.t.default, (copied,), {}, (transposed,)),
            ]
        changed.append(Node(node.target, (*node.args[:-1], transposes[matrix][-1].result), node.kwargs, node.results))
    return changed, [node for found in transposes.values() for node in found]


def _light_ends(nodes: list[Node]) -> set[int]:
    """Of nodes independent of the recurrence, those that only an elementwise scan reads."""
    users = Graph(nodes).users()
    found: set[int] = set()
    for node in reversed(nodes):
        after = [user for value in node.results for user in users.get(value, [])]
        if _is_plain(node) and all(id(user) in found for user in after) and unsupported_reason([node]) is None:
            found.add(id(node))
    return found


def _is_plain(node: Node) -> bool:
    """Whether every element of a row is computed from the same element of its operands."""
    return node.is_pointwise or node.operation.launches_nothing or node.name in ("cat", "_to_copy", "clone")


def _with_views(nodes: list[Node], others: list[Node]) -> list[Node]:
    """Nodes, and those of the others that are views which they read: a kernel reads a part in place."""
    views = [node for node in others if node.operation.launches_nothing and unsupported_reason([node]) is None]
    return [*Graph(views).needed_for(taken_by(nodes)), *nodes]


def leading_to(program: Program, wanted: Sequence[Value], there: set[Value]) -> list[Node]:
    """The nodes of a step that compute the `wanted` values from available ones (`there`)."""
    return Graph([node for node in _steps_of(program) if not there.issuperset(node.results)]).needed_for(wanted)


def _steps_of(program: Program) -> list[Node]:
    """The nodes of all sections of a step; cheap nodes may be in several sections, and are here once."""
    nodes = (*program.before.nodes, *program.loop.nodes, *program.after.nodes)
    return list({id(node): node for node in nodes}.values())


def light_ones(program: Program, values: Sequence[Value], there: set[Value]) -> set[Value]:
    """The values that can be recomputed from the others without a matmul, at almost no cost."""
    order = {value: place for place, node in enumerate(_steps_of(program)) for value in node.results}
    light: set[Value] = set()
    # From the last to the first, so that the first ones are saved and the others recomputed from them.
    for value in sorted(values, key=lambda value: order.get(value, -1), reverse=True):
        others = there | (set(values) - light - {value})
        nodes = leading_to(program, [value], others)
        if nodes and all(map(_is_light, nodes)):
            light.add(value)
    return light


def _is_light(node: Node) -> bool:
    """Whether a node costs little for a chunk of steps: no product."""
    return node.operation.recompute is not RecomputePolicy.NEVER
