"""What `swap_memory` and `checkpoint_every` cost and save on a GPU: peak memory and time of a training step.

Gradients are compared with those of the plain run first. The peak is what the step needs beyond inputs and weights;
times are medians of whole steps, forward and backward, the ways taking turns. Last, the *reach*: the longest sequence
that trains in a capped memory, and one ten times as long that trains there with `swap_memory`.

    python benchmarks/swap_memory.py [--rounds 5] [--only TEXT]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import throughtime as tt
from goals import verdicts
from gpu_clock import check
from record import RESULTS, interleaved, save, summary, timed
from user_cells import LayerNormLSTM

Cells = list[tt.RNNCell]


class Case(NamedTuple):
    """A network and a batch: B sequences of T steps of I features. Several cells are as many calls."""

    name: str
    cells: Callable[[], Cells]
    B: int
    T: int
    I: int  # noqa: E741 (the letter of the dimension)
    dtype: torch.dtype = torch.float32
    precision: str = "high"


def four_layers() -> Cells:
    return [tt.LSTMCell(1024, input_size=1024) for _ in range(4)]


CASES = (
    Case("4 × LSTM 1024, TF32", four_layers, 64, 4096, 1024),
    Case("4 × LSTM 1024, bfloat16", four_layers, 64, 4096, 1024, torch.bfloat16),
    Case("4 × LSTM 1024, exact float32", four_layers, 64, 4096, 1024, precision="highest"),
    Case("4 × LSTM 1024 as one cell, TF32", lambda: [tt.MultiRNNCell(four_layers())], 64, 4096, 1024),
    Case("GRU 512, TF32", lambda: [tt.GRUCell(512, input_size=256)], 64, 8192, 256),
    Case("own layer-norm LSTM 1024, TF32", lambda: [LayerNormLSTM(256, 1024)], 64, 2048, 256),
)
WAYS: dict[str, Callable[[int], dict[str, Any]]] = {
    "plain": lambda T: {},
    "swap_memory": lambda T: {"swap_memory": True},
    "checkpoint_every=√T": lambda T: {"checkpoint_every": round(T**0.5)},
    "both, every T/8": lambda T: {"swap_memory": True, "checkpoint_every": T // 8},
}
REACH_BYTES = 6 * 2**30
REACH_TIMES = 10


def training_step(cells: Cells, x: Tensor, options: dict[str, Any]) -> list[Tensor]:
    """The gradients of one step; they are the only thing that outlives it."""
    outputs = x
    for cell in cells:
        outputs, _ = tt.dynamic_rnn(cell, outputs, dtype=x.dtype, time_major=True, **options)
    return list(torch.autograd.grad(outputs.square().mean(), parameters(cells)))


def parameters(cells: Cells) -> list[Tensor]:
    return [parameter for cell in cells for parameter in cell.parameters()]


def measure(case: Case, rounds: int) -> list[dict[str, Any]]:
    """One result for each way to run the case, after its gradients have been compared with the plain run's."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(case.precision)
    x = torch.randn(case.T, case.B, case.I, device="cuda", dtype=case.dtype)
    cells = case.cells()
    for cell in cells:
        cell.to("cuda", case.dtype)
    steps = {way: partial(training_step, cells, x, options(case.T)) for way, options in WAYS.items()}
    want = steps["plain"]()
    differences = {way: check(f"{case.name}, {way}", step(), want) for way, step in steps.items()}
    del want
    plan = tt.explain(cells[0], x, time_major=True, swap_memory=True)
    peaks = {way: peak_of(step) for way, step in steps.items()}
    seconds = interleaved({way: timed(partial(finished, step)) for way, step in steps.items()}, rounds=rounds)
    return [
        {
            "case": case.name,
            "shape": {"B": case.B, "T": case.T, "I": case.I},
            "way": way,
            "backend": plan.backend,
            "peak_mib": round(peaks[way] / 2**20, 1),
            **summary(seconds[way]),
            "gradient_difference": differences[way],
            **({"memory": plan.memory} if way == "swap_memory" else {}),
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


def state_step(cell: tt.RNNCell, x: Tensor, options: dict[str, Any]) -> list[Tensor]:
    """The gradients of a step whose loss sees the final state alone, as a classifier of whole sequences does."""
    _, state = tt.dynamic_rnn(cell, x, dtype=x.dtype, time_major=True, **options)
    loss = torch.stack([leaf.square().mean() for layer in state for leaf in layer]).sum()
    return list(torch.autograd.grad(loss, parameters([cell])))


def measure_reach() -> dict[str, Any]:
    """How far a capped memory reaches without swapping, and that it reaches ten times as far with it."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    cell = tt.MultiRNNCell([tt.LSTMCell(512, input_size=size) for size in (64, 512, 512, 512)]).cuda()

    def fits(steps: int) -> bool:
        torch.cuda.empty_cache()
        try:
            finished(partial(state_step, cell, torch.randn(steps, 64, 64, device="cuda"), {}))
        except torch.OutOfMemoryError:
            return False
        return True

    def cap(nbytes: float) -> None:
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, nbytes / total))

    fits(16)
    cap(REACH_BYTES)
    shortest, longest = 16, 2**17
    while longest - shortest > 0.02 * shortest:
        middle = (shortest + longest) // 2
        shortest, longest = (middle, longest) if fits(middle) else (shortest, middle)
    x = torch.randn(REACH_TIMES * shortest, 64, 64, device="cuda")
    got = state_step(cell, x, {"swap_memory": True})
    peak = peak_of(partial(state_step, cell, x, {"swap_memory": True}))
    cap(float("inf"))
    return {
        "network": "MultiRNNCell of 4 LSTMs of 512 units, B64 I64, TF32",
        "cap_mib": REACH_BYTES // 2**20,
        "longest_plain": shortest,
        "swapped": len(x),
        "peak_mib": round(peak / 2**20, 1),
        "gradient_difference": check("reach", got, state_step(cell, x, {})),
    }


def beside_plain(results: list[dict[str, Any]]) -> None:
    """Add what each way takes, as a share of what the plain one does."""
    plain = {row["case"]: row for row in results if row["way"] == "plain"}
    for row in results:
        row["of_plain_peak"] = round(row["peak_mib"] / plain[row["case"]]["peak_mib"], 3)
        row["of_plain_time"] = round(row["median_ms"] / plain[row["case"]]["median_ms"], 3)


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f"A training step on {torch.cuda.get_device_name()}")
    for heading in ("case", "way", "peak MiB", "of plain", "ms", "of plain's time", "gradients off by"):
        table.add_column(heading, justify="left" if heading in {"case", "way"} else "right", no_wrap=True)
    for row in results:
        table.add_row(
            row["case"],
            row["way"],
            f"{row['peak_mib']:.0f}",
            f"{row['of_plain_peak']:.2f}",
            f"{row['median_ms']:.0f}",
            f"{row['of_plain_time']:.2f}",
            f"{row['gradient_difference']:.1e}",
        )
    console.print(table)


def earlier() -> dict[str, Any]:
    """What has been measured today: a run of some cases replaces those and keeps the others."""
    path = RESULTS / f"{date.today().isoformat()}-swap-memory.json"  # noqa: DTZ011 (the day where the machine stands)
    return json.loads(path.read_text()) if path.exists() else {"results": []}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure swap_memory and checkpoint_every on a GPU.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each step runs (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name, or the reach")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds is {arguments.rounds}; expected 1 or more")
    console = Console(width=140)
    if not torch.cuda.is_available():
        console.print("swap_memory: no CUDA device here, so there is nothing to swap and nothing to measure.")
        return
    cases = [case for case in CASES if arguments.only in case.name]
    before = earlier()
    results = [row for row in before["results"] if row["case"] in {case.name for case in CASES}]
    results = [row for row in results if row["case"] not in {case.name for case in cases}]
    for case in track(cases, "checking and timing", console=console):
        results += measure(case, arguments.rounds)
        torch.cuda.empty_cache()
    reach = measure_reach() if arguments.only in "reach" else before.get("reach")
    names = [case.name for case in CASES]
    results.sort(key=lambda row: names.index(row["case"]))
    beside_plain(results)
    show(results, console)
    console.print(reach)
    path = save("swap-memory", results, verdicts("swap-memory", results), reach=reach)
    console.print(f"saved {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
