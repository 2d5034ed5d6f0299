"""`tt.nn` is not `tf.nn`, nor all of `torch.nn`: an unknown attribute says where to look."""

from __future__ import annotations

from typing import Any

from throughtime._other_names import unknown_attribute


def __getattr__(name: str) -> Any:
    raise unknown_attribute(__package__ or __name__, name)
