"""Sections of a program: lists of nodes with their inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from throughtime.compiler.ir.graph import Node, Value, taken_by


@dataclass
class Section:
    """Nodes that run once, for the rows of all steps."""

    name: str
    nodes: list[Node]

    @property
    def gives(self) -> list[Value]:
        """The values that it computes."""
        return [value for node in self.nodes for value in node.results]

    @property
    def takes(self) -> list[Value]:
        """The values that it reads and does not compute."""
        return taken_by(self.nodes)

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"    {node}" for node in self.nodes)])


@dataclass
class Loop(Section):
    """Nodes that run at every step, on the rows whose sequences have not ended.

    `carried` pairs a value with the value that the next step reads instead; `stored` values are streams, with a row for
    every step.
    """

    reverse: bool
    carried: list[tuple[Value, Value]]
    stored: list[Value] = field(default_factory=list)

    @classmethod
    def of(
        cls, name: str, nodes: list[Node], before: Sequence[Value], after: Sequence[Value], *, reverse: bool
    ) -> Loop:
        """The loop that carries each value of `before` on as its partner in `after`."""
        return cls(name, nodes, reverse, list(zip(before, after, strict=True)))

    @property
    def found(self) -> set[Value]:
        """The values that a step gets from the previous one."""
        return {before for before, _ in self.carried}

    def store(self, wanted: Iterable[Value]) -> None:
        """Store those of the wanted values that the loop computes or carries."""
        known = {*self.gives, *self.found}
        self.stored = list(dict.fromkeys([*self.stored, *(value for value in wanted if value in known)]))

    @property
    def reads(self) -> list[Value]:
        """The values that it reads from outside: streams and constants, not carried values."""
        found = self.found
        outside = [*self.takes, *(after for _, after in self.carried if after not in set(self.gives))]
        return list(dict.fromkeys(value for value in outside if value not in found))
