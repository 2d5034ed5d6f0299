"""`RNNCell`: the base of cells, with TensorFlow's rules for scopes and variables.

A user's class may define `__call__(inputs, state, scope=None)` (until 1.1) or `call` and `build` (from 1.2 on), with or
without `super().__init__()`: what the base class needs has defaults in the class.
"""

from __future__ import annotations

import re
from typing import Any

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, int32
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._shapes import Dimension, TensorShape
from throughtime.tf1.graph._variable_scope import VariableScope, get_variable, get_variable_scope, variable_scope
from throughtime.tf1.graph._variables import Variable
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor


def snake_case(name: str) -> str:
    """`BasicLSTMCell` as TensorFlow names its scope: `basic_lstm_cell`."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    return f"private{name}" if name.startswith("_") else name


@exported(
    "nn.rnn_cell.RNNCell", "contrib.rnn.RNNCell", "python.ops.rnn_cell.RNNCell", "python.ops.rnn_cell_impl.RNNCell"
)
class RNNCell:
    """One step of a recurrent network: `output, state = cell(inputs, state)`."""

    built = False
    trainable = True
    stateful = False
    _base_name: str | None = None
    _given_name: str | None = None
    _reuse: Any = None
    _scope: VariableScope | None = None
    _dtype: Any = None
    _own: list[Variable] | None = None

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, **options: Any):
        self.trainable = trainable
        self._given_name = name
        self._dtype = None if dtype is None else as_dtype(dtype).base_dtype
        self._reuse = options.pop("_reuse", None)
        scope = options.pop("_scope", None)
        for unknown in options.keys() - {"activity_regularizer", "dynamic"}:
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {unknown!r}")
        if scope is not None:
            with variable_scope(scope) as captured:
                self._scope = captured

    @property
    def name(self) -> str:
        """The name of the cell's scope."""
        return self._given_name or snake_case(type(self).__name__)

    @property
    def dtype(self) -> Any:
        """The dtype of the cell's variables, None before it is known."""
        return self._dtype

    @property
    def scope_name(self) -> str:
        """The full name of the cell's variable scope."""
        if self._scope is None:
            raise ValueError(f"No name available for cell {self.name} because it has not been used yet.")
        return self._scope.name

    @property
    def state_size(self) -> Any:
        """Sizes of the state, in its structure."""
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self) -> Any:
        """Size of the output."""
        raise NotImplementedError("Abstract method")

    def __call__(self, inputs: Any, state: Any, scope: Any = None, *args: Any, **kwargs: Any) -> Any:
        """One step: `(output, new_state)`; makes the variables at the first call."""
        if self._scope is None:
            self._scope = self._new_scope(scope)
        reuse = True if self.built or self._reuse else None
        found = variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False, custom_getter=self._noted)
        with found, name_scope(self._name_scope()):
            if not self.built:
                self._learn_dtype(inputs)
                self.build(_shapes(inputs))
                self.built = True
            return self.call(inputs, state, *args, **kwargs)

    def _new_scope(self, scope: Any) -> VariableScope:
        """The cell's variable scope: the given one, or a new one of the cell's name in the open scope."""
        if self._reuse:
            opened = variable_scope(scope if scope is not None else self.name)
        else:
            opened = variable_scope(scope, default_name=self.name)
        with opened as captured:
            return captured

    def _name_scope(self) -> str | None:
        assert self._scope is not None
        # A function's body, or a second call, must not end up outside of the scopes around it.
        original = self._scope.original_name_scope
        return original or None

    def _learn_dtype(self, inputs: Any) -> None:
        leaves = _pytree.flatten(inputs)
        if self._dtype is None and leaves and hasattr(leaves[0], "dtype"):
            self._dtype = as_dtype(leaves[0].dtype).base_dtype

    def _noted(self, getter: Any, *args: Any, **kwargs: Any) -> Any:
        variable = getter(*args, **kwargs)
        if self._own is None:
            self._own = []
        if variable not in self._own:
            self._own.append(variable)
        return variable

    def build(self, inputs_shape: Any) -> None:
        """Make the variables for inputs of this shape; here there are none."""
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """One step, with the variables made."""
        raise NotImplementedError(f"{type(self).__name__} must define call(inputs, state)")

    def add_variable(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        trainable: bool = True,
        constraint: Any = None,
        **_: Any,
    ) -> Variable:
        """A variable in the cell's scope."""
        return get_variable(
            name,
            shape=shape,
            dtype=as_dtype(dtype or self._dtype or "float32"),
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable and self.trainable,
            constraint=constraint,
        )

    def add_weight(self, name: str, shape: Any = None, **options: Any) -> Variable:
        """A variable in the cell's scope."""
        return self.add_variable(name, shape, **options)

    @property
    def weights(self) -> list[Variable]:
        """The cell's variables, those that are trained first."""
        own = self._own or []
        return [one for one in own if one.trainable] + [one for one in own if not one.trainable]

    variables = weights

    @property
    def trainable_weights(self) -> list[Variable]:
        """The variables that are trained."""
        return [one for one in self._own or [] if one.trainable]

    trainable_variables = trainable_weights

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The variables that are not trained."""
        return [one for one in self._own or [] if not one.trainable]

    non_trainable_variables = non_trainable_weights
    losses: tuple[Any, ...] = ()
    updates: tuple[Any, ...] = ()

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Zeros in the structure of `state_size`."""
        with name_scope(f"{type(self).__name__}ZeroState"):
            return zeros_for(self.state_size, batch_size, dtype)

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """The zero state; `inputs`, if given, says the batch size and the dtype."""
        if inputs is not None:
            tensor = convert_to_tensor(_pytree.flatten(inputs)[0])
            batch_size, dtype = batch_size_of(tensor, 0), tensor.dtype.base_dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                "batch_size and dtype cannot be None while constructing initial state: "
                f"batch_size={batch_size}, dtype={dtype}; pass both, or inputs"
            )
        return self.zero_state(batch_size, dtype)


def _shapes(inputs: Any) -> Any:
    if not _pytree.is_nest(inputs):
        return convert_to_tensor(inputs).shape
    return _pytree.map_leaves(lambda leaf: convert_to_tensor(leaf).shape, inputs)


def dims_of(size: Any) -> list[int | None]:
    """The dimensions of a row: of a number of features, or of a shape."""
    if isinstance(size, Tensor):
        size = constant_value(size)
    if isinstance(size, TensorShape):
        return size.as_list()
    return [size.value if isinstance(size, Dimension) else int(size)]


def map_sizes(function: Any, sizes: Any) -> Any:
    """`function` of every size in a structure, where lists and tuples are structures and shapes are sizes."""
    if isinstance(sizes, list | tuple):
        return _pytree.rebuild(sizes, [map_sizes(function, size) for size in sizes])
    if isinstance(sizes, dict):
        return {key: map_sizes(function, size) for key, size in sizes.items()}
    return function(sizes)


def batch_size_of(tensor: Tensor, axis: int) -> Any:
    """The size of an axis: a number if it is known, else a tensor."""
    sizes = tensor.shape.sizes
    if sizes is not None and sizes[axis] is not None:
        return sizes[axis]
    from throughtime.tf1.ops._array import shape  # noqa: PLC0415

    return shape(tensor)[axis]


ZERO_STATE = "ZeroState"


def zeros_for(sizes: Any, batch_size: Any, dtype: Any) -> Any:
    """Zeros [batch_size, ...] for every size."""
    import torch  # noqa: PLC0415

    if isinstance(batch_size, Dimension):
        batch_size = batch_size.value
    batch = convert_to_tensor(batch_size, int32 if isinstance(batch_size, int) else None, name="batch_size")
    dtypes = iter(_pytree.flatten(dtype) if _pytree.is_nest(dtype) else [])

    def zeros(size: Any) -> Tensor:
        kind = as_dtype(next(dtypes, dtype)).base_dtype
        rest = [size or 0 for size in dims_of(size)]
        kernel = lambda count: torch.zeros((int(count), *rest), dtype=kind.torch_dtype)  # noqa: E731
        return create_op(ZERO_STATE, kernel, [batch], name="zeros").outputs[0]

    return map_sizes(zeros, sizes)


@exported("contrib.rnn.LayerRNNCell", "nn.rnn_cell.LayerRNNCell", "python.ops.rnn_cell_impl.LayerRNNCell")
class LayerRNNCell(RNNCell):
    """Cells that make their variables in `build`."""


def check_cell(cell: Any, name: str = "cell") -> None:
    """Raise TensorFlow's error unless `cell` has what an unroll needs."""
    missing = [one for one in ("output_size", "state_size") if not hasattr(type(cell), one) and not hasattr(cell, one)]
    if not callable(getattr(cell, "zero_state", None)) and not callable(getattr(cell, "get_initial_state", None)):
        missing.append("zero_state or get_initial_state")
    if not callable(cell) or isinstance(cell, type):
        missing.append("is not callable: pass an instance, such as BasicLSTMCell(64)")
    if missing:
        raise TypeError(f"The argument {name!r} ({cell!r}) is not an RNNCell: {', '.join(missing)} is missing.")


__all__ = ["RNNCell", "check_cell", "get_default_graph", "get_variable_scope"]
