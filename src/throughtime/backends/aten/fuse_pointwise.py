"""Pointwise fusion (`compiler/passes/fuse_pointwise.py`) within the limits of the elementwise kernels of Triton."""

from __future__ import annotations

from collections.abc import Iterable

from throughtime.backends.triton import elementwise_unsupported_reason
from throughtime.compiler import Node, Value, pipeline
from throughtime.compiler.passes import fuse_pointwise as fusion
from throughtime.compiler.passes.fuse_pointwise import Carried, FusedStep, FusionGroup, Part, UnfusedNodes
from throughtime.compiler.passes.merge_matmuls import MergedMatmuls

__all__ = [
    "Carried",
    "FusedStep",
    "FusionGroup",
    "Part",
    "UnfusedNodes",
    "fuse_pointwise",
    "grouped",
    "unsupported_reason",
]


def fuse_pointwise(products: MergedMatmuls, *, masked: bool) -> FusedStep:
    """The step of a loop in as few kernels as possible; if `masked`, rows that have ended keep their state."""
    return pipeline.fuse_step(products, elementwise_unsupported_reason, masked=masked)


def grouped(nodes: list[Node], wanted: set[Value]) -> list[Part]:
    """Nodes in as few parts as possible; what each gives to others is not known yet."""
    return fusion.grouped(nodes, wanted, elementwise_unsupported_reason)


def unsupported_reason(nodes: list[Node], gives: Iterable[Value] = ()) -> str | None:
    """Why nodes cannot be one kernel, or None."""
    return fusion.unsupported_reason(nodes, gives, elementwise_unsupported_reason)
