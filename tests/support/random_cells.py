"""Random cells: a short list of instructions drawn by hypothesis, and a cell that carries it out.

An instruction takes values that are there, each a row of features, and adds one. What couples the rows of a batch is
drawn only where a test asks for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from descriptors import Case, Descriptor, Pair


def grid(value: Tensor) -> Tensor:
    """A row as a matrix, of more than one row if possible."""
    high = next((size for size in (2, 3, 5) if value.shape[1] % size == 0), 1)
    return value.unflatten(1, (high, -1))


def written(value: Tensor) -> Tensor:
    """A copy of which some columns are changed in place, seen through another view of it."""
    copy = value * 1
    seen = copy[:, -2:]
    copy[:, :1] = torch.tanh(value[:, -1:])
    seen.mul_(0.5)
    return torch.cat([copy, seen], 1)[:, :6]


UNARY = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "relu": torch.relu,
    "abs": torch.abs,
    "square": lambda value: value.clamp(-2, 2).square(),
    "exp": lambda value: torch.exp(-value.abs()),
    "reciprocal": lambda value: 1 / (1 + value * value),
    "softmax": lambda value: torch.softmax(value, 1),
    "layer norm": lambda value: functional.layer_norm(value, value.shape[1:]),
    "centred": lambda value: value - value.mean(1, keepdim=True),
    "sum": lambda value: value.sum(1, keepdim=True),
    "largest": lambda value: value.amax(1, keepdim=True),
    "half": lambda value: value[:, : max(1, value.shape[1] // 2)],
    "last": lambda value: value[:, -1:],
    "turned": lambda value: torch.cat([value[:, 1:], value[:, :1]], 1) if value.shape[1] > 1 else value,
    "twice": lambda value: torch.cat([value, value], 1)[:, :6],
    "detached": lambda value: value.detach(),
    "in place": lambda value: (value * 2).sub_(1),
    "written": written,
    "spread": lambda value: value[:, :1].expand(-1, 3),
    "grid turned": lambda value: grid(value).transpose(1, 2).flatten(1),
    "softmax of groups": lambda value: torch.softmax(grid(value), 2).flatten(1),
    "shares of groups": lambda value: torch.softmax(grid(value), 1).flatten(1),
    "rows second": lambda value: torch.softmax(grid(value).transpose(0, 1), 2).transpose(0, 1).flatten(1),
    "rows last": lambda value: torch.tanh(grid(value).permute(1, 2, 0)).permute(2, 1, 0).flatten(1),
    "sums of groups": lambda value: grid(value).sum(2),
    "sums across": lambda value: grid(value).sum(1),
    "groups apart": lambda value: (grid(value) - grid(value).amax(2, keepdim=True)).flatten(1),
    "layer norm of groups": lambda value: functional.layer_norm(grid(value), grid(value).shape[2:]).flatten(1),
    "grid by itself": lambda value: torch.tanh(grid(value) @ grid(value).transpose(1, 2)).flatten(1),
    "columns of a grid": lambda value: grid(value)[:, :, :2].flatten(1),
    "joined grids": lambda value: torch.cat([grid(value)[:, :, -1:], grid(value)], 2).flatten(1)[:, :8],
    "every second": lambda value: value[:, ::2] if value.shape[1] > 1 else value,
    "backwards": lambda value: value.flip(1),
    "repeated": lambda value: value.repeat(1, 2)[:, :7],
    "column replaced": lambda value: grid(value).select_scatter(torch.tanh(grid(value)[:, :, -1]), 2, 0).flatten(1),
    "by itself": lambda value: value * value.unsqueeze(2).squeeze(2),
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda one, other: torch.tanh(one) * torch.sigmoid(other),
    "max": torch.maximum,
    "where": lambda one, other: torch.where(one > other, one, 0.5 * other),
    "outer": lambda one, other: torch.tanh(one[:, :3].unsqueeze(2) * other[:, :3].unsqueeze(1)).flatten(1),
    "stacked": lambda one, other: torch.stack([one, other.expand_as(one)], 2).flatten(1)[:, :7],
    "asked": lambda one, other: (
        torch.tanh(grid(one) @ other[:, : grid(one).shape[2]].unsqueeze(2)).squeeze(2) if other.shape[1] > 1 else one
    ),
    "div": lambda one, other: one / (2 + torch.cos(other)),
}
PRODUCTS = ("product", "linear", "scaled")
COUPLING = {
    "mean of rows": lambda value: value - value.mean(0, keepdim=True),
    "softmax of rows": lambda value: torch.softmax(value, 0),
    "sum so far": lambda value: value.cumsum(0),
    "rows reversed": lambda value: value.flip(0),
    "rows sorted": lambda value: value.sort(0).values,
    "rows times rows": lambda value: torch.tanh(value @ value.T) @ value,
    "largest row": lambda value: value - value.amax(0),
    "norm of all": lambda value: value / (1 + value.square().sum()),
    "one row for all": lambda value: value + value[:1],
    "rows in features": lambda value: torch.softmax(value.reshape(1, -1), 1).reshape(value.shape),
}


class Instruction(NamedTuple):
    """`kind` of the values at these places."""

    kind: str
    one: int
    other: int = 0


class Recipe(NamedTuple):
    """A whole cell: the widths of its states, what it computes, which values it gives out."""

    widths: tuple[int, ...]
    nested: bool
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    counts: bool = False

    def case(self, batch: int, time: int, *, layers: int = 1, seed: int = 0) -> Case:
        """The cell with random weights, and something to run it on."""
        torch.manual_seed(seed)
        cells = [RandomCell(self, 3)]
        for _ in range(1, layers):
            cells.append(RandomCell(self, cells[-1].output_size))
        return Descriptor("random", lambda _: cells[0] if layers == 1 else tt.MultiRNNCell(cells)).case(batch, time)


class RandomCell(tt.RNNCell):
    """Carries out a recipe; every new state is the tanh of a product, so that nothing grows without bound."""

    def __init__(self, recipe: Recipe, input_size: int) -> None:
        super().__init__()
        self.recipe = recipe
        self.weights = nn.ParameterList()
        # A dry run makes the weights, whose sizes depend on what comes before.
        self._making = True
        with torch.no_grad():
            output, _ = self._step(torch.zeros(1, input_size), [torch.zeros(1, width) for width in recipe.widths])
        self._making = False
        self.output_size = output.shape[1]
        self.state_size = self._nest([*recipe.widths], torch.Size([]))

    def _nest(self, leaves: list[Any], count: Any) -> Any:
        joined = Pair(leaves[0], leaves[1:]) if self.recipe.nested else tuple(leaves)
        return {"count": count, "rest": joined} if self.recipe.counts else joined

    def _leaves(self, state: Any) -> list[Tensor]:
        joined = state["rest"] if self.recipe.counts else state
        return [joined.left, *joined.right] if self.recipe.nested else list(joined)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        leaves = [torch.zeros(batch_size, width, dtype=dtype) for width in self.recipe.widths]
        return self._nest(leaves, torch.zeros(batch_size, dtype=torch.int64))

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        count = state["count"] + 1 if self.recipe.counts else 0
        scale = (1 / count.to(inputs.dtype)).unsqueeze(1) if self.recipe.counts else 1
        output, leaves = self._step(inputs * scale, self._leaves(state))
        return output, self._nest(leaves, count)

    def _step(self, inputs: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        values, weights = [inputs, *states], iter(list(self.weights))

        def weight(*shape: int) -> Tensor:
            if self._making:
                self.weights.append(nn.Parameter(torch.zeros(shape)))
                return self.weights[-1]
            return next(weights)

        for kind, one, other in self.recipe.instructions:
            value, second = values[one % len(values)], values[other % len(values)]
            values.append(self._value(kind, value, second, weight))
        chosen = [values[-1 - place % (len(values) - 1)] for place in self.recipe.outputs]
        last = values[-1]
        return torch.cat(chosen, 1), [torch.tanh(last @ weight(last.shape[1], width)) for width in self.recipe.widths]

    @staticmethod
    def _value(kind: str, value: Tensor, second: Tensor, weight: Any) -> Tensor:
        width = value.shape[1]
        if kind in UNARY or kind in COUPLING:
            return (UNARY.get(kind) or COUPLING[kind])(value)
        if kind in BINARY:
            same = second if second.shape[1] in (1, width) else second[:, :1]
            return BINARY[kind](value, same)
        if kind == "scaled":
            return value * weight(width)
        product = value @ weight(width, 1 + width % 5)
        return product if kind == "product" else product + weight(product.shape[1])


_places = st.integers(0, 9)


@st.composite
def recipes(draw: st.DrawFn, *, coupled: bool = False) -> Recipe:
    """Any cell; with `coupled`, one whose last value, which every state sees, couples the rows of a batch."""
    kinds = st.sampled_from([*UNARY, *BINARY, *PRODUCTS, *PRODUCTS])
    drawn = draw(st.lists(st.builds(Instruction, kinds, _places, _places), min_size=2, max_size=7))
    if coupled:
        # Of a product with the first state, so that rows differ; every state is made from the last value.
        drawn += [Instruction("linear", 1), Instruction(draw(st.sampled_from(sorted(COUPLING))), -1)]
    widths = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    outputs = tuple(draw(st.lists(_places, min_size=1, max_size=3)))
    return Recipe(widths, len(widths) > 1 and draw(st.booleans()), tuple(drawn), outputs, draw(st.booleans()))
