"""`threads`: which threads run the kernels on CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from throughtime.native.threads import openmp
from throughtime.native.threads import team as thread_team


@dataclass(frozen=True)
class Threads:
    """The threads of kernels on CPU: `str(threads)` describes them.

    There are `count` of them, as many as torch has. `runtime` is the OpenMP runtime that torch is bound to and that
    they belong to (libgomp, libomp, libiomp5), `file` the library. Where it cannot be used, `runtime` is "own": kernels
    run on a pool of threads beside torch's, and `reason` says why.
    """

    count: int
    runtime: str
    file: str = ""
    reason: str = ""

    def __str__(self) -> str:
        if self.count == 1:
            return "1, the caller's"
        if self.reason:
            return f"{self.count}, of a pool beside torch's threads: {self.reason}"
        return f"{self.count}, of the OpenMP runtime of torch ({self.file})"


def threads() -> Threads:
    """Which threads run kernels on CPU: torch's own, or a pool beside them and the reason why.

    Kernels use as many threads as torch (`torch.set_num_threads`), and the very same ones: those of the OpenMP runtime
    that torch itself is bound to, whatever other runtimes packages like scikit-learn have brought along.

    >>> import torch, throughtime as tt
    >>> tt.threads().count == torch.get_num_threads()
    True
    """
    return describe(torch.get_num_threads(), openmp.torch_runtime(), is_usable=thread_team.is_usable())


def describe(count: int, runtime: openmp.Runtime | str, *, is_usable: bool) -> Threads:
    """The threads of a process with a runtime, or with the reason why there is none."""
    if isinstance(runtime, str):
        return Threads(count, "own", reason=runtime)
    if not is_usable:
        return Threads(count, "own", reason="the process was forked, and OpenMP's threads stayed with its parent")
    return Threads(count, runtime.kind, runtime.file)
