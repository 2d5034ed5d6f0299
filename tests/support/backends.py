"""Backends by name: any unroll on any of them, and the one list of cells that a backend does not take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import throughtime as tt
from compare import compare
from descriptors import Case
from unrolls import COMPILED, EVERY_BACKEND, Lengths, Unrolling, dynamic, on

REFUSED = {
    ("aten", "scalar state"): "has no rows, but a gradient",
    ("cpu", "scalar state"): "has no rows, but a gradient",
    ("aten", "no state"): "it has no state",
    ("cpu", "no state"): "it has no state",
}
"""What a backend does not take, of the descriptors and of the cells of the goldens, and what it says: nothing else."""

every_backend = pytest.mark.parametrize("backend", EVERY_BACKEND)
compiled_backends = pytest.mark.parametrize("backend", COMPILED)


def check_on(backend: str, case: Case, lengths: Lengths, unroll: Unrolling = dynamic, **options: Any) -> None:
    """Compare a backend with the reference: values, final states, all gradients."""
    reference, candidate = (
        lambda cell, inputs, state, run=run: run(cell, inputs, lengths, state, case.dtype)
        for run in (on(name, unroll, **options) for name in ("reference", backend))
    )
    compare(reference, candidate, case.cell, case.inputs, case.state)


def plan_of(case: Case, lengths: Lengths = None, **options: Any) -> Any:
    """What the engine says it would do."""
    return tt.explain(case.cell, case.inputs, lengths, case.state, case.dtype, **options)


def check_fallback(case: Case, reason: str, lengths: Lengths = None) -> None:
    """No backend compiles it, each says why, and the result of `auto` is right."""
    plan = plan_of(case, lengths)
    assert plan.backend == "reference"
    assert set(plan.reasons) == set(COMPILED)
    assert all(reason in said for said in plan.reasons.values()), plan.reasons
    for backend in COMPILED:
        with raises_refusal(backend, reason), tt.backend(backend):
            tt.dynamic_rnn(case.cell, case.inputs, lengths, case.state, case.dtype)
    check_on("auto", case, lengths)


@contextmanager
def raises_refusal(backend: str, reason: str) -> Iterator[None]:
    """What a backend raises that was asked for by name and cannot."""
    with pytest.raises(ValueError, match=f'the backend "{backend}" cannot run this cell') as caught:
        yield
    assert reason in str(caught.value), caught.value


def lengths_for(batch: int, time: int, *, seed: int = 0) -> list[int]:
    """Lengths from 0 to T, both among them where there are rows enough."""
    random = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, time + 1, (batch,), generator=random).tolist()
    return [*([time, 0][: min(2, batch)]), *drawn[2:]] if batch else drawn


def same_bits(one: Any, other: Any) -> bool:
    """Whether two nests of tensors are equal to the last bit."""
    pairs: Sequence[Any] = list(zip(*map(torch.utils._pytree.tree_leaves, (one, other)), strict=True))
    return all(torch.equal(*pair) for pair in pairs)
