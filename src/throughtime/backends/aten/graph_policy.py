"""When steps are captured as CUDA graphs, and in what chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from throughtime._setting import Setting


@dataclass(frozen=True)
class GraphPolicy:
    """Sizes of captured chunks of steps, and the recorders of devices beside CUDA's."""

    long: int = 32
    short: int = 8
    """Steps of a chunk: as many long ones as there are, then short ones, the last of which may not be filled."""
    most_chunks: int = 32
    """Chunks of a loop that stay on a device, captured or not."""
    most_bytes: int = 1 << 28
    """Memory of the streams of one chunk. A step that needs an eighth of this takes a GPU longer than a launch."""
    recorders: Mapping[str, Callable[[torch.device], Any]] = field(default_factory=dict)
    """By the type of a device, what captures and replays there."""


graph_policy = Setting(GraphPolicy())
"""The policy of the process."""
