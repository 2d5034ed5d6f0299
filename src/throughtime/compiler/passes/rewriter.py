"""Rewriting of step graphs: passes build a new list of nodes, and say which values replace others."""

from __future__ import annotations

from collections.abc import Iterable

from throughtime._torch_internals import OpOverload
from throughtime.compiler.ir.graph import Argument, Dim, Node, Value


class Rewriter:
    """Builds a new list of nodes from an old one; `resolve` maps old values to new ones."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._replaced: dict[Value, Value] = {}

    def resolve(self, value: Value) -> Value:
        """The value that replaces `value`, or itself."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def replace(self, old: Value, new: Value) -> None:
        """Replace `old` by `new` from here on."""
        self._replaced[old] = new

    def keep(self, node: Node) -> None:
        """Append a node, with its arguments replaced."""
        self.nodes.append(node.substituted(self.resolve))

    def call(
        self, target: OpOverload, *args: Argument, shape: Iterable[Dim], like: Value, name: str | None = None
    ) -> Value:
        """Append a new node; its result has the dtype of `like`."""
        result = Value(name or target.overloadpacket.__name__, tuple(shape), like.dtype)
        self.nodes.append(Node(target, args, {}, (result,)))
        return result
