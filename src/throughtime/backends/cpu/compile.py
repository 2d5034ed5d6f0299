"""Programs to kernels, each once in a process."""

from __future__ import annotations

from weakref import WeakValueDictionary

from throughtime._fork_safety import fork_safe_lock
from throughtime.backends.cpu.kernel import LoopKernel
from throughtime.compiler.ir.loop_ir import LoopProgram

# Weak: a kernel without users is freed.
_kernels: WeakValueDictionary[str, LoopKernel] = WeakValueDictionary()
_lock = fork_safe_lock()


def compile_loop(program: LoopProgram) -> LoopKernel:
    """The kernel of `program`, from memory if it was made before; `unsupported_reason(program)` must be None."""
    # The text, because numbers that are equal need not be the same: 0.0 and -0.0, 1 and True.
    key = str(program)
    kernel = _kernels.get(key)
    if kernel is None:
        with _lock:
            kernel = _kernels.get(key)
            if kernel is None:
                kernel = _kernels[key] = LoopKernel(program)
    return kernel
