"""The gradient by the state after each step, in full: against autograd over steps that are taken apart by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime import _pytree

pytestmark = pytest.mark.covers("report")


class Kind(NamedTuple):
    """A cell, and what it makes its output of: `read(cell, inputs, old, new)`."""

    make: Callable[[], Any]
    read: Callable[[Any, Any, Any, Any], Any]


class Own(tt.RNNCell):
    """A cell of a user, with two parts of which the second is made of the first; the output is made by `of`."""

    def __init__(self, of: Callable[..., Any], output_size: Any = 2) -> None:
        super().__init__()
        self.state_size, self.output_size, self.of = (3, 4), output_size, of
        self.inputs, self.inner = nn.Linear(3, 3), nn.Linear(3, 3)
        self.outer, self.answer = nn.Linear(3 + 4, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        first = torch.tanh(self.inputs(inputs) + self.inner(state[0]))
        new = first, torch.tanh(self.outer(torch.cat([first, state[1]], 1)))
        return self.of(self, inputs, state, new), new


def of_new(cell: Own, _: Any, __: Any, new: Any) -> Tensor:
    return cell.answer(new[1])


def of_old(cell: Own, _: Any, old: Any, __: Any) -> Tensor:
    return cell.answer(old[1])


def of_all(cell: Own, inputs: Any, old: Any, new: Any) -> Tensor:
    return cell.answer(new[1]) * new[0][:, :2] + old[0][:, :2] * inputs[:, :2]


def of_inputs(_: Own, inputs: Any, __: Any, ___: Any) -> Tensor:
    return inputs[:, :2]


def of_several(cell: Own, _: Any, old: Any, new: Any) -> dict[str, Tensor]:
    return {"same": new[1], "made": cell.answer(new[1]), "before": old[0]}


class Unchanged(tt.RNNCell):
    """A cell that looks at a part of its state and hands it on as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size, self.output_size, self.inner = (3, 3), 3, nn.Linear(3, 3)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        new = torch.tanh(self.inner(state[0]) + inputs)
        return new * (1 + state[1]), (new, state[1])


def attentive(layer: int | None) -> Any:
    memory = torch.randn(3, 4, 5, dtype=torch.float64)
    mechanism = tt.decode.LuongAttention(4, memory)
    return tt.decode.AttentionWrapper(tt.LSTMCell(4), mechanism, layer, output_attention=layer is not None)


def projected(cell: Any, output: Tensor) -> Tensor:
    return output @ cell.kernel + cell.bias


KINDS = {
    "BasicRNNCell": Kind(lambda: tt.BasicRNNCell(4), lambda _, __, ___, new: new),
    "GRUCell": Kind(lambda: tt.GRUCell(4), lambda _, __, ___, new: new),
    "LSTMCell": Kind(lambda: tt.LSTMCell(4), lambda _, __, ___, new: new.h),
    "LSTMCell with peepholes and a projection": Kind(
        lambda: tt.LSTMCell(4, use_peepholes=True, num_proj=3), lambda _, __, ___, new: new.h
    ),
    "LSTMCell of one tensor": Kind(lambda: tt.LSTMCell(4, state_is_tuple=False), lambda _, __, ___, new: new[:, 4:]),
    "MultiRNNCell": Kind(lambda: tt.MultiRNNCell([tt.LSTMCell(4), tt.GRUCell(3)]), lambda _, __, ___, new: new[1]),
    "MultiRNNCell of one tensor": Kind(
        lambda: tt.MultiRNNCell([tt.GRUCell(4), tt.GRUCell(3)], state_is_tuple=False),
        lambda _, __, ___, new: new[:, 4:],
    ),
    "OutputProjectionWrapper": Kind(
        lambda: tt.OutputProjectionWrapper(tt.LSTMCell(4), 2), lambda cell, _, __, new: projected(cell, new.h)
    ),
    "OutputProjectionWrapper of one tensor": Kind(
        lambda: tt.OutputProjectionWrapper(tt.LSTMCell(4, state_is_tuple=False), 2),
        lambda cell, _, __, new: projected(cell, new[:, 4:]),
    ),
    "ResidualWrapper": Kind(lambda: tt.ResidualWrapper(tt.GRUCell(3)), lambda _, inputs, __, new: inputs + new),
    "AttentionWrapper": Kind(lambda: attentive(3), lambda _, __, ___, new: new.attention),
    "AttentionWrapper that gives the cell's": Kind(lambda: attentive(None), lambda _, __, ___, new: new.cell_state.h),
    "of the new state": Kind(lambda: Own(of_new), of_new),
    "of the old state": Kind(lambda: Own(of_old), of_old),
    "of everything": Kind(lambda: Own(of_all), of_all),
    "of the inputs": Kind(lambda: Own(of_inputs), of_inputs),
    "several outputs": Kind(lambda: Own(of_several, {"same": 4, "made": 2, "before": 3}), of_several),
    "a state that stays": Kind(Unchanged, lambda _, __, ___, new: new[0] * (1 + new[1])),
}


def by_hand(kind: Kind, cell: Any, inputs: Tensor, lengths: list[int], state: Any, loss: Any) -> Tensor:
    """Norms [B, T]: outputs are made anew, of states that are moved by nothing. Rows that have ended keep theirs."""
    outputs, probes = [], []
    for place, step in enumerate(inputs.unbind(1)):
        real = torch.tensor(lengths) > place
        leaves = _pytree.flatten(cell(step, state)[1])
        moves = [torch.zeros_like(leaf).requires_grad_() for leaf in leaves if is_looked_at(leaf)]
        left = iter(moves)
        new = _pytree.pack_as(state, [leaf + next(left) if is_looked_at(leaf) else leaf for leaf in leaves])
        output = kind.read(cell, step, state, new)
        outputs.append(_pytree.map_leaves(lambda leaf, real=real: where(real, leaf, torch.zeros_like(leaf)), output))
        state = _pytree.map_leaves(lambda leaf, old, real=real: where(real, leaf, old), new, state)
        probes.append(moves)
    loss(_pytree.map_leaves(lambda *steps: torch.stack(steps, 1), *outputs), state).backward()
    norms = torch.zeros(inputs.shape[:2], dtype=inputs.dtype)
    for place, moves in enumerate(probes):
        found = [move.grad.flatten(1) for move in moves if move.grad is not None]
        norms[:, place] = torch.cat(found, 1).norm(dim=1) if found else 0
    return norms


def where(real: Tensor, leaf: Any, other: Any) -> Any:
    return torch.where(real.view(-1, *[1] * (leaf.ndim - 1)), leaf, other) if is_looked_at(leaf) else leaf


def is_looked_at(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.ndim > 0


def at_every_step(outputs: Any, _: Any) -> Tensor:
    return sum((leaf.sin() * torch.linspace(1, 2, leaf.shape[-1])).sum() for leaf in _pytree.flatten(outputs))


def at_the_end(_: Any, state: Any) -> Tensor:
    return sum(leaf.sin().sum() for leaf in _pytree.flatten(state) if is_looked_at(leaf))


def at_both(outputs: Any, state: Any) -> Tensor:
    return at_every_step(outputs, state) + at_the_end(outputs, state).square()


LOSSES = [at_every_step, at_the_end, at_both]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_by_a_state_is_whole(kind: str, loss: Any) -> None:
    cell, inputs, lengths = KINDS[kind].make(), torch.randn(3, 5, 3, dtype=torch.float64), [4, 5, 2]
    cell.double()
    state = tt._pytree.map_leaves(
        lambda leaf: leaf + torch.rand_like(leaf) if is_looked_at(leaf) else leaf, cell.zero_state(3, torch.float64)
    )
    if loss is at_every_step and kind == "of the inputs":
        with pytest.raises(ValueError, match="`loss` has no gradient"):
            tt.train.through_time(cell, inputs, lengths, loss, initial_state=state)
        return
    inside = tt.train.through_time(cell, inputs, lengths, loss, initial_state=state)
    torch.testing.assert_close(inside.gradients, by_hand(KINDS[kind], cell, inputs, lengths, state, loss))


class Remembering:
    """A cell that keeps the tensors of its states, for autograd to be asked about."""

    def __init__(self, cell: Any) -> None:
        self.cell, self.states = cell, []

    def loss(self, inputs: Tensor) -> Tensor:
        state, outputs = self.cell.zero_state(len(inputs), inputs.dtype), []
        for step in inputs.unbind(1):
            output, state = self.cell(step, state)
            self.states.append(state)
            outputs.append(output)
        return torch.stack(outputs, 1).square().sum()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tt.BasicRNNCell(4, input_size=3),
        lambda: tt.GRUCell(4, input_size=3),
        lambda: tt.OutputProjectionWrapper(tt.GRUCell(4, input_size=3), 2, input_size=3),
        # What is dropped is drawn once.
        lambda: tt.DropoutWrapper(tt.GRUCell(4, input_size=3), output_keep_prob=0.5),
    ],
    ids=["rnn", "gru", "projection", "dropout"],
)
def test_of_a_state_of_one_part_it_is_what_autograd_says(make: Callable[[], Any]) -> None:
    remembering, inputs = Remembering(make()), torch.randn(2, 5, 3)
    torch.manual_seed(7)
    loss = remembering.loss(inputs)
    wanted = torch.stack([gradient.norm(dim=1) for gradient in torch.autograd.grad(loss, remembering.states)], 1)
    torch.manual_seed(7)
    inside = tt.train.through_time(remembering.cell, inputs, None, lambda outputs, _: outputs.square().sum())
    torch.testing.assert_close(inside.gradients, wanted)


def test_a_loss_may_run_on_any_backend() -> None:
    """The reference is for the cell that is looked at, not for what the loss is made of."""
    cell, inputs, seen = tt.OutputProjectionWrapper(tt.GRUCell(4), 2), torch.randn(1, 5, 3), []

    def loss(outputs: Tensor, _: Any) -> Tensor:
        seen.append(tt.explain(tt.GRUCell(4, input_size=2), outputs).backend)
        return outputs.sum()

    tt.train.through_time(cell, inputs, None, loss)
    assert seen == ["cpu"]
