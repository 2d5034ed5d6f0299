"""What every model begins with: the columns of a step as one vector, and a cell to read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime import _pytree
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables import Layout
from throughtime.cli.tables._schema import NUMBER

CELLS = {"lstm": "LSTMCell", "gru": "GRUCell", "rnn": "BasicRNNCell"}


class Inputs(nn.Module):
    """Numbers [.., F] with noise while training, and categories as learned vectors."""

    def __init__(self, numbers: int, categories: Sequence[int], noise: float) -> None:
        super().__init__()
        self.numbers, self.noise = numbers, noise
        widths = [min(64, 4 + 4 * math.ceil(math.sqrt(count))) for count in categories]
        # Place 0 is what was never seen: a vector of zeros that is never learned.
        self.categories = nn.ModuleList(
            nn.Embedding(count + 1, width, padding_idx=0) for count, width in zip(categories, widths, strict=True)
        )
        self.size = numbers + sum(widths)

    @staticmethod
    def of(layout: Layout, noise: float) -> Inputs:
        """For the input columns of a layout."""
        categories = [len(column.categories) for column in layout.inputs if column.kind != NUMBER]
        return Inputs(sum(column.kind == NUMBER for column in layout.inputs), categories, noise)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, T, F + C] to [B, T, size]."""
        numbers = inputs[..., : self.numbers]
        if self.training and self.noise and self.numbers:
            numbers = numbers + self.noise * torch.randn_like(numbers)
        places = inputs[..., self.numbers :].long()
        return torch.cat([numbers, *(table(places[..., c]) for c, table in enumerate(self.categories))], -1)


def make_cell(name: str, units: int, layers: int, input_size: int) -> Any:
    """A cell by its short name or by that of its class in `tt.cells`, stacked if there are layers."""
    cells = [_one_cell(name, units, units if layer else input_size) for layer in range(layers)]
    return cells[0] if layers == 1 else tt.MultiRNNCell(cells)


def check_cell(name: str | None) -> None:
    """Whether there is such a cell, before anything is read for it."""
    if name is not None:
        _one_cell(name, units=2, input_size=3)


def _one_cell(name: str, units: int, input_size: int) -> Any:
    kind = getattr(tt.cells, CELLS.get(name.lower(), name), None)
    if not isinstance(kind, type) or not issubclass(kind, tt.RNNCell):
        _refuse_cell(name, "no such cell")
    try:
        # Which arguments it takes is seen when it is made.
        make: Any = kind
        cell = make(units, input_size=input_size)
        output, state = cell(torch.zeros(1, input_size), cell.zero_state(1, torch.float32))
        fits = output.shape == hidden(state).shape == (1, units)
    except (TypeError, ValueError, AttributeError):
        _refuse_cell(name, "one that needs more than a number of units")
    if not fits:
        _refuse_cell(name, "outputs of another size")
    return cell


def _refuse_cell(name: str, why: str) -> NoReturn:
    expected = f"{', '.join(CELLS)}, or a cell of tt.cells that is made from a number of units, such as SRUCell"
    fix = "Leave it out for an LSTM."
    refuse(f"the cell {name!r} cannot be used", got=why, expected=expected, fix=fix)


def hidden(state: Any) -> Tensor:
    """What a state says to the outside: `h` where it has one, of the last layer where there are several."""
    while isinstance(state, tuple) and not hasattr(state, "_fields"):
        state = state[-1]
    last: Tensor = state.h if hasattr(state, "h") else _pytree.flatten(state)[-1]
    return last
