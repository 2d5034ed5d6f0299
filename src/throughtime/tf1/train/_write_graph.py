"""Descriptions of graphs as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from throughtime.tf1._namespace import exported
from throughtime.tf1.summary._graph_def import describe


@exported("train.write_graph", "io.write_graph")
def write_graph(graph_or_graph_def: Any, logdir: Any, name: str, as_text: bool = True) -> str:
    """Write the description of a graph, as text or as bytes; returns the path."""
    found = graph_or_graph_def
    message = found if hasattr(found, "SerializeToString") else describe(found)
    path = Path(logdir) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if as_text:
        path.write_text(str(message), encoding="utf-8")
    else:
        path.write_bytes(message.SerializeToString())
    return str(path)
