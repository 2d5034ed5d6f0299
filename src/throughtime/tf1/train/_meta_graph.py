"""`.meta` files: the description of a graph that TensorFlow's tools read, and beside it the graph itself.

The graph is stored with the kernels of its operations (see `_closures`), so `import_meta_graph` brings back graphs that
this version of the package saved. Like a program, a graph is to be imported only from a source that is trusted.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

from throughtime._atomic_files import whole
from throughtime._errors import problem
from throughtime.tf1._namespace import export, exported
from throughtime.tf1._version import __version__
from throughtime.tf1.graph._graph import Graph, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.protos import BytesList, Field, Message, SaverDef
from throughtime.tf1.summary._graph_def import GraphDef, describe
from throughtime.tf1.train._closures import GraphPickler, GraphUnpickler

_OURS = "throughtime_graph"
_FORMAT = 1
Fields = dict[str, Field]


class MetaInfoDef(Message):
    """What wrote a graph."""

    FIELDS: ClassVar[Fields] = {"meta_graph_version": Field(1, "string"), "tensorflow_version": Field(5, "string")}


class CollectionDef(Message):
    """A collection, as bytes."""

    FIELDS: ClassVar[Fields] = {"bytes_list": Field(2, BytesList, oneof="kind")}


class MetaGraphDef(Message):
    """A graph with its saver and collections."""

    FIELDS: ClassVar[Fields] = {
        "meta_info_def": Field(1, MetaInfoDef),
        "graph_def": Field(2, GraphDef),
        "saver_def": Field(3, SaverDef),
        "collection_def": Field(4, CollectionDef, keys="string"),
    }


export("MetaGraphDef", MetaGraphDef)


def meta_graph(graph: Graph, saver_def: SaverDef | None, names: list[str]) -> MetaGraphDef:
    """The message of a graph; `names` are those of the variables that its saver has."""
    found = MetaGraphDef(
        meta_info_def=MetaInfoDef(meta_graph_version="throughtime", tensorflow_version=__version__),
        graph_def=describe(graph),
        saver_def=saver_def,
    )
    stored = found.collection_def[_OURS].bytes_list.value
    stored.append(pickle.dumps(_header(names)))
    try:
        stored.extend(_dump(graph))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        # The checkpoint is whole without it; `import_meta_graph` says why.
        stored.append(f"{type(error).__name__}: {error}".encode())
    return found


def _header(names: list[str]) -> dict[str, Any]:
    return {"format": _FORMAT, "version": __version__, "names": names}


def write_meta_graph(path: Any, graph: Graph, saver_def: SaverDef | None, names: list[str]) -> MetaGraphDef:
    """Write a `.meta` file; nothing is written if `path` is None."""
    found = meta_graph(graph, saver_def, names)
    if path is not None:
        with whole(Path(path)) as new:
            new.write_bytes(found.SerializeToString())
    return found


def _dump(graph: Graph) -> list[bytes]:
    """The numbers of operations of each graph, then all graphs: the outermost one, and those of functions in it."""
    graphs: list[Graph] = [graph]
    places = {id(graph): 0}

    def number_of(each: Graph) -> int:
        if id(each) not in places:
            places[id(each)] = len(graphs)
            graphs.append(each)
        return places[id(each)]

    def reference(value: Any) -> Any:
        if isinstance(value, Tensor):
            return "tensor", number_of(value.op.graph), value.op.number, value.index
        if isinstance(value, Operation):
            return "op", number_of(value.graph), value.number
        return ("graph", number_of(value)) if isinstance(value, Graph) else None

    file = io.BytesIO()
    pickler = GraphPickler(file, reference)
    done = 0
    while done < len(graphs):
        each = graphs[done]
        rest = {name: value for name, value in vars(each).items() if name not in {"_ops", "_by_name"}}
        pickler.dump((rest, [_fields(op) for op in each.get_operations()]))
        done += 1
    shapes = [(type(each), [(op.number, len(op.outputs)) for op in each.get_operations()]) for each in graphs]
    return [pickle.dumps([(kind.__module__, kind.__qualname__, ops) for kind, ops in shapes]), file.getvalue()]


def _fields(op: Operation) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What an operation and its outputs consist of; the graph and the outputs themselves are known."""
    own = {name: value for name, value in vars(op).items() if name not in {"graph", "outputs"}}
    slots = [name for name in Tensor.__slots__ if name not in {"__weakref__", "op"}]
    outputs = [{name: getattr(each, name) for name in slots if hasattr(each, name)} for each in op.outputs]
    return own, outputs


def _load(shapes: bytes, data: bytes, target: Graph) -> None:
    """Fill `target`, which is empty, with a stored graph."""
    kinds = GraphUnpickler(io.BytesIO(shapes), lambda _: None).load()
    file = io.BytesIO()
    graphs = [target]
    for module, name, _ in kinds[1:]:
        kind = GraphUnpickler(file, lambda _: None).find_class(module, name)
        graphs.append(kind.__new__(kind))
    ops: list[dict[int, Operation]] = []
    for graph, (_, _, numbers) in zip(graphs, kinds, strict=True):
        ops.append({number: _shell(graph, outputs) for number, outputs in numbers})

    def resolve(reference: Any) -> Any:
        if reference[0] == "graph":
            return graphs[reference[1]]
        op = ops[reference[1]][reference[2]]
        return op if reference[0] == "op" else op.outputs[reference[3]]

    unpickler = GraphUnpickler(io.BytesIO(data), resolve)
    for graph, made in zip(graphs, ops, strict=True):
        rest, fields = unpickler.load()
        vars(graph).update(rest)
        _restore(graph, list(made.values()), fields)


def _shell(graph: Graph, outputs: int) -> Operation:
    op = Operation.__new__(Operation)
    op.graph = graph
    op.outputs = [Tensor.__new__(Tensor) for _ in range(outputs)]
    for each in op.outputs:
        each.op = op
    return op


def _restore(graph: Graph, ops: list[Operation], fields: list[Any]) -> None:
    for op, (own, outputs) in zip(ops, fields, strict=True):
        vars(op).update(own)
        for tensor, values in zip(op.outputs, outputs, strict=True):
            for name, value in values.items():
                setattr(tensor, name, value)
    graph._ops = ops
    graph._by_name = {op.name: op for op in ops}


@exported("train.export_meta_graph")
def export_meta_graph(
    filename: Any = None, *_: Any, graph: Any = None, saver_def: Any = None, **__: Any
) -> MetaGraphDef:
    """Write the default graph to a `.meta` file."""
    names = [each.op.name for each in (graph or get_default_graph()).get_collection("variables")]
    return write_meta_graph(filename, graph or get_default_graph(), saver_def, names)


def load_meta_graph(source: Any) -> list[str]:
    """Bring a saved graph into the default graph; the names of the variables that its saver had."""
    message = source if isinstance(source, MetaGraphDef) else _read(source)
    stored = list(message.collection_def[_OURS].bytes_list.value) if _OURS in message.collection_def else []
    if not stored:
        fix = "Build the model with its program, then call `Saver.restore` with the checkpoint."
        what = "the graph was not saved by throughtime"
        raise NotImplementedError(problem(what, got="TensorFlow's operations", expected="our own graph", fix=fix))
    header = GraphUnpickler(io.BytesIO(stored[0]), lambda _: None).load()
    if (header["format"], header["version"]) != (_FORMAT, __version__):
        got, fix = f"version {header['version']}", "Save it again with this version."
        raise ValueError(problem("the graph is of another version", got=got, expected=__version__, fix=fix))
    if len(stored) == 2:
        fix = "Build the model with its program, then call `Saver.restore` with the checkpoint."
        raise NotImplementedError(
            problem("the graph could not be saved", got=stored[1].decode(), expected="operations of tf alone", fix=fix)
        )
    graph = get_default_graph()
    if graph.get_operations():
        fix = "Call tf.reset_default_graph() first, or import inside of `with tf.Graph().as_default():`."
        got = f"{len(graph.get_operations())} operations"
        raise ValueError(problem("import_meta_graph needs an empty graph", got=got, expected="none", fix=fix))
    _load(stored[1], stored[2], graph)
    graph.finalized = False
    names: list[str] = header["names"]
    return names


def _read(path: Any) -> MetaGraphDef:
    place = Path(path)
    if not place.is_file():
        fix = "Pass the path of a file that ends with .meta."
        raise OSError(problem(f"File {path} does not exist", got=path, expected="a .meta file", fix=fix))
    return MetaGraphDef.FromString(place.read_bytes())
