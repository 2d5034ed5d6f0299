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
    """A backend, what it runs (None for the reference), and why it is not another."""

    backend: str
    executable: Executable | None
    program: Program | None = None
    anatomy: CellFingerprint | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    # Whether a call like this one would choose the same.
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
    """The best backend for a step over `rows` [N, ...] of `inputs` from `state` [B, ...]; a named one must be able.

    Whether to `differentiate` is seen from the tensors, if it is not said.
    """
    if differentiate is None and torch.compiler.is_compiling():
        # torch.compile traces the steps themselves, and cannot see what backend is wanted.
        return Choice("reference", None, reasons={"aten": "the call itself is being traced"}, is_settled=False)
    wanted = wanted_backend()
    # Without rows there is nothing to run, on whatever backend.
    if wanted == "reference" or not len(rows[0]):
        return Choice("reference", None, is_settled=wanted == "reference")
    leaves = _pytree.flatten(state)
    candidates = _candidates(rows[0].device, wanted)
    # Somebody who knows whether to differentiate asks from within an operator, where tracing has come to its end.
    refusal = _refusal(step.cell, rows, leaves, inside_operator=differentiate is not None)
    if refusal is not None:
        choice = _fall_back(wanted, dict.fromkeys(candidates, refusal))
        choice.is_settled = False
        return choice
    anatomy = CellFingerprint(step.cell)
    compiled = lookup(step, anatomy, inputs, rows, state, keep_states=keep_states, differentiate=differentiate)
    reasons: dict[str, str] = {}
    device = rows[0].device
    for name in candidates:
        found = (triton_loop.unsupported_reason(device) if name == "triton" else None) or compiled.executable(name)
        if isinstance(found, Executable):
            # An operator, and whoever asks for it by name, takes a slow loop rather than none.
            must = name == wanted or differentiate is not None
            refusal = next(filter(None, (loop.unsupported_reason(device, must=must) for loop in found.loops)), None)
            if refusal is None and name == "triton" and not must:
                refusal = _slower(found, compiled, _batch_size(leaves), device)
            if refusal is None:
                return Choice(name, found, found.program, anatomy, reasons)
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
"""Seconds of a step below which one kernel for the whole walk is taken without a look at the other way: a step of
kernels one after another spends about as much on their launches alone."""
MARGIN = 1.4
"""How much slower one kernel must seem: both times are estimates."""


def _slower(executable: Executable, compiled: CompileEntry, batch: int, device: torch.device) -> str | None:
    """Why kernels one after another are better than one for the whole walk, where matrices do not stay on chip."""
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
    """Why nothing can be compiled for this call, whatever the cell."""
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
