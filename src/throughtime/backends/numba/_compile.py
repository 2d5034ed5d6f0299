"""Programs to kernels, each once in a process."""

from __future__ import annotations

from throughtime.backends.numba._kernel import LoopKernel
from throughtime.compiler._loop import LoopProgram

_kernels: dict[str, LoopKernel] = {}


def compile_loop(program: LoopProgram) -> LoopKernel:
    """The kernel of `program`, from memory if it was made before."""
    key = str(program)
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels[key] = LoopKernel(program)
    return kernel
