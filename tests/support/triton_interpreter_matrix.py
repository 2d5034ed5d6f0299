"""All cells that kernels take, inside Triton's interpreter; see `test_triton.py`."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch
from triton.language.extra import libdevice

import triton_interpreter  # noqa: F401 (mends the interpreter)
from backends import raises_refusal
from gpu_matrix import CELLS, REFUSED, check_cell
from triton_interpreter_fusing import elementwise

UNITS = 10
# The interpreter computes with numpy, which warns of infinities.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
# What does not fit a card fits the interpreter, which has all the room there is.
FITS = {"Attention"}
SLOW = {"BidirectionalGridLSTM"}


@pytest.fixture(autouse=True)
def _by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in {"pow": np.power, "log1p": np.log1p}.items():
        monkeypatch.setattr(libdevice, name, elementwise(function))


@pytest.mark.parametrize("name", [name for name in CELLS if name not in SLOW])
def test_cells(name: str) -> None:
    reason = REFUSED.get(("triton", name))
    if reason is None or name in FITS:
        check_cell(name, torch.float32, "triton", "cpu", UNITS)
    else:
        with raises_refusal("triton", reason):
            check_cell(name, torch.float32, "triton", "cpu", UNITS)
