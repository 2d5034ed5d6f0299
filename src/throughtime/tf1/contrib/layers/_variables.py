"""Variables of a model, in the collections of `contrib.framework`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.contrib._arg_scope import add_arg_scope
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._variable_scope import get_variable
from throughtime.tf1.graph._variables import Variable, assign, group
from throughtime.tf1.train._checkpoint_reader import load_checkpoint
from throughtime.tf1.train._saver import Saver


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: Any = None,
    **_: Any,
) -> Variable:
    """A variable by name, in the global collection and in others."""
    del caching_device, device, partitioner, use_resource
    wanted = [*(collections or []), GraphKeys.GLOBAL_VARIABLES]
    return get_variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=list(dict.fromkeys(wanted)),
        custom_getter=custom_getter,
    )


@add_arg_scope
def model_variable(name: str, *args: Any, collections: Any = None, **options: Any) -> Variable:
    """A variable of the model: `tf.model_variables()` has it."""
    wanted = [*(collections or []), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(name, *args, **{**options, "collections": wanted})


@exported("contrib.framework.get_variables", "contrib.slim.get_variables")
def get_variables(
    scope: Any = None, suffix: str | None = None, collection: Any = GraphKeys.GLOBAL_VARIABLES
) -> list[Variable]:
    """Variables of a scope, with names that end with a suffix."""
    found = get_default_graph().get_collection(collection, getattr(scope, "name", scope))
    return [each for each in found if suffix is None or each.op.name.endswith(suffix)]


@exported("contrib.framework.get_model_variables", "contrib.slim.get_model_variables")
def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Variable]:
    """Variables of the model."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


@exported("contrib.framework.get_trainable_variables", "contrib.slim.get_trainable_variables")
def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Variable]:
    """Variables that optimisers change."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


@exported("contrib.framework.get_variables_by_name", "contrib.slim.get_variables_by_name")
def get_variables_by_name(given_name: str, scope: Any = None) -> list[Variable]:
    """Variables whose last part is a name."""
    return [each for each in get_variables(scope) if each.op.name.rpartition("/")[2] == given_name]


@exported("contrib.framework.get_variables_to_restore", "contrib.slim.get_variables_to_restore")
def get_variables_to_restore(
    include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> list[Variable]:
    """Variables of some scopes, without those of others."""
    found = get_variables() if include is None else [each for scope in include for each in get_variables(scope)]
    left_out = {each for scope in exclude or () for each in get_variables(scope)}
    return [each for each in dict.fromkeys(found) if each not in left_out]


@exported("contrib.framework.assign_from_checkpoint_fn", "contrib.slim.assign_from_checkpoint_fn")
def assign_from_checkpoint_fn(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Any:
    """A function of a session that restores variables."""
    names = var_list if isinstance(var_list, dict) else {each.op.name: each for each in var_list}
    if ignore_missing_vars:
        reader = load_checkpoint(model_path)
        names = {name: each for name, each in names.items() if reader.has_tensor(name)}
    saver = Saver(names, reshape=reshape_variables, allow_empty=True)
    return lambda session: saver.restore(session, model_path)


@exported("contrib.framework.assign_from_values", "contrib.slim.assign_from_values")
def assign_from_values(var_names_to_values: dict[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """An operation that sets variables, and what to feed it."""
    by_name = {each.op.name: each for each in get_variables()}
    pairs = {by_name[name]: value for name, value in var_names_to_values.items()}
    return group(*[assign(each, value) for each, value in pairs.items()]), {}


for _place in ("contrib.framework", "contrib.slim"):
    export(f"{_place}.variable", variable)
    export(f"{_place}.model_variable", model_variable)
