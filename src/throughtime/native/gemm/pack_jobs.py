"""Packs the matrices of a program into panels, before its kernel runs."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from throughtime.compiler.ir.loop_ir import Matrix
from throughtime.native.gemm.micro_kernel import PANEL_VECTORS
from throughtime.native.gemm.pack_panels import Job, job_list, pack_all, pack_module
from throughtime.native.threads.team import team
from throughtime.native.toolchain.llvm import Host, NativeModule
from throughtime.native.toolchain.llvm_builder import module
from throughtime.native.toolchain.module_loader import ELEMENTS, load

_ALIGNMENT = 64
SHARED_PACKING_BYTES = 1 << 17
"""Bytes of panels that several threads pack: 10 to 20 µs for one of them."""


@functools.cache
def _pack_addresses(dtype: torch.dtype, host: Host) -> tuple[int, ...]:
    library = _packing(dtype, host)
    return tuple(library.address(f"pack_{what}") for what in ("rows", "columns", "any"))


@functools.cache
def _packing(dtype: torch.dtype, host: Host) -> NativeModule:
    return load(pack_module(ELEMENTS[dtype], PANEL_VECTORS * host.lanes(dtype.itemsize)))


@functools.cache
def _pack_all() -> tuple[Callable[..., None], int]:
    library = load(module([pack_all()]))
    return library.function("pack_all", ctypes.c_void_p), library.address("pack_all")


@dataclass(frozen=True)
class PanelPacker:
    """Packs the values of one matrix of a program."""

    rows: int
    columns: int
    size: int
    width: int
    bytes: int
    pack_rows: int
    pack_columns: int
    pack_any: int

    def job(self, source: int, down: int, across: int, address: int) -> Job:
        """The job that packs the matrix at `source`, with the given strides, to `address`."""
        how = self.pack_rows if across == 1 else self.pack_columns if down == 1 else self.pack_any
        return how, source, down * self.size, across * self.size, self.rows, self.columns, address

    def share(self, job: Job, number: int, count: int) -> Job:
        """The share of one of `count` threads in a job: some of the panels."""
        how, source, down, across, rows, columns, address = job
        panels = -(-columns // self.width)
        first, last = (self.width * (panels * end // count) for end in (number, number + 1))
        place = address + first * rows * self.size
        return how, source + first * across, down, across, rows, min(last, columns) - first, place


class PackJobs:
    """Matrices to be packed, in `threads` shares."""

    def __init__(self, packers: Sequence[PanelPacker], jobs: Sequence[Job], threads: int) -> None:
        self._lists = [job_list(jobs)]
        if threads > 1:
            pairs = list(zip(packers, jobs, strict=True))
            self._lists += [job_list([packer.share(job, n, threads) for packer, job in pairs]) for n in range(threads)]
        self._whole, *self._shares = [jobs.buffer_info()[0] for jobs in self._lists]

    def run(self, *, alone: bool = False) -> None:
        call, address = _pack_all()
        if self._shares and not alone:
            team().run(address, self._shares)
        else:
            call(self._whole)


def make_packer(matrix: Matrix, host: Host) -> PanelPacker:
    """The packer of `matrix` for the GEMM of `host`."""
    size = matrix.dtype.itemsize
    width = PANEL_VECTORS * host.lanes(size)
    panels = -(-matrix.columns // width)
    room = -(-panels * matrix.rows * width * size // _ALIGNMENT) * _ALIGNMENT
    return PanelPacker(matrix.rows, matrix.columns, size, width, room, *_pack_addresses(matrix.dtype, host))
