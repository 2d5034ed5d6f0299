"""Pointwise fusion: the pointwise operations of a step in groups, each of which becomes one kernel.

Matmuls, convolutions and other operations that cannot be lowered stay operations of torch. Between two of them that
depend on each other there is one group, so a step of an LSTM is a matmul and a group. Views cost nothing on either
side: a group reads the part that it needs, and torch makes a view. Groups read streams and write stored values in
place: nothing is copied in or out.

`backends/triton/elementwise_kernel.py` makes the kernels, `backends/aten/fused_chunk.py` runs them. `limits` tells what
these kernels can do: it returns why they cannot run a loop program, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value, taken_by
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.compiler.ir.sections import Loop
from throughtime.compiler.ir.verify import verify_graph
from throughtime.compiler.lowering.lower import Lowered
from throughtime.compiler.passes.merge_matmuls import MergedMatmuls, sum_of

aten = torch.ops.aten

Limits = Callable[[LoopProgram], str | None]
"""Why a kernel cannot run a loop program without a loop; None if it can."""


@dataclass
class FusionGroup:
    """Nodes that are one kernel: it reads `takes` and writes `gives`.

    Of these, `kept` are tensors that later parts read; the others are only written to streams.
    """

    nodes: list[Node]
    gives: list[Value] = field(default_factory=list)
    kept: list[Value] = field(default_factory=list)

    @property
    def takes(self) -> list[Value]:
        """The values that it reads and does not compute."""
        return taken_by(self.nodes, self.gives)

    def lowered(self) -> Lowered:
        """The group as a loop program; its inputs are streams or constants."""
        return Lowered(Loop("group", self.nodes, False, [], self.gives), set())


@dataclass
class UnfusedNodes:
    """Nodes that torch runs, and the values that other parts need of them."""

    nodes: list[Node]
    gives: list[Value] = field(default_factory=list)

    @property
    def takes(self) -> list[Value]:
        """The values that they read and do not compute."""
        return taken_by(self.nodes, self.gives)


Part = FusionGroup | UnfusedNodes


class Carried(NamedTuple):
    """A carried value before and after a step: as itself, or as several values that add up to it."""

    before: list[Value]
    after: list[Value]


@dataclass
class FusedStep:
    """One step in parts that run one after another.

    `carried` has, for each value that the loop carries, what is carried instead. Groups read `streams` and write
    `stored` values in place. Streams that are `copied` and stored values that are `stacked` pass through buffers,
    because torch reads or writes them. `alive` [n] is the mask of rows that have not ended, if there is one.
    """

    parts: list[Part]
    carried: list[Carried]
    streams: list[Value]
    stored: list[Value]
    copied: list[Value]
    stacked: list[Value]
    alive: Value | None

    @cached_property
    def constants(self) -> list[Value]:
        """Inputs that are the same at all steps."""
        made = {value for part in self.parts for node in part.nodes for value in node.results}
        taken = dict.fromkeys(value for part in self.parts for value in part.takes)
        return [value for value in taken if not value.has_rows and value not in made]

    @cached_property
    def matrices(self) -> set[Value]:
        """Constants that only matmuls of torch read, so that their strides are free."""
        plain = [node for part in self.parts if isinstance(part, UnfusedNodes) for node in part.nodes]
        others = {value for part in self.parts if isinstance(part, FusionGroup) for value in part.takes}
        others |= {value for node in plain for value in node.values if node.name != "mm"}
        return {node.args[1] for node in plain if node.name == "mm" and not node.args[1].has_rows} - others

    @property
    def launches(self) -> int:
        """An estimate of the kernels of a step: an operation of torch may launch several, a view launches none."""
        nodes = [node for part in self.parts if isinstance(part, UnfusedNodes) for node in part.nodes]
        return sum(isinstance(part, FusionGroup) for part in self.parts) + sum(
            not node.operation.launches_nothing for node in nodes
        )


def fuse_pointwise(products: MergedMatmuls, limits: Limits, *, masked: bool) -> FusedStep:
    """The step of a loop in as few kernels as possible; if `masked`, rows that have ended keep their state."""
    loop = products.loop
    nodes, carried = list(loop.nodes), [Carried([before], [after]) for before, after in loop.carried]
    alive = Value("alive", (ROWS,), torch.bool) if masked else None
    if alive is not None:
        for place, (before, after) in enumerate(loop.carried):
            if after is not before:
                kept = _or_before(alive, before, after)
                nodes += kept
                carried[place] = Carried([before], [kept[-1].result])
    else:
        carried = [_in_parts(products, nodes, before, after) for before, after in loop.carried]
        sums = [sum_of(found.before, before) for (before, _), found in zip(loop.carried, carried, strict=True)]
        nodes = [*(node for found in sums for node in found), *nodes]
    afters = [after for found in carried for after in found.after]
    nodes = Graph(nodes).needed_for([*loop.stored, *afters])
    parts = grouped(nodes, {*loop.stored, *afters}, limits)
    return _connected(loop, parts, carried, alive, limits)


def _in_parts(products: MergedMatmuls, nodes: list[Node], before: Value, after: Value) -> Carried:
    """A split-K matmul that only the next step reads is carried in parts, which its first kernel adds."""
    parts = products.deep.get(after)
    if parts is None or after in products.loop.stored or any(after in node.values for node in nodes):
        return Carried([before], [after])
    found = [Value(f"{before.name}_part_{index}", part.shape, part.dtype) for index, part in enumerate(parts)]
    return Carried(found, parts)


def _or_before(alive: Value, before: Value, after: Value) -> list[Node]:
    """Rows that have ended keep their value."""
    sizes = tuple(ROWS if size is ROWS else 1 for size in before.shape)
    shaped = Value(f"alive_for_{before.name}", sizes, torch.bool)
    result = Value(f"{after.name}_or_{before.name}", before.shape, before.dtype)
    return [
        Node(aten.view.default, (alive, list(sizes)), {}, (shaped,)),
        Node(aten.where.self, (shaped, after, before), {}, (result,)),
    ]


def grouped(nodes: list[Node], wanted: set[Value], limits: Limits) -> list[Part]:
    """The nodes in as few parts as possible; what each gives to others is not known yet."""
    return _merged(_by_level(nodes, wanted, limits))


def _by_level(nodes: list[Node], wanted: set[Value], limits: Limits) -> list[Part]:
    """The parts of a step, by level: operations of torch at level L read groups up to L, and groups above L read them.

    Every node is as late as its users allow, so that values for a later group are computed inside of it.
    """
    made, users = Graph(nodes).producers(), Graph(nodes).users()
    fusable = {id(node) for node in nodes if unsupported_reason([node], (), limits) is None}
    views = {id(node) for node in nodes if id(node) in fusable and _is_view(node) and node.result not in wanted}
    # The first level at which a group, or torch, can read a value; torch can run before the first group.
    for_group: dict[Value, int] = {}
    for_torch: dict[Value, int] = {}
    place: dict[int, int] = {}
    for node in nodes:
        group = max((for_group.get(value, 0) for value in node.values), default=0)
        plain = max((for_torch.get(value, -1) for value in node.values), default=-1)
        is_fused = id(node) in fusable
        place[id(node)] = group if is_fused else plain
        for_group.update(dict.fromkeys(node.results, group if is_fused else plain + 1))
        for_torch.update(dict.fromkeys(node.results, group if is_fused and id(node) not in views else plain))
    for node in reversed(nodes):
        is_fused, used_by = id(node) in fusable, [user for value in node.results for user in users.get(value, [])]
        if used_by and (is_fused or node.operation.launches_nothing):
            # A group reads results of torch from the level below.
            later = min(place[id(user)] - (not is_fused and id(user) in fusable) for user in used_by)
            place[id(node)] = max(place[id(node)], later)
    parts: list[Part] = []
    for level in range(-1, max(place.values(), default=0) + 1):
        here = [node for node in nodes if place[id(node)] == level and id(node) not in views]
        fused = _with_views([node for node in here if id(node) in fusable], made, views)
        if fused:
            # Nodes that are supported one by one may still be too many for one kernel.
            parts.append(FusionGroup(fused) if unsupported_reason(fused, (), limits) is None else UnfusedNodes(fused))
        plain_nodes = _with_views([node for node in here if id(node) not in fusable], made, views)
        parts += [UnfusedNodes(plain_nodes)] if plain_nodes else []
    return parts


def _with_views(nodes: list[Node], made: dict[Value, Node], views: set[int]) -> list[Node]:
    """Nodes and the views that they need, which cost nothing, so each part has its own."""
    found: dict[int, Node] = {}
    for node in nodes:
        stack, chain = [node], []
        while stack:
            one = stack.pop()
            chain.append(one)
            stack += [made[value] for value in one.values if value in made and id(made[value]) in views]
        for one in reversed(chain):
            found.setdefault(id(one), one)
    return list(found.values())


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Operations of torch without a kernel between them become one part; shared views occur once."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, UnfusedNodes) and isinstance(found[-1], UnfusedNodes):
            found[-1] = UnfusedNodes(list({id(node): node for node in (*found[-1].nodes, *part.nodes)}.values()))
        else:
            found.append(part)
    return found


def _connected(loop: Loop, parts: list[Part], carried: list[Carried], alive: Value | None, limits: Limits) -> FusedStep:
    """The parts with the values that they give to each other, to the next step and to streams."""
    groups = {value for part in parts if isinstance(part, FusionGroup) for node in part.nodes for value in node.results}
    stacked = [value for value in loop.stored if value not in groups and not _store_by_copy(value, parts, limits)]
    afters = [after for found in carried for after in found.after]
    by_torch = {*afters, *stacked, *(value for part in parts if isinstance(part, UnfusedNodes) for value in part.takes)}
    by_groups = {value for part in parts if isinstance(part, FusionGroup) for value in part.takes}
    stored = [value for value in loop.stored if value not in stacked]
    kept: set[Value] = set()
    for part in parts:
        made = dict.fromkeys(value for node in part.nodes for value in node.results)
        if isinstance(part, UnfusedNodes):
            part.gives = [value for value in made if value in by_torch | by_groups]
            continue
        wanted = by_torch | by_groups | {*stored}
        part.gives = list(dict.fromkeys([*part.gives, *(value for value in made if value in wanted)]))
        # Stored values can be read from their streams.
        own = [value for value in part.gives if value in made]
        part.kept = [value for value in own if value in by_torch or (value in by_groups and value not in stored)]
        kept.update(part.kept)
    outside = [value for value in loop.reads if value.has_rows]
    again = [value for value in stored if value in by_groups & groups - kept]
    return FusedStep(
        parts,
        carried,
        streams=[*(value for value in outside if value in by_groups), *again],
        stored=stored,
        copied=[value for value in outside if value in by_torch],
        stacked=stacked,
        alive=alive,
    )


def _store_by_copy(value: Value, parts: list[Part], limits: Limits) -> bool:
    """Let a group write a value that it has not computed; False if no kernel supports that."""
    if unsupported_reason([], [value], limits) is not None:
        return False
    makers = [place for place, part in enumerate(parts) if any(value in node.results for node in part.nodes)]
    first = max(makers, default=-1) + 1
    later = [part for part in parts[first:] if isinstance(part, FusionGroup)]
    readers = [part for part in later if value in part.takes]
    group = next(iter(readers or later[::-1]), None)
    if group is None:
        group = FusionGroup([])
        parts.append(group)
    group.gives.append(value)
    return True


def unsupported_reason(nodes: list[Node], gives: Iterable[Value], limits: Limits) -> str | None:
    """Why nodes cannot be one kernel, or None."""
    gives = [*gives, *(value for node in nodes for value in node.results[:1])]
    made = (value for node in nodes for value in node.results)
    if any(value.row_axis != 0 for value in made) or any(value.row_axis for value in (*taken_by(nodes), *gives)):
        return "rows do not come first"
    try:
        lowered = Lowered(Loop("group", nodes, False, [], gives), set())
    except Uncompilable as reason:
        return str(reason)
    return limits(lowered.program)


def _is_view(node: Node) -> bool:
    """Whether both sides read the result in place: torch without a kernel, and a group along the same axes."""
    return node.operation.launches_nothing and node.operation.keeps_order


def verify_fused(products: MergedMatmuls, step: FusedStep) -> None:
    """Raise a `VerificationError` unless every part only reads what the parts before it, or the loop, give."""
    available = {*products.loop.reads, *products.joined, *(value for found in step.carried for value in found.before)}
    available |= set() if step.alive is None else {step.alive}
    for part in step.parts:
        made = {value for node in part.nodes for value in node.results}
        # A view that several parts need is computed by each.
        verify_graph(Graph(part.nodes), available - made, part.gives)
        available.update(part.gives)
    carried = [value for found in step.carried for value in found.after]
    verify_graph(Graph([]), available, [*step.stored, *step.stacked, *carried])
