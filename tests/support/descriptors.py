"""One list of descriptors, a line for each cell: every test that holds for all cells runs over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import weights

IDS = "ids"
"""The input size of cells that take integers, one to a row."""


class Case(NamedTuple):
    """A cell with random weights, random inputs [B, T, ...] and a random initial state."""

    cell: Any
    inputs: Any
    state: Any
    dtype: torch.dtype


class Descriptor(NamedTuple):
    """A cell as the tests want it: how to make one with a number of units, and the size of its inputs."""

    name: str
    make: Callable[[int], Any]
    input_size: Any = 3

    def case(
        self, batch: int, time: int, dtype: torch.dtype = torch.float64, *, units: int = 4, input_size: Any = None
    ) -> Case:
        """The cell built for `dtype`, and something to run it on."""
        size = self.input_size if input_size is None else input_size
        cell = settled(self.make(units), random_inputs(size, 1, 1, dtype), dtype)
        state = pytree.tree_map(_random_like, cell.zero_state(batch, dtype))
        return Case(cell, random_inputs(size, batch, time, dtype), state, dtype)


def settled(cell: Any, inputs: Any, dtype: torch.dtype) -> Any:
    """`cell`, built by one step of its own, every weight random and of size one over the square root of its fan-in."""
    for weight in weights(cell):
        if not is_lazy(weight):
            weight.data = weight.data.to(dtype)
    cell(pytree.tree_map(lambda leaf: leaf[:, 0], inputs), cell.zero_state(1, dtype))
    with torch.no_grad():
        for weight in weights(cell):
            weight.copy_(torch.randn(weight.shape) / max(1, weight.shape[0]) ** 0.5)
    return cell


def random_inputs(size: Any, batch: int, time: int, dtype: torch.dtype) -> Any:
    """A nest of inputs [B, T, ...] for a nest of sizes."""

    def leaf(one: Any) -> Tensor:
        if one == IDS:
            return torch.randint(5, (batch, time, 1))
        return torch.randn(batch, time, *dims(one), dtype=dtype)

    return pytree.tree_map(leaf, size, is_leaf=_is_size)


def poisoned(inputs: Any, lengths: Sequence[int], value: float = torch.nan) -> Any:
    """`inputs` with `value` in the padding; integers get an id that does not exist."""

    def leaf(one: Tensor) -> Tensor:
        past = torch.arange(one.shape[1]) >= torch.as_tensor(lengths)[:, None]
        return one.masked_fill(past.view(*past.shape, *[1] * (one.ndim - 2)), value if one.is_floating_point() else -1)

    return pytree.tree_map(leaf, inputs)


def dims(size: Any) -> tuple[int, ...]:
    """The dimensions of one row."""
    return tuple(size) if _is_size(size) else (size,)


def _is_size(node: object) -> bool:
    return isinstance(node, torch.Size)


def _random_like(leaf: Tensor) -> Tensor:
    if leaf.is_floating_point():
        return torch.randn_like(leaf)
    return torch.randint(2 if leaf.dtype == torch.bool else 4, leaf.shape).to(leaf.dtype)


class Pair(NamedTuple):
    """A named tuple that the library does not know."""

    left: Any
    right: Any


class NestCell(tt.RNNCell):
    """Any nest in, any nest out: the leaves of a row side by side, one product, one tanh, cut into leaves again."""

    def __init__(self, input_size: Any, state_size: Any, output_size: Any) -> None:
        super().__init__()
        self.state_size, self.output_size = state_size, output_size
        rows, columns = sum(self._widths((input_size, state_size))), sum(self._widths((output_size, state_size)))
        self.kernel = nn.Parameter(torch.empty(rows, columns))

    @staticmethod
    def _widths(sizes: Any) -> list[int]:
        return [torch.Size(dims(size)).numel() for size in pytree.tree_leaves(sizes, is_leaf=_is_size)]

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        joined = torch.cat([leaf.flatten(1) for leaf in pytree.tree_leaves((inputs, state))], 1)
        sizes = (self.output_size, self.state_size)
        pieces = iter(torch.tanh(joined @ self.kernel).split(self._widths(sizes), 1))
        return pytree.tree_map(lambda size: next(pieces).unflatten(1, dims(size)), sizes, is_leaf=_is_size)


class DuckCell:
    """No module, no base class: only what a cell must have. Its `zero_state` knows no device."""

    def __init__(self, units: int) -> None:
        self.state_size = self.output_size = units
        self.weights = [torch.empty(3, units, requires_grad=True), torch.empty(units, requires_grad=True)]

    def zero_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(batch_size, self.state_size, dtype=dtype)

    def __call__(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.sin(inputs @ self.weights[0] + state * self.weights[1])
        return state * state, state


class CountingCell(tt.RNNCell):
    """A GRU that also counts, in integers, the steps of each row [B] and of the whole loop []."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.gru = tt.GRUCell(units)
        self.output_size = units
        self.state_size = {"h": units, "steps": torch.Size([]), "calls": torch.Size([])}

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        steps = torch.zeros(batch_size, dtype=torch.int64, device=device)
        return {"h": self.gru.zero_state(batch_size, dtype, device), "steps": steps, "calls": torch.tensor(0)}

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        # The count changes what is computed, so that a wrong one is seen in the outputs too.
        scaled = inputs / (1 + state["steps"]).unsqueeze(1).to(inputs.dtype)
        output, h = self.gru(scaled, state["h"])
        return output, {"h": h, "steps": state["steps"] + 1, "calls": state["calls"] + 1}


class ScalarCell(tt.RNNCell):
    """Its whole state is one number that belongs to no row, and that gradients flow through."""

    state_size = torch.Size([])

    def __init__(self, units: int) -> None:
        super().__init__()
        self.output_size = units
        self.kernel = nn.Parameter(torch.empty(3, units))

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Tensor:
        return torch.ones([], dtype=dtype, device=device)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(state * inputs @ self.kernel), torch.cos(state)


class StatelessCell(tt.RNNCell):
    """No state at all: a layer that happens to be called step by step."""

    state_size = ()

    def __init__(self, units: int) -> None:
        super().__init__()
        self.output_size = units
        self.layer = nn.Linear(3, units)

    def forward(self, inputs: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        return self.layer(inputs), state


def variational(cell: Any) -> tt.DropoutWrapper:
    """`cell` with masks that stay the same through an unroll, so that a sequence alone sees the masks of its batch."""
    return tt.DropoutWrapper(cell, 0.7, 0.7, 0.7, variational_recurrent=True, input_size=3, dtype=torch.float64)


def nest(name: str, input_size: Any, state_size: Any, output_size: Any) -> Descriptor:
    """The line of a `NestCell`."""
    return Descriptor(name, lambda _: NestCell(input_size, state_size, output_size), input_size)


DESCRIPTORS = [
    Descriptor("BasicRNN", tt.BasicRNNCell),
    Descriptor("BasicRNN relu", lambda units: tt.BasicRNNCell(units, activation="relu")),
    Descriptor("GRU", tt.GRUCell),
    Descriptor("BasicLSTM", tt.BasicLSTMCell),
    Descriptor("BasicLSTM flat", lambda units: tt.BasicLSTMCell(units, forget_bias=0.5, state_is_tuple=False)),
    Descriptor("LSTM", tt.LSTMCell),
    Descriptor("LSTM peepholes", lambda units: tt.LSTMCell(units, use_peepholes=True, activation=torch.sin)),
    Descriptor("LSTM projection", lambda units: tt.LSTMCell(units, num_proj=2, state_is_tuple=False)),
    Descriptor("LSTM full", lambda units: tt.LSTMCell(units, True, 0.7, num_proj=3, proj_clip=0.4)),
    Descriptor("Multi", lambda units: tt.MultiRNNCell([tt.LSTMCell(units), tt.GRUCell(2)])),
    Descriptor("Multi flat", lambda units: tt.MultiRNNCell([tt.BasicRNNCell(2), tt.GRUCell(units)], False)),
    Descriptor("Multi of one cell", lambda _: tt.MultiRNNCell([tt.GRUCell(3)] * 2)),
    Descriptor("Dropout variational", lambda units: variational(tt.LSTMCell(units))),
    Descriptor("Dropout in Multi", lambda units: tt.MultiRNNCell([tt.GRUCell(3), variational(tt.GRUCell(units))])),
    Descriptor("Residual", lambda _: tt.ResidualWrapper(tt.LSTMCell(3))),
    Descriptor("Residual product", lambda _: tt.ResidualWrapper(tt.GRUCell(3), torch.mul)),
    Descriptor("Device", lambda units: tt.DeviceWrapper(tt.GRUCell(units), "cpu")),
    Descriptor("InputProjection", lambda units: tt.InputProjectionWrapper(tt.LSTMCell(units), 2, "tanh")),
    Descriptor("OutputProjection", lambda units: tt.OutputProjectionWrapper(tt.LSTMCell(units), 2)),
    Descriptor("Embedding", lambda units: tt.EmbeddingWrapper(tt.GRUCell(units), 5, 3), IDS),
    Descriptor("duck", DuckCell),
    Descriptor("integer counters", CountingCell),
    Descriptor("scalar state", ScalarCell),
    Descriptor("no state", StatelessCell),
    nest("nests", {"b": 2, "a": (3, [1])}, Pair(2, [2, 1]), (2, Pair(1, 3))),
    nest("dict state", 3, {"z": 2, "a": (3, 1)}, {"y": 2, "b": [1]}),
    nest("matrix rows", torch.Size([2, 2]), torch.Size([2, 3]), torch.Size([3, 2])),
]

more = tt.cells
GRID = {"feature_size": 2, "frequency_skip": 1}
MORE_DESCRIPTORS = [
    Descriptor("IndRNN", more.IndRNNCell),
    Descriptor("IndyGRU", more.IndyGRUCell),
    Descriptor("IndyLSTM", more.IndyLSTMCell),
    Descriptor("SRU", more.SRUCell),
    Descriptor("UGRNN", more.UGRNNCell),
    Descriptor("Intersection", lambda _: more.IntersectionRNNCell(3)),
    Descriptor("Intersection projected", lambda units: more.IntersectionRNNCell(units, num_in_proj=units)),
    Descriptor("MinimalGatedUnit", more.MinimalGatedUnitCell),
    Descriptor("MinimalRNN", more.MinimalRNNCell),
    Descriptor("CFN", more.CFNCell),
    Descriptor("LayerNormBasicLSTM", more.LayerNormBasicLSTMCell),
    Descriptor("LayerNormBasicLSTM off", lambda units: more.LayerNormBasicLSTMCell(units, layer_norm=False)),
    Descriptor("LayerNormLSTM", lambda units: more.LayerNormLSTMCell(units, True, 0.7, None, 3, 0.4, layer_norm=True)),
    Descriptor("LayerNormGRU", more.LayerNormGRUCell),
    Descriptor("Coupled", lambda units: more.CoupledInputForgetGateLSTMCell(units, True, num_proj=2, proj_clip=0.5)),
    Descriptor(
        "Coupled normalised", lambda u: more.CoupledInputForgetGateLSTMCell(u, state_is_tuple=False, layer_norm=True)
    ),
    Descriptor("WeightNormLSTM", lambda units: more.WeightNormLSTMCell(units, use_peepholes=True, num_proj=2)),
    Descriptor("GLSTM", lambda units: more.GLSTMCell(units, num_proj=2, number_of_groups=2), 4),
    Descriptor("NAS", lambda units: more.NASCell(units, num_proj=2, use_bias=True)),
    Descriptor("Phased", lambda units: more.PhasedLSTMCell(units, use_peepholes=True), (1, 3)),
    Descriptor("ConvLSTM", lambda _: more.ConvLSTMCell(2, (3, 2, 1), 2, (3, 2)), torch.Size([3, 2, 1])),
    Descriptor("Conv1DLSTM", lambda _: more.Conv1DLSTMCell((4, 2), 2, (3,), skip_connection=True), torch.Size([4, 2])),
    Descriptor("Conv2DLSTM", lambda _: more.Conv2DLSTMCell((3, 2, 1), 2, (3, 2)), torch.Size([3, 2, 1])),
    Descriptor("Conv3DLSTM", lambda _: more.Conv3DLSTMCell((2, 2, 2, 1), 1, (1, 3, 2)), torch.Size([2, 2, 2, 1])),
    Descriptor("TimeFreqLSTM", lambda units: more.TimeFreqLSTMCell(units, True, 0.7, **GRID, input_size=4), 4),
    Descriptor("GridLSTM", lambda units: more.GridLSTMCell(units, True, num_frequency_blocks=[3], **GRID), 4),
    Descriptor("BidirectionalGridLSTM", lambda u: more.BidirectionalGridLSTMCell(u, num_frequency_blocks=[2], **GRID)),
    Descriptor("Attention", lambda units: more.AttentionCellWrapper(tt.LSTMCell(units), 3)),
    Descriptor("Highway", lambda _: more.HighwayWrapper(tt.GRUCell(3), couple_carry_transform_gates=False)),
    Descriptor("Compiled", lambda units: more.CompiledWrapper(tt.GRUCell(units))),
    Descriptor("LSTMBlock", lambda units: more.LSTMBlockCell(units, cell_clip=0.0, use_peephole=True)),
    Descriptor("GRUBlock", more.GRUBlockCell),
    Descriptor("GRUBlockV2", more.GRUBlockCellV2),
    # Masks of a step cannot be those of the oracle, which sees one sequence at a time: without them.
    Descriptor("Zoneout", lambda units: more.ZoneoutWrapper(tt.LSTMCell(units), tt.LSTMStateTuple(0.5, 0.1)).eval()),
    Descriptor("RecurrentDropoutLSTM", lambda units: more.RecurrentDropoutLSTMCell(units, 0.7).eval()),
    Descriptor("RecurrentDropoutGRU", lambda units: more.RecurrentDropoutGRUCell(units, 0.7).eval()),
    Descriptor("SLSTM", lambda units: more.SLSTMCell(units, num_heads=2)),
    Descriptor("SLSTM exponential", lambda units: more.SLSTMCell(units, exponential_forget_gate=True)),
    Descriptor("NTM", lambda units: more.NTMCell(tt.LSTMCell(units), 5, 3, 1, 1, output_dim=2)),
]
"""Cells beyond the core: a line each, and a smaller matrix of tests."""

BY_NAME = {descriptor.name: descriptor for descriptor in [*DESCRIPTORS, *MORE_DESCRIPTORS]}
