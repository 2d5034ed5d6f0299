"""From a cell to its loop programs."""

from throughtime.compiler._adjoint import Adjoint
from throughtime.compiler._errors import GrammarError, Uncompilable
from throughtime.compiler._glance import Glance
from throughtime.compiler._graph import ROWS, Graph, Node, Value, taken_by
from throughtime.compiler._loop import LoopProgram, Row, check_loop
from throughtime.compiler._lower import Lowered, is_lowerable
from throughtime.compiler._program import Program, compile_step
from throughtime.compiler._replay import Replay
from throughtime.compiler._sections import Loop, Section
from throughtime.compiler._traced import Leaf, Source, StepSignature
from throughtime.compiler._watch import HOOKS, Anatomy

__all__ = [
    "HOOKS",
    "ROWS",
    "Adjoint",
    "Anatomy",
    "Glance",
    "GrammarError",
    "Graph",
    "Leaf",
    "Loop",
    "LoopProgram",
    "Lowered",
    "Node",
    "Program",
    "Replay",
    "Row",
    "Section",
    "Source",
    "StepSignature",
    "Uncompilable",
    "Value",
    "check_loop",
    "compile_step",
    "is_lowerable",
    "taken_by",
]
