"""A compiled loop program, ready to run: arguments into frames, matrices into panels, rows into shards."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.backends._steps import Steps
from throughtime.backends.numba import _llvm
from throughtime.backends.numba._emit import HEADER, emit_kernel, make_layout
from throughtime.backends.numba._packing import pack_module
from throughtime.backends.numba._plan import make_plan
from throughtime.backends.numba._pool import run_jobs
from throughtime.backends.numba._products import PANEL_VECTORS, product_module
from throughtime.backends.numba._shards import cut_rows
from throughtime.compiler._loop import LoopProgram, Matrix

_ELEMENTS = {torch.float32: "float", torch.float64: "double"}
_ALIGNMENT = 64


class LoopKernel:
    """The kernel of one loop program. `source` is for people, `llvm` is what the machine code was made from."""

    def __init__(self, program: LoopProgram) -> None:
        host = _llvm.host()
        plan = make_plan(program)
        self.program = program
        self.source = str(program)
        self.llvm = emit_kernel(plan, host.vector_bytes)
        self._layout = make_layout(plan, host.vector_bytes)
        self._function = _load(self.llvm).function("loop", ctypes.c_void_p)
        dtypes = {matrix.dtype for matrix in program.matrices}
        self._products = [_product_address(dtype) if dtype in dtypes else 0 for dtype in _ELEMENTS]

    def run(
        self,
        streams: Sequence[Tensor],
        lagged: Sequence[tuple[Tensor, Tensor]],
        constants: Sequence[Tensor],
        matrices: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: Steps,
        first: int,
        last: int,
        threads: int,
        origin: int = 0,
    ) -> None:
        """Run steps `first` to `last` (backwards if the program is); see the README for the arguments."""
        if last <= first:
            return
        if threads == 1:
            shards = [(0, steps.batch_size)]
        else:
            shards = cut_rows(steps.active.numpy()[first:last], threads)
        packed = [_pack(matrix, value) for matrix, value in zip(self.program.matrices, matrices, strict=True)]
        tensors = [*streams, *(stream for stream, _ in lagged), *(start for _, start in lagged), *constants, *packed,
                   *carried, *stored]  # fmt: skip
        addresses = [tensor.data_ptr() for tensor in tensors]
        common = [steps.active.data_ptr(), steps.offset.data_ptr(), first, last]
        scratch = [torch.empty(self._scratch_bytes(rows), dtype=torch.uint8) for rows in shards]
        frame_type = ctypes.c_int64 * (len(HEADER) + len(addresses))
        frames = [
            frame_type(*common, *rows, steps.row_stride, origin, _aligned(memory), *self._products, *addresses)
            for rows, memory in zip(shards, scratch, strict=True)
        ]
        if len(frames) == 1:
            self._function(frames[0])
        elif frames:
            run_jobs([functools.partial(self._function, frame) for frame in frames])

    def _scratch_bytes(self, rows: tuple[int, int]) -> int:
        return _ALIGNMENT + self._layout.fixed_bytes + self._layout.row_bytes * (rows[1] - rows[0])


def _aligned(memory: Tensor) -> int:
    return -(-memory.data_ptr() // _ALIGNMENT) * _ALIGNMENT


def _load(assembly: str) -> _llvm.Library:
    return _llvm.Library(_llvm.compile_assembly(assembly))


@functools.cache
def _product_library(dtype: torch.dtype) -> _llvm.Library:
    host = _llvm.host()
    return _load(product_module(_ELEMENTS[dtype], host.vector_bytes, host.tile_rows))


def _product_address(dtype: torch.dtype) -> int:
    return _product_library(dtype).address("product")


@functools.cache
def _packers(dtype: torch.dtype) -> _llvm.Library:
    return _load(pack_module(_ELEMENTS[dtype], _panel_width(dtype)))


def _panel_width(dtype: torch.dtype) -> int:
    return PANEL_VECTORS * _llvm.host().lanes(dtype.itemsize)


@functools.cache
def _packer(dtype: torch.dtype, name: str) -> ctypes._CFunctionType:
    return _packers(dtype).function(name, ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_void_p)


def _pack(matrix: Matrix, value: Tensor) -> Tensor:
    """The matrix as panels, in memory that vectors can be loaded from."""
    width = _panel_width(matrix.dtype)
    panels = -(-matrix.columns // width)
    packed = torch.empty(panels * matrix.rows * width, dtype=matrix.dtype)
    down, across = (stride * value.itemsize for stride in value.stride())
    name = "pack_rows" if across == value.itemsize else "pack_any"
    _packer(matrix.dtype, name)(value.data_ptr(), down, across, matrix.rows, matrix.columns, packed.data_ptr())
    return packed
