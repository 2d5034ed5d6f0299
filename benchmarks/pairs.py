"""Our cells and torch's modules with the same weights, so that values and gradients can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import throughtime as tt
from runs import Trained
from shapes import Shape
from user_cells import TorchGRU


class Pair(NamedTuple):
    """`as_torch` turns our weights, or their gradients, into those of torch, in the order of its parameters."""

    cell: tt.RNNCell
    module: Any
    as_torch: Callable[[Sequence[Tensor]], list[Tensor]]

    @property
    def weights(self) -> list[Tensor]:
        return list(self.cell.parameters())

    def trained_as_torch(self, trained: Trained) -> Trained:
        """What our training step left, with its weights as torch has them."""
        return trained._replace(weights=tuple(self.as_torch(trained.weights)))


def lstm_pair(shape: Shape) -> Pair:
    """Ours orders the gates i j f o, torch i f j o."""
    module = nn.LSTM(shape.I, shape.H, batch_first=True)
    return _kernel_pair(tt.LSTMCell(shape.H, input_size=shape.I, forget_bias=0.0), module, shape, (0, 2, 1, 3))


def rnn_pair(shape: Shape) -> Pair:
    module = nn.RNN(shape.I, shape.H, batch_first=True)
    return _kernel_pair(tt.BasicRNNCell(shape.H, input_size=shape.I), module, shape, (0,))


def gru_pair(shape: Shape) -> Pair:
    """torch's GRU is a user's cell to us, with torch's own weights."""
    cell, module = TorchGRU(shape.I, shape.H), nn.GRU(shape.I, shape.H, batch_first=True)

    def as_torch(weights: Sequence[Tensor]) -> list[Tensor]:
        from_inputs, input_bias, from_state, state_bias = weights
        return [from_inputs, from_state, input_bias, state_bias]

    _copy(as_torch(list(cell.parameters())), module)
    return Pair(cell, module, as_torch)


PAIRS: dict[str, Callable[[Shape], Pair]] = {"LSTM": lstm_pair, "GRU": gru_pair, "RNN": rnn_pair}


def _kernel_pair(cell: Any, module: Any, shape: Shape, order: tuple[int, ...]) -> Pair:
    """For a cell of one `kernel` [I + H, gates] and one `bias`; `order` is that of our gates in torch's weights."""

    def as_torch(weights: Sequence[Tensor]) -> list[Tensor]:
        kernel, bias = (_reordered(weight, order) for weight in weights)
        from_inputs, from_state = kernel.split([shape.I, shape.H])
        return [from_inputs.T, from_state.T, bias, bias]

    _copy(as_torch([cell.kernel, cell.bias]), module)
    # Its second bias would be added to the first; both have the gradient of our only one.
    nn.init.zeros_(module.bias_hh_l0)
    return Pair(cell, module, as_torch)


def _reordered(weight: Tensor, order: tuple[int, ...]) -> Tensor:
    gates = weight.chunk(len(order), -1)
    return torch.cat([gates[gate] for gate in order], -1)


@torch.no_grad()
def _copy(weights: list[Tensor], module: nn.Module) -> None:
    for own, weight in zip(module.parameters(), weights, strict=True):
        own.copy_(weight)
