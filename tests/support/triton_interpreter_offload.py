"""Swapped unrolls whose steps are computed again by kernels, inside Triton's interpreter; see `test_swapped.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch
from triton.language.extra import libdevice

import throughtime as tt
import triton_interpreter  # noqa: F401 (mends the interpreter)
from descriptors import BY_NAME
from late_bus import LENGTHS, LateBus, both, case_of, offloading, run_both
from throughtime.backends.triton.elementwise_scan import ahead_bytes
from throughtime.runtime.offload import plan
from throughtime.runtime.offload.policy import offload_policy
from triton_interpreter_fusing import elementwise
from unrolls import dynamic

FEW = ["GRU", "LSTM full", "Multi", "Dropout variational", "integer counters", "nests", "matrix rows", "IndRNN"]
FEW += ["IndyLSTM", "LayerNormLSTM", "LayerNormBasicLSTM", "Phased", "Conv2DLSTM", "GridLSTM", "SLSTM exponential"]
# The interpreter computes with numpy, which warns of infinities.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@pytest.fixture
def bus() -> Iterator[LateBus]:
    with offloading() as late:
        yield late


@pytest.fixture(autouse=True)
def _by_kernels(bus: LateBus, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loops run as operations of torch, which is faster here, and what is computed again does not."""
    begin = plan.OffloadPlanner.__init__

    def on_gpu(self: Any, program: Any, loops: Any, *arguments: Any, **options: Any) -> None:
        begin(self, program, [SimpleNamespace(on_gpu=True, held=nullcontext) for _ in loops], *arguments, **options)

    monkeypatch.setattr(plan.OffloadPlanner, "__init__", on_gpu)
    for name, function in {"pow": np.power, "log1p": np.log1p}.items():
        monkeypatch.setattr(libdevice, name, elementwise(function))
    with offload_policy.change(share_sent=0.5, block=1024, resident=256), ahead_bytes.use(16):
        yield


@pytest.mark.parametrize("name", FEW)
def test_cells(name: str, bus: LateBus) -> None:
    case = BY_NAME[name].case(6, 9)
    # A random state is no state of an NTM.
    run_both(case._replace(state=None) if name == "NTM" else case, LENGTHS)
    assert not bus.waiting


@pytest.mark.parametrize("run", [dynamic, both], ids=lambda run: run.__name__)
@pytest.mark.parametrize("lengths", [None, [9] * 6, [9, 3, 1, 8, 5, 9]], ids=["dense", "equal", "ragged"])
def test_directions(run: Any, lengths: Any, bus: LateBus) -> None:
    """A walk from the last step to the first finds the step before it one step later."""
    run_both(case_of(lambda: tt.LSTMCell(8)), lengths, run)
    assert bus.out_bytes


def test_a_state_that_no_product_leads_to_does_not_wait_on_the_host() -> None:
    case = case_of(lambda: tt.LSTMCell(8))
    with tt.backend("aten"):
        executable = tt.explain(case.cell, case.inputs.requires_grad_(), None, case.state, case.dtype).executable
    keeping = executable.keeping
    assert [value.name for value in keeping.most.values] == ["sigmoid_2", "sigmoid_1", "tanh", "sigmoid"]
    assert not keeping.least.values
    assert keeping.least.again.states == [1, 0]


def test_kernels_of_loops_too(bus: LateBus) -> None:
    """Their matrices are packed once for all blocks, and anew when they have changed."""
    cell, x = tt.LSTMCell(8, input_size=3), torch.randn(6, 9, 3)
    for _ in range(2):
        found = []
        for swap in (False, True):
            with tt.backend("triton"):
                outputs, _ = tt.dynamic_rnn(cell, x, LENGTHS, dtype=x.dtype, swap_memory=swap)
            found.append([outputs.detach(), *torch.autograd.grad(outputs.square().sum(), list(cell.parameters()))])
        for got, want in zip(*found, strict=True):
            torch.testing.assert_close(got, want)
        with torch.no_grad():
            cell.kernel.mul_(-1)
    assert bus.out_bytes
