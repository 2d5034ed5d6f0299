"""The work of a block between two barriers, and the values that blocks exchange at a barrier.

A block owns some units. What it needs of the others' units, it must get from them: the whole of a row that is
multiplied by a matrix, and the others' shares of a reduction. Everything else is its own affair. So a step falls into
stages: what needs something exchanged at the end of stage s belongs to stage s + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from throughtime.backends.triton.row_segments import Operation, Reduction, Segment, SegmentedProgram, SegmentProduct

Whole = tuple[Segment, ...]
"""A row that products read as a whole, in pieces."""


@dataclass(frozen=True)
class Carried:
    """A piece that one step leaves for the next."""

    before: Segment
    after: Segment


@dataclass
class Stage:
    """Operations, then what is exchanged: pieces that somebody multiplies, and this block's shares of reductions."""

    operations: list[Operation] = field(default_factory=list)
    shown: list[Segment] = field(default_factory=list)
    shares: list[Reduction] = field(default_factory=list)
    # Pieces for the products of the next step.
    handed_on: list[Carried] = field(default_factory=list)

    @property
    def has_barrier(self) -> bool:
        """Whether the stage ends with a barrier of all blocks."""
        return bool(self.shown or self.shares or self.handed_on)


@dataclass(frozen=True)
class Staged:
    """A program in stages. A barrier follows each stage but the last, and the last too if it hands something on."""

    cut: SegmentedProgram
    stages: tuple[Stage, ...]
    carried: tuple[Carried, ...]

    @property
    def products(self) -> list[SegmentProduct]:
        """All products of a step."""
        return [op for stage in self.stages for op in stage.operations if isinstance(op, SegmentProduct)]

    @property
    def wholes(self) -> list[Whole]:
        """The rows that products read as a whole."""
        return list(dict.fromkeys(op.pieces for op in self.products))

    @property
    def shares(self) -> list[Reduction]:
        """The reductions that the blocks share."""
        return [share for stage in self.stages for share in stage.shares]

    @property
    def barriers(self) -> int:
        """Barriers in a step."""
        return sum(stage.has_barrier for stage in self.stages)


def stage(cut: SegmentedProgram) -> Staged:
    """Every operation in the earliest stage that it can run in."""
    carried = [
        Carried(before, after)
        for carry in cut.program.carried
        for before, after in zip(cut.pieces[carry.before.name], cut.pieces[carry.after.name], strict=True)
    ]
    staging = _Staging({one.before for one in carried})
    for op in cut.operations:
        staging.at(staging.place(op)).operations.append(op)
    multiplied = {piece for op in cut.operations if isinstance(op, SegmentProduct) for piece in op.pieces}
    for one in carried:
        if one.before in multiplied:
            staging.at(staging.level(one.after)).handed_on.append(one)
    return Staged(cut, tuple(staging.stages), tuple(carried))


class _Staging:
    """Stages as they grow. `befores` are carried pieces: the step before has shown those."""

    def __init__(self, befores: set[Segment]) -> None:
        self.stages: list[Stage] = [Stage()]
        self._befores = befores
        self._levels: dict[Segment, int] = {}

    def at(self, index: int) -> Stage:
        """A stage, made if there is none yet."""
        while len(self.stages) <= index:
            self.stages.append(Stage())
        return self.stages[index]

    def level(self, piece: Segment) -> int:
        """The stage that a piece is known in."""
        return self._levels.get(piece, 0)

    def place(self, op: Operation) -> int:
        """The first stage that an operation can run in; what it needs of others is exchanged before."""
        if isinstance(op, SegmentProduct):
            index = max(map(self._show, op.pieces))
            self._levels.update(dict.fromkeys(op.results, index))
        elif isinstance(op, Reduction):
            index = max(map(self.level, op.pieces))
            if any(piece.width > 1 for piece in op.pieces):
                self.at(index).shares.append(op)
                index += 1
            self._levels[op.result] = index
        else:
            index = self._levels[op.result] = max(self.level(arg) for arg in op.args if isinstance(arg, Segment))
        return index

    def _show(self, piece: Segment) -> int:
        """The stage from which on everybody has all of a piece."""
        if piece in self._befores:
            return 0
        shown = self.at(self.level(piece)).shown
        if piece not in shown:
            shown.append(piece)
        return self.level(piece) + 1
