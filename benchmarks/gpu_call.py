"""What a call on a GPU costs the host: microseconds of Python around the kernels, by part, without waiting for any.

An LSTM over short sequences, so that the host, not the card, takes the time; the long ones show what grows. *Packed
anew* has other lengths at every call, as batches of training have; with *one thread* torch runs the backward pass where
it is called, and not in a thread of its own. Every part of a call is timed where it is called; what the parts leave of
the whole is everything else.

    python benchmarks/gpu_call.py [--rounds N]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import throughtime as tt
from record import RESULTS, save
from throughtime.backends import torch_codegen
from throughtime.backends.aten import cuda_graphs
from throughtime.backends.triton import kernel as triton_kernel
from throughtime.backends.triton import launch as triton_launch
from throughtime.backends.triton import loop as triton_loop
from throughtime.runtime import backward, forward
from throughtime.unroll import _engine

PARTS: tuple[tuple[str, Any, str], ...] = (
    ("choice", _engine, "choose"),
    ("before and after", torch_codegen.SectionFunction, "run"),
    ("loop", triton_loop.TritonLoop, "run"),
    ("loop", cuda_graphs.GraphedLoop, "run"),
    ("loop: pack", triton_kernel, "pack"),
    ("loop: layout", triton_kernel, "_layout"),
    ("loop: launch", triton_launch.Launcher, "__call__"),
    ("forward", forward.Executable, "forward"),
    ("backward", backward.Backward, "run"),
)
"""What is timed: a name, and a function in a place. A name with a colon is a part of another."""


class Case(NamedTuple):
    """A call."""

    name: str
    dtype: torch.dtype
    mode: str
    lengths: str
    time: int = 16
    threads: bool = True


CASES = [
    Case(f"{dtype_name} {lengths} {mode}", dtype, mode, lengths)
    for dtype_name, dtype in (("kernels", torch.float32), ("graphs", torch.float64))
    for lengths in ("dense", "lengths", "packed", "packed anew")
    for mode in ("inference", "training")
] + [
    case
    for lengths in ("dense", "packed")
    for case in (
        Case(f"kernels {lengths} long training", torch.float32, "training", lengths, 512),
        Case(f"kernels {lengths} training, one thread", torch.float32, "training", lengths, threads=False),
    )
]
BATCH, SIZE = 32, 64
FRESH = 100
"""Batches with lengths of their own: more than any cache holds."""


@contextlib.contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """Seconds spent in each part, while this lasts."""
    spent: dict[str, float] = defaultdict(float)
    originals = [(place, name, getattr(place, name)) for _, place, name in PARTS]

    def timed(label: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args, **options)
            finally:
                spent[label] += time.perf_counter() - start

        return call

    for (label, place, name), (_, _, original) in zip(PARTS, originals, strict=True):
        setattr(place, name, timed(label, original))
    try:
        yield spent
    finally:
        for place, name, original in originals:
            setattr(place, name, original)


def call_of(case: Case) -> Callable[[], Any]:
    cell = tt.LSTMCell(SIZE, input_size=SIZE).to("cuda", case.dtype)
    weights = list(cell.parameters())
    random = torch.Generator().manual_seed(0)
    batches = [_batch(case, random) for _ in range(FRESH if case.lengths == "packed anew" else 1)]
    if case.mode == "inference":
        turns = itertools.cycle(batches)
        return torch.inference_mode()(lambda: _run(cell, *next(turns), case.dtype))
    for given, _ in batches:
        _data(given).requires_grad_()
    pulls = [torch.ones_like(_run(cell, *batch, case.dtype)) for batch in batches]
    pulled = itertools.cycle(zip(batches, pulls, strict=True))

    def train() -> Any:
        batch, pull = next(pulled)
        with torch.autograd.set_multithreading_enabled(case.threads):
            return torch.autograd.grad(_run(cell, *batch, case.dtype), [_data(batch[0]), *weights], pull)

    return train


def _batch(case: Case, random: torch.Generator) -> tuple[Any, Tensor | None]:
    """Sequences, and their lengths if they are given beside them."""
    x = torch.randn(BATCH, case.time, SIZE, device="cuda", dtype=case.dtype)
    ends = torch.randint(1, case.time + 1, (BATCH,), generator=random)
    if case.lengths.startswith("packed"):
        return pack_padded_sequence(x, ends, batch_first=True, enforce_sorted=False), None
    return x, ends if case.lengths == "lengths" else None


def _run(cell: Any, given: Any, lengths: Tensor | None, dtype: torch.dtype) -> Tensor:
    return _data(tt.dynamic_rnn(cell, given, lengths, dtype=dtype)[0])


def _data(given: Any) -> Tensor:
    return given.data if isinstance(given, PackedSequence) else given


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Medians over rounds of a few calls each; the card is waited for between rounds only."""
    call, calls = call_of(case), 5
    for _ in range(5):
        call()
    whole: list[float] = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        whole.append((time.perf_counter() - start) / calls)
    parts: dict[str, list[float]] = defaultdict(list)
    with clocks() as spent:
        for _ in range(rounds):
            spent.clear()
            torch.cuda.synchronize()
            for _ in range(calls):
                call()
            for name, seconds in spent.items():
                parts[name].append(seconds / calls)
    torch.cuda.synchronize()
    found = {name: round(1e6 * median(seconds), 1) for name, seconds in parts.items()}
    return {"case": case.name, "call_us": round(1e6 * median(whole), 1), "parts_us": found}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a call on a GPU costs the host.")
    parser.add_argument("--rounds", type=int, default=40, help="how often (default: %(default)s)")
    arguments = parser.parse_args()
    console = Console(width=160)
    if not torch.cuda.is_available():
        console.print("gpu_call: no CUDA device here, and nothing to measure.")
        return
    rows = [measure(case, arguments.rounds) for case in CASES]
    names = list(dict.fromkeys(name for name, _, _ in PARTS))
    table = Table("call", "whole µs", *(f"{name} µs" for name in names), title="What a call costs the host")
    for row in rows:
        table.add_row(row["case"], f"{row['call_us']:.0f}", *(f"{row['parts_us'].get(name, 0):.0f}" for name in names))
    console.print(table)
    console.print(f"saved {save('gpu-call', rows, folder=RESULTS)}", soft_wrap=True)


if __name__ == "__main__":
    main()
