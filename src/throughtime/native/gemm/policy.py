"""When a GEMM outside of loops runs in machine code of ours, and on how many threads."""

from __future__ import annotations

from dataclasses import dataclass

from throughtime._setting import Setting


@dataclass(frozen=True)
class GemmPolicy:
    """Thresholds in multiplications."""

    torch_up_to: int = 1 << 22
    """Up to here torch is as fast: it has less to do before it starts."""
    thread: int = 1 << 20
    """Work that justifies a thread of its own: 15 µs."""


gemm_policy = Setting(GemmPolicy())
"""The policy of the process."""
