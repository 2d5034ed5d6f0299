"""One step of torch's recurrent modules, as a cell that is nothing but the weights it is made with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from throughtime.cells._base import RNNCell

WITHOUT_PROJECTION = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
# By their number: with biases or without, with a projection or without.
_NAMES = {
    2: WITHOUT_PROJECTION[:2],
    3: (*WITHOUT_PROJECTION[:2], "weight_hr"),
    4: WITHOUT_PROJECTION,
    5: (*WITHOUT_PROJECTION, "weight_hr"),
}


class TorchCell(RNNCell):
    """A cell with the weights of one layer and direction, in torch's order: [gates * H, I], [gates * H, H], biases."""

    weight_ih: Tensor
    weight_hh: Tensor

    def __init__(self, *weights: Tensor) -> None:
        super().__init__()
        # Past the checks of torch: a weight that is computed, as by a parametrization, is no parameter.
        self._parameters.update(named_weights(weights))  # type: ignore[arg-type]
        self.state_size = self.output_size = self.weight_hh.shape[1]

    def _from_inputs(self, inputs: Tensor) -> Tensor:
        return linear(inputs, self.weight_ih, self._parameters.get("bias_ih"))

    def _from_state(self, h: Tensor) -> Tensor:
        return linear(h, self.weight_hh, self._parameters.get("bias_hh"))


class LSTMStep(TorchCell):
    """`torch.nn.LSTM`: the state is `(h, c)`, gates are ordered i f g o."""

    def __init__(self, *weights: Tensor) -> None:
        super().__init__(*weights)
        self.state_size = (self.output_size, self.weight_hh.shape[0] // 4)

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state
        i, f, g, o = (self._from_inputs(inputs) + self._from_state(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        projection = self._parameters.get("weight_hr")
        if projection is not None:
            h = linear(h, projection)
        return h, (h, c)


class GRUStep(TorchCell):
    """`torch.nn.GRU`: gates are ordered r z n, and the reset gate acts after the product."""

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        x_r, x_z, x_n = self._from_inputs(inputs).chunk(3, 1)
        h_r, h_z, h_n = self._from_state(h).chunk(3, 1)
        z = torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        h = (1 - z) * n + z * h
        return h, h


class TanhStep(TorchCell):
    """`torch.nn.RNN`, as it is by default."""

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self._from_inputs(inputs) + self._from_state(h))
        return h, h


class ReluStep(TorchCell):
    """`torch.nn.RNN(nonlinearity="relu")`."""

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self._from_inputs(inputs) + self._from_state(h))
        return h, h


STEPS: dict[str, type[TorchCell]] = {"LSTM": LSTMStep, "GRU": GRUStep, "RNN_TANH": TanhStep, "RNN_RELU": ReluStep}
"""By the `mode` of a torch module."""


def named_weights(weights: tuple[Tensor, ...] | list[Tensor]) -> dict[str, Tensor]:
    """The weights of one layer and direction by their names."""
    return dict(zip(_NAMES[len(weights)], weights, strict=True))
