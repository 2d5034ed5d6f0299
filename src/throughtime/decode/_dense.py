"""A linear layer with TensorFlow's names and shapes: `kernel` [I, O], and no bias unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from throughtime import _pytree
from throughtime._errors import check_dtype, check_flag, check_positive_int, problem, shape_of
from throughtime._tensors import autocast_on, check_same_device, is_lazy
from throughtime.cells._base import device_of, dims
from throughtime.cells._parameters import BuiltOnce, glorot_uniform, zeros


class Dense(BuiltOnce, nn.Module):
    """`inputs @ kernel`, plus `bias` with `use_bias=True`: [..., I] to [..., units].

    The kernel is made at the first call, or at once if `input_size` is given; without `dtype` it has that of what the
    layer sees first.

    >>> import torch, throughtime as tt
    >>> layer = tt.decode.Dense(5, input_size=3)
    >>> layer(torch.ones(2, 4, 3)).shape, layer.kernel.shape
    (torch.Size([2, 4, 5]), torch.Size([3, 5]))
    """

    kernel: Tensor
    bias: Tensor | None

    def __init__(
        self, units: int, use_bias: bool = False, *, input_size: int | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.units = check_positive_int("units", units)
        self._dtype = dtype = None if dtype is None else check_dtype("dtype", dtype)
        self._role, self._owner = "a layer", "layer"
        # Made in inference mode, a parameter could never be trained.
        with torch.inference_mode(False):
            kernel: Any = UninitializedParameter(dtype=dtype)  # type: ignore[call-arg]
            self.register_parameter("kernel", kernel)
            bias = nn.Parameter(torch.zeros(self.units, dtype=dtype)) if check_flag("use_bias", use_bias) else None
            self.register_parameter("bias", bias)
        if input_size is not None:
            self.build(check_positive_int("input_size", input_size, minimum=0))

    def named(self, role: str, owner: str) -> Dense:
        """This layer, called by what it is for and whose it is where a message speaks of it."""
        self._role, self._owner = role, owner
        return self

    def build(self, input_size: int, dtype: torch.dtype | None = None) -> None:
        """Make the kernel for inputs [..., input_size] of a dtype; one that exists stays."""
        # torch's own hook of the first call: it makes the parameters, and ends the laziness.
        if is_lazy(self.kernel):
            self._infer_parameters(self, (torch.empty(0, input_size, dtype=dtype or self.kernel.dtype),))

    def initialize_parameters(self, inputs: Tensor) -> None:
        """Called by torch before the first call."""
        kernel: Any = self.kernel
        if is_lazy(kernel):
            dtype = self._first_dtype(inputs)
            with torch.inference_mode(False), torch.no_grad():
                kernel.materialize((inputs.shape[-1], self.units), dtype=dtype)
                glorot_uniform(kernel)
                if self.bias is not None:
                    # In place, as `.to()` does it: an optimiser may have it already.
                    self.bias.data = self.bias.data.to(dtype)
                    zeros(self.bias)

    def _first_dtype(self, inputs: Tensor) -> torch.dtype:
        """As the constructor or `.to()` said, else that of the inputs, which are lower than they are in autocast."""
        typed = self._dtype is not None or self.kernel.dtype != torch.get_default_dtype()
        seen = inputs.is_floating_point() and not autocast_on(inputs.device)
        return inputs.dtype if seen and not typed else self.kernel.dtype

    def forward(self, inputs: Tensor) -> Tensor:
        """`inputs` [..., I] -> [..., units]."""
        self._check(inputs)
        outputs = inputs @ self.kernel
        return outputs if self.bias is None else outputs + self.bias

    def _check(self, inputs: Tensor) -> None:
        if inputs.shape[-1] != self.kernel.shape[0]:
            what, fix = (
                f"the inputs of {self._role} have the wrong width",
                "A layer owns the weights of its first call.",
            )
            got, expected = shape_of(inputs), f"[..., {self.kernel.shape[0]}]"
            raise ValueError(problem(what, got=got, expected=expected, fix=fix))
        check_same_device("inputs", inputs, "the layer's kernel", self.kernel)
        if inputs.dtype != self.kernel.dtype and not autocast_on(inputs.device):
            what = f"the inputs of {self._role} have another dtype than its kernel"
            fix = f"Convert what it is given, `.to({self.kernel.dtype})`, or `{self._owner}.to({inputs.dtype})`."
            raise TypeError(problem(what, got=inputs.dtype, expected=self.kernel.dtype, fix=fix))

    def extra_repr(self) -> str:
        """The width of what comes out."""
        return f"units={self.units}"


def layer_size(layer: nn.Module, input_size: Callable[[], Any]) -> Any:
    """The size of a row of what a layer gives: its own word, or else what it makes of a row of zeros."""
    known = getattr(layer, "out_features", getattr(layer, "units", None))
    if isinstance(known, int) and known > 0:
        return known
    dtype = _pytree.floating_dtype(list(layer.parameters())) or torch.get_default_dtype()
    blank = torch.zeros(1, *dims(input_size()), dtype=dtype, device=device_of(layer))
    with torch.no_grad():
        shape = layer(blank).shape[1:]
    return shape[0] if len(shape) == 1 else shape
