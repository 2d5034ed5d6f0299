"""From a cell to its loop programs."""

from throughtime.compiler.errors import Uncompilable, VerificationError
from throughtime.compiler.guards.fast_check import GuardCache
from throughtime.compiler.guards.fingerprint import HOOKS, CellFingerprint
from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value, taken_by
from throughtime.compiler.ir.loop_ir import LoopProgram, Row, verify_loop
from throughtime.compiler.ir.program import Adjoint, Program
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.lowering.lower import Lowered, is_lowerable
from throughtime.compiler.pipeline import compile_step
from throughtime.compiler.trace.rerun_cell import CellRerun
from throughtime.compiler.trace.trace import Leaf, Source, StepSignature

__all__ = [
    "HOOKS",
    "ROWS",
    "Adjoint",
    "CellFingerprint",
    "CellRerun",
    "Graph",
    "GuardCache",
    "Leaf",
    "Loop",
    "LoopProgram",
    "Lowered",
    "Node",
    "Program",
    "Row",
    "Section",
    "Source",
    "StepSignature",
    "Uncompilable",
    "Value",
    "VerificationError",
    "compile_step",
    "is_lowerable",
    "taken_by",
    "verify_loop",
]
