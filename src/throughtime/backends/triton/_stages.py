"""What a block does between two meetings with the others, and what is exchanged when they meet.

A block owns some units. What it needs of the others' units, it must get from them: the whole of a row that is multiplied
by a matrix, and the others' shares of a reduction. Everything else is its own affair. So a step falls into stages: what
needs something exchanged at the end of stage s belongs to stage s + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from throughtime.backends.triton._pieces import Cut, Operation, Piece, Product, Reduction

Whole = tuple[Piece, ...]
"""A row that products read as a whole, in pieces."""


@dataclass(frozen=True)
class Carried:
    """A piece that one step leaves for the next."""

    before: Piece
    after: Piece


@dataclass
class Stage:
    """Operations, then what is exchanged: pieces that somebody multiplies, and this block's shares of reductions."""

    operations: list[Operation] = field(default_factory=list)
    shown: list[Piece] = field(default_factory=list)
    shares: list[Reduction] = field(default_factory=list)
    # Pieces for the products of the next step.
    handed_on: list[Carried] = field(default_factory=list)

    @property
    def meets(self) -> bool:
        """Whether the blocks meet at the end of the stage."""
        return bool(self.shown or self.shares or self.handed_on)


@dataclass(frozen=True)
class Staged:
    """A program in stages. The blocks meet after each but the last, and after that too if it hands something on."""

    cut: Cut
    stages: tuple[Stage, ...]
    carried: tuple[Carried, ...]

    @property
    def products(self) -> list[Product]:
        """All products of a step."""
        return [op for stage in self.stages for op in stage.operations if isinstance(op, Product)]

    @property
    def wholes(self) -> list[Whole]:
        """The rows that products read as a whole."""
        return list(dict.fromkeys(op.pieces for op in self.products))

    @property
    def shares(self) -> list[Reduction]:
        """The reductions that the blocks share."""
        return [share for stage in self.stages for share in stage.shares]

    @property
    def meetings(self) -> int:
        """How often the blocks meet in a step."""
        return sum(stage.meets for stage in self.stages)


def stage(cut: Cut) -> Staged:
    """Every operation in the earliest stage that it can run in."""
    carried = [
        Carried(before, after)
        for carry in cut.program.carried
        for before, after in zip(cut.pieces[carry.before.name], cut.pieces[carry.after.name], strict=True)
    ]
    befores = {one.before for one in carried}
    level: dict[Piece, int] = {}
    stages: list[Stage] = [Stage()]

    def at(index: int) -> Stage:
        while len(stages) <= index:
            stages.append(Stage())
        return stages[index]

    def show(piece: Piece) -> int:
        """The stage from which on everybody has all of a piece."""
        if piece in befores:
            return 0
        shown = at(level.get(piece, 0)).shown
        if piece not in shown:
            shown.append(piece)
        return level.get(piece, 0) + 1

    for op in cut.operations:
        if isinstance(op, Product):
            index = max(show(piece) for piece in op.pieces)
            level.update(dict.fromkeys(op.results, index))
        elif isinstance(op, Reduction):
            index = max(level.get(piece, 0) for piece in op.pieces)
            if any(piece.width > 1 for piece in op.pieces):
                at(index).shares.append(op)
                index += 1
            level[op.result] = index
        else:
            index = max((level.get(arg, 0) for arg in op.args if isinstance(arg, Piece)), default=0)
            level[op.result] = index
        at(index).operations.append(op)
    multiplied = {piece for op in cut.operations if isinstance(op, Product) for piece in op.pieces}
    for one in carried:
        if one.before in multiplied:
            at(level.get(one.after, 0)).handed_on.append(one)
    return Staged(cut, tuple(stages), tuple(carried))
