"""Programs with layers, losses, metrics and regularisers; see `tf1_programs`."""

from __future__ import annotations

import numpy as np
from tf1_programs import PROGRAMS, cases, names, numbers, program  # noqa: F401
