"""Cells that normalise what goes into their gates (Ba et al. 2016)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime._errors import check_flag, check_number
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._lstm import GATE_ORDER, LSTMStateTuple
from throughtime.cells._parameters import Initializer, LazyCell, chosen, glorot_uniform, zeros
from throughtime.cells._seeded import SeededCell, check_keep_prob
from throughtime.cells._vector_cell import MemoryCell, VectorsCell

GATE_NORMS = ("input", "transform", "forget", "output")
"""TensorFlow's names for the norms of the gates, in the order of the gates."""


def declare_norms(cell: LazyCell, names: tuple[str, ...], gain: float, shift: float) -> None:
    """Announce `gamma` and `beta` of each norm, with their first values."""
    for name in names:
        cell.declare(f"{name}.gamma", partial(nn.init.constant_, val=check_number("norm_gain", gain)))
        cell.declare(f"{name}.beta", partial(nn.init.constant_, val=check_number("norm_shift", shift)))


def norm_shapes(names: tuple[str, ...], units: int) -> dict[str, tuple[int, ...]]:
    """The shapes of what `declare_norms` announced."""
    return {f"{name}.{part}": (units,) for name in names for part in ("gamma", "beta")}


def normalised(values: Tensor, norm: Any) -> Tensor:
    """`values` [B, H] with mean 0 and variance 1 in every row, scaled and shifted by a norm's `gamma` and `beta`."""
    # TensorFlow's epsilons: next to nothing, but something that float16 can hold.
    epsilon = 1e-3 if values.dtype == torch.float16 else 1e-12
    return functional.layer_norm(values, values.shape[1:], norm.gamma, norm.beta, epsilon)


class LayerNormBasicLSTMCell(MemoryCell, SeededCell):
    """LSTM with layer normalisation, and recurrent dropout that loses no memory (Semeniuta et al. 2016).

    ```
    i, j, f, o = norm([x, h] @ kernel)
    c' = norm(c * sigmoid(f + forget_bias) + sigmoid(i) * dropout(activation(j)))
    h' = sigmoid(o) * activation(c')
    ```

    Each gate and the memory have a norm of their own: `input`, `transform`, `forget`, `output` and `state`, each with
    `gamma` [H] and `beta` [H]. The normalised memory is what is kept. `layer_norm=False` leaves the norms out and
    adds a `bias`, which TensorFlow initialises like the kernel. `dropout_keep_prob` acts in training mode, on the
    candidate alone; `dropout_prob_seed` makes it reproducible.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.LayerNormBasicLSTMCell(5, dropout_keep_prob=0.9)
    >>> tt.dynamic_rnn(cell, torch.randn(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    unwatched = MemoryCell.unwatched | SeededCell.unwatched
    kernel: Tensor
    bias: Tensor
    input: Any
    transform: Any
    forget: Any
    output: Any
    state: Any

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: int | None = None,
        activation: Activation | str | None = None,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: float = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.recurrent_rows = self.num_units
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        self.layer_norm = check_flag("layer_norm", layer_norm)
        self.dropout_keep_prob = check_keep_prob("dropout_keep_prob", dropout_keep_prob)
        self.seed_with(dropout_prob_seed, "dropout_prob_seed")
        self.declare("kernel", glorot_uniform)
        if self.layer_norm:
            declare_norms(self, (*GATE_NORMS, "state"), norm_gain, norm_shift)
        else:
            self.declare("bias", glorot_uniform)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units, gates = self.num_units, len(GATE_ORDER) * self.num_units
        others = norm_shapes((*GATE_NORMS, "state"), units) if self.layer_norm else {"bias": (gates,)}
        return {"kernel": (input_size + units, gates), **others}

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, H] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        gates = torch.cat([inputs, h], 1) @ self.kernel
        i, j, f, o = (gates if self.layer_norm else gates + self.bias).chunk(len(GATE_ORDER), 1)
        if self.layer_norm:
            i, j = normalised(i, self.input), normalised(j, self.transform)
            f, o = normalised(f, self.forget), normalised(o, self.output)
        j = self.activation(j)
        if self.training and self.dropout_keep_prob < 1:
            j = j * (self.draw_kept(j, self.dropout_keep_prob) / self.dropout_keep_prob)
        c = c * torch.sigmoid(f + self.forget_bias) + torch.sigmoid(i) * j
        if self.layer_norm:
            c = normalised(c, self.state)
        h = self.activation(c) * torch.sigmoid(o)
        return h, LSTMStateTuple(c, h)


class LayerNormLSTMCell(MemoryCell):
    """The full LSTM with layer normalisation: peepholes, projection and clipping as in `LSTMCell`.

    ```
    i, j, f, o = norm([x, h] @ kernel)
    c' = norm(c * sigmoid(f + forget_bias + w_f_diag * c) + sigmoid(i + w_i_diag * c) * activation(j))
    c' = clip(c', ±cell_clip)
    h' = clip((sigmoid(o + w_o_diag * c') * activation(c')) @ projection.kernel, ±proj_clip)
    ```

    As in TensorFlow, `layer_norm` has to be asked for; without it, `bias` takes the place of the norms.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.LayerNormLSTMCell(5, use_peepholes=True, num_proj=2, layer_norm=True)
    >>> tt.dynamic_rnn(cell, torch.randn(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 2])
    """

    kernel: Tensor
    bias: Tensor
    input: Any
    transform: Any
    forget: Any
    output: Any
    state: Any
    projection: Any
    w_f_diag: Tensor
    w_i_diag: Tensor
    w_o_diag: Tensor

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 1.0,
        activation: Activation | str | None = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse, num_proj)
        self.recurrent_rows = self.output_size
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.cell_clip = None if cell_clip is None else check_number("cell_clip", cell_clip, minimum=0)
        self.proj_clip = None if proj_clip is None else check_number("proj_clip", proj_clip, minimum=0)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        self.layer_norm = check_flag("layer_norm", layer_norm)
        initial = chosen("initializer", initializer, glorot_uniform)
        self.declare("kernel", initial)
        if self.layer_norm:
            declare_norms(self, (*GATE_NORMS, "state"), norm_gain, norm_shift)
        else:
            self.declare("bias", zeros)
        for diagonal in ("w_f_diag", "w_i_diag", "w_o_diag") if self.use_peepholes else ():
            self.declare(diagonal, initial)
        if self.num_proj is not None:
            self.declare("projection.kernel", initial)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units, gates = self.num_units, len(GATE_ORDER) * self.num_units
        shapes: dict[str, tuple[int, ...]] = {"kernel": (input_size + self.output_size, gates)}
        shapes |= norm_shapes((*GATE_NORMS, "state"), units) if self.layer_norm else {"bias": (gates,)}
        if self.use_peepholes:
            shapes |= {"w_f_diag": (units,), "w_i_diag": (units,), "w_o_diag": (units,)}
        if self.num_proj is not None:
            shapes["projection.kernel"] = (units, self.num_proj)
        return shapes

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, P] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        i, j, f, o = self._gates(inputs, h)
        f = f + self.forget_bias
        if self.use_peepholes:
            f, i = f + self.w_f_diag * c, i + self.w_i_diag * c
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * self.activation(j)
        if self.layer_norm:
            c = normalised(c, self.state)
        if self.cell_clip is not None:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        h = torch.sigmoid(o + self.w_o_diag * c if self.use_peepholes else o) * self.activation(c)
        if self.num_proj is not None:
            h = h @ self.projection.kernel
            if self.proj_clip is not None:
                h = h.clamp(-self.proj_clip, self.proj_clip)
        return h, LSTMStateTuple(c, h)

    def _gates(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        gates = torch.cat([inputs, h], 1) @ self.kernel
        if not self.layer_norm:
            return (gates + self.bias).chunk(len(GATE_ORDER), 1)
        norms = (self.input, self.transform, self.forget, self.output)
        return tuple(normalised(*pair) for pair in zip(gates.chunk(len(GATE_ORDER), 1), norms, strict=True))


class LayerNormGRUCell(VectorsCell):
    """GRU with layer normalisation.

    ```
    r, u = sigmoid(norm([x, h] @ gates.kernel))
    c = activation(norm([x, r * h] @ candidate.kernel))
    h' = u * h + (1 - u) * c
    ```

    The norms are `reset`, `update` and `transform`, each with `gamma` [H] and `beta` [H]; those of the gates start at
    a `beta` of `gate_shift`, so that the unit starts by remembering, as `GRUCell` does.

    >>> import torch, throughtime as tt
    >>> tt.dynamic_rnn(tt.cells.LayerNormGRUCell(5), torch.randn(2, 4, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    input_kernel = "gates.kernel"
    gates: Any
    candidate: Any
    reset: Any
    update: Any
    transform: Any

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        norm_gain: float = 1.0,
        gate_shift: float = 1.0,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, None)
        self.recurrent_rows = self.num_units
        self.activation = resolve_activation(activation)
        self.declare("gates.kernel", glorot_uniform)
        self.declare("candidate.kernel", glorot_uniform)
        declare_norms(self, ("reset", "update"), norm_gain, gate_shift)
        declare_norms(self, ("transform",), norm_gain, 0.0)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        rows, units = input_size + self.num_units, self.num_units
        kernels = {"gates.kernel": (rows, 2 * units), "candidate.kernel": (rows, units)}
        return {**kernels, **norm_shapes(("reset", "update", "transform"), units)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        r, u = (torch.cat([inputs, state], 1) @ self.gates.kernel).chunk(2, 1)
        r, u = torch.sigmoid(normalised(r, self.reset)), torch.sigmoid(normalised(u, self.update))
        c = torch.cat([inputs, r * state], 1) @ self.candidate.kernel
        h = u * state + (1 - u) * self.activation(normalised(c, self.transform))
        return h, h
