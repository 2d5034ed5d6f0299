"""When a GEMM outside of loops runs in machine code of ours, and on how many threads."""

from __future__ import annotations

from dataclasses import dataclass

from throughtime._setting import Setting


@dataclass(frozen=True)
class GemmPolicy:
    """Thresholds in multiplications."""

    torch_up_to: int = 1 << 21
    """Up to here torch is as fast: it has less to do before it starts."""
    torch_over_rows_up_to: int = 1 << 20
    """The same for a product over rows: 26 µs instead of torch's 33 at 1.6 million, 17 instead of 11 at half."""
    thread: int = 1 << 20
    """Work that justifies a thread of its own: 15 µs."""


gemm_policy = Setting(GemmPolicy())
"""The policy of the process."""
