"""The forms that one step of a loop has: operations of torch, and fused kernels where some can be made."""

from __future__ import annotations

import threading
import warnings
from functools import cached_property

import torch

from throughtime.backends import triton
from throughtime.backends.aten.chunk_buffers import StepCode
from throughtime.backends.aten.fused_chunk import FusedCode
from throughtime.backends.triton.target import takes_kernels
from throughtime.compiler import Value
from throughtime.compiler.passes.merge_matmuls import MergedMatmul, MergedMatmuls
from throughtime.compiler.pipeline import merge_matmuls


class StepVariant:
    """A step as it is run: by fused kernels, or by operations of torch alone where they cannot be made.

    There are two fused steps: one for blocks in which all rows are alive, and one in which they may not be.
    """

    def __init__(self, plain: StepCode) -> None:
        self._plain = plain
        self._lock = threading.RLock()
        self._fused: dict[bool, FusedCode] = {}
        self._found: dict[tuple[torch.device, bool], FusedCode | StepCode] = {}

    @cached_property
    def _products(self) -> MergedMatmuls:
        return merge_matmuls(self._plain.loop)

    @property
    def joined(self) -> dict[Value, MergedMatmul]:
        """The matrices of fused steps that are several of the loop's."""
        return self._products.joined

    def fused(self, *, masked: bool) -> FusedCode:
        """The fused step, compiled or not."""
        with self._lock:
            if masked not in self._fused:
                self._fused[masked] = FusedCode(self._products, masked=masked)
            return self._fused[masked]

    def find(self, device: torch.device, *, masked: bool) -> FusedCode | StepCode:
        """What a device runs."""
        with self._lock:
            if (device, masked) not in self._found:
                self._found[device, masked] = self._compile(device, masked=masked)
            return self._found[device, masked]

    def _compile(self, device: torch.device, *, masked: bool) -> FusedCode | StepCode:
        if not is_available(device):
            return self._plain
        try:
            code = self.fused(masked=masked)
            code.compile(device)
        except Exception as defect:
            reason = f"{type(defect).__name__}: {defect}"
            warnings.warn(f"throughtime runs a loop without fused kernels: {reason}", RuntimeWarning, stacklevel=2)
            return self._plain
        return code

    def row_bytes(self, device: torch.device) -> int:
        """What a row of a step takes of the memory of a block."""
        code = self.fused(masked=True).step if is_available(device) else self._plain
        return sum(value.row_bytes for value in (*code.copied, *code.stacked))


def is_available(device: torch.device) -> bool:
    """Whether kernels can be made for a device."""
    return triton.has_triton() and takes_kernels(device)
