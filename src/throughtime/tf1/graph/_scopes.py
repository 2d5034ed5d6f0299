"""Functions that open scopes in the default graph: names, devices, control dependencies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import Graph, get_default_graph, reset_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor

for _name, _value in (
    ("Graph", Graph),
    ("GraphKeys", GraphKeys),
    ("Operation", Operation),
    ("Tensor", Tensor),
    ("get_default_graph", get_default_graph),
    ("reset_default_graph", reset_default_graph),
):
    export(_name, _value)


@exported("name_scope", "keras.backend.name_scope")
class name_scope:  # noqa: N801
    """Open a scope of names: `with tf.name_scope("loss") as scope:`."""

    def __init__(self, name: str | None, default_name: str | None = None, values: Any = None):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be None or a string, got {type(name).__name__}")
        if name is None and default_name is None and values is not None:
            raise ValueError("At least one of name (None) and default_name (None) must be provided.")
        self._name = default_name if name is None else name
        self._values = values

    @property
    def name(self) -> str | None:
        """The name that was asked for."""
        return self._name

    def __enter__(self) -> str:
        self._scope = get_default_graph().name_scope(self._name)
        return self._scope.__enter__()

    def __exit__(self, *error: Any) -> bool | None:  # noqa: PYI036
        return self._scope.__exit__(*error)


@exported("op_scope")
@contextlib.contextmanager
def op_scope(values: Any, name: str | None, default_name: str | None = None) -> Iterator[str]:
    """`name_scope` with the arguments of TensorFlow 0.x."""
    with name_scope(name, default_name, values) as scope:
        yield scope


@exported("device")
def device(device_name_or_function: Any) -> contextlib.AbstractContextManager[None]:
    """Ask for a device in the default graph."""
    return get_default_graph().device(device_name_or_function)


@exported("control_dependencies")
def control_dependencies(control_inputs: Any) -> contextlib.AbstractContextManager[None]:
    """Operations made inside run after `control_inputs`."""
    return get_default_graph().control_dependencies(control_inputs)


@exported("colocate_with")
def colocate_with(op: Any, ignore_existing: bool = False) -> contextlib.AbstractContextManager[None]:
    """Accepted: values of one session share a device."""
    return get_default_graph().colocate_with(op, ignore_existing)


@exported("container")
def container(container_name: str) -> contextlib.AbstractContextManager[str]:
    """Accepted: each session has its own variables."""
    return get_default_graph().container(container_name)


@exported("add_to_collection")
def add_to_collection(name: Any, value: Any) -> None:
    """Append to a collection of the default graph."""
    get_default_graph().add_to_collection(name, value)


@exported("add_to_collections")
def add_to_collections(names: Any, value: Any) -> None:
    """Append to several collections of the default graph."""
    get_default_graph().add_to_collections(names, value)


@exported("get_collection")
def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """A collection of the default graph."""
    return get_default_graph().get_collection(key, scope)


@exported("get_collection_ref")
def get_collection_ref(key: Any) -> list[Any]:
    """A collection of the default graph, the list itself."""
    return get_default_graph().get_collection_ref(key)


@exported("set_random_seed", "random.set_random_seed", "compat.v1.set_random_seed")
def set_random_seed(seed: int | None) -> None:
    """Set the seed of the default graph."""
    get_default_graph().seed = seed


@contextlib.contextmanager
def outside_of_functions() -> Iterator[Graph]:
    """Make operations in the outermost graph: variables belong to it even if a function's body makes them."""
    root = get_default_graph().root()
    with root.as_default(), root.control_dependencies(None):
        yield root


@exported("init_scope")
@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Leave the bodies of functions and control flow."""
    with outside_of_functions():
        yield
