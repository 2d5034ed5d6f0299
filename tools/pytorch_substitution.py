"""A pytest plugin: every `torch.nn.LSTM`, `GRU` and `RNN` that is made becomes ours, and tests that make one are noted.

`pytorch_tests.py` says by `THROUGHTIME_SUBSTITUTE` whether modules become ours, and by `THROUGHTIME_OUTCOMES` where the
outcomes go. The names in `torch.nn` stay torch's, as in a program that calls `tt.accelerate`.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from torch.testing._internal import common_utils

import throughtime.nn as ours

# Set by the command line of PyTorch's own runner; the tests of torch.jit read it.
common_utils.GRAPH_EXECUTOR = common_utils.cppProfilingFlagsToProfilingMode()

_REPLACED = {nn.LSTM, nn.GRU, nn.RNN} if os.environ["THROUGHTIME_SUBSTITUTE"] == "1" else set()
_made = False
_outcomes: dict[str, str] = {}


def _replace_modules() -> None:
    initialize = nn.RNNBase.__init__

    @functools.wraps(initialize)
    def replacing(self: nn.RNNBase, *args: Any, **options: Any) -> None:
        global _made  # noqa: PLW0603 (set here, read by the hook)
        _made = True
        initialize(self, *args, **options)
        if type(self) in _REPLACED:
            ours.accelerate(self)

    nn.RNNBase.__init__ = replacing  # type: ignore[method-assign]


_replace_modules()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Forget what the test before has made."""
    global _made  # noqa: PLW0603 (as above)
    _made = False
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome, unless the test made no recurrent module."""
    if _made and (report.when == "call" or report.outcome != "passed"):
        expected = report.outcome == "skipped" and hasattr(report, "wasxfail")
        _outcomes[report.nodeid] = "xfailed" if expected else report.outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ["THROUGHTIME_OUTCOMES"]).write_text(json.dumps(_outcomes))
