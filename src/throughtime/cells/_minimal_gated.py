"""Small gated cells: one or two gates, one vector of state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_number, check_positive_int, problem
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._lazy_build import repeatable
from throughtime.cells._parameters import Initializer, chosen, glorot_uniform, input_width, ones, zeros
from throughtime.cells._vector_cell import VectorsCell


class UGRNNCell(VectorsCell):
    """Update gate recurrent network (Collins et al. 2017): one gate between remembering and computing.

    ```
    g, c = [x, h] @ kernel + bias
    g = sigmoid(g + forget_bias)
    h' = g * h + (1 - g) * activation(c)
    ```

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.UGRNNCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        num_units: int,
        initializer: Initializer | None = None,
        forget_bias: float = 1.0,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.recurrent_rows = self.num_units
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        self.declare("kernel", chosen("initializer", initializer, glorot_uniform))
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        return {"kernel": (input_size + units, 2 * units), "bias": (2 * units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        g, c = torch.addmm(self.bias, torch.cat([inputs, state], 1), self.kernel).chunk(2, 1)
        g = torch.sigmoid(g + self.forget_bias)
        h = g * state + (1 - g) * self.activation(c)
        return h, h


class IntersectionRNNCell(VectorsCell):
    """Intersection network (Collins et al. 2017): one gate through time, one through depth.

    ```
    x = x @ in_projection.kernel + in_projection.bias
    g_h, h~, g_y, y = [x, h] @ kernel + bias
    h' = sigmoid(g_h + forget_bias) * h + (1 - sigmoid(g_h + forget_bias)) * tanh(h~)
    y' = sigmoid(g_y + forget_bias) * x + (1 - sigmoid(g_y + forget_bias)) * y_activation(y)
    ```

    The output is y', the state h'. Inputs are as wide as the output; the first line makes them so, and is there only
    if they are not and `num_in_proj=num_units` allows it. It is meant for many layers.

    >>> import torch, throughtime as tt
    >>> cell = tt.MultiRNNCell([tt.cells.IntersectionRNNCell(5, num_in_proj=5), tt.cells.IntersectionRNNCell(5)])
    >>> tt.dynamic_rnn(cell, torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    kernel: Tensor
    bias: Tensor
    in_projection: Any

    def __init__(
        self,
        num_units: int,
        num_in_proj: int | None = None,
        initializer: Initializer | None = None,
        forget_bias: float = 1.0,
        y_activation: Activation | str = "relu",
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.num_in_proj = None if num_in_proj is None else check_positive_int("num_in_proj", num_in_proj)
        if self.num_in_proj not in {None, self.num_units}:
            fix = "Inputs are projected to the width of the output."
            what = "`num_in_proj` of an IntersectionRNNCell is `num_units` or None"
            raise ValueError(problem(what, got=num_in_proj, expected=self.num_units, fix=fix))
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.y_activation = resolve_activation(y_activation)
        initial = chosen("initializer", initializer, glorot_uniform)
        if self.num_in_proj is not None:
            self.input_kernel = "in_projection.kernel"
            self.declare("in_projection.kernel", initial)
            self.declare("in_projection.bias", zeros)
        else:
            self.recurrent_rows = self.num_units
        self.declare("kernel", initial)
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        shapes: dict[str, tuple[int, ...]] = {"kernel": (2 * units, 4 * units), "bias": (4 * units,)}
        if self.num_in_proj is not None:
            shapes |= {"in_projection.kernel": (input_size, units), "in_projection.bias": (units,)}
        return shapes

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Make the parameters; the inputs must be as wide as the output, or be made so."""
        if self.num_in_proj is None and input_width(inputs_shape) != self.num_units:
            what = "Must have input size == output size for Intersection RNN"
            fix = "To fix, num_in_proj should be set to num_units at cell init."
            raise ValueError(problem(what, got=input_width(inputs_shape), expected=self.num_units, fix=fix))
        super().build(inputs_shape, dtype=dtype, device=device)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H] and the next state [B, H]."""
        self.check_step(inputs, state)
        if self.num_in_proj is not None:
            inputs = torch.addmm(self.in_projection.bias, inputs, self.in_projection.kernel)
        g_h, h, g_y, y = torch.addmm(self.bias, torch.cat([inputs, state], 1), self.kernel).chunk(4, 1)
        g_h, g_y = torch.sigmoid(g_h + self.forget_bias), torch.sigmoid(g_y + self.forget_bias)
        h = g_h * state + (1 - g_h) * torch.tanh(h)
        return g_y * inputs + (1 - g_y) * self.y_activation(y), h


class MinimalGatedUnitCell(VectorsCell):
    """Minimal gated unit (Zhou et al. 2016): a GRU whose two gates are one.

    ```
    f = sigmoid([x, h] @ gates.kernel + gates.bias)
    c = activation([x, f * h] @ candidate.kernel + candidate.bias)
    h' = (1 - f) * h + f * c
    ```

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.MinimalGatedUnitCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    input_kernel = "gates.kernel"
    gates: Any
    candidate: Any

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, None)
        self.recurrent_rows = self.num_units
        self.activation = resolve_activation(activation)
        for scope in ("gates", "candidate"):
            self.declare(f"{scope}.kernel", glorot_uniform)
            self.declare(f"{scope}.bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        kernel, bias = (input_size + self.num_units, self.num_units), (self.num_units,)
        return {"gates.kernel": kernel, "gates.bias": bias, "candidate.kernel": kernel, "candidate.bias": bias}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        f = torch.sigmoid(torch.addmm(self.gates.bias, torch.cat([inputs, state], 1), self.gates.kernel))
        joined = torch.cat([inputs, f * state], 1)
        c = self.activation(torch.addmm(self.candidate.bias, joined, self.candidate.kernel))
        h = (1 - f) * state + f * c
        return h, h


class MinimalRNNCell(VectorsCell):
    """MinimalRNN (Chen et al. 2018): the input is brought to the state's space, then one gate mixes the two.

    ```
    z = activation(x @ kernel[:I])
    u = sigmoid([z, h] @ kernel[I:] + bias)
    h' = u * h + (1 - u) * z
    ```

    `kernel` is [I + 2H, H]; `bias` [H] starts at 1.

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.MinimalRNNCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        units: int,
        activation: Activation | str = "tanh",
        kernel_initializer: Initializer | None = None,
        bias_initializer: Initializer | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(check_positive_int("units", units, minimum=0), name, dtype, None)
        self.recurrent_rows = 2 * self.num_units
        self.activation = resolve_activation(activation)
        self.declare("kernel", chosen("kernel_initializer", kernel_initializer, glorot_uniform))
        self.declare("bias", chosen("bias_initializer", bias_initializer, ones))
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (input_size + 2 * self.num_units, self.num_units), "bias": (self.num_units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        into, gate = self.kernel.split([inputs.shape[1], 2 * self.num_units])
        z = self.activation(inputs @ into)
        u = torch.sigmoid(torch.addmm(self.bias, torch.cat([z, state], 1), gate))
        h = u * state + (1 - u) * z
        return h, h


class CFNCell(VectorsCell):
    """Chaos free network (Laurent and von Brecht 2017): without input, the state shrinks to nothing.

    ```
    v_t, v_e, w = x @ kernel
    t, e = sigmoid(h @ recurrent_kernel + [v_t, v_e] + bias)
    h' = t * activation(h) + (1 - e) * activation(w)
    ```

    `kernel` is [I, 3H], `recurrent_kernel` [H, 2H]; `bias` [2H] starts at 1. As in TensorFlow, the input gate is
    1 - e where the paper has e.

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.CFNCell(5), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    kernel: Tensor
    recurrent_kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        units: int,
        activation: Activation | str = "tanh",
        kernel_initializer: Initializer | None = None,
        bias_initializer: Initializer | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(check_positive_int("units", units, minimum=0), name, dtype, None)
        self.activation = resolve_activation(activation)
        initial = chosen("kernel_initializer", kernel_initializer, glorot_uniform)
        self.declare("kernel", initial)
        self.declare("recurrent_kernel", initial)
        self.declare("bias", chosen("bias_initializer", bias_initializer, ones))
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        return {"kernel": (input_size, 3 * units), "recurrent_kernel": (units, 2 * units), "bias": (2 * units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        gates, w = (inputs @ self.kernel).split([2 * self.num_units, self.num_units], 1)
        t, e = torch.sigmoid(state @ self.recurrent_kernel + gates + self.bias).chunk(2, 1)
        h = t * self.activation(state) + (1 - e) * self.activation(w)
        return h, h
