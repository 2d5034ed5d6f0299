"""CPU kernels: loop programs compiled with LLVM to vector code."""

from throughtime.backends.numba._compile import compile_loop
from throughtime.backends.numba._kernel import LoopKernel
from throughtime.backends.numba._llvm import is_installed
from throughtime.backends.numba._refusal import refusal

__all__ = ["LoopKernel", "compile_loop", "is_installed", "refusal"]
