"""A pytest plugin: `torch.nn.LSTM`, `GRU` and `RNN` are ours, and the tests that have made one are written down.

`pytorch_tests.py` says by `THROUGHTIME_SUBSTITUTE` whether modules are replaced, and by `THROUGHTIME_OUTCOMES` where
the outcomes go.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

# Tables of torch that are made of its classes must know torch's, as in the program of a user.
import torch.ao.quantization.quantize_fx  # noqa: F401 (for what it makes)
from torch import nn
from torch.testing._internal import common_utils

# Set by the command line of PyTorch's own runner; the tests of torch.jit read it.
common_utils.GRAPH_EXECUTOR = common_utils.cppProfilingFlagsToProfilingMode()

_made = False
_outcomes: dict[str, str] = {}


def _note_modules() -> None:
    initialize = nn.RNNBase.__init__

    @functools.wraps(initialize)
    def noting(self: nn.RNNBase, *args: Any, **options: Any) -> None:
        global _made  # noqa: PLW0603 (set here, read by the hook)
        _made = True
        initialize(self, *args, **options)

    nn.RNNBase.__init__ = noting  # type: ignore[method-assign]


def _substitute() -> None:
    import throughtime.nn as ours  # noqa: PLC0415 (after torch's tables)

    for name in ("LSTM", "GRU", "RNN"):
        for place in (nn, nn.modules, nn.modules.rnn):
            setattr(place, name, getattr(ours, name))


_note_modules()
if os.environ["THROUGHTIME_SUBSTITUTE"] == "1":
    _substitute()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Forget what the test before has made."""
    global _made  # noqa: PLW0603 (as above)
    _made = False
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome, unless the test made no recurrent module."""
    if _made and (report.when == "call" or report.outcome != "passed"):
        expected = hasattr(report, "wasxfail")
        _outcomes[report.nodeid] = {"skipped": "xfailed" if expected else "skipped"}.get(report.outcome, report.outcome)


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ["THROUGHTIME_OUTCOMES"]).write_text(json.dumps(_outcomes))
