"""Reports to look at, and two ways to look into them: by their data, and by what their script draws."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import throughtime as tt

NODE = shutil.which("node")
by_node = pytest.mark.skipif(NODE is None, reason="no node here to run the script of the report")


def history(epochs: int = 3, batches: int = 5) -> tt.train.History:
    found = tt.train.History()
    for epoch in range(1, epochs + 1):
        for batch in range(batches):
            number = (epoch - 1) * batches + batch + 1
            values = {"loss": 2.0 / number}
            found.steps.append(tt.train.Step(number, epoch, values, 0.5, 1e-3, 8, 60, 80, 0.01, 10**8))
        train, valid = {"loss": 2.0 / epoch, "accuracy": 0.3 * epoch}, {"loss": 2.5 / epoch, "accuracy": 0.25 * epoch}
        found.epochs.append(tt.train.Epoch(epoch, epoch * batches, train, valid, 1e-3, 0.1, best=True))
    return found


def full_report() -> tt.train.Report:
    """A report with every part."""
    report = tt.train.Report("A <b>title</b>", "**97.8 %** of </script> recognised.")
    report.add_facts({"accuracy": "97.8 %", "sequences": "640"})
    report.add_history(history())
    report.add_confusion([[5, 1], [0, 4]], ["a</script>", "b"])
    report.add_forecast("first", {"level": (np.arange(9.0), np.arange(3.0), np.arange(3.0) + 0.5)})
    report.add_forecast("second", {"level": (np.arange(5.0), np.arange(2.0), np.arange(2.0))})
    cell = tt.LSTMCell(4, input_size=3)
    inside = tt.train.through_time(cell, torch.randn(2, 7, 3), [7, 3], lambda _, state: state.h.sum())
    for row, length in enumerate((7, 3)):
        report.add_through_time(
            f"row {row}", {"Reading": (inside.states[row, :length], inside.gradients[row, :length])}
        )
    report.add_attention("hi", [[0.9, 0.1], [0.2, 0.8]], ["h", "i"], ["HH", "AY"])
    report.add_lengths([3, 3, 7], padding=0.02, padding_at_random=0.3)
    report.add_plan(tt.explain(cell, torch.randn(2, 7, 3)))
    report.add_settings({"seed": 0})
    return report


def data_of(report: tt.train.Report) -> dict:
    """What the page is drawn from, as strictly as a browser reads it."""
    text = re.search(r'id="data">(.*?)</script>', report.html(), re.DOTALL)[1]
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def drawn(report: tt.train.Report, folder: Path) -> dict:
    """What the script of the page says, by `_page.js`."""
    path = report.write(folder / "report.html")
    run = subprocess.run(
        [str(NODE), str(Path(__file__).with_name("_page.js")), str(path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["ready"]
    return found
