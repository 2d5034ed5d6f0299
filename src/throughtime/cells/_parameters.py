"""Parameters that are made when the input size is known, with TensorFlow's names, shapes and initial values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter, is_lazy

from throughtime._errors import check_dtype, check_positive_int, problem, shape_of, type_name
from throughtime.cells._base import RNNCell, check_no_reuse

Initializer = Callable[[Tensor], Any]
"""Fills a tensor in place, like the functions of `torch.nn.init`."""


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


class ParameterScope(LazyModuleMixin, nn.Module):
    """A level in the names of a cell's parameters: `projection.kernel` is TensorFlow's `projection/kernel`."""

    # Lazy only so that a state_dict can be loaded before the cell is built: the cell builds, this is never called.
    kernel: Tensor
    bias: Tensor


class LazyCell(LazyModuleMixin, RNNCell):
    """A cell whose parameters are declared at once and made at the first call, or by `input_size=`.

    A subclass declares each parameter with its initialiser and says the shapes for an input size. Until then they are
    torch's uninitialised parameters, so a cell can be moved, copied, loaded or given to an optimiser before it is
    built.
    """

    def __init__(self, name: str | None, dtype: torch.dtype | None, reuse: bool | None) -> None:
        super().__init__(name)
        check_no_reuse(reuse)
        self._dtype = dtype if dtype is None else check_dtype("dtype", dtype)
        self._initializers: dict[str, Initializer] = {}

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        """The shape of every declared parameter for inputs [B, input_size]."""
        raise NotImplementedError

    def declare(self, path: str, initializer: Initializer) -> None:
        """Announce the parameter `path`, such as `kernel` or `projection.kernel`."""
        scope, _, name = path.rpartition(".")
        if scope and scope not in self._modules:
            self.add_module(scope, ParameterScope())
        parameter: Any = UninitializedParameter(dtype=self._dtype)  # type: ignore[call-arg]
        self.get_submodule(scope).register_parameter(name, parameter)
        self._initializers[path] = initializer

    @property
    def built(self) -> bool:
        """Whether the parameters exist."""
        return not any(is_lazy(self.get_parameter(path)) for path in self._initializers)

    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Make the parameters for inputs of shape [..., I], or of size I; what exists already stays."""
        width = inputs_shape if isinstance(inputs_shape, int) else inputs_shape[-1]
        input_size = check_positive_int("input_size", width, minimum=0)
        for path, shape in self.parameter_shapes(input_size).items():
            parameter: Any = self.get_parameter(path)
            if is_lazy(parameter):
                parameter.materialize(shape, **self._placement(parameter, dtype, device))
                with torch.no_grad():
                    self._initializers[path](parameter)

    def _placement(self, parameter: Tensor, dtype: torch.dtype | None, device: Any) -> dict[str, Any]:
        """Where to make a parameter: where `.to()` has put it before, else where the first inputs are."""
        moved = parameter.device.type != "cpu"
        retyped = parameter.dtype != torch.get_default_dtype()
        return {
            "device": parameter.device if moved or device is None else device,
            "dtype": self._dtype or (parameter.dtype if retyped or dtype is None else dtype),
        }

    def has_uninitialized_params(self) -> bool:
        """Lazy modules ask this of their own parameters; ours may also lie one scope down."""
        return not self.built

    def initialize_parameters(self, inputs: Tensor, state: Any) -> None:
        """Called by torch before the first step."""
        if not self.built:
            self.check_first_inputs(inputs, state)
            self.build(inputs.shape, dtype=inputs.dtype, device=inputs.device)

    def check_first_inputs(self, inputs: Tensor, state: Any) -> None:
        """Refuse inputs that no parameters could be built for, before any are made."""
        check_inputs(inputs, None)


def check_inputs(inputs: Any, kernel: Tensor | None, recurrent_size: int = 0) -> None:
    """Raise unless `inputs` is a floating point [B, I] that fits `kernel` [I + recurrent_size, ...]."""
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
        raise ValueError(
            problem(
                "`inputs` of one step have the wrong rank",
                got=f"ndim={inputs.ndim}, shape {shape_of(inputs)}",
                expected="ndim=2, [B, I]",
                fix="Flatten the feature dimensions: `x.flatten(2)` for a sequence.",
            )
        )
    if kernel is not None and kernel.shape[0] - recurrent_size != inputs.shape[1]:
        raise ValueError(
            problem(
                "`inputs` have another width than the cell was built for",
                got=shape_of(inputs),
                expected=f"[B, {kernel.shape[0] - recurrent_size}]",
                fix="Use one cell for each input width: a cell owns the weights of its first call.",
            )
        )
    if kernel is not None:
        check_same_dtype("inputs", inputs, "the cell's parameters", kernel)


def check_same_dtype(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise a `TypeError` for a clash of dtypes: nothing is cast silently, except by autocast, which is asked for."""
    if tensor.dtype != other.dtype and not torch.is_autocast_enabled(tensor.device.type):
        raise TypeError(
            problem(
                f"`{name}` and {other_name} differ in dtype",
                got=f"{tensor.dtype} and {other.dtype}",
                expected="one dtype",
                fix=f"Convert one: `{name}.to({other.dtype})`, or `cell.to({tensor.dtype})`.",
            )
        )
