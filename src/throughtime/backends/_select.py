"""Which backend runs an unroll, and why not the others."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from throughtime import _nest
from throughtime._errors import problem
from throughtime._tensors import records_gradients
from throughtime.backends import _triton_loop
from throughtime.backends._execute import Executable
from throughtime.backends._keep_together import keep_together
from throughtime.backends._numba_loop import NumbaLoop, lower
from throughtime.backends._on_the_way import on_the_way
from throughtime.backends._step import Step, is_unbuilt
from throughtime.backends.aten import AtenLoop
from throughtime.compiler import (
    Anatomy,
    Leaf,
    Loop,
    Lowered,
    Program,
    StepSignature,
    Uncompilable,
    Value,
    compile_step,
)

NAMES = ("auto", "reference", "aten", "numba", "triton")

_wanted: ContextVar[str] = ContextVar("throughtime_backend", default="auto")


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """Run unrolls on one backend: "reference", "aten", "numba" or "triton"; "auto" takes the best that can.

    A backend asked for by name never falls back to another: it raises a `ValueError` with the reason. `raw_rnn` and
    `while_loop` have no backends: their bodies are called step by step.

    >>> import torch, throughtime as tt
    >>> cell, x = tt.GRUCell(4), torch.ones(1, 2, 3)
    >>> with tt.backend("reference"):
    ...     outputs, state = tt.dynamic_rnn(cell, x, dtype=torch.float32)
    >>> torch.allclose(outputs, tt.dynamic_rnn(cell, x, dtype=torch.float32)[0])
    True
    """
    if not any(name is known or (type(name) is str and name == known) for known in NAMES):
        what, fix = "`name` is no backend", 'Leave the choice to the engine with "auto".'
        raise ValueError(problem(what, got=repr(name), expected=", ".join(map(repr, NAMES)), fix=fix))
    token = _wanted.set(name)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted_backend() -> str:
    """The backend that has been asked for."""
    return _wanted.get()


@dataclass
class Choice:
    """A backend, what it runs (None for the reference), and why it is not another."""

    backend: str
    executable: Executable | None
    program: Program | None = None
    anatomy: Anatomy | None = None
    reasons: dict[str, str] = field(default_factory=dict)


class _Compiled:
    """What has been found out about one cell structure: its program or why there is none, and executables."""

    def __init__(self, make: Callable[[], Program], kept: list[Any], *, on_gpu: bool = False) -> None:
        # Forgotten once it has run: it holds the cell, which is its owner's to keep.
        self._make: Callable[[], Program] | None = make
        self._kept = kept
        self._on_gpu = on_gpu
        self._lock = threading.Lock()
        self._program: Program | None = None
        self._refusal: str | None = None
        self._executables: dict[str, Executable | str] = {}

    def program(self) -> Program | str:
        """The program, or why there is none."""
        with self._lock:
            if self._make is not None:
                make, self._make = self._make, None
                try:
                    self._program = make()
                except Uncompilable as refusal:
                    self._refusal = str(refusal)
                except Exception as defect:
                    self._refusal = _defect(defect)
        return self._program or self._refusal or ""

    def executable(self, name: str) -> Executable | str:
        """The program on a backend, or why it cannot be there."""
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
    """Something went wrong that should not: the reference runs the cell all the same, but somebody should know."""
    reason = f"a defect of the compiler, {type(error).__name__}: {error}"
    warnings.warn(f"throughtime cannot compile a cell because of {reason}. Please report it.", RuntimeWarning, 2)
    return reason


def _compile(program: Program, name: str, *, on_gpu: bool) -> Executable | str:
    if name == "numba":
        return _compile_kernels(program)
    loops: list[tuple[Loop, list[Value]]] = [(program.loop, [])]
    if program.adjoint is not None:
        loops.append((program.adjoint.loop, program.adjoint.lagged))
    if name == "aten":
        return Executable(program, [AtenLoop(loop, on_gpu=on_gpu) for loop, _ in loops])
    lowered = [_triton_loop.lower(loop, lagged) for loop, lagged in loops]
    for reason in lowered:
        if isinstance(reason, str):
            return reason
    return Executable(program, [_triton_loop.TritonLoop(loop) for loop in lowered if isinstance(loop, Lowered)])


def _compile_kernels(program: Program) -> Executable | str:
    """The program on the kernels of the CPU."""
    reasons: list[str] = []
    # What a loop might do on its way may be beyond its words; the rest need not be.
    for way in (on_the_way(program), program):
        program = keep_together(way)
        lowered = lower(program)
        reasons = [reason for reason in lowered if isinstance(reason, str)]
        if not reasons:
            return Executable(program, [NumbaLoop(loop) for loop in lowered if isinstance(loop, Lowered)])
    return reasons[0]


_CACHE: OrderedDict[Any, _Compiled] = OrderedDict()
_CACHE_SIZE = 512
_cache_lock = threading.Lock()


def choose(
    step: Step,
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
        return Choice("reference", None, reasons={"aten": "the call itself is being traced"})
    wanted = wanted_backend()
    # Without rows there is nothing to run, on whatever backend.
    if wanted == "reference" or not len(rows[0]):
        return Choice("reference", None)
    leaves = _nest.flatten(state)
    candidates = _candidates(rows[0].device, wanted)
    # Somebody who knows whether to differentiate asks from within an operator, where tracing has come to its end.
    reason = _situation(step.cell, rows, leaves, inside_operator=differentiate is not None)
    if reason is not None:
        return _fall_back(wanted, dict.fromkeys(candidates, reason))
    anatomy = Anatomy(step.cell)
    compiled = _look_up(step, anatomy, inputs, rows, state, leaves, keep_states, differentiate)
    reasons: dict[str, str] = {}
    device = rows[0].device
    for name in candidates:
        found = (_triton_loop.refusal(device) if name == "triton" else None) or compiled.executable(name)
        if isinstance(found, Executable):
            # An operator, and whoever asks for it by name, takes a slow loop rather than none.
            must = name == wanted or differentiate is not None
            refusal = next(filter(None, (loop.refusal(device, must=must) for loop in found.loops)), None)
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
    return ["numba", "aten"] if device.type == "cpu" else ["triton", "aten"]


WORTH_ASKING = 15e-6
"""A step that one kernel does in less is faster so: what there is to gain, calls of kernels one after another cost."""
MARGIN = 1.4
"""How much slower one kernel must seem: both times are estimates."""


def _slower(executable: Executable, compiled: _Compiled, batch: int, device: torch.device) -> str | None:
    """Why kernels one after another are better than one for the whole walk, where matrices do not stay on chip."""
    loops = [loop for loop in executable.loops if isinstance(loop, _triton_loop.TritonLoop)]
    persistent = [loop.ranked_seconds(batch, device) for loop in loops] if _is_gpu(device) else [0.0]
    if max(persistent) < WORTH_ASKING:
        return None
    other = compiled.executable("aten")
    stepwise = [loop.seconds(batch, device) for loop in other.loops] if isinstance(other, Executable) else [None]
    times = [seconds for seconds in stepwise if seconds is not None]
    if len(times) < len(stepwise) or sum(persistent) < MARGIN * sum(times):
        return None
    return (
        f"a step of {batch} rows should take it {1e6 * sum(persistent):.0f} µs, "
        f"and {1e6 * sum(times):.0f} µs as kernels one after another"
    )


def _is_gpu(device: torch.device) -> bool:
    """Whether times can be estimated: the interpreter of Triton runs kernels on a CPU, and takes its time."""
    return device.type == "cuda"


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


def _situation(cell: Any, inputs: Sequence[Tensor], state: Sequence[Any], *, inside_operator: bool) -> str | None:
    """Why nothing can be compiled for this call, whatever the cell."""
    tensors = (*inputs, *state)
    reasons: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("a part of its state is no tensor", lambda: not all(isinstance(leaf, Tensor) for leaf in state)),
        ("it has no state", lambda: not state),
        (
            "its inputs or state are tensors of a class of their own",
            lambda: any(type(leaf) not in (Tensor, nn.Parameter) for leaf in tensors),
        ),
        (
            f"there are no kernels for the device {inputs[0].device}",
            lambda: any(leaf.device.type not in ("cpu", "cuda") for leaf in tensors),
        ),
        ("its parameters do not exist yet: the first call makes them", lambda: is_unbuilt(cell)),
    )
    for reason, applies in reasons:
        if applies():
            return reason
    return compiling_stops(inside_operator=inside_operator)


def compiling_stops(*, inside_operator: bool = False) -> str | None:
    """Why nothing can be compiled at this moment: somebody wants to see every operation."""
    if not inside_operator and (torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None):
        return "the call itself is being traced"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is at work"
    if torch._C._len_torch_dispatch_stack() > 0 or (torch._C._len_torch_function_stack() > 0 and _has_function_mode()):
        return "a mode of torch that sees every operation is at work"
    if nn.modules.module._has_any_global_hook():
        return "there are hooks for the calls of all modules"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
    return None


def _has_function_mode() -> bool:
    """Whether a function mode does more than say where new tensors go, as `torch.set_default_device` does."""
    return not all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())


def _look_up(
    step: Step,
    anatomy: Anatomy,
    nest: Any,
    inputs: Sequence[Tensor],
    state: Any,
    leaves: Sequence[Tensor],
    keep_states: bool,
    differentiate: bool | None,
) -> _Compiled:
    device = inputs[0].device
    if differentiate is None:
        tensors = (*inputs, *leaves, *anatomy.tensors)
        differentiate = records_gradients() and any(tensor.requires_grad for tensor in tensors)
    autocast = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
    key = (
        anatomy.structure,
        tuple((leaf.shape[1:], leaf.ndim, leaf.dtype, leaf.device) for leaf in (*inputs, *leaves)),
        _shape_of_nest(nest),
        _shape_of_nest(state),
        step.dtype,
        differentiate,
        keep_states,
        autocast,
        torch.get_default_dtype(),
    )
    with _cache_lock:
        found = _CACHE.get(key)
        if found is not None:
            _CACHE.move_to_end(key)
            return found
        signature = StepSignature(
            inputs=_nest.map_leaves(lambda _: None, nest),
            input_leaves=_described(inputs, nest, "x"),
            state=_nest.map_leaves(lambda _: None, state),
            state_leaves=_described(leaves, state, "state"),
        )
        dtype = step.dtype

        def call(stand_in: Any, step_inputs: Any, step_state: Any) -> tuple[Any, Any]:
            return Step(stand_in, step_state, dtype)(step_inputs, step_state)

        cell, train = step.cell, differentiate

        def make() -> Program:
            return compile_step(cell, anatomy, signature, call, differentiate=train, keep_states=keep_states)

        found = _CACHE[key] = _Compiled(make, anatomy.kept, on_gpu=device.type == "cuda")
        if len(_CACHE) > _CACHE_SIZE:
            _CACHE.popitem(last=False)
    return found


def _described(leaves: Sequence[Tensor], nest: Any, base: str) -> tuple[Leaf, ...]:
    names = _leaf_names(nest, base)
    return tuple(
        Leaf(tuple(leaf.shape[1:]) if leaf.ndim else None, leaf.dtype, leaf.device, name)
        for leaf, name in zip(leaves, names, strict=True)
    )


def _leaf_names(nest: Any, base: str) -> list[str]:
    """What to call the leaves of a nest: fields and keys where there are some, else numbers."""
    if not _nest.is_nest(nest):
        return [base]
    keys = getattr(nest, "_fields", None) or (list(nest) if isinstance(nest, dict) else None)
    names: list[str] = []
    for index, child in enumerate(_nest.children(nest)):
        below = str(keys[index]) if keys is not None else f"{base}_{index}"
        names += _leaf_names(child, below if base in ("x", "state") else f"{base}_{below}")
    return names


def _shape_of_nest(nest: Any) -> Any:
    """The structure of a nest, as a key."""
    if not _nest.is_nest(nest):
        return None
    keys = tuple(map(str, nest)) if isinstance(nest, dict) else len(nest)
    return (type(nest), keys, *map(_shape_of_nest, _nest.children(nest)))
