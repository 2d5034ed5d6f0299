"""`functional_unroll`: a cell made of tensors that are arguments, against `dynamic_rnn` of the cell itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import throughtime as tt
from compare import check_close
from throughtime.unroll._functional import functional_unroll
from throughtime.unroll._options import UnrollOptions

pytestmark = pytest.mark.covers("conformance")
tree_leaves = torch.utils._pytree.tree_leaves

BATCH, TIME, WIDTH, UNITS = 4, 6, 3, 5
LENGTHS = [6, 0, 2, 5]


class Tanh(tt.RNNCell):
    """`tanh(x @ w + h @ u)`."""

    def __init__(self, w: torch.Tensor, u: torch.Tensor) -> None:
        super().__init__()
        self.state_size = self.output_size = u.shape[0]
        self.w, self.u = w, u

    def forward(self, inputs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.tanh(inputs @ self.w + state @ self.u)
        return state, state


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((WIDTH, UNITS), (UNITS, UNITS))
    return [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


def results(run: Any, x: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = tree_leaves(run())
    return [*leaves, *torch.autograd.grad(sum(leaf.sin().sum() for leaf in leaves), [x, *weights])]


@pytest.mark.parametrize("lengths", [None, LENGTHS, torch.tensor(LENGTHS)], ids=["T", "list", "tensor"])
@pytest.mark.parametrize(
    "options",
    [
        UnrollOptions(torch.float64),
        UnrollOptions(torch.float64, time_major=True),
        UnrollOptions(torch.float64, all_states=True),
        UnrollOptions(torch.float64, parallel_iterations=2),
        UnrollOptions(torch.float64, checkpoint_every=4),
    ],
    ids=str,
)
def test_as_dynamic_rnn(options: UnrollOptions, lengths: Any) -> None:
    shape = (TIME, BATCH, WIDTH) if options.time_major else (BATCH, TIME, WIDTH)
    x, weights = torch.randn(shape, dtype=torch.float64).requires_grad_(), tensors()
    names = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    del names["reverse"]
    with tt.backend("reference"):
        want = results(lambda: tt.dynamic_rnn(Tanh(*weights), x, lengths, **names), x, weights)
    for _ in range(3):
        got = results(lambda: functional_unroll(Tanh, weights, x, lengths, options=options), x, weights)
        check_close(str(options), want, got)


def test_reverse_starts_at_the_last_step() -> None:
    x, weights = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64).requires_grad_(), tensors()
    options = UnrollOptions(torch.float64, reverse=True)
    cells = (Tanh(*weights), Tanh(*weights))
    (_, want), (_, state) = tt.bidirectional_dynamic_rnn(*cells, x, LENGTHS, dtype=torch.float64)
    check_close("reverse", [want, state], list(functional_unroll(Tanh, weights, x, LENGTHS, options=options)))


def test_equal_options_are_one_entry_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights, made = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64), tensors(), []

    class Counted(Tanh):
        def __init__(self, *weights: torch.Tensor) -> None:
            super().__init__(*weights)
            made.append(self)

    for _ in range(3):
        functional_unroll(Counted, weights, x, options=UnrollOptions(torch.float64))
    # The cell of the first call, and the one that stands for it in the cache.
    assert len(made) == 2
