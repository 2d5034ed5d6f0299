"""Cells whose units see no other unit's past: the recurrent weight is a vector, or there is none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import check_number
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.cells._parameters import Initializer, chosen, glorot_uniform, ones, zeros
from throughtime.cells._vector_cell import MemoryCell, VectorsCell


def plus_minus_one(tensor: Tensor) -> None:
    """How TensorFlow begins the recurrent weights of independent units."""
    nn.init.uniform_(tensor, -1.0, 1.0)


class IndRNNCell(VectorsCell):
    """Independently recurrent network (Li et al. 2018): every unit remembers only itself.

    `h' = activation(x @ kernel_w + kernel_u * h + bias)`, with `kernel_w` [I, H], `kernel_u` [1, H], uniform in ±1 at
    first, and `bias` [H].

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.IndRNNCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    input_kernel = "kernel_w"
    kernel_w: Tensor
    kernel_u: Tensor
    bias: Tensor

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.activation = resolve_activation(activation)
        self.declare("kernel_w", glorot_uniform)
        self.declare("kernel_u", plus_minus_one)
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        return {"kernel_w": (input_size, units), "kernel_u": (1, units), "bias": (units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        h = self.activation(inputs @ self.kernel_w + state * self.kernel_u + self.bias)
        return h, h


class IndyGRUCell(VectorsCell):
    """A GRU of independent units: the recurrent matrices are vectors.

    ```
    r, u = sigmoid(x @ gates.kernel_w + gates.kernel_u * [h, h] + gates.bias)
    c = activation(x @ candidate.kernel + candidate.kernel_u * r * h + candidate.bias)
    h' = u * h + (1 - u) * c
    ```

    `gates.bias` starts at 1; `candidate.kernel` is called so in TensorFlow, without the `_w`.

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.IndyGRUCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    input_kernel = "candidate.kernel"
    gates: Any
    candidate: Any

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        kernel_initializer: Initializer | None = None,
        bias_initializer: Initializer | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.activation = resolve_activation(activation)
        for scope, kernel, bias in (("gates", "kernel_w", ones), ("candidate", "kernel", zeros)):
            self.declare(f"{scope}.{kernel}", chosen("kernel_initializer", kernel_initializer, glorot_uniform))
            self.declare(f"{scope}.kernel_u", plus_minus_one)
            self.declare(f"{scope}.bias", chosen("bias_initializer", bias_initializer, bias))
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        return {
            "gates.kernel_w": (input_size, 2 * units),
            "gates.kernel_u": (1, 2 * units),
            "gates.bias": (2 * units,),
            "candidate.kernel": (input_size, units),
            "candidate.kernel_u": (1, units),
            "candidate.bias": (units,),
        }

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        gates, candidate = self.gates, self.candidate
        both = torch.cat([state, state], 1)
        r, u = torch.sigmoid(inputs @ gates.kernel_w + both * gates.kernel_u + gates.bias).chunk(2, 1)
        c = self.activation(inputs @ candidate.kernel + r * state * candidate.kernel_u + candidate.bias)
        h = u * state + (1 - u) * c
        return h, h


class IndyLSTMCell(MemoryCell):
    """An LSTM of independent units (Gonnet and Deselaers 2019): the recurrent matrices are vectors.

    ```
    i, j, f, o = x @ kernel_w + kernel_u * [h, h, h, h] + bias
    c' = c * sigmoid(f + forget_bias) + sigmoid(i) * activation(j)
    h' = sigmoid(o) * activation(c')
    ```

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.IndyLSTMCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[1].c.shape
    torch.Size([2, 5])
    """

    input_kernel = "kernel_w"
    kernel_w: Tensor
    kernel_u: Tensor
    bias: Tensor

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        kernel_initializer: Initializer | None = None,
        bias_initializer: Initializer | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        self.declare("kernel_w", chosen("kernel_initializer", kernel_initializer, glorot_uniform))
        self.declare("kernel_u", plus_minus_one)
        self.declare("bias", chosen("bias_initializer", bias_initializer, zeros))
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        gates = 4 * self.num_units
        return {"kernel_w": (input_size, gates), "kernel_u": (1, gates), "bias": (gates,)}

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, H] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        gates = inputs @ self.kernel_w + torch.cat([h, h, h, h], 1) * self.kernel_u + self.bias
        i, j, f, o = gates.chunk(4, 1)
        c = c * torch.sigmoid(f + self.forget_bias) + torch.sigmoid(i) * self.activation(j)
        h = self.activation(c) * torch.sigmoid(o)
        return h, LSTMStateTuple(c, h)


class SRUCell(VectorsCell):
    """Simple recurrent unit (Lei et al. 2018): everything heavy depends on the input alone, and leaves the loop.

    ```
    x_c, f, r, x_h = x @ kernel
    f, r = sigmoid([f, r] + bias)
    c' = f * c + (1 - f) * x_c
    h' = r * activation(c') + (1 - r) * x_h
    ```

    The state is the memory c [B, H]; the output is h'. `kernel` is [I, 4H], `bias` [2H].

    >>> import torch, throughtime as tt
    >>> print(tt.explain(tt.cells.SRUCell(5, input_size=3), torch.ones(2, 4, 3)).backend)
    cpu
    """

    kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.activation = resolve_activation(activation)
        self.declare("kernel", glorot_uniform)
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (input_size, 4 * self.num_units), "bias": (2 * self.num_units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H] and the next memory [B, H]."""
        self.check_step(inputs, state)
        x_c, gates, x_h = (inputs @ self.kernel).split([self.num_units, 2 * self.num_units, self.num_units], 1)
        f, r = torch.sigmoid(gates + self.bias).chunk(2, 1)
        c = f * state + (1 - f) * x_c
        return r * self.activation(c) + (1 - r) * x_h, c
