"""A thousand launches of random sizes: no hang, and the same bits twice. `make test-gpu`.

Blocks of threads exchange rows through memory that no tool watches. A block that is let through too early reads what
is not there yet, now and then; one that is never let through waits for ever. Both show here, if anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import throughtime as tt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TURNS = 120
"""For each of nine kinds. A turn is four launches: forward and backward, twice."""
LONGEST = 40
PATIENCE = 60.0
"""Seconds that a turn may take, of which it needs a thousandth once its kernels are compiled."""


class Kind(NamedTuple):
    """A cell, its dtype, how float32 is multiplied, and the largest batch: other sizes may be other kernels."""

    make: Callable[[], tt.RNNCell]
    dtype: torch.dtype = torch.float32
    precision: str = "highest"
    most: int = 64


KINDS = {
    "one block, exact": Kind(lambda: tt.LSTMCell(40, input_size=8), most=70),
    "LSTM, exact": Kind(lambda: tt.LSTMCell(256, input_size=8)),
    "LSTM, TF32": Kind(lambda: tt.LSTMCell(600, input_size=8), precision="high", most=24),
    "LSTM, bfloat16": Kind(lambda: tt.LSTMCell(256, input_size=8), torch.bfloat16),
    "GRU, exact": Kind(lambda: tt.GRUCell(150, input_size=8)),
    "GRU, float16": Kind(lambda: tt.GRUCell(256, input_size=8), torch.float16),
    "layer norm LSTM, exact": Kind(lambda: tt.cells.LayerNormBasicLSTMCell(150, input_size=8)),
    "layer norm LSTM, TF32": Kind(
        lambda: tt.cells.LayerNormBasicLSTMCell(256, input_size=8), precision="high", most=40
    ),
    "layer norm GRU, bfloat16": Kind(lambda: tt.cells.LayerNormGRUCell(256, input_size=8), torch.bfloat16, most=48),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    found, before = KINDS[request.param], torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(found.precision)
    yield found
    torch.set_float32_matmul_precision(before)


def trained(cell: Any, x: Tensor, lengths: list[int] | None) -> list[Tensor]:
    """Outputs, the final state, and the gradients of everything."""
    x = x.detach().requires_grad_()
    with tt.backend("triton"):
        found = tt.dynamic_rnn(cell, x, lengths, dtype=x.dtype)
    leaves = pytree.tree_leaves(found)
    gradients = torch.autograd.grad(leaves, [x, *cell.parameters()], leaves)
    return [leaf.detach() for leaf in (*leaves, *gradients)]


def wait() -> None:
    """Until the card is done, or for so long that it never will be."""
    end, done = time.monotonic() + PATIENCE, torch.cuda.Event()
    done.record()
    while not done.query():
        assert time.monotonic() < end, "a kernel hangs: its blocks of threads wait for each other"
        time.sleep(1e-4)


def test_random_launches_end_and_agree_with_themselves(kind: Kind) -> None:
    random = torch.Generator().manual_seed(0)
    cell = kind.make().to("cuda", kind.dtype)

    def drawn(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (), generator=random))

    for turn in range(TURNS):
        batch, longest = drawn(1, kind.most), drawn(1, LONGEST)
        x = torch.randn(batch, longest, 8, generator=random).to("cuda", kind.dtype)
        # At least one row takes a step, or there is nothing to launch.
        lengths = [drawn(1, longest), *(drawn(0, longest) for _ in range(batch - 1))] if turn % 2 else None
        once, again = trained(cell, x, lengths), trained(cell, x, lengths)
        wait()
        for place, pair in enumerate(zip(once, again, strict=True)):
            assert pair[0].isfinite().all()
            assert torch.equal(*pair), f"turn {turn}, B{batch} T{longest}, tensor {place}"
