"""CPU kernels: loop programs compiled with LLVM to vector code."""

from throughtime.backends.cpu.compile import compile_loop
from throughtime.backends.cpu.kernel import LoopKernel
from throughtime.backends.cpu.support import unsupported_reason
from throughtime.native.toolchain.llvm import is_installed

__all__ = ["LoopKernel", "compile_loop", "is_installed", "unsupported_reason"]
