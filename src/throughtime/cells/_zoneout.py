"""Noise on what a cell remembers: zoneout, and dropout that loses no memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_number, problem
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._cell_types import Cell, State, Wrapped_co
from throughtime.cells._copies import call_on_copies
from throughtime.cells._lstm import GATE_ORDER, LSTMStateTuple
from throughtime.cells._parameters import glorot_uniform, ones, zeros
from throughtime.cells._seeded import SeededCell, check_keep_prob
from throughtime.cells._vector_cell import MemoryCell, VectorsCell
from throughtime.cells._wrappers import CellWrapper


class ZoneoutWrapper(CellWrapper[Wrapped_co], SeededCell):
    """Zoneout (Krueger et al. 2017): at random, a unit keeps its old state instead of taking the new one.

    `state' = mask * state + (1 - mask) * new state` in training mode, where a value of the mask is 1 with probability
    `rate`; in evaluation mode the mask is `rate` itself, what it is on average. An output that is part of the state,
    as that of an LSTM or a GRU, is the one that is kept. `rate` is one number, or a nest of them in the structure of
    the state: `LSTMStateTuple(c=0.5, h=0.05)` in the paper. `seed` makes the masks reproducible.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.ZoneoutWrapper(tt.LSTMCell(5), tt.LSTMStateTuple(c=0.5, h=0.05), seed=1)
    >>> outputs, state = tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)
    >>> torch.equal(outputs[:, -1], state.h)
    True
    """

    unwatched = CellWrapper.unwatched | SeededCell.unwatched

    def __init__(self, cell: Wrapped_co, rate: Any, seed: int | None = None) -> None:
        super().__init__(cell)
        self.rates = _check_rates(rate, self.cell.state_size)
        self.seed_with(seed)

    def extra_repr(self) -> str:
        """The rate of each part of the state."""
        return f"rates={self.rates}"

    def forward(self: ZoneoutWrapper[Cell[State]], inputs: Any, state: Any) -> tuple[Any, State]:
        """One step of the cell inside, parts of which do not happen."""
        output, new = call_on_copies(self.cell, inputs, state)
        before, after = _pytree.flatten(state), _pytree.flatten(new)
        kept = [self._blend(*parts) for parts in zip(before, after, self.rates, strict=True)]
        same = next((leaf for leaf, value in zip(kept, after, strict=True) if value is output), output)
        return same, _pytree.pack_as(new, kept)

    def _blend(self, old: Any, new: Any, rate: float) -> Any:
        if rate == 0 or not isinstance(new, Tensor) or not new.is_floating_point():
            return new
        if not self.training:
            return rate * old + (1 - rate) * new
        taken = self.draw_kept(new, 1 - rate)
        return taken * new + (1 - taken) * old


def _check_rates(rate: Any, sizes: Any) -> list[float]:
    count = len(_pytree.flatten(sizes))
    if _pytree.is_nest(rate):
        _pytree.check_nested(sizes, rate, "`rate`")
        rate = _pytree.conform(sizes, rate, "`rate`")
    rates = [
        float(check_number("rate", each))
        for each in (_pytree.flatten(rate) if _pytree.is_nest(rate) else [rate] * count)
    ]
    if not all(0 <= one < 1 for one in rates):
        fix = "It is the probability that a value stays as it was."
        raise ValueError(problem("`rate` is no probability", got=rate, expected="0 <= rate < 1", fix=fix))
    return rates


class RecurrentDropoutLSTMCell(MemoryCell, SeededCell):
    """LSTM with dropout on what is written, never on what is remembered (Semeniuta et al. 2016).

    ```
    i, j, f, o = [x, h] @ kernel + bias
    c' = c * sigmoid(f + forget_bias) + sigmoid(i) * dropout(activation(j))
    h' = sigmoid(o) * activation(c')
    ```

    Every step and row draws a mask in training mode. For masks that stay the same through a sequence (Gal and
    Ghahramani 2016), see `DropoutWrapper(..., variational_recurrent=True)`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.RecurrentDropoutLSTMCell(5, keep_prob=0.8, seed=1)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 5])
    """

    unwatched = MemoryCell.unwatched | SeededCell.unwatched
    kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        num_units: int,
        keep_prob: float,
        forget_bias: float = 1.0,
        activation: Activation | str | None = None,
        seed: int | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, None)
        self.recurrent_rows = self.num_units
        self.keep_prob = check_keep_prob("keep_prob", keep_prob)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.activation = resolve_activation(activation)
        self.seed_with(seed)
        self.declare("kernel", glorot_uniform)
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        gates = len(GATE_ORDER) * self.num_units
        return {"kernel": (input_size + self.num_units, gates), "bias": (gates,)}

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, H] and the next state."""
        self.check_step(inputs, state)
        c, h = state
        i, j, f, o = torch.addmm(self.bias, torch.cat([inputs, h], 1), self.kernel).chunk(len(GATE_ORDER), 1)
        j = self.activation(j)
        if self.training and self.keep_prob < 1:
            j = j * (self.draw_kept(j, self.keep_prob) / self.keep_prob)
        c = c * torch.sigmoid(f + self.forget_bias) + torch.sigmoid(i) * j
        h = torch.sigmoid(o) * self.activation(c)
        return h, LSTMStateTuple(c, h)


class RecurrentDropoutGRUCell(VectorsCell, SeededCell):
    """GRU with dropout on what is written, never on what is remembered (Semeniuta et al. 2016).

    `GRUCell` with `h' = u * h + (1 - u) * dropout(c)`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.RecurrentDropoutGRUCell(5, keep_prob=0.8, seed=1)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 5])
    """

    unwatched = VectorsCell.unwatched | SeededCell.unwatched
    input_kernel = "gates.kernel"
    gates: Any
    candidate: Any

    def __init__(
        self,
        num_units: int,
        keep_prob: float,
        activation: Activation | str | None = None,
        seed: int | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, None)
        self.recurrent_rows = self.num_units
        self.keep_prob = check_keep_prob("keep_prob", keep_prob)
        self.activation = resolve_activation(activation)
        self.seed_with(seed)
        for scope, bias in (("gates", ones), ("candidate", zeros)):
            self.declare(f"{scope}.kernel", glorot_uniform)
            self.declare(f"{scope}.bias", bias)
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
        joined = torch.cat([inputs, state], 1)
        r, u = torch.sigmoid(torch.addmm(self.gates.bias, joined, self.gates.kernel)).chunk(2, 1)
        joined = torch.cat([inputs, r * state], 1)
        c = self.activation(torch.addmm(self.candidate.bias, joined, self.candidate.kernel))
        if self.training and self.keep_prob < 1:
            c = c * (self.draw_kept(c, self.keep_prob) / self.keep_prob)
        h = u * state + (1 - u) * c
        return h, h
