"""GPU kernels from loop programs. README.md says where to begin."""

from throughtime.backends.triton._geometry import NoGeometryError
from throughtime.backends.triton._kernel import LoopKernel
from throughtime.backends.triton._pointwise import HEADER, VECTOR_BYTES, PointwiseKernel, Written, pointwise_refusal
from throughtime.backends.triton._refusal import has_triton, is_interpreted, refusal
from throughtime.backends.triton._walk import WalkKernel

__all__ = [
    "HEADER",
    "VECTOR_BYTES",
    "LoopKernel",
    "NoGeometryError",
    "PointwiseKernel",
    "WalkKernel",
    "Written",
    "has_triton",
    "is_interpreted",
    "pointwise_refusal",
    "refusal",
]
