"""How long an epoch of training takes: `tt.train.fit` against a plain loop over torch's module with packed sequences.

The same model, weights, data, batch size, optimiser and clipping on both sides, and the same batches of like lengths;
a third run is torch's loop as people write it, over batches shuffled by torch. Outputs must be equal before anything is
timed; then they take turns.

What a recurrence has nothing to do with, such as batches, losses and the optimiser, both sides have in common. A fourth
run is an epoch of `tt.train.fit` with a recurrence that takes no time: it gives outputs and gradients that are there
already. With the multiply-adds at the full speed of the processor beside it, that is the least an epoch could take.

    python benchmarks/epoch.py [--quick]
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

import throughtime as tt
from full_speed import GATES, floor_of
from layouts import Row
from lengths import PLAID
from pairs import PAIRS
from record import interleaved, ratio, summary, timed
from shapes import Shape
from suite import Options, read_options, run_suite
from throughtime.data import japanese_vowels
from throughtime.train import Batch

OURS, SAME_BATCHES, SHUFFLED, FREE = "throughtime", "torch", "shuffled", "free"
CLASSES = 9


class Case(NamedTuple):
    """Sequences with these lengths, in batches of one size; one class a sequence, or one a step."""

    name: str
    kind: str
    lengths: list[int]
    batch_size: int
    inputs: int
    units: int
    per_step: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def cases() -> list[Case]:
    vowels = japanese_vowels().train.lengths.tolist()
    plaid = json.loads(PLAID.read_text())["lengths"]
    return [
        Case("Japanese Vowels, speaker", "LSTM", vowels, 32, 12, 96),
        Case("Japanese Vowels, every step", "GRU", vowels, 32, 12, 96, per_step=True),
        Case(
            "words of 3 to 18 letters, every step",
            "LSTM",
            [3 + n % 16 for n in range(2048)],
            64,
            32,
            128,
            per_step=True,
        ),
        Case("PLAID, appliance", "LSTM", plaid[:128], 16, 8, 64),
        Case("PLAID, appliance, GRU", "GRU", plaid[:128], 32, 8, 64),
    ]


class Classifier(nn.Module):
    """Something recurrent, and a layer that says which class; `run` gives outputs and final outputs."""

    def __init__(self, recurrent: Any, run: Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]], units: int) -> None:
        super().__init__()
        self.recurrent, self.run = recurrent, run
        torch.manual_seed(1)
        self.out = nn.Linear(units, CLASSES)

    def forward(self, batch: Batch) -> Tensor:
        outputs, last = self.run(self.recurrent, batch.inputs, batch.lengths)
        scores: Tensor = self.out(last if batch.target_lengths is None else outputs)
        return scores


def our_run(cell: tt.RNNCell, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    outputs, state = tt.dynamic_rnn(cell, inputs, lengths, dtype=torch.float32)
    return outputs, getattr(state, "h", state)


def packed_run(module: nn.Module, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    outputs, state = module(packed)
    last = state[0] if isinstance(state, tuple) else state
    return pad_packed_sequence(outputs, batch_first=True)[0], last[0]


class _Free(torch.autograd.Function):
    """A recurrence that takes no time, and learns nothing."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, last: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.gradients = [zeros_like(weight) for weight in weights]
        return outputs.detach(), last.detach()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, ...]:
        return None, None, *(gradient.detach() for gradient in ctx.gradients)


@cache
def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


def zeros_like(weight: Tensor) -> Tensor:
    return zeros(*weight.shape)


def free_run(cell: tt.RNNCell, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    batch, time = inputs.shape[:2]
    units = cell.output_size
    outputs, last = _Free.apply(zeros(batch, time, units), zeros(batch, units), *cell.parameters())
    return outputs, last


def operations_of(case: Case) -> int:
    """Its multiplications and additions: of inputs, and of states but for the first step, forwards and for gradients.

    Gradients of the inputs are not wanted.
    """
    steps, later = sum(case.lengths), sum(case.lengths) - len(case.lengths)
    products = 2 * steps * case.inputs + 3 * later * case.units
    return 2 * products * GATES[case.kind] * case.units


def measure(model: nn.Module, batch: Batch) -> dict[str, tt.train.Mean]:
    lengths = batch.lengths if batch.target_lengths is not None else None
    return {"loss": tt.train.cross_entropy(model(batch), batch.targets, lengths)}


def plain_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Any) -> None:
    """The loop as people write it."""
    for batch in batches:
        scores = model(batch)
        if batch.target_lengths is None:
            loss = nn.functional.cross_entropy(scores, batch.targets)
        else:
            real = torch.arange(scores.shape[1]) < batch.lengths[:, None]
            loss = nn.functional.cross_entropy(scores[real], batch.targets[real])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def epochs_of(case: Case) -> tuple[dict[str, Callable[[], object]], float]:
    """An epoch of ours, and of torch's over its batches and over ours; and how far apart the models are."""
    random = torch.Generator().manual_seed(0)
    steps = [torch.randn(length, case.inputs, generator=random) for length in case.lengths]
    targets = [torch.randint(CLASSES, (len(x),) if case.per_step else (), generator=random) for x in steps]
    examples = list(zip(steps, targets, strict=True))
    pair = PAIRS[case.kind](Shape(case.batch_size, max(case.lengths), case.inputs, case.units))
    parts = ((pair.cell, our_run), (pair.module, packed_run), (deepcopy(pair.cell), free_run))
    ours, theirs, free = (Classifier(part, run, case.units) for part, run in parts)
    by_length = tt.train.loader(examples, case.batch_size)
    at_random: DataLoader[Any] = DataLoader(examples, case.batch_size, shuffle=True, collate_fn=tt.train.pad)  # type: ignore[arg-type]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs, free)]
    fit = partial(tt.train.fit, measure=measure, train=by_length, epochs=1, clip_norm=1.0)
    runs: dict[str, Callable[[], object]] = {
        OURS: lambda: fit(ours, optimizer=optimizers[0]),
        FREE: lambda: fit(free, optimizer=optimizers[2]),
        SHUFFLED: lambda: plain_epoch(theirs, optimizers[1], at_random),
        SAME_BATCHES: lambda: plain_epoch(theirs, optimizers[1], by_length),
    }
    with torch.no_grad():
        first = next(iter(by_length))
        apart = float((ours(first) - theirs(first)).abs().max())
    return runs, apart


def measure_case(options: Options, case: Case) -> Row:
    runs, apart = epochs_of(case)
    if apart > 1e-4:
        raise RuntimeError(f"{case.name}: the two models differ by {apart:.1e}")
    taken = interleaved(
        {name: timed(run) for name, run in runs.items()}, rounds=options.rounds, seconds=options.seconds
    )
    times = {name: summary(seconds) for name, seconds in taken.items()}
    return {
        "case": case.name,
        "cell": case.kind,
        "sequences": len(case.lengths),
        "steps": sum(case.lengths),
        "batch_size": case.batch_size,
        "units": case.units,
        **times,
        "ratio": ratio(times[SAME_BATCHES], times[OURS]),
        "against_shuffled": ratio(times[SHUFFLED], times[OURS]),
        "around_ms": times[FREE]["median_ms"],
        **floor_of(operations_of(case)),
        "difference": apart,
    }


def main() -> None:
    options = read_options(__doc__ or "", seconds=3.0, rounds=3)
    chosen = cases()
    if options.quick:
        chosen = [case._replace(lengths=case.lengths[:32]) for case in chosen[:2]]
    run_suite("epoch", chosen, partial(measure_case, options), options)


if __name__ == "__main__":
    main()
