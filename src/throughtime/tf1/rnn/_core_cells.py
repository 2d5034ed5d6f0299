"""Built-in cells: the arithmetic of `throughtime.cells`, with variables of the graph.

A step is one operation: its kernel is the `forward` of the library's cell, with the values of the variables in place of
its parameters. Nothing of an LSTM is described here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime import _pytree, cells
from throughtime.cells import _parameters
from throughtime.tf1._namespace import export, lookup
from throughtime.tf1.functions._func_graph import build_function
from throughtime.tf1.graph._dtypes import DType, as_dtype, float32
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn._cell import LayerRNNCell


class _Given:
    """An initialiser of the program: the library's cell only carries it."""

    def __init__(self, initializer: Any):
        self.initializer = initializer

    def __call__(self, tensor: torch.Tensor) -> None:
        raise AssertionError("the variables of a graph are initialised by a session")


class CoreCell(LayerRNNCell):
    """A cell that computes with a cell of the library; `core_class` says which."""

    core_class: type[_parameters.LazyCell]

    def __init__(self, *args: Any, **kwargs: Any):
        arguments = _bound(self.core_class, args, kwargs)
        name, reuse, dtype = (arguments.pop(key, None) for key in ("name", "reuse", "dtype"))
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self._activation = arguments.get("activation")
        translated = {key: _translated(key, value) for key, value in arguments.items()}
        self._core = self.core_class(**translated)
        self._names: list[str] = []
        self._variables: list[Any] = []
        for key in ("num_units", "forget_bias", "state_is_tuple", "activation"):
            if hasattr(self._core, key):
                setattr(self, f"_{key}", getattr(self._core, key) if key != "activation" else self._activation)

    @property
    def name(self) -> str:
        """The name of the cell's scope."""
        return self._given_name or self._core.name

    @property
    def state_size(self) -> Any:
        """Sizes of the state."""
        return _pytree.map_leaves(_as_size, self._core.state_size)

    @property
    def output_size(self) -> Any:
        """Size of the output."""
        return _pytree.map_leaves(_as_size, self._core.output_size)

    def build(self, inputs_shape: Any) -> None:
        """Make the variables, with the names and shapes of the library's parameters."""
        width = inputs_shape[-1].value if isinstance(inputs_shape, TensorShape) and inputs_shape.sizes else None
        if width is None:
            raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {inputs_shape}; use set_shape")
        initializers = self._core._initializers
        for path, shape in self._core.parameter_shapes(width).items():
            initializer = _initializer(initializers.get(path))
            self._names.append(path)
            self._variables.append(self.add_variable(path.replace(".", "/"), shape, initializer=initializer))
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """One step, one operation."""
        core, names = self._core, self._names
        given = [convert_to_tensor(leaf) for leaf in (*_pytree.flatten(inputs), *_pytree.flatten(state))]
        count = len(_pytree.flatten(inputs))
        one_input = not _pytree.is_nest(inputs)
        template = core.state_size

        def kernel(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            leaves, tensors = values[: len(given)], values[len(given) :]
            x = leaves[0] if one_input else _pytree.pack_as(inputs, leaves[:count])
            cell = with_parameters(core, names, tensors)
            output, new = type(core).forward(cell, x, _pytree.pack_as(template, leaves[count:]))
            return (*_pytree.flatten(output), *_pytree.flatten(new))

        tensors = [variable.value() for variable in self._variables]
        op = create_op(type(core).__name__, kernel, [*given, *tensors], name="step")
        outputs = len(_pytree.flatten(core.output_size))
        output = _pytree.pack_as(core.output_size, op.outputs[:outputs])
        return output, _pytree.pack_as(template, op.outputs[outputs:])


def with_parameters(core: Any, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> Any:
    """The library's cell with these tensors in place of its parameters, which it does not have yet."""
    made = copy.copy(core)
    own: dict[str, Any] = {}
    scopes: dict[str, Any] = dict(vars(core)["_modules"])
    for path, tensor in zip(names, tensors, strict=True):
        scope, _, last = path.rpartition(".")
        if not scope:
            own[last] = tensor
            continue
        if scopes[scope] is vars(core)["_modules"][scope]:
            scopes[scope] = copy.copy(scopes[scope])
            vars(scopes[scope])["_parameters"] = {}
        vars(scopes[scope])["_parameters"][last] = tensor
    vars(made)["_parameters"], vars(made)["_modules"] = own, scopes
    return made


def _as_size(size: Any) -> Any:
    return TensorShape(list(size)) if isinstance(size, torch.Size) else size


def _bound(core_class: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; what TensorFlow accepts besides is dropped."""
    kwargs = {key: value for key, value in kwargs.items() if key not in {"trainable", "input_size"}}
    parameters = [
        one for one in inspect.signature(core_class).parameters.values() if one.name not in {"self", "input_size"}
    ]
    signature = inspect.Signature(parameters)
    return dict(signature.bind(*args, **kwargs).arguments)


def _translated(key: str, value: Any) -> Any:
    if key == "activation" and value is not None and not isinstance(value, str):
        return torch_function(value)
    if key.endswith("initializer") and value is not None:
        return _Given(value)
    if isinstance(value, DType):
        return value.torch_dtype
    return value


def _initializer(core: Any) -> Any:
    """The graph's initialiser for one of the library's; None is the default of the scope."""
    if isinstance(core, _Given):
        return core.initializer
    if core is None or core is _parameters.glorot_uniform:
        return None
    if core is _parameters.zeros:
        return lookup("zeros_initializer")()
    if core is _parameters.ones:
        return lookup("ones_initializer")()
    return _by_torch(core)


def _by_torch(fill: Callable[[torch.Tensor], Any]) -> Callable[..., Tensor]:
    def initializer(shape: Any, dtype: Any = float32, partition_info: Any = None) -> Tensor:
        del partition_info
        kind = as_dtype(dtype)

        def kernel(state: Any) -> torch.Tensor:
            tensor = torch.empty(list(shape), dtype=kind.torch_dtype)
            result = fill(tensor)
            return result if isinstance(result, torch.Tensor) else tensor

        return create_op("Initial", kernel, dtypes=[kind], shapes=[shape], stateful=True).outputs[0]

    return initializer


def torch_function(function: Callable[[Any], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of one graph tensor, such as `tf.nn.relu`, as a function of a torch tensor."""
    if getattr(function, "__module__", "").startswith("torch"):
        return function
    built = build_function(function, [(float32, TensorShape([None, None]))], name="x", convert=convert_to_tensor)
    if built.outer or built.stateful or len(built.outputs) != 1:
        raise ValueError("the activation of a built-in cell must be a function of one tensor and constants alone")

    def activation(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = built.program(None).function(None, x)[0]
        return result

    return activation


_WHERE = ("nn.rnn_cell", "contrib.rnn", "python.ops.rnn_cell", "python.ops.rnn_cell_impl")
_BASIC = {"BasicRNNCell", "BasicLSTMCell", "GRUCell", "LSTMCell"}


def _define(core_class: type) -> type[CoreCell]:
    members = {"core_class": core_class, "__doc__": f"`{core_class.__name__}` as in `throughtime.cells`."}
    return type(core_class.__name__, (CoreCell,), members)


CORE_CELLS: dict[str, type[CoreCell]] = {}
for _name in cells.__all__:
    _class = getattr(cells, _name)
    if isinstance(_class, type) and issubclass(_class, _parameters.LazyCell) and not _name.endswith("Wrapper"):
        CORE_CELLS[_name] = _define(_class)
        for _place in _WHERE if _name in _BASIC else _WHERE[1:2]:
            export(f"{_place}.{_name}", CORE_CELLS[_name])
for _place in _WHERE:
    export(f"{_place}.LSTMStateTuple", cells.LSTMStateTuple)
