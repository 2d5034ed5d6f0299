"""Lowering: the nodes of a loop as a loop program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Node, Value
from throughtime.compiler.ir.loop_ir import Ahead, verify_loop
from throughtime.compiler.ir.sections import Loop
from throughtime.compiler.lowering.builder import Lowering
from throughtime.compiler.lowering.rules import rule_for


class Lowered:
    """A loop program, and the values of its streams, constants and matrices.

    Nodes that run `ahead` of the loop, on streams alone, become a program of their own inside of it.
    """

    def __init__(self, loop: Loop, lagged: set[Value], ahead: Sequence[Node] = ()) -> None:
        lowering = Lowering(loop, lagged)
        for node in loop.nodes:
            # Cheap nodes may be in several sections: the loop does not recompute what it reads anyway.
            if not lowering.has(node.results):
                _lower(lowering, node)
        self.program = lowering.program()
        self.streams, self.lagged = lowering.streams, lowering.lagged
        self.constants, self.matrices = lowering.constants, lowering.matrices
        # Constant rows that the program itself defines, such as zeros.
        self.fills = lowering.fills
        self.rows, self.stored = {value: lowering.row(value) for value in lowering.streams}, loop.stored
        self.ahead: Lowered | None = None
        made = {value for node in ahead for value in node.results}
        fed = [value for value in self.streams if value in made]
        if fed:
            self.ahead = Lowered(Loop(f"{loop.name}, ahead", list(ahead), loop.reverse, [], fed), set())
            feeds = tuple(map(self.streams.index, fed))
            self.program = replace(self.program, ahead=Ahead(self.ahead.program, feeds))
            self.streams = [value for value in self.streams if value not in made]
        verify_loop(self.program)


def is_lowerable(node: Node) -> bool:
    """Whether there is a lowering rule for a node; the rule may still refuse its shapes and dtypes."""
    return rule_for(node) is not None and all(value.row_axis == 0 for value in node.results)


def _lower(lowering: Lowering, node: Node) -> None:
    rule = rule_for(node)
    if rule is None:
        raise Uncompilable(f"{node.title} is not in the vocabulary of row programs")
    results = rule(lowering, node)
    for value, row in zip(node.results, results if isinstance(results, tuple) else (results,), strict=False):
        if row is not None:
            if row.width != value.row_size or row.dtype != value.dtype:
                raise Uncompilable(f"{node.title} gives {value.described}, of which row programs know nothing")
            lowering.define(value, row)
