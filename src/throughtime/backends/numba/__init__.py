"""CPU kernels: loop programs compiled with LLVM to vector code."""

from throughtime.backends.numba._compile import compile_loop
from throughtime.backends.numba._cross_entropy import SCORED, cross_entropy, cross_entropy_gradient
from throughtime.backends.numba._kernel import LoopKernel
from throughtime.backends.numba._moving import WORTH_A_THREAD, before, move, shift
from throughtime.backends.numba._openmp import Runtime, torch_runtime
from throughtime.backends.numba._ordering import FACTS, order
from throughtime.backends.numba._over_rows import Rows, over_rows
from throughtime.backends.numba._refusal import is_installed, refusal
from throughtime.backends.numba._shards import cut_rows
from throughtime.backends.numba._team import is_usable as is_team_usable
from throughtime.backends.numba._times import Placed, times

__all__ = [
    "FACTS",
    "SCORED",
    "WORTH_A_THREAD",
    "LoopKernel",
    "Placed",
    "Rows",
    "Runtime",
    "before",
    "compile_loop",
    "cross_entropy",
    "cross_entropy_gradient",
    "cut_rows",
    "is_installed",
    "is_team_usable",
    "move",
    "order",
    "over_rows",
    "refusal",
    "shift",
    "times",
    "torch_runtime",
]
