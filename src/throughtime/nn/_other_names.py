"""`tt.nn` is not `tf.nn`, nor all of `torch.nn`: an unknown attribute says where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from throughtime._other_names import unknown_attribute

if not TYPE_CHECKING:
    # Type checkers would take any name for one of ours.
    def __getattr__(name: str) -> Any:
        raise unknown_attribute(__package__, name)
