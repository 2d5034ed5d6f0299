"""The OpenMP runtime that torch is bound to.

A process can hold several: scikit-learn, SciPy, XGBoost and others bring one of their own. The threads of each spin for
a while after a parallel region, so that two runtimes in use take the cores from each other. Torch's is found as the
dynamic linker finds it, through the dependencies of `libtorch_cpu` or, where one was preloaded, in the global scope. It
is accepted only if torch sees a number of threads that is set through it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.module_loader import load

Parallel = Callable[[int, int, int, int], None]
"""Calls the function at an address with an argument in each of a number of threads, and waits for all; no flags (0)."""

_NAMES = "libtorch_cpu.so", "libtorch_cpu.dylib", "@rpath/libtorch_cpu.dylib"

_KMPC = "__kmpc_global_thread_num", "__kmpc_push_num_threads", "__kmpc_fork_call"


@dataclass(frozen=True)
class Runtime:
    """An OpenMP runtime: its file, and addresses of `omp_get_thread_num` and `omp_get_num_threads`."""

    file: str
    parallel: Parallel
    thread_number: int
    team_size: int

    @property
    def kind(self) -> str:
        """The name of the library without version and hash: libgomp, libomp, libiomp5."""
        return Path(self.file).name.partition(".")[0].partition("-")[0]


@functools.cache
def torch_runtime() -> Runtime | str:
    """The runtime that torch is bound to, or the reason why it cannot be used."""
    return find_runtime(torch.__config__.parallel_info())


def find_runtime(parallel_info: str, is_torchs: Callable[[ctypes.CDLL], bool] | None = None) -> Runtime | str:
    """The same, for what torch says about itself."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return "the runtime of a loaded library cannot be looked up on this system"
    if "ATen parallel backend: OpenMP" not in parallel_info:
        return "this build of torch does not use OpenMP"
    library = next(filter(is_torchs or _is_torchs, _candidates()), None)
    if library is None:
        return "the OpenMP runtime of torch was not found among the loaded libraries"
    return _runtime(library)


def _candidates() -> Iterator[ctypes.CDLL]:
    """Handles of loaded libraries; a symbol is looked up in the library and in what it depends on."""
    folder = Path(torch.__file__).parent / "lib"
    for name in (*(str(folder / name) for name in _NAMES[:2]), *_NAMES):
        try:
            yield ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            continue
    yield ctypes.CDLL(None)


def _is_torchs(library: ctypes.CDLL) -> bool:
    """Whether torch sees a number of threads that is set through a library, on this thread alone and for a moment."""
    try:
        set_number = library.omp_set_num_threads
    except AttributeError:
        return False
    before = torch.get_num_threads()
    other = before - 1 if before > 1 else 2
    set_number(other)
    is_seen = torch.get_num_threads() == other
    set_number(before)
    return is_seen


def _runtime(library: ctypes.CDLL) -> Runtime | str:
    number, size = (_address(library, f"omp_get_{what}") for what in ("thread_num", "num_threads"))
    file = _file_of(number)
    parallel = _gomp_parallel(library) or _kmpc_parallel(library)
    return f"{file} has no entry point that is known" if parallel is None else Runtime(file, parallel, number, size)


def _gomp_parallel(library: ctypes.CDLL) -> Parallel | None:
    """GNU's entry point, which LLVM's and Intel's runtimes have too."""
    if not hasattr(library, "GOMP_parallel"):
        return None
    parallel = library.GOMP_parallel
    parallel.restype, parallel.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return parallel


def _kmpc_parallel(library: ctypes.CDLL) -> Parallel | None:
    """The entry points of LLVM's runtime: the number of threads is set by a call of its own (`openmp_fork.ll`)."""
    if not all(hasattr(library, name) for name in _KMPC):
        return None
    table = array("q", (_address(library, name) for name in _KMPC))
    code, address = load(read_ir(__package__, "openmp_fork.ll").text), ctypes.c_void_p
    fork, start = code.function("fork", address, address, address, ctypes.c_int32), table.buffer_info()[0]

    def parallel(region: int, argument: int, threads: int, _flags: int, _keep: object = (code, table)) -> None:
        fork(start, region, argument, threads)

    return parallel


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


class _Symbol(ctypes.Structure):
    """What `dladdr` tells of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _file_of(address: int) -> str:
    """The file of the library that an address is in."""
    symbol = _Symbol()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = ctypes.c_void_p, ctypes.c_void_p
    return os.fsdecode(symbol.file) if dladdr(address, ctypes.byref(symbol)) and symbol.file else ""
