"""The compile cache: programs and executables, compiled once for each structure of a cell."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._fork_safety import fork_safe_lock
from throughtime._lru import LruCache
from throughtime._tensors import records_gradients
from throughtime.backends.aten.loop import AtenLoop
from throughtime.backends.checked_cell import CheckedCell
from throughtime.backends.cpu.loop import CpuLoop, lower
from throughtime.backends.triton import loop as triton_loop
from throughtime.compiler import (
    CellFingerprint,
    Leaf,
    Loop,
    Lowered,
    Program,
    StepSignature,
    Uncompilable,
    Value,
    compile_step,
)
from throughtime.compiler.pipeline import optimize_for_cpu
from throughtime.runtime.forward import Executable


class CompileEntry:
    """The program of one cell structure, or why there is none, and its executables."""

    def __init__(self, make: Callable[[], Program], pinned: list[Any], *, on_gpu: bool = False) -> None:
        # Dropped once it has run: it holds the cell, which the cache must not keep alive.
        self._make: Callable[[], Program] | None = make
        # The structure contains the ids of some objects. While they are held here, no other object can have these ids.
        self._pinned = pinned
        self._on_gpu = on_gpu
        self._lock = fork_safe_lock()
        self._program: Program | None = None
        self._refusal: str | None = None
        self._executables: dict[str, Executable | str] = {}

    def program(self) -> Program | str:
        """The program, or why there is none."""
        with self._lock:
            if self._make is not None:
                try:
                    self._program = self._make()
                except Uncompilable as refusal:
                    self._refusal = str(refusal)
                except Exception as defect:
                    self._refusal = _defect(defect)
                # Not reached if it was interrupted: the next call compiles again.
                self._make = None
        return self._program or self._refusal or ""

    def executable(self, name: str) -> Executable | str:
        """The program on a backend, or why the backend does not support it."""
        program = self.program()
        if isinstance(program, str):
            return program
        with self._lock:
            if name not in self._executables:
                try:
                    self._executables[name] = _compile(program, name, on_gpu=self._on_gpu)
                except Exception as defect:
                    self._executables[name] = _defect(defect)
            return self._executables[name]


def _defect(error: Exception) -> str:
    """An internal compiler error: the reference runs the cell, and a warning asks for a report."""
    reason = f"a defect of the compiler, {type(error).__name__}: {error}"
    warnings.warn(f"throughtime cannot compile a cell because of {reason}. Please report it.", RuntimeWarning, 2)
    return reason


def _compile(program: Program, name: str, *, on_gpu: bool) -> Executable | str:
    if name == "cpu":
        return _compile_kernels(program)
    loops: list[tuple[Loop, list[Value]]] = [(program.loop, [])]
    if program.adjoint is not None:
        loops.append((program.adjoint.loop, program.adjoint.lagged))
    if name == "aten":
        return Executable(program, [AtenLoop(loop, on_gpu=on_gpu) for loop, _ in loops])
    lowered = [triton_loop.lower(loop, lagged) for loop, lagged in loops]
    for refusal in lowered:
        if isinstance(refusal, str):
            return refusal
    return Executable(program, [triton_loop.TritonLoop(loop) for loop in lowered if isinstance(loop, Lowered)])


def _compile_kernels(program: Program) -> Executable | str:
    """The program on the kernels of the CPU."""
    refusals: list[str] = []
    # First with a backward loop that also computes what would otherwise come after it. If kernels cannot do that, they
    # may still be able to run the loop as it was.
    for without in ((), ("sink_into_backward_loop",)):
        whole = optimize_for_cpu(program, without=without)
        lowered = lower(whole)
        refusals = [refusal for refusal in lowered if isinstance(refusal, str)]
        if not refusals:
            return Executable(whole, [CpuLoop(loop) for loop in lowered if isinstance(loop, Lowered)])
    return refusals[0]


_CACHE: LruCache[Any, CompileEntry] = LruCache(512)


def lookup(
    step: CheckedCell,
    fingerprint: CellFingerprint,
    inputs: Any,
    rows: Sequence[Tensor],
    state: Any,
    *,
    keep_states: bool,
    differentiate: bool | None,
) -> CompileEntry:
    """What is known of a cell with this `fingerprint` in a call like this one; the arguments are those of `choose`."""
    device, leaves = rows[0].device, _pytree.flatten(state)
    if differentiate is None:
        tensors = (*rows, *leaves, *fingerprint.tensors)
        differentiate = records_gradients() and any(tensor.requires_grad for tensor in tensors)
    autocast = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
    key = (
        fingerprint.structure,
        tuple((leaf.shape[1:], leaf.ndim, leaf.dtype, leaf.device) for leaf in (*rows, *leaves)),
        _shape_of_nest(inputs),
        _shape_of_nest(state),
        step.dtype,
        differentiate,
        keep_states,
        autocast,
        torch.get_default_dtype(),
    )

    def make_entry() -> CompileEntry:
        signature = StepSignature(
            inputs=_pytree.map_leaves(lambda _: None, inputs),
            input_leaves=_described(rows, inputs, "x"),
            state=_pytree.map_leaves(lambda _: None, state),
            state_leaves=_described(leaves, state, "state"),
        )
        dtype = step.dtype

        def call(stand_in: Any, step_inputs: Any, step_state: Any) -> tuple[Any, Any]:
            return CheckedCell(stand_in, step_state, dtype)(step_inputs, step_state)

        cell, train = step.cell, differentiate

        def make() -> Program:
            return compile_step(cell, fingerprint, signature, call, differentiate=train, keep_states=keep_states)

        return CompileEntry(make, fingerprint.referenced, on_gpu=device.type == "cuda")

    return _CACHE.lookup_or_insert(key, make_entry)


def _described(leaves: Sequence[Tensor], nest: Any, base: str) -> tuple[Leaf, ...]:
    names = _leaf_names(nest, base)
    return tuple(
        Leaf(tuple(leaf.shape[1:]) if leaf.ndim else None, leaf.dtype, leaf.device, name)
        for leaf, name in zip(leaves, names, strict=True)
    )


def _leaf_names(nest: Any, base: str) -> list[str]:
    """The names of the leaves of a nest: fields and keys where there are some, else numbers."""
    if not _pytree.is_nest(nest):
        return [base]
    keys = getattr(nest, "_fields", None) or (list(nest) if isinstance(nest, dict) else None)
    names: list[str] = []
    for index, child in enumerate(_pytree.children(nest)):
        below = str(keys[index]) if keys is not None else f"{base}_{index}"
        names += _leaf_names(child, below if base in ("x", "state") else f"{base}_{below}")
    return names


def _shape_of_nest(nest: Any) -> Any:
    """The structure of a nest, as a key."""
    if not _pytree.is_nest(nest):
        return None
    keys = tuple(map(str, nest)) if isinstance(nest, dict) else len(nest)
    return (type(nest), keys, *map(_shape_of_nest, _pytree.children(nest)))
