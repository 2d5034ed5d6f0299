"""The drop-in modules `tt.nn` and an accelerated model, against `torch.nn`: dense and packed, training and inference.

Outputs and, in training, the gradients of inputs and weights are compared with torch's before anything is timed. The
modules of both sides have the same weights and are given the same inputs: packing is part of neither's time.

    python benchmarks/drop_in.py [--quick]
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import lengths as made_up
import throughtime as tt
from layouts import Row
from record import interleaved, ratio, summary, timed
from runs import Run, backend_of, check, inference, training
from shapes import LARGE, LONG, MEDIUM, ODD, TINY, Shape
from suite import Options, read_options, run_suite


class Case(NamedTuple):
    """A network, a batch in some form, and what is done with it."""

    network: str
    shape: Shape
    form: str
    mode: str

    def __str__(self) -> str:
        return f"{self.network} {self.shape} {self.form} {self.mode}"


class Tagger(nn.Module):
    """A model as people write them: features, two layers in both directions, a class for every step."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.features = nn.Linear(shape.I, shape.H)
        self.lstm = nn.LSTM(shape.H, shape.H, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(2 * shape.H, 10)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Any:
        x: Any = torch.relu(self.features(inputs))
        if lengths is None:
            return self.classes(self.lstm(x)[0])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=inputs.shape[1])[0]
        return self.classes(x)


def module(kind: str, shape: Shape, **options: Any) -> nn.Module:
    made: nn.Module = getattr(nn, kind)(shape.I, shape.H, **options)
    return made


DEEP: dict[str, Any] = {"num_layers": 2, "bidirectional": True}
NETWORKS: dict[str, Callable[[Shape], nn.Module]] = {
    "LSTM": partial(module, "LSTM"),
    "GRU": partial(module, "GRU"),
    "RNN": partial(module, "RNN"),
    "LSTM, 2 layers, both ways": partial(module, "LSTM", **DEEP),
    "GRU, 2 layers, both ways": partial(module, "GRU", **DEEP),
    "a user's tagger, accelerated": Tagger,
}
FORMS = ("dense", "packed")
MODES = ("training", "inference")


def cases(networks: tuple[str, ...], shapes: tuple[Shape, ...]) -> list[Case]:
    return [Case(name, shape, form, mode) for name in networks for shape in shapes for form in FORMS for mode in MODES]


CASES = [
    *cases(("LSTM", "GRU"), (ODD, MEDIUM, LONG, LARGE)),
    *cases(("RNN",), (MEDIUM, LONG)),
    *cases(("LSTM, 2 layers, both ways", "GRU, 2 layers, both ways"), (ODD, MEDIUM)),
    *cases(("a user's tagger, accelerated",), (ODD, MEDIUM)),
]
QUICK = cases(tuple(NETWORKS), (TINY,))


def runner(network: nn.Module, case: Case, packed: PackedSequence, lengths: Tensor) -> Run:
    """From inputs to outputs: those of the rows of packed sequences, for a module alone."""
    if isinstance(network, Tagger):
        return partial(network, lengths=None if case.form == "dense" else lengths)
    if case.form == "dense":
        return lambda inputs: network(inputs)[0]
    return lambda rows: network(packed._replace(data=rows))[0].data


def measure(options: Options, case: Case) -> Row:
    shape = case.shape
    theirs = NETWORKS[case.network](shape)
    ours = tt.accelerate(copy.deepcopy(theirs))
    lengths = torch.tensor(made_up.uniform(shape.B, shape.T))
    is_whole = isinstance(theirs, Tagger)
    sizes = (shape.B, shape.T) if is_whole else (shape.T, shape.B)
    padded = torch.randn(*sizes, shape.I)
    packed = pack_padded_sequence(padded, lengths, batch_first=is_whole, enforce_sorted=False)
    inputs = (packed.data if case.form == "packed" and not is_whole else padded).detach().requires_grad_()
    our_run, their_run = (runner(network, case, packed, lengths) for network in (ours, theirs))
    our_step: Callable[[], object]
    their_step: Callable[[], object]
    if case.mode == "training":
        cotangent = torch.randn_like(their_run(inputs))
        our_step, their_step = (
            training(run, inputs, list(network.parameters()), cotangent)
            for run, network in ((our_run, ours), (their_run, theirs))
        )
    else:
        our_step, their_step = (inference(run, inputs.detach()) for run in (our_run, their_run))
    difference = check(str(case), our_step(), their_step())
    turns = {"throughtime": timed(our_step), "torch": timed(their_step)}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    layer: Any = ours.lstm if isinstance(ours, Tagger) else ours
    return {
        "cell": case.network,
        **shape.named(),
        "form": case.form,
        "mode": case.mode,
        **times,
        "ratio": ratio(times["torch"], times["throughtime"]),
        "backend": backend_of(layer.cell(), torch.randn(1, 1, layer.input_size)),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "", seconds=2.0)
    run_suite("drop-in", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
