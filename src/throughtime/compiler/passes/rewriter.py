"""Rewriting of step graphs: passes build a new list of nodes, and say which values replace others."""

from __future__ import annotations

from collections.abc import Iterable

from throughtime._torch_internals import OpOverload
from throughtime.compiler.ir.graph import Argument, Dim, Node, Value


class Rewriter:
    """Builds a new list of nodes from an old one; `resolve` tells what has become of a value."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._replaced: dict[Value, Value] = {}

    def resolve(self, value: Value) -> Value:
        """What stands for `value` now."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def replace(self, old: Value, new: Value) -> None:
        """From here on, `new` stands for `old`."""
        self._replaced[old] = new

    def keep(self, node: Node) -> None:
        """The node as it is, on what has become of its arguments."""
        self.nodes.append(node.substituted(self.resolve))

    def call(
        self, target: OpOverload, *args: Argument, shape: Iterable[Dim], like: Value, name: str | None = None
    ) -> Value:
        """A new node; its result has the dtype of `like`."""
        result = Value(name or target.overloadpacket.__name__, tuple(shape), like.dtype)
        self.nodes.append(Node(target, args, {}, (result,)))
        return result
