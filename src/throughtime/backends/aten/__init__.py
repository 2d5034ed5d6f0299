"""The loop with torch operations; on a GPU fused and replayed as CUDA graphs."""

from throughtime.backends.aten.loop import AtenLoop

__all__ = ["AtenLoop"]
