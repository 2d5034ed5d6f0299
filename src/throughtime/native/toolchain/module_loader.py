"""Modules of assembly to functions, and those that all kernels share: products, one for each dtype."""

from __future__ import annotations

import functools

import torch

from throughtime.native.gemm.micro_kernel import product_module
from throughtime.native.toolchain import llvm
from throughtime.native.toolchain.object_cache import cached

ELEMENTS = {torch.float32: "float", torch.float64: "double"}


def load(assembly: str) -> llvm.NativeModule:
    """The functions of a module of LLVM assembly; its object code may come from disk."""
    host = llvm.host()
    parts = (assembly, llvm.CODE_VERSION, llvm.version(), host.cpu, host.features)
    return llvm.NativeModule(cached(parts, lambda: llvm.compile_assembly(assembly)))


def product_address(dtype: torch.dtype, host: llvm.Host) -> int:
    """The address of the function that multiplies rows of this dtype with a packed matrix."""
    return _products(dtype, host).address("product")


@functools.cache
def _products(dtype: torch.dtype, host: llvm.Host) -> llvm.NativeModule:
    return load(product_module(ELEMENTS[dtype], host.vector_bytes, host.tile_rows))
