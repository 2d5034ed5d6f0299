"""Which backend runs an unroll, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._active_modes import intercepting_mode
from throughtime._errors import problem
from throughtime._text import plural
from throughtime.backends.checked_cell import CheckedCell, is_unbuilt
from throughtime.backends.triton import loop as triton_loop
from throughtime.backends.triton.target import gpu_target
from throughtime.compiler import CellFingerprint, Program
from throughtime.runtime.backend_context import wanted_backend
from throughtime.runtime.compile_cache import CompileEntry, lookup
from throughtime.runtime.forward import Executable


@dataclass
class Choice:
    """A backend, its executable (None for the reference), and why it is not another backend."""

    backend: str
    executable: Executable | None
    program: Program | None = None
    fingerprint: CellFingerprint | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    # Whether an equal call would get the same choice.
    is_settled: bool = True


def choose(
    step: CheckedCell,
    inputs: Any,
    rows: Sequence[Tensor],
    state: Any,
    *,
    keep_states: bool = False,
    differentiate: bool | None = None,
) -> Choice:
    """The best backend for a step over `rows` [N, ...] of `inputs` from `state` [B, ...]; raises if a named one cannot.

    `differentiate` is taken from the tensors if it is None.
    """
    if differentiate is None and torch.compiler.is_compiling():
        # torch.compile traces the steps themselves, and cannot see which backend is requested.
        return Choice("reference", None, reasons={"aten": "the call itself is being traced"}, is_settled=False)
    wanted = wanted_backend()
    # Without rows there is nothing to run on any backend.
    if wanted == "reference" or not len(rows[0]):
        return Choice("reference", None, is_settled=wanted == "reference")
    leaves = _pytree.flatten(state)
    candidates = _candidates(rows[0].device, wanted)
    # With `differentiate` given, the caller is an operator, inside of which no tracer is active.
    refusal = _refusal(step.cell, rows, leaves, inside_operator=differentiate is not None)
    if refusal is not None:
        choice = _fall_back(wanted, dict.fromkeys(candidates, refusal))
        choice.is_settled = False
        return choice
    fingerprint = CellFingerprint(step.cell)
    compiled = lookup(step, fingerprint, inputs, rows, state, keep_states=keep_states, differentiate=differentiate)
    reasons: dict[str, str] = {}
    device = rows[0].device
    for name in candidates:
        found = (triton_loop.unsupported_reason(device) if name == "triton" else None) or compiled.executable(name)
        if isinstance(found, Executable):
            # For an operator, or a backend requested by name, a slow loop is better than none.
            must = name == wanted or differentiate is not None
            refusal = next(filter(None, (loop.unsupported_reason(device, must=must) for loop in found.loops)), None)
            if refusal is None and name == "triton" and not must:
                refusal = _slower(found, compiled, _batch_size(leaves), device)
            if refusal is None:
                return Choice(name, found, found.program, fingerprint, reasons)
            found = refusal
        reasons[name] = found
    program = compiled.program()
    choice = _fall_back(wanted, reasons)
    choice.program = None if isinstance(program, str) else program
    return choice


def _candidates(device: torch.device, wanted: str) -> list[str]:
    if wanted != "auto":
        return [wanted]
    return ["cpu", "aten"] if device.type == "cpu" and not _is_gpu(device) else ["triton", "aten"]


WORTH_ASKING = 15e-6
"""Seconds of a step below which one persistent kernel is taken without an estimate of the alternative: launching the
kernels of a step one by one takes about as long."""
MARGIN = 1.4
"""How much slower the estimate of one persistent kernel must be: both times are estimates."""


def _slower(executable: Executable, compiled: CompileEntry, batch: int, device: torch.device) -> str | None:
    """Why a kernel launch for each operation is faster than one persistent kernel, if weights do not fit on chip."""
    loops = [loop for loop in executable.loops if isinstance(loop, triton_loop.TritonLoop)]
    persistent = [loop.ranked_seconds(batch, device) for loop in loops] if _is_gpu(device) else [0.0]
    if max(persistent) < WORTH_ASKING:
        return None
    other = compiled.executable("aten")
    stepwise = [loop.seconds(batch, device) for loop in other.loops] if isinstance(other, Executable) else [None]
    times = [seconds for seconds in stepwise if seconds is not None]
    if len(times) < len(stepwise) or sum(persistent) < MARGIN * sum(times):
        return None
    return (
        f"a step of {plural(batch, 'row')} should take it {1e6 * sum(persistent):.0f} µs, "
        f"and {1e6 * sum(times):.0f} µs as kernels one after another"
    )


def _is_gpu(device: torch.device) -> bool:
    """Whether times can be estimated: the interpreter of Triton runs kernels on a CPU, and takes its time."""
    return gpu_target.value.is_gpu(device)


def _batch_size(state: Sequence[Tensor]) -> int:
    return max((len(leaf) for leaf in state if leaf.ndim), default=1)


def _fall_back(wanted: str, reasons: dict[str, str]) -> Choice:
    if wanted != "auto":
        raise ValueError(
            problem(
                f'the backend "{wanted}" cannot run this cell',
                got=reasons[wanted],
                expected="a cell that it can compile",
                fix='Leave the choice to the engine: tt.backend("auto") falls back, and tt.explain says why.',
            )
        )
    return Choice("reference", None, reasons=reasons)


def _refusal(cell: Any, rows: Sequence[Tensor], leaves: Sequence[Any], *, inside_operator: bool) -> str | None:
    """Why no backend can compile this call, for any cell."""
    tensors = (*rows, *leaves)
    reasons: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("a part of its state is no tensor", lambda: not all(isinstance(leaf, Tensor) for leaf in leaves)),
        ("it has no state", lambda: not leaves),
        (
            "its inputs or state are tensors of a class of their own",
            lambda: any(type(leaf) not in (Tensor, nn.Parameter) for leaf in tensors),
        ),
        (
            f"there are no kernels for the device {rows[0].device}",
            lambda: any(leaf.device.type not in ("cpu", "cuda") for leaf in tensors),
        ),
        ("its parameters do not exist yet: the first call makes them", lambda: is_unbuilt(cell)),
    )
    for reason, applies in reasons:
        if applies():
            return reason
    return intercepting_mode(inside_operator=inside_operator)
