"""The least time that a batch could take on this processor: its multiply-adds, with every unit for them always busy.

How fast that is, is measured by a loop of nothing but multiply-adds on all threads, beside every case of a run; the
best of them counts for all (`suite.py`), since a processor that others slow down for a while is no slower at its best.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from layouts import Row
from shapes import Shape
from throughtime.native.toolchain.llvm import host
from throughtime.native.toolchain.llvm_builder import Builder, constant, integer, module, vector
from throughtime.native.toolchain.module_loader import load

SUMS = 12
"""Independent ones, so that none waits for itself."""
TURNS = 1_000_000
ROUNDS = 9
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def floor(kind: str, shape: Shape, *, training: bool) -> Row:
    """What a batch cannot do without: inputs and state times their weights, and for gradients twice as much again."""
    operations = 2 * shape.B * shape.T * (shape.I + shape.H) * GATES[kind] * shape.H
    return floor_of(operations * (3 if training else 1))


def floor_of(operations: int) -> Row:
    """A number of operations, and how many a second could be done just now."""
    return {"operations": operations, "full_speed": round(full_speed(torch.get_num_threads()))}


def full_speed(threads: int) -> float:
    """Operations a second: the best of some rounds, each of which keeps all threads busy for a few milliseconds."""
    code = _multiply_adds()
    operations = 2 * threads * TURNS * SUMS * host().lanes(4)
    rooms = [ctypes.create_string_buffer(1024) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def seconds() -> float:
            start = time.perf_counter()
            list(pool.map(code, map(ctypes.addressof, rooms)))
            return time.perf_counter() - start

        return operations / min(seconds() for _ in range(ROUNDS))


@functools.cache
def _multiply_adds() -> Callable[[int], None]:
    """A function that starts from the numbers at an address, and leaves their sums there."""
    b, kind = Builder("multiply_adds", [("room", "ptr")]), vector(host().lanes(4), "float")
    one = b.load(kind, b.parameters["room"], 4)
    with b.loop(integer(TURNS), carry=[constant(kind, 0.0)] * SUMS, stem="turn") as (turn, sums):
        for before in sums:
            turn.feed(before, b.fma(one, one, before))
    total = turn.results[0]
    for other in turn.results[1:]:
        total = b.binary("fadd", total, other)
    b.store(total, b.parameters["room"], 4)
    function: Callable[[int], None] = load(module([b])).function("multiply_adds", ctypes.c_void_p)
    return function
