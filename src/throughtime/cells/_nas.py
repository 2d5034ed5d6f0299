"""The cell that a neural architecture search came up with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_flag
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.cells._parameters import glorot_uniform, zeros
from throughtime.cells._vector_cell import MemoryCell

_BRANCHES = 8


class NASCell(MemoryCell):
    """The cell found by neural architecture search (Zoph and Le 2017): a tree with eight leaves.

    ```
    x_0 .. x_7 = x @ kernel;  h_0 .. h_7 = h @ recurrent_kernel + bias
    a = tanh(sigmoid(x_0 + h_0) * relu(x_1 + h_1))
    b = tanh(sigmoid(x_2 + h_2) + relu(x_3 * h_3))
    d = tanh(tanh(x_4 + h_4) * sigmoid(x_5 + h_5))
    e = sigmoid(tanh(x_6 + h_6) + sigmoid(x_7 + h_7))
    c' = tanh(a + c) * b
    h' = tanh(c' * tanh(d + e)) @ projection_weights
    ```

    `kernel` is [I, 8H] and `recurrent_kernel` [P, 8H]; `bias` [8H] is there with `use_bias`, the projection with
    `num_proj`.

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.NASCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    kernel: Tensor
    recurrent_kernel: Tensor
    bias: Tensor
    projection_weights: Tensor

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_bias: bool = False,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse, num_proj)
        self.use_bias = check_flag("use_bias", use_bias)
        self.declare("recurrent_kernel", glorot_uniform)
        self.declare("kernel", glorot_uniform)
        if self.use_bias:
            self.declare("bias", zeros)
        if self.num_proj is not None:
            self.declare("projection_weights", glorot_uniform)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        columns = _BRANCHES * self.num_units
        shapes: dict[str, tuple[int, ...]] = {
            "recurrent_kernel": (self.output_size, columns),
            "kernel": (input_size, columns),
        }
        if self.use_bias:
            shapes["bias"] = (columns,)
        if self.num_proj is not None:
            shapes["projection_weights"] = (self.num_units, self.num_proj)
        return shapes

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, P] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        recurrent = h @ self.recurrent_kernel
        x = (inputs @ self.kernel).chunk(_BRANCHES, 1)
        h = (recurrent + self.bias if self.use_bias else recurrent).chunk(_BRANCHES, 1)
        a = torch.tanh(torch.sigmoid(x[0] + h[0]) * torch.relu(x[1] + h[1]))
        b = torch.tanh(torch.sigmoid(x[2] + h[2]) + torch.relu(x[3] * h[3]))
        d = torch.tanh(torch.tanh(x[4] + h[4]) * torch.sigmoid(x[5] + h[5]))
        e = torch.sigmoid(torch.tanh(x[6] + h[6]) + torch.sigmoid(x[7] + h[7]))
        c = torch.tanh(a + c) * b
        output = torch.tanh(c * torch.tanh(d + e))
        if self.num_proj is not None:
            output = output @ self.projection_weights
        return output, LSTMStateTuple(c, output)
