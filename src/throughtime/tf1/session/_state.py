"""What a session holds between runs; stateful kernels get it as their first argument."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from throughtime.tf1.graph._operation import Operation


@dataclass
class SessionState:
    """Values of variables by their operation, resources (queues, iterators) by their operation, random streams."""

    device: torch.device
    values: dict[Operation, Any] = field(default_factory=dict)
    resources: dict[Any, Any] = field(default_factory=dict)
    # For operations without a seed: fresh for each session.
    entropy: int = field(default_factory=lambda: random.SystemRandom().getrandbits(64))
    session: Any = None
