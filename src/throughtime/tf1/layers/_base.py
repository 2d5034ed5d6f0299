"""`tf.layers.Layer`: variables in a scope of the layer's name, made at the first call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from throughtime._errors import problem
from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import as_dtype, float32
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.graph._variable_scope import VariableScope, get_variable, variable_scope
from throughtime.tf1.graph._variables import Variable
from throughtime.tf1.ops._convert import convert_to_tensor


def snake_case(name: str) -> str:
    """`BatchNormalization` as its scope is called: `batch_normalization`."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def activation_of(activation: Any) -> Callable[[Any], Any] | None:
    """An activation that is given as a function, by its name, or not at all."""
    if activation == "linear":
        return None
    found: Callable[[Any], Any] | None = lookup(f"nn.{activation}") if isinstance(activation, str) else activation
    return found


@exported("layers.Layer", "python.layers.base.Layer", "keras.layers.Layer")
class Layer:
    """A function with variables: a subclass defines `build(input_shape)` and `call(inputs)`.

    The scope is the layer's name, or that of its class, made unique in the open variable scope.
    """

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, **options: Any) -> None:
        self._reuse = options.pop("_reuse", None)
        scope = options.pop("_scope", None)
        options.pop("input_shape", None)
        self._activity_regularizer = options.pop("activity_regularizer", None)
        if options:
            raise TypeError(f"Keyword argument not understood: {next(iter(options))}")
        self.trainable, self.built = trainable, False
        self._dtype = None if dtype is None else as_dtype(dtype).base_dtype
        self._base_name = name or snake_case(type(self).__name__)
        self._scope: VariableScope | None = None
        self._weights: list[Variable] = []
        self._updates: list[Any] = []
        self._losses: list[Any] = []
        self.input_spec: Any = None
        if scope:
            self._open(scope)

    def _open(self, scope: Any = None) -> None:
        """Find the scope of the variables, at the first call."""
        if self._scope is not None:
            return
        if self._reuse:
            opened = variable_scope(self._base_name if scope is None else scope)
        else:
            opened = variable_scope(scope, default_name=self._base_name)
        with opened as found:
            self._scope = found

    @property
    def name(self) -> str:
        """The layer's name."""
        return self._base_name if self._scope is None else self._scope.name.rpartition("/")[2]

    @property
    def scope_name(self) -> str:
        """The name of the layer's variable scope."""
        if self._scope is None:
            raise ValueError(
                f'No name available for layer scope because the layer "{self.name}" has not been used yet.'
            )
        return self._scope.name

    @property
    def dtype(self) -> Any:
        """The dtype of the variables."""
        return self._dtype

    @property
    def graph(self) -> Any:
        """The graph of the variables."""
        return get_default_graph()

    def __call__(self, inputs: Any, *args: Any, **arguments: Any) -> Any:
        """The layer's output."""
        self._open(arguments.pop("scope", None))
        assert self._scope is not None
        reuse = True if self.built else self._reuse
        with (
            variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False),
            get_default_graph().name_scope(self._scope.original_name_scope),
        ):
            if not self.built:
                first = _first(inputs)
                self._dtype = self._dtype or (float32 if first is None else first.dtype.base_dtype)
                self.build(_shapes(inputs))
                self.built = True
            outputs = self.call(_converted(inputs), *args, **arguments)
            if self._activity_regularizer is not None:
                self.add_loss(self._activity_regularizer(outputs))
        return outputs

    apply = __call__

    def build(self, input_shape: Any) -> None:
        """Make the variables."""
        del input_shape
        self.built = True

    def call(self, inputs: Any, *args: Any, **arguments: Any) -> Any:
        """Compute the output."""
        del args, arguments
        return inputs

    def add_weight(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        trainable: bool | None = None,
        constraint: Any = None,
        use_resource: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        partitioner: Any = None,
        **_: Any,
    ) -> Variable:
        """A variable of the layer."""
        del use_resource, synchronization, aggregation, partitioner
        wanted = self.trainable and trainable is not False
        known = list(get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES))
        self._open()
        with variable_scope(self._scope, reuse=True if self.built else self._reuse, auxiliary_name_scope=False):
            found = get_variable(
                name,
                shape=shape,
                dtype=dtype or self._dtype or float32,
                initializer=initializer,
                regularizer=regularizer,
                trainable=wanted,
                constraint=constraint,
            )
        self._weights.append(found)
        now = get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)
        self._losses += [loss for loss in now if loss not in known]
        return found

    def add_variable(self, name: str, *args: Any, **arguments: Any) -> Variable:
        """A variable of the layer."""
        return self.add_weight(name, *args, **arguments)

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Add to the regularisation losses."""
        del inputs
        for loss in losses if isinstance(losses, list | tuple) else [losses]:
            self._losses.append(loss)
            get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Add to the operations that a training step runs."""
        del inputs
        for update in updates if isinstance(updates, list | tuple) else [updates]:
            self._updates.append(update)
            get_default_graph().add_to_collection(GraphKeys.UPDATE_OPS, update)

    @property
    def variables(self) -> list[Variable]:
        """All variables."""
        return self.weights

    @property
    def weights(self) -> list[Variable]:
        """All variables, those that are trained first."""
        return self.trainable_weights + self.non_trainable_weights

    @property
    def trainable_weights(self) -> list[Variable]:
        """Variables that optimisers change."""
        return [each for each in self._weights if each.trainable] if self.trainable else []

    trainable_variables = trainable_weights

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """Variables that optimisers leave alone."""
        trained = self.trainable_weights
        return [each for each in self._weights if each not in trained]

    non_trainable_variables = non_trainable_weights

    @property
    def updates(self) -> list[Any]:
        """Operations that a training step runs."""
        return list(self._updates)

    @property
    def losses(self) -> list[Any]:
        """Regularisation losses."""
        return list(self._losses)

    def count_params(self) -> int:
        """The number of numbers in all variables."""
        return sum(each.shape.num_elements() or 0 for each in self._weights)

    def get_updates_for(self, inputs: Any) -> list[Any]:
        """Operations that a training step runs."""
        del inputs
        return self.updates


def known_size(layer: Layer, size: int | None) -> int:
    """The size of the last axis, which a kernel's shape needs."""
    if size is None:
        name = type(layer).__name__
        what = f"The last dimension of the inputs to `{name}` should be defined. Found `None`"
        fix = "Call `set_shape` on the inputs, or give the placeholder that size."
        raise ValueError(problem(what, got="an unknown size", expected="a number", fix=fix))
    return size


def _first(inputs: Any) -> Any:
    if isinstance(inputs, list | tuple):
        return _first(inputs[0]) if inputs else None
    return convert_to_tensor(inputs)


def _converted(inputs: Any) -> Any:
    return inputs if isinstance(inputs, list | tuple) else convert_to_tensor(inputs)


def _shapes(inputs: Any) -> Any:
    if isinstance(inputs, list | tuple):
        return [_shapes(each) for each in inputs]
    shape: TensorShape = convert_to_tensor(inputs).shape
    return shape


class InputSpec:
    """What a layer takes; recorded only."""

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: Any = None,
        max_ndim: Any = None,
        min_ndim: Any = None,
        axes: Any = None,
    ) -> None:
        self.dtype, self.shape, self.ndim, self.axes = dtype, shape, ndim, axes or {}
        self.max_ndim, self.min_ndim = max_ndim, min_ndim


exported("layers.InputSpec", "python.layers.base.InputSpec")(InputSpec)
