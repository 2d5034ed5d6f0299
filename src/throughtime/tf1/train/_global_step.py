"""The global step: a variable that counts the steps of training."""

from __future__ import annotations

from typing import Any

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import int64
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._variable_scope import get_variable
from throughtime.tf1.graph._variables import Variable
from throughtime.tf1.ops._convert import convert_to_tensor


@exported("train.get_global_step", "contrib.framework.get_global_step")
def get_global_step(graph: Any = None) -> Any:
    """The step's variable of a graph, or None."""
    graph = graph or get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) > 1:
        raise RuntimeError("Multiple items found in collection 'global_step'; expected one.")
    if found:
        return found[0]
    named = [each for each in graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if each.name == "global_step:0"]
    return named[0] if named else None


@exported("train.create_global_step", "contrib.framework.create_global_step")
def create_global_step(graph: Any = None) -> Variable:
    """Make the step's variable."""
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    with graph.as_default(), name_scope(None):
        return get_variable(
            "global_step",
            shape=[],
            dtype=int64,
            initializer=lambda: convert_to_tensor(0, int64),
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


@exported("train.get_or_create_global_step", "contrib.framework.get_or_create_global_step")
def get_or_create_global_step(graph: Any = None) -> Any:
    """The step's variable, made if there is none."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


@exported("train.assert_global_step", "contrib.framework.assert_global_step")
def assert_global_step(global_step_tensor: Any) -> None:
    """Raise unless this can be a global step: a scalar of whole numbers."""
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {global_step_tensor.dtype}')
    if global_step_tensor.shape.ndims not in {None, 0}:
        raise TypeError(f'Existing "global_step" is not scalar: {global_step_tensor.shape}')


@exported("train.global_step")
def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The step's value in a session."""
    return int(sess.run(global_step_tensor))
