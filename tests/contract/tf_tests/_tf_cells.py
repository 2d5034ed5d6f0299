"""Small cells that TensorFlow's own tests need, and the few things those tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import throughtime as tt

CORE_CELLS = (tt.BasicRNNCell, tt.GRUCell, tt.BasicLSTMCell, tt.LSTMCell)

LITERALS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("literals.json").read_text())
"""What TensorFlow computes, by the kind of kernel; `record_literals.py` says how it was asked."""


class PlusOneCell:
    """Counts: the output is the input plus one, the state the number of steps. A plain object, not an `RNNCell`."""

    output_size = 5
    state_size = 5

    def zero_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(batch_size, self.state_size, dtype=dtype)

    def __call__(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return inputs + 1, state + 1


class ScalarStateCell(tt.RNNCell):
    """Its state is a rank-0 integer that counts calls; its output is its input."""

    output_size: Any = 1
    state_size: Any = torch.Size([])

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        return torch.zeros([], dtype=torch.int32, device=device)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        return inputs, state + 1


class UnbalancedOutputCell(ScalarStateCell):
    """Two outputs of different width beside a single scalar state."""

    output_size: Any = (1, 2)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        return (inputs, torch.cat([inputs, -inputs], dim=-1)), state + 1


class TensorArrayStateCell(ScalarStateCell):
    """Keeps every input it sees: the state is (scalar time, TensorArray)."""

    state_size: Any = (torch.Size([]), ())

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        return super().zero_state(batch_size, dtype, device), tt.TensorArray(dtype, size=self.steps)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        time, seen = state
        return inputs, (time + 1, seen.write(time, inputs))


class EchoCell(tt.RNNCell):
    """Shows what reaches it: the output is the input, and the next state is ones."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = self.state_size = size

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, torch.ones_like(state)


class VolumeLSTMCell(tt.RNNCell):
    """An LSTM without weights on blocks of any rank: sizes are `torch.Size`s where TensorFlow has TensorShapes."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.output_size = torch.Size(shape)
        self.state_size = tt.LSTMStateTuple(self.output_size, self.output_size)

    def forward(self, inputs: Tensor, state: tt.LSTMStateTuple) -> tuple[Tensor, tt.LSTMStateTuple]:
        gate = torch.sigmoid(inputs + state.h)
        c = gate * state.c + (1 - gate) * torch.tanh(inputs)
        h = gate * torch.tanh(c)
        return h, tt.LSTMStateTuple(c, h)


class PairCell(tt.RNNCell):
    """Two inputs, two outputs and two states that cross: a vector and a matrix, packed by `nest(left, right)`."""

    def __init__(self, nest: Any) -> None:
        super().__init__()
        self.nest = nest
        self.output_size = self.state_size = nest(3, torch.Size([2, 3]))

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        (left, right), (vector, matrix) = unpack(inputs), unpack(state)
        vector = torch.tanh(left + vector + right.sum(1))
        matrix = torch.tanh(right * matrix + left.unsqueeze(1))
        return self.nest(vector + 1, matrix - 1), self.nest(vector, matrix)


class NamedPair(NamedTuple):
    left: Any
    right: Any


def tuple_pair(left: Any, right: Any) -> Any:
    return (left, right)


def dict_pair(left: Any, right: Any) -> Any:
    return {"left": left, "right": right}


def unpack(pair: Any) -> tuple[Any, Any]:
    """The two sides of any kind of pair."""
    return tuple(pair.values()) if isinstance(pair, dict) else tuple(pair)


class TorchCell(tt.RNNCell):
    """One of torch's own cells, with torch's own weights, behind the cell protocol."""

    def __init__(self, cell: nn.RNNCell | nn.GRUCell | nn.LSTMCell) -> None:
        super().__init__()
        self.cell = cell
        self.output_size = cell.hidden_size
        self.state_size = [cell.hidden_size] * 2 if isinstance(cell, nn.LSTMCell) else cell.hidden_size

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        if isinstance(self.cell, nn.LSTMCell):
            h, c = self.cell(inputs, tuple(state))
            return h, [h, c]
        h = self.cell(inputs, state)
        return h, h


class StateSaver:
    """Hands out states by name, and remembers what was read and what was saved."""

    def __init__(self, states: dict[str, Tensor]) -> None:
        self.states = states
        self.read: list[str] = []
        self.saved: dict[str, Tensor] = {}

    def state(self, name: str) -> Tensor:
        self.read.append(name)
        return self.states[name]

    def save_state(self, name: str, value: Tensor) -> None:
        assert name not in self.saved, f"{name} was saved twice"
        self.saved[name] = value


def reverse_rows(inputs: Tensor, lengths: list[int]) -> Tensor:
    """Each row of a time-major tensor reversed within its length; padding stays where it is."""
    rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(inputs.unbind(1), lengths, strict=True)]
    return torch.stack(rows, dim=1)


def fill_kernels(cell: nn.Module, value: float | str = 0.5) -> Any:
    """Fill all weights of a built cell with a value or, as the recorder does, by the name of a kind of kernel.

    Biases keep what the cell gave them.
    """
    for name, parameter in cell.named_parameters():
        if not name.endswith("bias"):
            ramp = torch.linspace(-1, 1, parameter.numel(), dtype=parameter.dtype).view_as(parameter)
            constant = torch.full_like(parameter, 0.5 if isinstance(value, str) else value)
            parameter.data.copy_(ramp if value == "ramp" else constant)
    return cell


class Literal(NamedTuple):
    """A recorded case; states are flat."""

    inputs: Tensor
    state: list[Tensor]
    output: Tensor
    final_state: list[Tensor]


def literal(name: str, kernel: str = "constant", dtype: torch.dtype = torch.float32) -> Literal:
    """What was recorded for cells with a kind of kernel; integer inputs stay integers."""
    case = LITERALS[kernel][name]
    inputs = torch.tensor(case["inputs"])
    return Literal(
        inputs.to(dtype) if inputs.is_floating_point() else inputs,
        [torch.tensor(leaf, dtype=dtype) for leaf in case["state"]],
        torch.tensor(case["output"], dtype=dtype),
        [torch.tensor(leaf, dtype=dtype) for leaf in case["final_state"]],
    )
