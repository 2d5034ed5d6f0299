"""The C library's scalar functions over whole arrays.

NumPy and torch have vectorised approximations of their own, which differ from the C library in the last bit for one
number in a hundred. A program that must reproduce the numbers of another that calls the C library has to call it, too.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.module_loader import load

_LOOPS = read_ir(__package__, "libm.ll").text

# The LLVM type of an element, and the suffix of the C functions for it.
_ELEMENTS = {"float32": ("float", "f"), "float64": ("double", "")}


def libm(function: str, values: NDArray[Any]) -> NDArray[Any]:
    """`function` (`"log"`, `"sin"`, …) of each element of a float32 or float64 array."""
    values = np.ascontiguousarray(values)
    element, suffix = _ELEMENTS[values.dtype.name]
    result = np.empty_like(values)
    _loop(element)(_address(function + suffix), values.ctypes.data, result.ctypes.data, values.size)
    return result


@functools.cache
def _address(symbol: str) -> int | None:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


@functools.cache
def _loop(element: str) -> Callable[..., None]:
    pointer = ctypes.c_void_p
    return load(_LOOPS).function(f"map_{element}", pointer, pointer, pointer, ctypes.c_int64)
