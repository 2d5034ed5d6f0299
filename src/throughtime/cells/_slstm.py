"""The LSTM with exponential gates."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from throughtime._errors import check_flag, check_floating_dtype, check_positive_int, problem
from throughtime._torch_internals import register_namedtuple
from throughtime.cells._base import RNNCell
from throughtime.cells._cell_types import Part
from throughtime.cells._parameters import glorot_uniform, zeros
from throughtime.cells._vector_cell import VectorsCell


class SLSTMStateTuple(NamedTuple, Generic[Part]):
    """The state of an sLSTM: memory `c`, its normaliser `n`, the stabiliser `m` and the output `h`, each [B, H]."""

    c: Part
    n: Part
    m: Part
    h: Part


# Programs that torch.export saves may return one.
register_namedtuple(SLSTMStateTuple, serialized_type_name="throughtime.SLSTMStateTuple")


class SLSTMCell(VectorsCell):
    """sLSTM (Beck et al. 2024): exponential gates, kept in range by a normaliser and a stabiliser.

    ```
    z, i, f, o = x @ kernel + h @ recurrent_kernel + bias
    m' = max(log f + m, i)                      log f = log sigmoid(f), or f with exponential_forget_gate
    i' = exp(i - m');  f' = exp(log f + m - m')
    c' = f' * c + i' * tanh(z);  n' = f' * n + i'
    h' = sigmoid(o) * c' / n'
    ```

    `recurrent_kernel` is [H, 4H / num_heads]: with several heads, units see only those of their own head, and the rows
    of a head are its matrix. `kernel` is [I, 4H], `bias` [4H]. Before the first step m is -inf: nothing has been seen.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.SLSTMCell(6, num_heads=2)
    >>> outputs, state = tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)
    >>> outputs.shape, torch.equal(outputs[:, -1], state.h)
    (torch.Size([2, 7, 6]), True)
    """

    kernel: Tensor
    recurrent_kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        num_units: int,
        num_heads: int = 1,
        exponential_forget_gate: bool = False,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, None)
        self.num_heads = check_positive_int("num_heads", num_heads)
        if self.num_units % self.num_heads:
            what, fix = "`num_units` is no multiple of `num_heads`", "Change one of the two."
            raise ValueError(problem(what, got=self.num_units, expected=f"a multiple of {self.num_heads}", fix=fix))
        self.exponential_forget_gate = check_flag("exponential_forget_gate", exponential_forget_gate)
        self.state_size = SLSTMStateTuple(*[self.num_units] * 4)
        self.declare("kernel", glorot_uniform)
        self.declare("recurrent_kernel", glorot_uniform)
        self.declare("bias", zeros)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        gates = 4 * self.num_units
        return {
            "kernel": (input_size, gates),
            "recurrent_kernel": (self.num_units, gates // self.num_heads),
            "bias": (gates,),
        }

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> SLSTMStateTuple:
        """Zeros, but for the stabiliser: the first step's input gate is the largest so far."""
        fix = "Ask for a floating point `dtype`: the stabiliser begins at -inf."
        dtype = check_floating_dtype("dtype", dtype, "states", fix)
        zero: SLSTMStateTuple = RNNCell.zero_state(self, batch_size, dtype, device)
        return zero._replace(m=torch.full_like(zero.m, -math.inf))

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, SLSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, H] and the next state."""
        self.check_step(inputs, state)
        c, n, m, h = state
        x = torch.addmm(self.bias, inputs, self.kernel).chunk(4, 1)
        z, i, f, o = (ours + theirs for ours, theirs in zip(x, self._recurrent(h), strict=True))
        forget = (f if self.exponential_forget_gate else functional.logsigmoid(f)) + m
        m = torch.maximum(forget, i)
        i, f = torch.exp(i - m), torch.exp(forget - m)
        c, n = f * c + i * torch.tanh(z), f * n + i
        h = torch.sigmoid(o) * c / n
        return h, SLSTMStateTuple(c, n, m, h)

    def _recurrent(self, h: Tensor) -> list[Tensor]:
        """The recurrent part of each gate: every head on its own."""
        heads = zip(h.chunk(self.num_heads, 1), self.recurrent_kernel.chunk(self.num_heads), strict=True)
        gates = [(part @ kernel).chunk(4, 1) for part, kernel in heads]
        return [torch.cat(gate, 1) for gate in zip(*gates, strict=True)]
