"""A graph as TensorFlow's `GraphDef`: names, kinds, inputs, devices and shapes, for TensorBoard and `write_graph`.

It describes the graph; the kernels are not in it, so it cannot be run again from the description alone.
"""

from __future__ import annotations

from typing import Any, ClassVar

from throughtime.tf1._namespace import export
from throughtime.tf1.graph._graph import Graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.protos import Field, Message, TensorShapeProto

Fields = dict[str, Field]
# What TensorFlow 1.15 writes as the version of its graphs.
_PRODUCER = 134


class VersionDef(Message):
    """The version of a graph."""

    FIELDS: ClassVar[Fields] = {"producer": Field(1, "int32"), "min_consumer": Field(2, "int32")}


class AttrValue(Message):
    """An attribute of a node."""

    class ListValue(Message):
        """Several values."""

        FIELDS: ClassVar[Fields] = {"type": Field(6, "enum", True), "shape": Field(7, TensorShapeProto, True)}

    FIELDS: ClassVar[Fields] = {
        "list": Field(1, ListValue, oneof="value"),
        "s": Field(2, "bytes", oneof="value"),
        "i": Field(3, "int64", oneof="value"),
        "f": Field(4, "float", oneof="value"),
        "b": Field(5, "bool", oneof="value"),
        "type": Field(6, "enum", oneof="value"),
        "shape": Field(7, TensorShapeProto, oneof="value"),
    }


class NodeDef(Message):
    """An operation."""

    FIELDS: ClassVar[Fields] = {
        "name": Field(1, "string"),
        "op": Field(2, "string"),
        "input": Field(3, "string", True),
        "device": Field(4, "string"),
        "attr": Field(5, AttrValue, keys="string"),
    }


class GraphDef(Message):
    """Operations in creation order."""

    FIELDS: ClassVar[Fields] = {"node": Field(1, NodeDef, True), "versions": Field(4, VersionDef)}


export("GraphDef", GraphDef)
export("NodeDef", NodeDef)
export("AttrValue", AttrValue)


def describe(graph: Graph) -> GraphDef:
    """The description of a graph."""
    return GraphDef(node=[_node(op) for op in graph.get_operations()], versions=VersionDef(producer=_PRODUCER))


def _node(op: Operation) -> NodeDef:
    inputs = [_reference(tensor) for tensor in op.inputs] + [f"^{control.name}" for control in op.control_inputs]
    node = NodeDef(name=op.name, op=op.type, input=inputs, device=op.device)
    if op.outputs:
        node.attr["_output_shapes"].list.shape.extend(_shape(tensor) for tensor in op.outputs)
        node.attr["dtype"].type = op.outputs[0].dtype.as_datatype_enum
    return node


def _reference(tensor: Tensor) -> str:
    return tensor.op.name if tensor.index == 0 else tensor.name


def _shape(tensor: Any) -> TensorShapeProto:
    sizes = tensor.shape.sizes
    if sizes is None:
        return TensorShapeProto(unknown_rank=True)
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=-1 if side is None else side) for side in sizes])
