"""Functions that all kernels share, compiled once for each dtype: products, and the packing of matrices for them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from throughtime.backends.numba import _llvm
from throughtime.backends.numba._cache import cached
from throughtime.backends.numba._packing import PACK_ALL, Job, job_list, pack_module
from throughtime.backends.numba._products import PANEL_VECTORS, product_module
from throughtime.compiler._loop import Matrix

ELEMENTS = {torch.float32: "float", torch.float64: "double"}
ALIGNMENT = 64


def load(assembly: str) -> _llvm.Library:
    """The functions of a module of LLVM assembly; its object code may come from disk."""
    host = _llvm.host()
    parts = (assembly, _llvm.CODE_VERSION, _llvm.version(), host.cpu, host.features)
    return _llvm.Library(cached(parts, lambda: _llvm.compile_assembly(assembly)))


def product_address(dtype: torch.dtype, host: _llvm.Host) -> int:
    """The address of the function that multiplies rows of this dtype with a packed matrix."""
    return _products(dtype, host).address("product")


@functools.cache
def _products(dtype: torch.dtype, host: _llvm.Host) -> _llvm.Library:
    return load(product_module(ELEMENTS[dtype], host.vector_bytes, host.tile_rows))


@functools.cache
def _pack_addresses(dtype: torch.dtype, host: _llvm.Host) -> tuple[int, ...]:
    library = _packing(dtype, host)
    return tuple(library.address(f"pack_{what}") for what in ("rows", "columns", "any"))


@functools.cache
def _packing(dtype: torch.dtype, host: _llvm.Host) -> _llvm.Library:
    return load(pack_module(ELEMENTS[dtype], PANEL_VECTORS * host.lanes(dtype.itemsize)))


@functools.cache
def _pack_all() -> Callable[..., None]:
    return load(PACK_ALL).function("pack_all", ctypes.c_void_p)


def pack(jobs: Sequence[Job]) -> None:
    """Pack some matrices, each as its packer says."""
    numbers = job_list(jobs)
    _pack_all()(numbers.buffer_info()[0])


@dataclass(frozen=True)
class Packer:
    """Packs the values of one matrix of a program."""

    rows: int
    columns: int
    size: int
    bytes: int
    pack_rows: int
    pack_columns: int
    pack_any: int

    def job(self, source: int, down: int, across: int, address: int) -> Job:
        """To write the panels of the matrix at `source`, with the given strides, to `address`."""
        how = self.pack_rows if across == 1 else self.pack_columns if down == 1 else self.pack_any
        return how, source, down * self.size, across * self.size, self.rows, self.columns, address


def make_packer(matrix: Matrix, host: _llvm.Host) -> Packer:
    """What packs values of `matrix` for the products of `host`."""
    size = matrix.dtype.itemsize
    width = PANEL_VECTORS * host.lanes(size)
    panels = -(-matrix.columns // width)
    room = -(-panels * matrix.rows * width * size // ALIGNMENT) * ALIGNMENT
    return Packer(matrix.rows, matrix.columns, size, room, *_pack_addresses(matrix.dtype, host))
