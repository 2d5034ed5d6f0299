"""Checkpoints of objects, as `tf.train.Checkpoint` writes them: keys are paths, a graph has the names."""

from __future__ import annotations

from throughtime.interop.checkpoints._checkpoint import TFCheckpoint
from throughtime.interop.checkpoints._corruption import explained
from throughtime.interop.checkpoints._protobuf import Message

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def full_names(checkpoint: TFCheckpoint) -> dict[str, str]:
    """The keys of variables by the names that their variables had; empty for a checkpoint of names."""
    if checkpoint.dtypes.get(GRAPH) != "string" or checkpoint.shapes[GRAPH] != ():
        return {}
    names: dict[str, str] = {}
    graph = bytes(checkpoint[GRAPH].item())  # type: ignore[arg-type]
    with explained(checkpoint.prefix, GRAPH):
        for node in Message(graph).messages(1):
            for attribute in node.messages(2):
                name, key = attribute.text(2), attribute.text(3)
                # Two variables of one name, which objects may have, are told apart by their keys alone.
                if name and key in checkpoint:
                    names[name] = key if name not in names else ""
    return {name: key for name, key in names.items() if key}
