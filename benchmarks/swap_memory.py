"""What `swap_memory` and `checkpoint_every` cost and save on a GPU: peak memory and time of a training step.

Gradients are compared with those of the plain run first. The peak is what the step needs beyond inputs and
weights; times are medians of whole steps, forward and backward, the ways taking turns.

    python benchmarks/swap_memory.py [--rounds 5]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from record import interleaved, save, summary, timed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import throughtime as tt
from user_cells import LayerNormLSTM


class Case(NamedTuple):
    """One network and one batch: B sequences of T steps of I features."""

    name: str
    cell: Callable[[], tt.RNNCell]
    B: int
    T: int
    I: int  # noqa: E741 (the letter of the dimension)


CASES = (
    Case("LSTM 1024", lambda: tt.LSTMCell(1024, input_size=256), 64, 1000, 256),
    Case("GRU 512", lambda: tt.GRUCell(512, input_size=256), 64, 1000, 256),
    Case("4 × LSTM 1024", lambda: tt.MultiRNNCell([tt.LSTMCell(1024) for _ in range(4)]), 64, 500, 256),
    Case("LSTM 2048, large batch", lambda: tt.LSTMCell(2048, input_size=512), 512, 300, 512),
    Case("own layer-norm LSTM 1024", lambda: LayerNormLSTM(256, 1024), 64, 500, 256),
)
WAYS: dict[str, Callable[[int], dict[str, Any]]] = {
    "plain": lambda T: {},
    "swap_memory": lambda T: {"swap_memory": True},
    "checkpoint_every=√T": lambda T: {"checkpoint_every": round(T**0.5)},
}


def training_step(cell: tt.RNNCell, x: Tensor, options: dict[str, Any]) -> list[Tensor]:
    """The gradients of one step; they are the only thing that outlives it."""
    outputs, _ = tt.dynamic_rnn(cell, x, dtype=x.dtype, **options)
    return list(torch.autograd.grad(outputs.square().mean(), list(cell.parameters())))


def check(got: list[Tensor], want: list[Tensor]) -> float:
    """The largest relative difference of any gradient; raises where it is more than rounding."""
    worst = max(float((a - b).norm() / b.norm()) for a, b in zip(got, want, strict=True))
    if not worst < 1e-4:
        raise AssertionError(f"gradients differ from the plain run's by {worst:.1e}")
    return worst


def measure(case: Case, rounds: int) -> list[dict[str, Any]]:
    """One result for each way to run the case, after its gradients have been compared with the plain run's."""
    torch.manual_seed(0)
    x = torch.randn(case.B, case.T, case.I, device="cuda")
    cell = case.cell()
    cell.build(x.shape)
    cell.cuda()
    steps = {way: partial(training_step, cell, x, options(case.T)) for way, options in WAYS.items()}
    want = steps["plain"]()
    differences = {way: check(step(), want) for way, step in steps.items()}
    del want
    peaks = {way: peak_of(step) for way, step in steps.items()}
    seconds = interleaved({way: timed(partial(finished, step)) for way, step in steps.items()}, rounds=rounds)
    return [
        {
            "case": case.name,
            "shape": {"B": case.B, "T": case.T, "I": case.I},
            "way": way,
            "peak_mib": round(peaks[way] / 2**20, 1),
            **summary(seconds[way]),
            "gradient_difference": differences[way],
        }
        for way in steps
    ]


def peak_of(step: Callable[[], object]) -> int:
    """The most bytes a step has allocated at once, beyond what was there before it."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    finished(step)
    return torch.cuda.max_memory_allocated() - before


def finished(step: Callable[[], object]) -> None:
    """Run a step and wait for the card."""
    step()
    torch.cuda.synchronize()


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f"A training step on {torch.cuda.get_device_name()} (reference loop, float32)")
    for heading in ("case", "way", "peak MiB", "of plain", "ms", "of plain's time"):
        table.add_column(heading, justify="left" if heading in {"case", "way"} else "right")
    for row in results:
        plain = next(other for other in results if other["case"] == row["case"] and other["way"] == "plain")
        table.add_row(
            row["case"],
            row["way"],
            f"{row['peak_mib']:.0f}",
            f"{row['peak_mib'] / plain['peak_mib']:.2f}",
            f"{row['median_ms']:.0f}",
            f"{row['median_ms'] / plain['median_ms']:.2f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure swap_memory and checkpoint_every on a GPU.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each step runs (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds is {arguments.rounds}; expected 1 or more")
    console = Console()
    if not torch.cuda.is_available():
        console.print("swap_memory: no CUDA device here, so there is nothing to swap and nothing to measure.")
        return
    results = [
        row for case in track(CASES, "checking and timing", console=console) for row in measure(case, arguments.rounds)
    ]
    show(results, console)
    console.print(f"saved {save('swap-memory', results)}", soft_wrap=True)


if __name__ == "__main__":
    main()
