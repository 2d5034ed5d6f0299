"""Programs to kernels, each once in a process."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from throughtime._fork_safety import after_fork
from throughtime.backends.cpu.kernel import LoopKernel
from throughtime.compiler.ir.loop_ir import LoopProgram

# For as long as somebody uses them: what nobody runs any more is forgotten.
_kernels: WeakValueDictionary[str, LoopKernel] = WeakValueDictionary()
_lock = threading.Lock()


@after_fork
def _renew() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


def compile_loop(program: LoopProgram) -> LoopKernel:
    """The kernel of `program`, from memory if it was made before; `refusal(program)` must be None."""
    # The text, because numbers that are equal need not be the same: 0.0 and -0.0, 1 and True.
    key = str(program)
    kernel = _kernels.get(key)
    if kernel is None:
        with _lock:
            kernel = _kernels.get(key)
            if kernel is None:
                kernel = _kernels[key] = LoopKernel(program)
    return kernel
