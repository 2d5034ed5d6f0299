"""Two ways to run the same sequences, timed in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import throughtime as tt
from throughtime.cli.tasks._inputs import make_cell

PEERS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
# Float32, summed in another order.
TOLERANCE = 1e-4


def race(name: str, units: int, inputs: int, steps: int, batch: int, repeat: int, device: torch.device) -> None:
    """Compare, then time, then print a table."""
    torch.manual_seed(0)
    console = Console(highlight=False)
    cell = make_cell(name, units, 1, inputs).to(device)
    x = torch.randn(batch, steps, inputs).to(device)
    # From a third of the steps to all of them, as data with a long tail has it.
    ragged = torch.linspace(max(1, steps // 3), steps, batch).round().long()
    peer = PEERS[name](inputs, units, batch_first=True).to(device) if name in PEERS else None
    rival = "the plain loop" if peer is None else f"torch.nn.{type(peer).__name__}"
    check(cell, x, ragged)
    sizes = f"{units} units, {inputs} inputs, {batch} sequences of {steps} steps"
    title = f"{type(cell).__name__}, {sizes}, {name_of(device)}"
    table = Table("", "throughtime", rival, "times as fast", box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for what, lengths in (("one length", None), ("many lengths", ragged)):
        for training in (True, False):
            ours = once(_ours(cell, x, lengths), cell, training)
            theirs = once(_rival(cell, peer, x, lengths), peer or cell, training)
            mine, other = interleaved(ours, theirs, repeat)
            row = f"{'training' if training else 'inference'}, {what}"
            table.add_row(row, f"{mine:.2f} ms", f"{other:.2f} ms", f"[bold]{other / mine:.2f}[/]")
    console.print(table)
    console.print("Medians of turns taken one after the other. Results were compared with the plain loop first.")


def name_of(device: torch.device) -> str:
    """What the times are times of."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"


def check(cell: Any, x: Tensor, lengths: Tensor) -> None:
    """The engine gives what the plain loop gives, or there is nothing to time."""
    with torch.no_grad():
        ours, _ = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
        with tt.backend("reference"):
            plain, _ = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
    torch.testing.assert_close(ours, plain, rtol=TOLERANCE, atol=TOLERANCE)


def _ours(cell: Any, x: Tensor, lengths: Tensor | None) -> Callable[[], Tensor]:
    def run() -> Tensor:
        outputs: Tensor = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)[0]
        return outputs

    return run


def _rival(cell: Any, peer: nn.Module | None, x: Tensor, lengths: Tensor | None) -> Callable[[], Tensor]:
    """The other way to run the same: torch's own, packed where lengths differ, or the plain loop."""
    if peer is None:

        def loop() -> Tensor:
            with tt.backend("reference"):
                outputs: Tensor = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)[0]
            return outputs

        return loop
    if lengths is None:
        return lambda: peer(x)[0]
    return lambda: peer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[0].data


def once(run: Callable[[], Tensor], module: nn.Module, training: bool) -> Callable[[], None]:
    """One turn: forward, and backward when training."""

    def turn() -> None:
        with torch.set_grad_enabled(training):
            outputs = run()
            if training:
                module.zero_grad()
                outputs.sum().backward()
        if outputs.is_cuda:
            # A GPU has been told what to do, but has not done it.
            torch.cuda.synchronize()

    return turn


def interleaved(first: Callable[[], None], second: Callable[[], None], repeat: int) -> tuple[float, float]:
    """The median milliseconds of each, after two turns that do not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(-2, repeat):
        for run, seen in zip((first, second), times, strict=True):
            began = time.perf_counter()
            run()
            if turn >= 0:
                seen.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[0]), statistics.median(times[1])
