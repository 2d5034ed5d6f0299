"""Every test runs on fixed seeds, one thread and NaN-filled fresh memory; the run ends with what it covered."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter

import hypothesis
import numpy as np
import pytest

# Deterministic algorithms on a GPU need this before CUDA starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Kernels are kept for the processes of this run, and for no other: the first process to get here decides where.
if "THROUGHTIME_TEST_CACHE" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="throughtime-tests-", ignore_cleanup_errors=True)
    os.environ["THROUGHTIME_TEST_CACHE"] = os.environ["THROUGHTIME_CACHE_DIR"] = _cache.name
# Every pass of the compiler is verified.
os.environ["THROUGHTIME_VERIFY"] = "1"

import torch

AREAS = {
    "goldens": "cases recorded from TensorFlow: values, states, gradients",
    "tf-tests": "TensorFlow's own tests, restated",
    "loops": "raw_rnn, while_loop and TensorArray",
    "compiler": "cells of any kind compiled, refused with a reason, noticed when they change",
    "kernels": "generated kernels against what they stand for",
    "conformance": "cells, unrolls, layouts, lengths and dtypes against each other",
    "properties": "statements that hold for every case hypothesis can find",
    "decoding": "decoders, helpers, attention and beam search",
    "gradients": "gradients against finite differences, second order included",
    "errors": "bad arguments: the type and the wording of what is raised",
    "memory": "swapping and recomputing change no result",
    "examples": "the listings in examples/",
    "docs": "examples in docstrings, the README and the pages of docs/",
    "checkpoints": "checkpoints of TensorFlow: read, loaded, written, damaged",
    "training": "batches, losses, the training loop, checkpoints, several workers",
    "cli": "the `throughtime` command",
    "report": "the report of a run, in a real browser, and its pictures",
    "types": "what type checkers see of results",
    "tf1": "TensorFlow 1 programs against what TensorFlow 1.15 gave",
    "architecture": "the rules of the code base, and of this test run",
}

# One thread a process: pytest-xdist already uses every core.
torch.set_num_threads(1)


class _TorchRandom:
    """torch's generator in the form hypothesis wants, so that it seeds torch before every example."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


# Kept by name: hypothesis holds only a weak reference.
_torch_random = _TorchRandom()
hypothesis.register_random(_torch_random)
hypothesis.settings.register_profile("throughtime", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("throughtime")


@pytest.fixture(autouse=True)
def _same_every_time() -> None:
    """Fix every seed, and fill fresh memory with NaN (torch does so in deterministic mode)."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_deterministic_debug_mode("error")
    torch.utils.deterministic.fill_uninitialized_memory = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note on each test which areas it covers (this travels with its report), and skip GPU tests without a GPU."""
    for item in items:
        item.user_properties += [("covers", marker.args[0]) for marker in item.iter_markers("covers")]
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests of each area ran, and how they ended."""
    counts = {outcome: _count(terminalreporter, outcome) for outcome in ("passed", "failed", "error", "skipped")}
    if not any(counts.values()):
        return
    terminalreporter.section("what this run covered")
    for area, meaning in AREAS.items():
        ended = [f"{count[area]} {outcome}" for outcome, count in counts.items() if count[area]]
        if ended:
            terminalreporter.write_line(f"{area:>12}  {', '.join(ended):<24}  {meaning}")
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} {reason[0].lower()}{reason[1:]}")


def _count(terminalreporter: pytest.TerminalReporter, outcome: str) -> Counter[str]:
    """The number of tests of each area that ended so."""
    reports = terminalreporter.stats.get(outcome, [])
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    return Counter(area for name, area in properties if name == "covers")
