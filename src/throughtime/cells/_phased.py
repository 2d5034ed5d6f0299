"""An LSTM whose units open and close with the time at which events happen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import check_flag, check_number, problem, type_name
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.cells._parameters import check_inputs, glorot_uniform, zeros
from throughtime.cells._vector_cell import MemoryCell


class PhasedLSTMCell(MemoryCell):
    """Phased LSTM (Neil et al. 2016): a unit is updated only in the part of its own period in which it is open.

    ```
    i, f = sigmoid([x, h, c] @ mask_gates.kernel + mask_gates.bias)
    c~ = f * c + i * tanh([x, h] @ new_input.kernel + new_input.bias)
    h~ = tanh(c~) * sigmoid([x, h, c~] @ output_gate.kernel + output_gate.bias)
    p = ((time - phase) mod period) / period
    k = 2 p / ratio_on          while the gate opens, p < ratio_on / 2
        2 - 2 p / ratio_on      while it closes,      p < ratio_on
        leak * p                while it is closed
    c' = k * c~ + (1 - k) * c;  h' = k * h~ + (1 - k) * h
    ```

    Inputs are a pair: the time of the event [B, 1], in any floating point dtype, and x [B, I]. The gates see c with
    `use_peepholes` only. `period`, drawn log-uniformly from `period_init_min` to `period_init_max`, `phase`, uniform
    from 0 to the period, and `ratio_on` are learnt (`ratio_on` unless `trainable_ratio_on=False`).

    >>> import torch, throughtime as tt
    >>> times, x = torch.rand(2, 4, 1).cumsum(1), torch.ones(2, 4, 3)
    >>> tt.dynamic_rnn(tt.cells.PhasedLSTMCell(5), (times, x), dtype=torch.float32)[0].shape
    torch.Size([2, 4, 5])
    """

    mask_gates: Any
    new_input: Any
    output_gate: Any
    period: Tensor
    phase: Tensor
    ratio_on: Tensor

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        leak: float = 0.001,
        ratio_on: float = 0.1,
        trainable_ratio_on: bool = True,
        period_init_min: float = 1.0,
        period_init_max: float = 1000.0,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.leak = check_number("leak", leak, minimum=0)
        shortest, longest = _check_periods(period_init_min, period_init_max)
        self.trainable_ratio_on = check_flag("trainable_ratio_on", trainable_ratio_on)
        ratio = float(check_number("ratio_on", ratio_on, minimum=0))
        for scope in ("mask_gates", "new_input", "output_gate"):
            self.declare(f"{scope}.kernel", glorot_uniform)
            self.declare(f"{scope}.bias", zeros)
        self.declare("period", partial(_log_uniform, shortest=shortest, longest=longest))
        self.declare("phase", nn.init.uniform_)
        self.declare("ratio_on", partial(nn.init.constant_, val=ratio), trainable=self.trainable_ratio_on)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units, rows = self.num_units, input_size + self.num_units
        seeing = rows + units if self.use_peepholes else rows
        return {
            "mask_gates.kernel": (seeing, 2 * units),
            "mask_gates.bias": (2 * units,),
            "new_input.kernel": (rows, units),
            "new_input.bias": (units,),
            "output_gate.kernel": (seeing, units),
            "output_gate.bias": (units,),
            "period": (units,),
            "phase": (units,),
            "ratio_on": (units,),
        }

    def _complete(self, made: Sequence[str]) -> None:
        """A phase is anywhere within its own period."""
        if "phase" in made:
            with torch.no_grad():
                self.phase.mul_(self.period)

    def _features_of(self, inputs: Any) -> Tensor | None:
        """The features of the pair: times are of width one."""
        features: Tensor = inputs[1]
        return features

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs are times [B, 1] and features [B, I] that fit the kernels, and the state fits them."""
        if not isinstance(inputs, tuple | list) or len(inputs) != 2 or not all(isinstance(x, Tensor) for x in inputs):
            fix = "Pass `(time, x)`, the time of each event and what happened."
            expected = "a pair of tensors [B, 1] and [B, I]"
            raise TypeError(
                problem("PhasedLSTMCell takes times and features", got=type_name(inputs), expected=expected, fix=fix)
            )
        times, features = inputs
        if times.ndim != 2 or times.shape[1] != 1 or not times.is_floating_point():
            fix = "Pass one floating point number for each row."
            raise ValueError(problem("a row has one time", got=type_name(times), expected="[B, 1]", fix=fix))
        check_inputs(features, self.new_input.kernel, self.num_units)
        self._open_state(features, state)

    def forward(self, inputs: tuple[Tensor, Tensor], state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """Times [B, 1] and features [B, I], and the state -> output [B, H] and the next state."""
        self.check_step(inputs, state)
        (times, x), (c, h) = inputs, state
        seen = [x, h, c] if self.use_peepholes else [x, h]
        i, f = torch.sigmoid(torch.addmm(self.mask_gates.bias, torch.cat(seen, 1), self.mask_gates.kernel)).chunk(2, 1)
        j = torch.tanh(torch.addmm(self.new_input.bias, torch.cat([x, h], 1), self.new_input.kernel))
        new_c = c * f + i * j
        seen = [x, h, new_c] if self.use_peepholes else [x, h]
        o = torch.sigmoid(torch.addmm(self.output_gate.bias, torch.cat(seen, 1), self.output_gate.kernel))
        new_h = torch.tanh(new_c) * o
        k = self._openness(times).to(x.dtype)
        c, h = k * new_c + (1 - k) * c, k * new_h + (1 - k) * h
        return h, LSTMStateTuple(c, h)

    def _openness(self, times: Tensor) -> Tensor:
        """How open each unit is [B, H]; the gradient takes the whole periods that have passed for a constant."""
        period, phase = self.period.to(times.dtype), self.phase.to(times.dtype)
        shifted = times - phase
        passed = (torch.remainder(shifted, period) - shifted).detach()
        cycle = ((passed + shifted) / period).to(self.ratio_on.dtype)
        opening = 2 * cycle / self.ratio_on
        closed = torch.where(cycle < self.ratio_on, 2 - opening, self.leak * cycle)
        return torch.where(cycle < 0.5 * self.ratio_on, opening, closed)


def _log_uniform(tensor: Tensor, shortest: float, longest: float) -> None:
    nn.init.uniform_(tensor, math.log(shortest), math.log(longest)).exp_()


def _check_periods(shortest: Any, longest: Any) -> tuple[float, float]:
    if not 0 < check_number("period_init_min", shortest) < check_number("period_init_max", longest) < math.inf:
        what, fix = "the first periods are no range", "Pass 0 < period_init_min < period_init_max < inf."
        raise ValueError(problem(what, got=f"{shortest} to {longest}", expected="0 < min < max < inf", fix=fix))
    return float(shortest), float(longest)
