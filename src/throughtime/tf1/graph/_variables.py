"""`Variable`: named values that belong to the graph by name and to a session by value."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import torch

from throughtime.tf1._errors import FailedPreconditionError
from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import DType, bool_, string
from throughtime.tf1.graph._graph import Graph, create_op, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._scopes import name_scope, outside_of_functions
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import convert_to_tensor


@exported("VariableSynchronization")
class VariableSynchronization(enum.Enum):
    """Accepted: there is one device."""

    AUTO, NONE, ON_WRITE, ON_READ = range(4)


@exported("VariableAggregation")
class VariableAggregation(enum.Enum):
    """Accepted: there is one device."""

    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = range(4)


class Variable:
    """A variable. Its initial value is a tensor, or a function that makes one."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Iterable[str] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Callable[[Any], Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ):
        del (
            caching_device,
            variable_def,
            expected_shape,
            import_scope,
            use_resource,
            synchronization,
            aggregation,
            shape,
        )
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        if collections is not None and isinstance(collections, str | bytes):
            raise ValueError(f"collections must be a list, tuple, or set. Got {collections!r}; use [{collections!r}].")
        self._trainable = trainable is None or bool(trainable)
        self._constraint = constraint
        with outside_of_functions() as graph:
            self._graph = graph
            self._make(initial_value, name, dtype, validate_shape)
            self._collect(collections)

    def _make(self, initial_value: Any, name: str | None, dtype: Any, validate_shape: bool) -> None:
        made_by_function = callable(initial_value) and not hasattr(initial_value, "_as_tensor")
        with name_scope(name, "Variable", [] if made_by_function else [initial_value]) as scope:
            if made_by_function:
                with name_scope("Initializer"):
                    initial_value = initial_value()
            self._initial_value = convert_to_tensor(initial_value, dtype, name="initial_value")
            shape = self._initial_value.shape
            if validate_shape and not shape.is_fully_defined():
                raise ValueError(
                    f"initial_value must have a shape specified: {self._initial_value}; pass validate_shape=False"
                )
            value_dtype = self._initial_value.dtype.base_dtype
            self._variable = _variable_op(value_dtype, shape if validate_shape else TensorShape(None), scope)
            self._initializer = assign_op(self._variable.op, self._initial_value, "Assign", validate_shape).op
            self._snapshot = create_op(
                "Identity",
                _identity,
                [self._variable],
                name="read",
                dtypes=[value_dtype],
                shapes=[self._variable.shape],
            ).outputs[0]

    def _collect(self, collections: Iterable[str] | None) -> None:
        names = [GraphKeys.GLOBAL_VARIABLES] if collections is None else list(collections)
        if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in names:
            names.append(GraphKeys.TRAINABLE_VARIABLES)
        self._graph.add_to_collections(names, self)

    # What it is

    @property
    def name(self) -> str:
        """`"scope/name:0"`."""
        return self._variable.name

    @property
    def _shared_name(self) -> str:
        return self._variable.op.name

    @property
    def op(self) -> Operation:
        """The variable's operation."""
        return self._variable.op

    @property
    def graph(self) -> Graph:
        """The graph of the variable."""
        return self._graph

    @property
    def device(self) -> str:
        """Where the variable was asked to be."""
        return self._variable.device

    @property
    def dtype(self) -> DType:
        """The dtype of the storage, such as `float32_ref`."""
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:
        """The shape."""
        return self._variable.shape

    def get_shape(self) -> TensorShape:
        """The shape."""
        return self._variable.shape

    def set_shape(self, shape: Any) -> None:
        """Add to what is known of the shape."""
        for tensor in (self._variable, self._snapshot):
            tensor.set_shape(shape)

    @property
    def trainable(self) -> bool:
        """Whether optimisers change it by default."""
        return self._trainable

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """A function that optimisers apply after an update."""
        return self._constraint

    @property
    def initializer(self) -> Operation:
        """The operation that sets the initial value."""
        return self._initializer

    @property
    def initial_value(self) -> Tensor:
        """The tensor of the initial value."""
        return self._initial_value

    # Values

    def value(self) -> Tensor:
        """The value, read once a run."""
        return self._snapshot

    def _as_tensor(self) -> Tensor:
        return self._snapshot

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def _ref(self) -> Tensor:
        return self._variable

    def read_value(self) -> Tensor:
        """The value at this place of the program: after assignments made before it."""
        kernel = _reader(self._variable.op)
        dtype, shape = self.dtype.base_dtype, self.shape
        return create_op("Identity", kernel, name="Identity", dtypes=[dtype], shapes=[shape], stateful=True).outputs[0]

    def initialized_value(self) -> Tensor:
        """The value if there is one, else the initial value."""
        op = self._variable.op
        return create_op(
            "InitializedValue",
            lambda state, initial: state.values.get(op, initial),
            [self._initial_value],
            name="cond/Merge",
            dtypes=[self.dtype.base_dtype],
            shapes=[self.shape],
            stateful=True,
        ).outputs[0]

    def eval(self, session: Any = None, feed_dict: Any = None) -> Any:
        """The value in `session`, or in the default one."""
        return self._variable.eval(feed_dict, session)

    def load(self, value: Any, session: Any = None) -> None:
        """Set the value in `session`, or in the default one."""
        self._graph.session_for(session, "Variable.load").run(self._initializer, {self._initial_value: value})

    # Assignments

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Set the value."""
        del use_locking
        return _result(assign(self, value, name=name), read_value)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to the value."""
        del use_locking
        return _result(assign_add(self, delta, name=name), read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from the value."""
        del use_locking
        return _result(assign_sub(self, delta, name=name), read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Add one, unless the value is `limit`."""
        return count_up_to(self, limit)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __iter__(self) -> Any:
        raise TypeError("'Variable' object is not iterable.")

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"


class RefVariable(Variable):
    """Variables of TensorFlow 1; the name that `isinstance` checks in programs know."""


export("Variable", Variable)
export("python.ops.variables.RefVariable", RefVariable)


def _identity(value: Any) -> Any:
    return value


def _result(tensor: Tensor, read_value: bool) -> Any:
    return tensor if read_value else tensor.op


def _reader(op: Operation) -> Callable[..., Any]:
    def read(state: Any) -> Any:
        try:
            return state.values[op]
        except KeyError:
            raise FailedPreconditionError(
                None,
                op,
                f"Attempting to use uninitialized value {op.name}; run tf.global_variables_initializer() or restore a "
                "checkpoint in this session first",
            ) from None

    return read


def _variable_op(dtype: DType, shape: TensorShape, name: str) -> Tensor:
    op = create_op("VariableV2", _identity, name=name, dtypes=[dtype._as_ref], shapes=[shape], stateful=True)
    op.kernel = _reader(op)
    return op.outputs[0]


def assign_op(
    variable: Operation,
    value: Tensor,
    name: str,
    validate_shape: bool = True,
    update: Callable[[Any, Any], Any] | None = None,
    op_type: str = "Assign",
) -> Tensor:
    """A stateful operation that sets a variable: to `value`, or to `update(old, value)`. Gives the new value."""
    target = variable.outputs[0]
    if validate_shape:
        if update is None and not target.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"Shapes of variable and value must be equal, but are {target.shape} and {value.shape} "
                f"for {variable.name!r}"
            )
        shape = target.shape.merge_with(value.shape) if update is None else target.shape
    else:
        shape = value.shape
    read = _reader(variable)

    def write(state: Any, new: Any) -> Any:
        # Values are never shared: neither with arrays that were fed nor between variables.
        result = _copied(new) if update is None else update(read(state), new)
        state.values[variable] = result
        return result

    op = create_op(
        op_type, write, [value], name=name, dtypes=[target.dtype], shapes=[shape], stateful=True, mutates=variable
    )
    return op.outputs[0]


def _copied(value: Any) -> Any:
    return (
        value.detach().clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value.copy()
    )


def variable_op_of(ref: Any) -> Operation:
    """The variable's operation of a `Variable`, or of a tensor that an assignment gave."""
    op = ref._ref().op if hasattr(ref, "_ref") else ref.op
    found: Operation = op.mutates or op
    if found.type != "VariableV2":
        raise ValueError(f"{ref} is not a variable; assign to a tf.Variable")
    return found


@exported("assign")
def assign(
    ref: Any, value: Any, validate_shape: bool | None = None, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Set `ref` to `value`; gives the new value."""
    del use_locking
    variable = variable_op_of(ref)
    tensor = convert_to_tensor(value, variable.outputs[0].dtype.base_dtype, name="value")
    return assign_op(variable, tensor, name or "Assign", validate_shape is not False)


def _updating(op_type: str, update: Callable[[Any, Any], Any]) -> Callable[..., Tensor]:
    def function(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Tensor:
        del use_locking
        variable = variable_op_of(ref)
        tensor = convert_to_tensor(value, variable.outputs[0].dtype.base_dtype, name="value")
        return assign_op(variable, tensor, name or op_type, update=update, op_type=op_type)

    return function


assign_add = _updating("AssignAdd", lambda old, new: old + new.detach())
assign_sub = _updating("AssignSub", lambda old, new: old - new.detach())
export("assign_add", assign_add)
export("assign_sub", assign_sub)


@exported("count_up_to")
def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """Add one to `ref`, unless it is `limit`: then `OutOfRangeError`."""
    from throughtime.tf1._errors import OutOfRangeError  # noqa: PLC0415

    variable = variable_op_of(ref)
    read = _reader(variable)

    def count(state: Any) -> Any:
        old = read(state)
        if int(old) >= limit:
            raise OutOfRangeError(None, variable, f"Reached limit of {limit}")
        state.values[variable] = old + 1
        return old

    dtype = variable.outputs[0].dtype.base_dtype
    return create_op(
        "CountUpTo", count, name=name, dtypes=[dtype], shapes=[()], stateful=True, mutates=variable
    ).outputs[0]


@exported("global_variables", "all_variables")
def global_variables(scope: str | None = None) -> list[Variable]:
    """All variables but local ones."""
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


@exported("local_variables")
def local_variables(scope: str | None = None) -> list[Variable]:
    """Local variables."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


@exported("model_variables")
def model_variables(scope: str | None = None) -> list[Variable]:
    """Variables of the model."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


@exported("trainable_variables")
def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Variables that optimisers change."""
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


@exported("moving_average_variables")
def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """Variables with moving averages."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


@exported("variables_initializer", "initialize_variables")
def variables_initializer(var_list: Any, name: str = "init") -> Operation:
    """An operation that sets initial values."""
    return group(*[variable.initializer for variable in var_list or ()], name=name)


@exported("global_variables_initializer", "initialize_all_variables")
def global_variables_initializer() -> Operation:
    """An operation that sets the initial values of all global variables."""
    return variables_initializer(global_variables())


@exported("local_variables_initializer", "initialize_local_variables")
def local_variables_initializer() -> Operation:
    """An operation that sets the initial values of all local variables."""
    return variables_initializer(local_variables())


@exported("no_op")
def no_op(name: str | None = None) -> Operation:
    """An operation that does nothing; others may run after it."""
    return create_op("NoOp", lambda state: None, name=name, dtypes=[], shapes=[], stateful=True)


@exported("group")
def group(*inputs: Any, name: str | None = None, **kwargs: Any) -> Operation:
    """An operation that is done when all `inputs` are."""
    if kwargs:
        raise ValueError(f"Unknown keyword arguments: {', '.join(kwargs)}")
    flat: list[Any] = []
    for one in inputs:
        flat.extend(one if isinstance(one, list | tuple) else [one])
    with get_default_graph().control_dependencies([one for one in flat if one is not None]):
        return no_op(name or "group_deps")


@exported("is_variable_initialized")
def is_variable_initialized(variable: Any) -> Tensor:
    """Whether a variable has a value in the session."""
    op = variable_op_of(variable)
    kernel = lambda state: torch.tensor(op in state.values)  # noqa: E731
    return create_op("IsVariableInitialized", kernel, dtypes=[bool_], shapes=[()], stateful=True).outputs[0]


@exported("report_uninitialized_variables")
def report_uninitialized_variables(var_list: Any = None, name: str = "report_uninitialized_variables") -> Tensor:
    """The names of variables that have no value in the session."""
    import numpy as np  # noqa: PLC0415

    ops = [variable_op_of(one) for one in (global_variables() + local_variables() if var_list is None else var_list)]

    def kernel(state: Any) -> Any:
        return np.array([op.name.encode() for op in ops if op not in state.values], dtype=object)

    return create_op("ReportUninitialized", kernel, name=name, dtypes=[string], shapes=[[None]], stateful=True).outputs[
        0
    ]


def read_variable(state: Any, variable: Operation) -> Any:
    """The value of a variable in a session's state."""
    return state.values[variable] if variable in state.values else variable.kernel(state)
