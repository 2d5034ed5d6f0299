"""Rows times a packed matrix: columns that do not fill a panel, in memory that ends where they do."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest
import torch
from torch import Tensor

from throughtime.compiler.ir.loop_ir import Matrix
from throughtime.native.gemm.micro_kernel import PRODUCT, product_module
from throughtime.native.gemm.pack_jobs import PackJobs, make_packer
from throughtime.native.toolchain import llvm
from throughtime.native.toolchain.module_loader import ELEMENTS, product_address

pytestmark = pytest.mark.covers("kernels")


class Fenced:
    """Memory whose end is followed by a page that may be neither read nor written."""

    def __init__(self) -> None:
        self.size = 16 * mmap.PAGESIZE
        self._map = mmap.mmap(-1, self.size + mmap.PAGESIZE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        protect = ctypes.CDLL(None).mprotect
        protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        assert protect(self._start + self.size, mmap.PAGESIZE, 0) == 0

    def last(self, tensor: Tensor) -> int:
        """The address of a copy of the tensor that ends where the memory does."""
        nbytes = tensor.numel() * tensor.element_size()
        assert nbytes <= self.size
        address = self._start + self.size - nbytes
        ctypes.memmove(address, tensor.contiguous().data_ptr(), nbytes)
        return address


@pytest.fixture(scope="module")
def fences() -> tuple[Fenced, Fenced]:
    if sys.platform == "win32":
        pytest.skip("pages are protected in another way there")
    return Fenced(), Fenced()


def product(a: Tensor, b: Tensor, x: Tensor | None, fences: tuple[Fenced, Fenced]) -> Tensor:
    """`x + a @ b` by machine code, with `x` and the result at the end of memory."""
    host, (rows, depth), columns = llvm.host(), a.shape, b.shape[1]
    packer = make_packer(Matrix("b", depth, columns, b.dtype), host)
    packed = torch.empty(packer.bytes // b.element_size() + 64, dtype=b.dtype)
    panels = -(-packed.data_ptr() // 64) * 64
    PackJobs([packer], [packer.job(b.data_ptr(), *b.stride(), panels)], 1).run()
    width = columns * a.element_size()
    before = 0 if x is None else fences[0].last(x)
    out = fences[1].last(torch.full((rows, columns), float("nan"), dtype=a.dtype))
    kinds = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}
    call = ctypes.CFUNCTYPE(None, *(kinds[kind] for _, kind in PRODUCT))(product_address(a.dtype, host))
    call(a.data_ptr(), depth * a.element_size(), panels, depth, columns, before, width, out, width, rows, 0)
    result = torch.empty(rows, columns, dtype=a.dtype)
    ctypes.memmove(result.data_ptr(), out, result.numel() * result.element_size())
    return result


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("rows", [1, 2, 5, 13, 31])
def test_columns_that_do_not_fill_a_panel(rows: int, dtype: torch.dtype, fences: tuple[Fenced, Fenced]) -> None:
    for columns in (*range(1, 36), 48, 63, 65, 100):
        a, b, x = (torch.randn(*sizes, dtype=dtype) for sizes in ((rows, 7), (7, columns), (rows, columns)))
        torch.testing.assert_close(product(a, b, None, fences), a @ b)
        torch.testing.assert_close(product(a, b, x, fences), x + a @ b)


def test_they_pass_through_no_other_memory() -> None:
    """A copy in and out, number by number, took a small GRU half of its time."""
    text = product_module("float", 64, 12)
    assert "masked.store" in text
    assert "memset" not in text
