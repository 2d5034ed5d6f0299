"""Small kernels for `sanitize.py` to watch: `python tools/sanitized_kernels.py CASE` runs those of a case.

It says which kernels ran. It ends with an error if one was refused for lack of room, of which a watched kernel takes
more, or if those that a case is there for are not among them: blocks of threads that meet, walks, fused steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch

import throughtime as tt
from throughtime.backends.triton import (
    elementwise_kernel,
    elementwise_scan,
    tiling,
)
from throughtime.backends.triton import (
    kernel as triton_kernel,
)
from throughtime.backends.triton import (
    launch as triton_launch,
)
from throughtime.backends.triton.target import gpu_target
from throughtime.runtime.offload.policy import offload_policy

BATCH, TIME = 20, 4
"""Several tiles of rows. To wait for others takes a hundred times as long as it does unwatched: few steps."""
LENGTHS = [TIME, 0, 1, 3, 2] * (BATCH // 5)
DEVICE = "cuda"


class Case(NamedTuple):
    """A cell, how to run it, and what is to be seen: words that are said of some kernel, and blocks that meet or not.

    `patch` gives a context in which it runs.
    """

    cell: Callable[[], tt.RNNCell]
    dtype: torch.dtype = torch.float32
    lengths: list[int] | None = LENGTHS
    tf32: bool = False
    has_barriers: bool = True
    backend: str = "triton"
    swap: bool = False
    patch: Callable[[], Any] = ExitStack
    seen: tuple[str, ...] = ("forward", "backward")


def _lstm(units: int) -> Callable[[], tt.RNNCell]:
    return lambda: tt.LSTMCell(units, input_size=8)


def _gru(units: int) -> Callable[[], tt.RNNCell]:
    return lambda: tt.GRUCell(units, input_size=8)


def _layer_norm_lstm(units: int) -> Callable[[], tt.RNNCell]:
    return lambda: tt.cells.LayerNormBasicLSTMCell(units, input_size=8)


def _layer_norm_gru(units: int) -> Callable[[], tt.RNNCell]:
    return lambda: tt.cells.LayerNormGRUCell(units, input_size=8)


@contextmanager
def _streamed() -> Iterator[None]:
    """Columns are not on chip, as in networks that are too large for it."""

    def choose(
        load: tiling.StepCost, _batch: int, card: tiling.GpuSpec, *_: object, ragged: bool = False
    ) -> tiling.Tiling:
        shapes = (shape for shape in tiling.candidates(load, card) if shape.blocks > 1 and not shape.direct)
        return next(shape for shape in shapes if not any(shape.resident))

    with gpu_target.change(choose=choose):
        yield


@contextmanager
def _in_small_blocks() -> Iterator[None]:
    """One or two steps make a block. Of every other one nothing waits on the host, and all is computed again."""
    with offload_policy.change(block=2**16, resident=2**14, share_sent=0.5):
        yield


WALKS = ("forward", "backward", "walk")
CASES = {
    "lstm-exact": Case(_lstm(150)),
    "lstm-tf32": Case(_lstm(256), lengths=None, tf32=True, seen=("forward", "backward", "operands")),
    "lstm-bfloat16": Case(_lstm(256), torch.bfloat16, seen=("forward", "backward", "operands")),
    "lstm-float16": Case(_lstm(256), torch.float16, lengths=None, seen=("forward", "backward", "operands")),
    "lstm-streamed": Case(_lstm(150), torch.bfloat16, patch=_streamed, seen=("forward", "backward", "streamed")),
    "gru-exact": Case(_gru(150), lengths=None),
    "gru-bfloat16": Case(_gru(256), torch.bfloat16, seen=("forward", "backward", "operands")),
    "layer-norm-lstm-exact": Case(_layer_norm_lstm(150)),
    "layer-norm-lstm-tf32": Case(_layer_norm_lstm(256), lengths=None, tf32=True),
    "layer-norm-gru-exact": Case(_layer_norm_gru(150)),
    "layer-norm-gru-float16": Case(_layer_norm_gru(256), torch.float16),
    "one-block": Case(_lstm(40), torch.bfloat16, has_barriers=False),
    "swapped": Case(_lstm(150), tf32=True, swap=True, patch=_in_small_blocks, seen=WALKS),
    "swapped-dense": Case(_lstm(150), torch.bfloat16, None, swap=True, patch=_in_small_blocks, seen=WALKS),
    "fused-steps": Case(_layer_norm_lstm(40), torch.float64, backend="aten", has_barriers=False, seen=("fused",)),
}


def run(case: Case) -> list[str]:
    """Forward and backward; gives the kernels that ran, in words."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if case.tf32 else "highest")
    cell = case.cell().to(DEVICE, case.dtype)
    x = torch.randn(BATCH, TIME, 8, device=DEVICE).to(case.dtype).requires_grad_()
    kernels: dict[str, None] = {}
    # A block of fused steps runs, is recorded, and runs again as a graph.
    for _ in range(3 if case.backend == "aten" else 1):
        with case.patch(), _noted(kernels), tt.backend(case.backend):
            outputs, _ = tt.dynamic_rnn(cell, x, case.lengths, dtype=case.dtype, swap_memory=case.swap)
            outputs.sum().backward()
        torch.cuda.synchronize()
    return list(kernels)


@contextmanager
def _noted(kernels: dict[str, None]) -> Iterator[None]:
    """Note every kernel that is launched; one that has no room is an error, whatever could be taken instead."""
    run_loop, run_walk, run_fused = (
        triton_kernel.LoopKernel._run,
        elementwise_scan.ElementwiseScanKernel.run,
        elementwise_kernel.ElementwiseKernel.__call__,
    )

    def loop(self: Any, shape: Any, matrices: Any, others: Any, steps: Any, device: Any) -> None:
        try:
            run_loop(self, shape, matrices, others, steps, device)
        except triton_launch.TooLargeError as error:
            raise RuntimeError(f"refused: {_described(self, shape, steps)}") from error
        kernels[_described(self, shape, steps)] = None

    def walk(self: Any, *arguments: Any) -> None:
        run_walk(self, *arguments)
        kernels[f"walk over {len(arguments[-1].counts)} steps"] = None

    def fused(self: Any, *arguments: Any) -> None:
        run_fused(self, *arguments)
        kernels["fused pointwise step"] = None

    with (
        mock.patch.object(triton_kernel.LoopKernel, "_run", loop),
        mock.patch.object(elementwise_scan.ElementwiseScanKernel, "run", walk),
        mock.patch.object(elementwise_kernel.ElementwiseKernel, "__call__", fused),
    ):
        yield


def _described(kernel: Any, shape: Any, steps: Any) -> str:
    groups = next(iter(kernel._loads.values())).groups
    kept = all(tiling.share(group, shape) <= deep for group, deep in zip(groups, shape.resident, strict=True))
    rows = "rows as operands" if shape.direct else "rows through shared memory"
    return (
        f"{'backward' if kernel.program.reverse else 'forward'}: {-(-steps.batch_size // shape.rows)} tiles of "
        f"{shape.rows} rows, {shape.blocks} blocks a tile, {kernel._staged.barriers} barriers a step, "
        f"{32 * shape.warps} threads a block, {rows}, columns {'on chip' if kept else 'streamed'}"
    )


def complaint(case: Case, kernels: list[str]) -> str | None:
    """What should have run and has not, or None."""
    missing = [word for word in case.seen if not any(word in line for line in kernels)]
    if missing:
        return f"no kernel with {', '.join(missing)}"
    alone = [line for line in kernels if " 1 blocks a tile" in line]
    if case.has_barriers and alone:
        return f"no barrier between blocks: {alone[0]}"
    return None


def main() -> None:
    case = CASES[sys.argv[1]]
    kernels = run(case)
    print(*kernels, sep="\n", flush=True)
    problem = complaint(case, kernels)
    if problem is not None:
        sys.exit(problem)
    print("all kernels ran")


if __name__ == "__main__":
    main()
