"""Modules of assembly to functions, and those that all kernels share: products, one for each dtype."""

from __future__ import annotations

import functools

import torch

from throughtime.backends.numba import _llvm
from throughtime.backends.numba._cache import cached
from throughtime.backends.numba._products import product_module

ELEMENTS = {torch.float32: "float", torch.float64: "double"}


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
