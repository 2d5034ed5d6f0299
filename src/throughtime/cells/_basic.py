"""The plain recurrent cell and the gated recurrent unit."""

from __future__ import annotations

import torch
from torch import Tensor

from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._parameters import Initializer, chosen, glorot_uniform, ones, zeros
from throughtime.cells._scope import ParameterScope
from throughtime.cells._vector_cell import VectorsCell


class BasicRNNCell(VectorsCell):
    """The most basic recurrent cell: the state is the output.

    `h' = activation([x, h] @ kernel + bias)`, with `kernel` [I + H, H] and `bias` [H].

    >>> import torch, throughtime as tt
    >>> cell = tt.BasicRNNCell(5)
    >>> outputs, state = tt.dynamic_rnn(cell, torch.randn(4, 2, 3), dtype=torch.float32)
    >>> outputs.shape, state.shape
    (torch.Size([4, 2, 5]), torch.Size([4, 5]))
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
        self.recurrent_rows = self.num_units
        self.activation = resolve_activation(activation)
        self.declare("kernel", glorot_uniform)
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (input_size + self.num_units, self.num_units), "bias": (self.num_units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        output = self.activation(torch.addmm(self.bias, torch.cat([inputs, state], 1), self.kernel))
        return output, output


class GRUCell(VectorsCell):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate applied before the product.

    ```
    r, u = sigmoid([x, h] @ gates.kernel + gates.bias)
    c = activation([x, r * h] @ candidate.kernel + candidate.bias)
    h' = u * h + (1 - u) * c
    ```

    `gates.kernel` is [I + H, 2H] in the order r, u; `gates.bias` starts at 1 (the unit starts by remembering).

    >>> import torch, throughtime as tt
    >>> outputs, state = tt.dynamic_rnn(tt.GRUCell(5), torch.randn(4, 2, 3), dtype=torch.float32)
    >>> torch.equal(outputs[:, -1], state)
    True
    """

    input_kernel = "gates.kernel"
    gates: ParameterScope
    candidate: ParameterScope

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
        self.recurrent_rows = self.num_units
        self.activation = resolve_activation(activation)
        self.declare("gates.kernel", chosen("kernel_initializer", kernel_initializer, glorot_uniform))
        self.declare("gates.bias", chosen("bias_initializer", bias_initializer, ones))
        self.declare("candidate.kernel", chosen("kernel_initializer", kernel_initializer, glorot_uniform))
        self.declare("candidate.bias", chosen("bias_initializer", bias_initializer, zeros))
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        rows, units = input_size + self.num_units, self.num_units
        return {
            "gates.kernel": (rows, 2 * units),
            "gates.bias": (2 * units,),
            "candidate.kernel": (rows, units),
            "candidate.bias": (units,),
        }

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        gates, candidate = self.gates, self.candidate
        both = torch.sigmoid(torch.addmm(gates.bias, torch.cat([inputs, state], 1), gates.kernel))
        r, u = both.chunk(2, 1)
        c = self.activation(torch.addmm(candidate.bias, torch.cat([inputs, r * state], 1), candidate.kernel))
        output = u * state + (1 - u) * c
        return output, output
