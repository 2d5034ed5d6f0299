"""Compiles modules of LLVM IR into functions; and the GEMM that all kernels share, one for each dtype."""

from __future__ import annotations

import functools

import torch

from throughtime.native.gemm.micro_kernel import product_module
from throughtime.native.toolchain import llvm
from throughtime.native.toolchain.object_cache import ObjectCache, cache_directory

ELEMENTS = {torch.float32: "float", torch.float64: "double"}


def load(assembly: str, cache: ObjectCache | None = None) -> llvm.NativeModule:
    """The functions of a module of LLVM IR; its object code comes from disk if it is there."""
    cache = cache or ObjectCache(cache_directory())
    parts = cache_key(assembly, llvm.CODE_VERSION, llvm.version(), llvm.host())
    return llvm.NativeModule(cache.get(parts, lambda: llvm.compile_assembly(assembly)))


def cache_key(assembly: str, code_version: str, compiler: str, host: llvm.Host) -> tuple[str, ...]:
    """Everything that decides the object code of a module."""
    return assembly, code_version, compiler, host.cpu, host.features


def product_address(dtype: torch.dtype, host: llvm.Host) -> int:
    """The address of the function that multiplies rows of this dtype with a packed matrix."""
    return _products(dtype, host).address("product")


@functools.cache
def _products(dtype: torch.dtype, host: llvm.Host) -> llvm.NativeModule:
    return load(product_module(ELEMENTS[dtype], host.vector_bytes, host.tile_rows))
