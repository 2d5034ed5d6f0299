"""The parts of a program: lists of nodes with what they take and give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from throughtime.compiler.ir.graph import Node, Value, taken_by


@dataclass
class Section:
    """Nodes that run once, on all rows together."""

    name: str
    nodes: list[Node]

    @property
    def gives(self) -> list[Value]:
        """What it computes."""
        return [value for node in self.nodes for value in node.results]

    @property
    def takes(self) -> list[Value]:
        """What it needs and does not compute itself."""
        return taken_by(self.nodes)

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"    {node}" for node in self.nodes)])


@dataclass
class Loop(Section):
    """Nodes that run once a step, on the rows alive at that step.

    `carried` pairs what a step finds with what it leaves; `stored` is kept for every step, as a stream.
    """

    reverse: bool
    carried: list[tuple[Value, Value]]
    stored: list[Value] = field(default_factory=list)

    @classmethod
    def of(
        cls, name: str, nodes: list[Node], before: Sequence[Value], after: Sequence[Value], *, reverse: bool
    ) -> Loop:
        """The loop that carries each of `before` on as its partner in `after`."""
        return cls(name, nodes, reverse, list(zip(before, after, strict=True)))

    @property
    def found(self) -> set[Value]:
        """What a step finds of the step before."""
        return {before for before, _ in self.carried}

    def store(self, wanted: Iterable[Value]) -> None:
        """Keep those of the wanted values that only the loop knows."""
        known = {*self.gives, *self.found}
        self.stored = list(dict.fromkeys([*self.stored, *(value for value in wanted if value in known)]))

    @property
    def reads(self) -> list[Value]:
        """What it takes from outside: streams and constants, not what it carries."""
        found = self.found
        outside = [*self.takes, *(after for _, after in self.carried if after not in set(self.gives))]
        return list(dict.fromkeys(value for value in outside if value not in found))
