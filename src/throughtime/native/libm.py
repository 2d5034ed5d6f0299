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

from throughtime.native.toolchain.module_loader import load

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
    return load(_assembly(element)).function("map", pointer, pointer, pointer, ctypes.c_int64)


def _assembly(element: str) -> str:
    return f"""
define void @map(ptr %function, ptr noalias %values, ptr noalias %result, i64 %count) {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr {element}, ptr %values, i64 %i
  %to = getelementptr {element}, ptr %result, i64 %i
  %x = load {element}, ptr %from
  %y = call {element} %function({element} %x)
  store {element} %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
