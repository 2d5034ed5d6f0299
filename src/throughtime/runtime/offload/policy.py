"""How much of an unroll's memory is offloaded to the host, and in what pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from throughtime._setting import Setting


@dataclass(frozen=True)
class OffloadPolicy:
    """Sizes in bytes. Chunks of compiled unrolls travel as blocks, saved tensors of other calls as pages."""

    block: int = 384 * 2**20
    """What the backward pass needs of a block, at most: three of them are on the device at a time."""
    resident: int = 256 * 2**20
    """The last block stays on the device, and those before it as long as they need less than this together: they are
    needed first, when no copy could be back yet."""
    share_sent: float | None = None
    """The share of blocks that send all that only a GEMM could recompute; None if the cost model decides."""
    page: int = 8 * 2**20
    """One transfer: large enough for the full speed of the bus, small beside what is offloaded."""
    window: int = 64 * 2**20
    """What may be in transfer in either direction: less would slow the copies down, more only costs memory."""
    smallest_tensor: int = 2**10
    """Tensors below this stay on the GPU: handling them costs more than they do."""
    is_apart: Callable[[torch.device], bool] = lambda device: device.type == "cuda"
    """Whether the memory of a device is not the host's: else an offload saves nothing."""
    make_bus: Callable[[torch.device], Any] | None = None
    """The transfer stream of a device; None for one that copies beside the computation."""


offload_policy = Setting(OffloadPolicy())
"""The policy of the process."""
