"""LSTMs with other weights or fewer gates: coupled gates, weight normalisation, groups."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_flag, check_number, check_positive_int, problem
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._base import check_rows
from throughtime.cells._layer_norm import declare_norms, norm_shapes, normalised
from throughtime.cells._lstm import GATE_ORDER, LSTMStateTuple
from throughtime.cells._parameters import Initializer, check_parameters_fit, chosen, glorot_uniform, zeros
from throughtime.cells._vector_cell import MemoryCell

_COUPLED_NORMS = ("transform", "forget", "output")


class CoupledInputForgetGateLSTMCell(MemoryCell):
    """LSTM whose input gate is what the forget gate leaves (Greff et al. 2015).

    ```
    j, f, o = [x, h] @ W_0 + B
    f = sigmoid(f + forget_bias + W_F_diag * c)
    c' = f * c + (1 - f) * activation(j)
    h' = clip((sigmoid(o + W_O_diag * c') * activation(c')) @ W_P_0, ±proj_clip)
    ```

    The diagonals are there with `use_peepholes`, `W_P_0` with `num_proj`. With `layer_norm`, the three gates and the
    memory are normalised (`transform`, `forget`, `output`, `state`) and there is no `B`. `initializer` fills the
    weights (TensorFlow stored it and never used it). The state is `LSTMStateTuple(c, h)`, or with
    `state_is_tuple=False` one tensor [B, H + P]. The shard counts change nothing.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.CoupledInputForgetGateLSTMCell(5)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 4, 3), dtype=torch.float32)[1].c.shape
    torch.Size([2, 5])
    """

    input_kernel = "W_0"
    W_0: Tensor
    B: Tensor
    W_F_diag: Tensor
    W_O_diag: Tensor
    W_P_0: Tensor
    transform: Any
    forget: Any
    output: Any
    state: Any

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        initializer: Initializer | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int = 1,
        num_proj_shards: int = 1,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse, num_proj)
        check_positive_int("num_unit_shards", num_unit_shards)
        check_positive_int("num_proj_shards", num_proj_shards)
        self.recurrent_rows = self.output_size
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.proj_clip = None if proj_clip is None else check_number("proj_clip", proj_clip, minimum=0)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.state_is_tuple = check_flag("state_is_tuple", state_is_tuple)
        self.activation = resolve_activation(activation)
        self.layer_norm = check_flag("layer_norm", layer_norm)
        if not self.state_is_tuple:
            self.state_size = sum(self.state_size)
        initial = chosen("initializer", initializer, glorot_uniform)
        self.declare("W_0", initial)
        if self.layer_norm:
            declare_norms(self, (*_COUPLED_NORMS, "state"), norm_gain, norm_shift)
        else:
            self.declare("B", zeros)
        names = ["W_F_diag", "W_O_diag"] if self.use_peepholes else []
        for weight in names + (["W_P_0"] if self.num_proj is not None else []):
            self.declare(weight, initial)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        shapes: dict[str, tuple[int, ...]] = {"W_0": (input_size + self.output_size, 3 * units)}
        shapes |= norm_shapes((*_COUPLED_NORMS, "state"), units) if self.layer_norm else {"B": (3 * units,)}
        if self.use_peepholes:
            shapes |= {"W_F_diag": (units,), "W_O_diag": (units,)}
        if self.num_proj is not None:
            shapes["W_P_0"] = (units, self.num_proj)
        return shapes

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, P] and the next state."""
        self.check_step(inputs, state)
        c, h = state if self.state_is_tuple else state.split([self.num_units, self.output_size], 1)
        gates = torch.cat([inputs, h], 1) @ self.W_0
        j, f, o = (gates if self.layer_norm else gates + self.B).chunk(3, 1)
        if self.layer_norm:
            j, f, o = normalised(j, self.transform), normalised(f, self.forget), normalised(o, self.output)
        f = torch.sigmoid(f + self.forget_bias + (self.W_F_diag * c if self.use_peepholes else 0))
        c = f * c + (1 - f) * self.activation(j)
        if self.layer_norm:
            c = normalised(c, self.state)
        h = torch.sigmoid(o + self.W_O_diag * c if self.use_peepholes else o) * self.activation(c)
        if self.num_proj is not None:
            h = h @ self.W_P_0
            if self.proj_clip is not None:
                h = h.clamp(-self.proj_clip, self.proj_clip)
        # Typed as by default: with `state_is_tuple=False` it is one tensor.
        new: Any = LSTMStateTuple(c, h) if self.state_is_tuple else torch.cat([c, h], 1)
        return h, new


class WeightNormLSTMCell(MemoryCell):
    """LSTM whose weights are directions times lengths (Salimans and Kingma 2016).

    `LSTMCell` with `kernel` replaced by `[v_x / |v_x| * norm_0, v_h / |v_h| * norm_1]`: the rows of the kernel that
    belong to x and those that belong to h are normalised column by column, and scaled by `norm_0` [4H] and `norm_1`
    [4H]; a projection likewise, by `projection.norm_0` [P]. `norm=False` leaves that out.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.WeightNormLSTMCell(5)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 4, 3), dtype=torch.float32)[1].c.shape
    torch.Size([2, 5])
    """

    kernel: Tensor
    bias: Tensor
    norm_0: Tensor
    norm_1: Tensor
    w_f_diag: Tensor
    w_i_diag: Tensor
    w_o_diag: Tensor
    projection: Any

    def __init__(
        self,
        num_units: int,
        norm: bool = True,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 1.0,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = "wn_lstm_cell",
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse, num_proj)
        self.recurrent_rows = self.output_size
        self.norm = check_flag("norm", norm)
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.cell_clip = None if cell_clip is None else check_number("cell_clip", cell_clip, minimum=0)
        self.proj_clip = None if proj_clip is None else check_number("proj_clip", proj_clip, minimum=0)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        initial = chosen("initializer", initializer, glorot_uniform)
        for path in self._shapes(0):
            self.declare(path, zeros if path == "bias" else initial)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return self._shapes(input_size)

    def _shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units, gates = self.num_units, len(GATE_ORDER) * self.num_units
        shapes: dict[str, tuple[int, ...]] = {"kernel": (input_size + self.output_size, gates)}
        if self.norm:
            shapes |= {"norm_0": (gates,), "norm_1": (gates,)}
        shapes["bias"] = (gates,)
        if self.use_peepholes:
            shapes |= {"w_f_diag": (units,), "w_i_diag": (units,), "w_o_diag": (units,)}
        if self.num_proj is not None:
            shapes["projection.kernel"] = (units, self.num_proj)
            if self.norm:
                shapes["projection.norm_0"] = (self.num_proj,)
        return shapes

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, P] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        kernel = self.kernel
        if self.norm:
            v_x, v_h = kernel.split([inputs.shape[1], self.output_size])
            kernel = torch.cat([_of_unit_length(v_x) * self.norm_0, _of_unit_length(v_h) * self.norm_1])
        i, j, f, o = torch.addmm(self.bias, torch.cat([inputs, h], 1), kernel).chunk(len(GATE_ORDER), 1)
        f = f + self.forget_bias
        if self.use_peepholes:
            f, i = f + self.w_f_diag * c, i + self.w_i_diag * c
        c = c * torch.sigmoid(f) + torch.sigmoid(i) * self.activation(j)
        if self.cell_clip is not None:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        h = torch.sigmoid(o + self.w_o_diag * c if self.use_peepholes else o) * self.activation(c)
        if self.num_proj is not None:
            out = self.projection.kernel
            h = h @ (_of_unit_length(out) * self.projection.norm_0 if self.norm else out)
            if self.proj_clip is not None:
                h = h.clamp(-self.proj_clip, self.proj_clip)
        return h, LSTMStateTuple(c, h)


def _of_unit_length(columns: Tensor) -> Tensor:
    return columns * (columns.square().sum(0) + 1e-12).rsqrt()


class GLSTMCell(MemoryCell):
    """Group LSTM (Kuchaiev and Ginsburg 2017): LSTMs side by side, each on its part of inputs and state.

    ```
    i_g, j_g, f_g, o_g = [x_g, h_g] @ group{g}.kernel
    c' = c * sigmoid(f + bias_f + forget_bias) + sigmoid(i + bias_i) * tanh(j + bias_j)
    h' = (sigmoid(o + bias_o) * activation(c')) @ projection.kernel
    ```

    With G groups, x_g is the g-th of G equal parts of x, and the gates of the groups are joined gate by gate. Sizes
    must be divisible by `number_of_groups`. As in TensorFlow, the candidate has tanh whatever `activation` says.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.GLSTMCell(6, number_of_groups=3)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 4, 3), dtype=torch.float32)[1].c.shape
    torch.Size([2, 6])
    """

    input_kernel = "group0.kernel"
    bias_i: Tensor
    bias_j: Tensor
    bias_f: Tensor
    bias_o: Tensor
    projection: Any

    def __init__(
        self,
        num_units: int,
        initializer: Initializer | None = None,
        num_proj: int | None = None,
        number_of_groups: int = 1,
        forget_bias: float = 1.0,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse, num_proj)
        self.number_of_groups = self.input_multiple = check_positive_int("number_of_groups", number_of_groups)
        self._part("num_units", self.num_units)
        self._part("num_proj", self.output_size)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        initial = chosen("initializer", initializer, glorot_uniform)
        for group in range(self.number_of_groups):
            self.declare(f"group{group}.kernel", initial)
        for gate in GATE_ORDER:
            self.declare(f"bias_{gate}", zeros)
        if self.num_proj is not None:
            self.declare("projection.kernel", initial)
        self.build_if_known(input_size)

    def _part(self, name: str, size: int) -> int:
        """The size of one group's part."""
        if size % self.number_of_groups:
            what = f"{name} ({size}) must be divisible by number_of_groups ({self.number_of_groups})"
            expected, fix = f"a multiple of {self.number_of_groups}", "Change one of the two."
            raise ValueError(problem(what, got=size, expected=expected, fix=fix))
        return size // self.number_of_groups

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        rows = self._part("input size", input_size) + self.output_size // self.number_of_groups
        columns = len(GATE_ORDER) * self.num_units // self.number_of_groups
        shapes: dict[str, tuple[int, ...]] = {
            **{f"group{group}.kernel": (rows, columns) for group in range(self.number_of_groups)},
            **{f"bias_{gate}": (self.num_units,) for gate in GATE_ORDER},
        }
        if self.num_proj is not None:
            shapes["projection.kernel"] = (self.num_units, self.num_proj)
        return shapes

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs are as wide as the groups together, and the state fits them."""
        if self.built:
            rows = self._kernels()[0].shape[0] - self.output_size // self.number_of_groups
            check_rows("inputs", inputs, rows * self.number_of_groups)
            check_parameters_fit(inputs, self._met_first())
        self._open_state(inputs, state)

    def _kernels(self) -> list[Tensor]:
        # By attribute: parametrised and functional modules hold plain tensors.
        return [attrgetter(f"group{group}.kernel")(self) for group in range(self.number_of_groups)]

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, P] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        parts = zip(inputs.chunk(self.number_of_groups, 1), h.chunk(self.number_of_groups, 1), strict=True)
        gates = [(torch.cat(part, 1) @ kernel).chunk(4, 1) for part, kernel in zip(parts, self._kernels(), strict=True)]
        i, j, f, o = (torch.cat(gate, 1) for gate in zip(*gates, strict=True))
        f, i = torch.sigmoid(f + self.bias_f + self.forget_bias), torch.sigmoid(i + self.bias_i)
        c = f * c + i * torch.tanh(j + self.bias_j)
        h = torch.sigmoid(o + self.bias_o) * self.activation(c)
        if self.num_proj is not None:
            h = h @ self.projection.kernel
        return h, LSTMStateTuple(c, h)
