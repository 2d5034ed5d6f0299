"""All rows times matrices, for gradients of inputs most of all; the products of several are added up."""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from throughtime.compiler.ir.loop_ir import Matrix
from throughtime.native.caching_allocator import Scratch
from throughtime.native.gemm.micro_kernel import PRODUCT
from throughtime.native.gemm.pack_jobs import SHARED_PACKING_BYTES, PackJobs, PanelPacker, make_packer
from throughtime.native.gemm.policy import gemm_policy
from throughtime.native.gemm.weight_gradient import StridedRows
from throughtime.native.threads.team import team
from throughtime.native.toolchain.llvm import Host, host
from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, integer, module
from throughtime.native.toolchain.module_loader import load, product_address

_BLOCK = 48
"""Rows at a time: they stay in a near cache while all panels of a matrix pass."""

FRAME = ("count", "columns", "out", "out_row", "product", "parts", "table")
"""What a call is told: `count` rows of `columns` numbers; every `_row` counts bytes."""
PART = ("a", "a_row", "b", "depth")
"""Rows of `depth` numbers, and the panels of a matrix."""
_POINTERS = frozenset({"out", "product", "table", "a", "b"})


class StridedMatrix(NamedTuple):
    """A matrix: where it lies, how far apart its rows and its columns are, and how many it has."""

    start: int
    down: int
    across: int
    rows: int
    columns: int


def rows_times_matrices(
    dtype: torch.dtype, count: int, rows: Sequence[StridedRows], matrices: Sequence[StridedMatrix], out: StridedRows
) -> None:
    """Write the sum of `rows @ matrix` of every pair to `out`; there is at least one row, one column and one number."""
    machine = host()
    packers = [_packer(dtype, matrix.rows, matrix.columns, machine) for matrix in matrices]
    *panels, packed_bytes = itertools.accumulate((packer.bytes for packer in packers), initial=0)
    columns = matrices[0].columns
    worth = count * columns * sum(matrix.rows for matrix in matrices) // gemm_policy.value.thread
    threads = max(1, min(torch.get_num_threads(), worth, count))
    (call, address), product = _code(), product_address(dtype, machine)
    with Scratch(packed_bytes) as place:
        jobs = [
            packer.job(matrix.start, matrix.down, matrix.across, place + panel)
            for packer, matrix, panel in zip(packers, matrices, panels, strict=True)
        ]
        PackJobs(packers, jobs, threads if packed_bytes >= SHARED_PACKING_BYTES else 1).run()
        frames, tables = [], []
        for thread in range(threads):
            first, last = count * thread // threads, count * (thread + 1) // threads
            table = array("q")
            for one, panel in zip(rows, panels, strict=True):
                table.extend((one.start + first * one.row, one.row, place + panel, one.width))
            head = (last - first, columns, out.start + first * out.row, out.row)
            frames.append(array("q", (*head, product, len(rows), table.buffer_info()[0])))
            # As long as it is read.
            tables.append(table)
        if threads > 1:
            team().run(address, [frame.buffer_info()[0] for frame in frames])
        else:
            call(frames[0].buffer_info()[0])


@functools.cache
def _packer(dtype: torch.dtype, rows: int, columns: int, machine: Host) -> PanelPacker:
    return make_packer(Matrix("matrix", rows, columns, dtype), machine)


@functools.cache
def _code() -> tuple[Callable[..., None], int]:
    library = load(module([_times()]))
    return library.function("times", ctypes.c_void_p), library.address("times")


def _times() -> Builder:
    """Blocks of rows, and for each of them all matrices: what the first wrote, the others add to."""
    b = Builder("times", [("frame", "ptr noalias")])
    p = b.arguments(b.parameters["frame"], FRAME, _POINTERS)
    with b.loop(p["count"], _BLOCK, stem="block") as (block, _):
        left = b.binary("sub", p["count"], block.index)
        count = b.intrinsic("smin", left, integer(_BLOCK))
        out = b.advance(p["out"], b.binary("mul", block.index, p["out_row"]))
        with b.loop(p["parts"], carry=[LlvmValue("ptr", "null")], stem="part") as (part, (before,)):
            q = b.arguments(b.advance(p["table"], part.index, 8 * len(PART)), PART, _POINTERS)
            given = {
                **p, **q, "a": b.advance(q["a"], b.binary("mul", block.index, q["a_row"])),
                "x": before, "x_row": p["out_row"], "c": out, "c_row": p["out_row"], "rows": count, "back": integer(0),
            }  # fmt: skip
            arguments = ", ".join(str(given[name]) for name, _ in PRODUCT)
            b.void(f"call void {p['product'].text}({arguments})")
            part.feed(before, out)
    return b
