"""GPU kernels from loop programs. README.md says where to begin."""

from throughtime.backends.triton.elementwise_kernel import (
    HEADER,
    VECTOR_BYTES,
    ElementwiseKernel,
    Written,
)
from throughtime.backends.triton.elementwise_scan import ElementwiseScanKernel
from throughtime.backends.triton.kernel import LoopKernel
from throughtime.backends.triton.support import (
    elementwise_unsupported_reason,
    has_triton,
    is_interpreted,
    unsupported_reason,
)
from throughtime.backends.triton.tiling import NoTilingError

__all__ = [
    "HEADER",
    "VECTOR_BYTES",
    "ElementwiseKernel",
    "ElementwiseScanKernel",
    "LoopKernel",
    "NoTilingError",
    "Written",
    "elementwise_unsupported_reason",
    "has_triton",
    "is_interpreted",
    "unsupported_reason",
]
