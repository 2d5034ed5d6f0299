"""GPU kernels from loop programs. README.md says where to begin."""

from throughtime.backends.triton._geometry import NoGeometryError
from throughtime.backends.triton._kernel import LoopKernel
from throughtime.backends.triton._refusal import is_interpreted, refusal

__all__ = ["LoopKernel", "NoGeometryError", "is_interpreted", "refusal"]
