"""Parameters that are made when the input size is known, with TensorFlow's names, shapes and initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

from throughtime._errors import check_callable, check_floating_dtype, check_positive_int, problem, shape_of, type_name
from throughtime._tensors import autocast_on, check_same_device, is_lazy
from throughtime.cells import _lazy_build
from throughtime.cells._base import RNNCell, check_no_reuse
from throughtime.cells._lazy_build import build_once, end_laziness, repeatable
from throughtime.cells._load_checks import check_loaded, check_shapes, input_size_of
from throughtime.cells._scope import ParameterScope
from throughtime.cells._step_call import StepCall

Initializer = Callable[[Tensor], Any]
"""Fills a tensor in place, like the functions of `torch.nn.init`, or returns another instead, as TensorFlow's do."""


def glorot_uniform(tensor: Tensor) -> None:
    """TensorFlow's default: uniform in ±sqrt(6 / (fan_in + fan_out)); a vector's fans are both its length."""
    fans = 2 * tensor.shape[0] if tensor.ndim == 1 else tensor.shape[0] + tensor.shape[1]
    limit = math.sqrt(3.0 / max(1.0, fans / 2))
    nn.init.uniform_(tensor, -limit, limit)


def zeros(tensor: Tensor) -> None:
    """TensorFlow's default for biases."""
    nn.init.zeros_(tensor)


def ones(tensor: Tensor) -> None:
    """TensorFlow's default for the biases of the GRU's gates."""
    nn.init.ones_(tensor)


def chosen(name: str, initializer: Initializer | None, default: Initializer) -> Initializer:
    """The initialiser a user passed as `name`, or the default."""
    if initializer is None:
        return default
    expected, fix = "a function such as torch.nn.init.zeros_", "Pass a function that fills a tensor in place."
    check_callable(name, initializer, expected=expected, fix=fix)
    return initializer


class BuiltOnce(LazyModuleMixin):
    """torch's lazy modules, for threads that make the first call together."""

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """torch's hook before the first call; a second thread finds the work done and the hook gone."""
        with _lazy_build.building:
            module.initialize_parameters(*args, **(kwargs or {}))
            end_laziness(module)


class LazyCell(BuiltOnce, StepCall):
    """A cell whose parameters are declared at once and made at the first call, or by `input_size=`.

    A subclass declares each parameter with its initialiser and says the shapes for an input size. Until then they are
    torch's uninitialised parameters, so a cell can be moved, copied, loaded or given to an optimiser before it is
    built.
    """

    unwatched = RNNCell.unwatched | {"_initializers"}
    # What the width of the inputs is a multiple of.
    input_multiple = 1

    def __init__(self, name: str | None, dtype: torch.dtype | None, reuse: bool | None) -> None:
        super().__init__(name)
        check_no_reuse(reuse)
        self._dtype = check_parameter_dtype(dtype)
        self._paths: list[str] = []
        self._initializers: dict[str, Initializer] = {}

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        """The shape of every declared parameter for inputs [B, input_size]."""
        raise NotImplementedError

    def declare(self, path: str, initializer: Initializer, *, trainable: bool = True) -> None:
        """Announce the parameter `path`, such as `kernel` or `projection.kernel`."""
        scope, _, name = path.rpartition(".")
        if scope and scope not in self._modules:
            self.add_module(scope, ParameterScope())
        # Made in inference mode, a parameter could never be trained; the same goes for `build`.
        with torch.inference_mode(False):
            parameter: Any = UninitializedParameter(requires_grad=trainable, dtype=self._dtype)  # type: ignore[call-arg]
        self.get_submodule(scope).register_parameter(name, parameter)
        self._paths.append(path)
        self._initializers[path] = initializer

    @property
    def built(self) -> bool:
        """Whether the parameters exist."""
        # A thread that is building it finishes before the question is answered; a built cell has no initialisers left.
        with _lazy_build.building if self._initializers else nullcontext():
            # By attribute, not by `get_parameter`: parametrised or functional modules hold plain tensors.
            return not any(is_lazy(attrgetter(path)(self)) for path in self._paths)

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Make the parameters for inputs of shape [..., I], or of size I; what exists already stays."""
        dtype, width = check_parameter_dtype(dtype), input_width(inputs_shape)
        shapes = self.parameter_shapes(width)
        if hasattr(self, "_initialize_hook"):
            check_shapes(type(self).__name__, self._loaded(), shapes, f"for inputs [B, {width}]")
        with _lazy_build.building, torch.inference_mode(False), torch.no_grad():
            made = [path for path in shapes if is_lazy(attrgetter(path)(self))]
            if made and device is not None and torch.device(device).type == "meta":
                raise ValueError(_unbuilt_on_meta())
            # First all the values: if an initialiser fails, nothing is built.
            values = {path: self._first_value(path, shapes[path], dtype, device) for path in made}
            for path, value in values.items():
                parameter = attrgetter(path)(self)
                parameter.materialize(value.shape, device=value.device, dtype=value.dtype)
                parameter.copy_(value)
            self._complete(made)
            # Done with: a user's lambda would keep a built cell from being pickled.
            self._initializers.clear()
            for module in (self, *(part for part in self._modules.values() if isinstance(part, ParameterScope))):
                end_laziness(module)

    def _loaded(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters that exist."""
        found = {path: attrgetter(path)(self) for path in self._paths}
        return {path: shape_of(p) for path, p in found.items() if isinstance(p, Tensor) and not is_lazy(p)}

    def shown_input_size(self) -> str:
        """For `extra_repr`: the width of the inputs, once the parameters are made for one."""
        size = None
        # Whatever shapes a user's class makes up, the cell can be printed.
        with suppress(Exception):
            size = input_size_of(self._loaded(), self.parameter_shapes, self.input_multiple)
        return "" if size is None else f"input_size={size}"

    def _check_loaded(self, loaded: dict[str, tuple[int, ...]], prefix: str = "") -> None:
        """Raise unless a cell like this one has parameters of these shapes, whatever its inputs are."""
        if loaded:
            name = f"{type(self).__name__} `{prefix.rstrip('.')}`" if prefix else type(self).__name__
            check_loaded(name, loaded, self.parameter_shapes, self.input_multiple)

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """torch's hook before weights are loaded into an unbuilt cell; if they do not fit, this cell takes none."""
        found = {path: state_dict.get(prefix + path) for path in self._paths}
        coming = {path: shape_of(p) for path, p in found.items() if isinstance(p, Tensor) and not is_lazy(p)}
        # What exists already keeps its shape: torch looks at that itself.
        self._check_loaded(coming | self._loaded(), prefix)
        super()._lazy_load_hook(state_dict, prefix, *rest)

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """torch's hook before the first call."""
        # A parameter that was assigned instead of loaded has not been checked yet.
        module._check_loaded(module._loaded())
        super()._infer_parameters(module, args, kwargs)

    def _first_value(self, path: str, shape: tuple[int, ...], dtype: torch.dtype | None, device: Any) -> Tensor:
        """A tensor as its initialiser has filled it, or the one that it has returned instead, as TensorFlow's do."""
        value = torch.full(shape, torch.nan, **self._placement(attrgetter(path)(self), dtype, device))
        try:
            returned = self._initializers[path](value)
            # Whatever one returns that has filled it is of no matter.
            filled = value.is_meta or not value.isnan().any()
            return value if filled else value.copy_(_of_shape(returned, shape))
        except Exception as error:
            error.add_note(f"This was the initialiser of `{path}` {list(shape)} of {type(self).__name__}.")
            raise

    def _complete(self, made: Sequence[str]) -> None:
        """For initial values that depend on each other: parameters with these paths have just got theirs."""

    def _placement(self, parameter: Tensor, dtype: torch.dtype | None, device: Any) -> dict[str, Any]:
        """Where to make a parameter: as the constructor or `.to()` said, else as the first inputs are."""
        moved = parameter.device.type != "cpu"
        typed = self._dtype is not None or parameter.dtype != torch.get_default_dtype()
        return {
            "device": parameter.device if moved or device is None else device,
            "dtype": parameter.dtype if typed or dtype is None else dtype,
        }

    def has_uninitialized_params(self) -> bool:
        """Lazy modules ask this of their own parameters; ours may also lie one scope down."""
        return not self.built

    def initialize_parameters(self, inputs: Any, state: Any = None) -> None:
        """Called by torch before the first step."""
        if not self.built:
            self.check_step(inputs, state)
            features = self._features_of(inputs)
            assert features is not None
            # Autocast lowers the dtype of inputs on the way, but never that of parameters.
            dtype = None if autocast_on(features.device) else features.dtype
            build_once(self, features.shape, dtype, features.device)


def check_parameter_dtype(dtype: Any) -> torch.dtype | None:
    """The dtype that a user asks for, if any: parameters are floating point numbers."""
    fix = "Leave `dtype` out to take that of the inputs."
    return None if dtype is None else check_floating_dtype("dtype", dtype, "parameters", fix)


def _of_shape(returned: Any, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(returned, Tensor | np.ndarray) or tuple(returned.shape) != shape:
        what, fix = (
            "an initialiser has neither filled its tensor nor returned one",
            "Fill the whole tensor in place, or return another.",
        )
        raise TypeError(problem(what, got=type_name(returned), expected=f"a tensor of shape {shape}", fix=fix))
    return torch.as_tensor(returned)


def input_width(inputs_shape: Any) -> int:
    """The width I of inputs of shape [..., I], or of size I."""
    shaped = isinstance(inputs_shape, tuple | list) and len(inputs_shape) > 0
    return check_positive_int("input_size", inputs_shape[-1] if shaped else inputs_shape, minimum=0)


def check_inputs(inputs: Any, kernel: Tensor, recurrent_size: int = 0) -> None:
    """Raise unless `inputs` is a floating point [B, I] that fits `kernel` [I + recurrent_size, ...], if it is built."""
    if not isinstance(inputs, Tensor):
        raise TypeError(
            problem(
                "`inputs` of a cell must be one tensor",
                got=type_name(inputs),
                expected="a tensor [B, I]",
                fix="Concatenate nested inputs, or write a cell that takes the nest.",
            )
        )
    if not inputs.is_floating_point():
        raise ValueError(
            problem(
                "RNN cell only supports floating point inputs",
                got=inputs.dtype,
                expected="a floating point dtype",
                fix="Convert with `inputs.float()`, or look integer ids up with tt.EmbeddingWrapper.",
            )
        )
    if inputs.ndim != 2:
        # The inputs of one step, or what an unroll cut from [B, T, ...].
        flatten = (
            "A cell takes one step: run it over a sequence [B, T, I] with `tt.RNN(cell)` or `tt.dynamic_rnn`, "
            "and flatten the features of more axes first: `x.flatten(2)`."
        )
        raise ValueError(
            problem(
                "`inputs` of one step have the wrong rank",
                got=f"ndim={inputs.ndim}, shape {shape_of(inputs)}",
                expected="ndim=2, [B, I]",
                fix=flatten if inputs.ndim > 2 else "Add a feature axis: `x.unsqueeze(-1)`.",
            )
        )
    if is_lazy(kernel):
        return
    if kernel.is_meta and kernel.ndim == 1:
        # torch gives a parameter that does not exist yet the shape (0,) there.
        raise ValueError(_unbuilt_on_meta())
    if kernel.shape[0] - recurrent_size != inputs.shape[1]:
        raise ValueError(
            problem(
                "`inputs` have another width than the cell was built for",
                got=shape_of(inputs),
                expected=f"[B, {kernel.shape[0] - recurrent_size}]",
                fix="Use one cell for each input width: a cell owns the weights of its first call.",
            )
        )
    check_parameters_fit(inputs, kernel)


def _unbuilt_on_meta() -> str:
    return problem(
        "a cell cannot be built on the meta device, where tensors have no values",
        got="a cell without parameters",
        expected="a built cell, or real inputs",
        fix="Make the cell with `input_size=`; after that, `cell.to('meta')` computes shapes alone.",
    )


def check_parameters_fit(inputs: Tensor, kernel: Tensor) -> None:
    """Raise unless the parameters, if they exist, are of the dtype and on the device of the inputs."""
    if not is_lazy(kernel):
        check_same_device("inputs", inputs, "the cell's parameters", kernel)
        fix = f"Convert one: `inputs.to({kernel.dtype})`, or `cell.to({inputs.dtype})`."
        check_same_dtype("inputs", inputs, "the cell's parameters", kernel, fix)


def check_state_fits(inputs: Tensor, state: Tensor) -> None:
    """Raise unless the state is of the dtype and on the device of the inputs."""
    if not state.is_floating_point():
        fix = "Ask for a floating point `dtype`, or pass such an `initial_state`."
        expected = "a floating point dtype"
        raise ValueError(
            problem("RNN cell only supports floating point states", got=state.dtype, expected=expected, fix=fix)
        )
    check_same_device("inputs", inputs, "`state`", state)
    fix = f"Convert the inputs with `.to({state.dtype})`, or start with `dtype={inputs.dtype}` (or a state of it)."
    check_same_dtype("inputs", inputs, "`state`", state, fix)


def check_same_dtype(name: str, tensor: Tensor, other_name: str, other: Tensor, fix: str) -> None:
    """Raise a `TypeError` for a clash of dtypes: nothing is cast silently, except by autocast, which is asked for."""
    if tensor.dtype != other.dtype and not autocast_on(tensor.device):
        got = f"{tensor.dtype} and {other.dtype}"
        raise TypeError(problem(f"`{name}` and {other_name} differ in dtype", got=got, expected="one dtype", fix=fix))
