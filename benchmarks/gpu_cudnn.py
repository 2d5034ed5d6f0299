"""Inference and training on a GPU against cuDNN, which is what `torch.nn.LSTM` and `GRU` run there.

Float32 is multiplied as TF32 by both. *Packed* is training on a `PackedSequence` of lengths between 1 and T. Outputs
and gradients are compared before anything is timed. A step is one step of time of the whole batch.

    python benchmarks/gpu_cudnn.py [--quick]
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import throughtime as tt
from gpu_clock import DTYPES, check, is_mine, on_card
from layouts import Row
from pairs import PAIRS, Pair
from record import interleaved, ratio, summary
from shapes import Shape
from suite import Options, read_options, run_suite

SHAPES = (
    Shape(32, 512, 256, 256),
    Shape(64, 256, 512, 512),
    Shape(64, 256, 1024, 1024),
    Shape(16, 1024, 768, 768),
    Shape(16, 4096, 256, 256),
    Shape(128, 128, 2048, 2048),
)
MODES = ("inference", "training", "packed")


class Case(NamedTuple):
    """What is measured."""

    cell: str
    mode: str
    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.cell} {self.mode} {self.dtype} {self.shape}"


CASES = [
    Case(cell, mode, dtype, shape) for cell in ("LSTM", "GRU") for mode in MODES for dtype in DTYPES for shape in SHAPES
]
QUICK = [Case(cell, mode, "float32", Shape(3, 7, 5, 24)) for cell in ("LSTM", "GRU") for mode in MODES]


def measure(options: Options, case: Case) -> Row:
    torch.manual_seed(0)
    shape, dtype = case.shape, DTYPES[case.dtype]
    pair = PAIRS[case.cell](shape)
    pair.module.batch_first = False
    pair.module.to("cuda", dtype).flatten_parameters()
    pair.cell.to("cuda", dtype)
    inputs = torch.randn(shape.T, shape.B, shape.I, device="cuda", dtype=dtype)
    given = _packed(inputs) if case.mode == "packed" else inputs.requires_grad_(case.mode == "training")
    steps = {"throughtime": _ours(pair, given, case.mode), "cudnn": _theirs(pair, given, case.mode)}
    found, wanted = steps["throughtime"](), steps["cudnn"]()
    if case.mode != "inference":
        found = (*found[:2], *pair.as_torch(found[2:]))
    difference = check(str(case), found, wanted)
    turns = {who: on_card(step) for who, step in steps.items()}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    return {
        "cell": case.cell,
        "mode": case.mode,
        "dtype": case.dtype,
        "family": f"{case.mode} {'float16' if case.dtype == 'float16' else 'float32 and bfloat16'}",
        **shape.named(),
        **times,
        "ratio": ratio(times["cudnn"], times["throughtime"]),
        "step_us": round(1000 * times["throughtime"]["median_ms"] / shape.T, 2),
        "cudnn_step_us": round(1000 * times["cudnn"]["median_ms"] / shape.T, 2),
        "difference": difference,
    }


def _packed(inputs: Tensor) -> PackedSequence:
    time, batch = inputs.shape[:2]
    lengths = torch.randint(1, time + 1, (batch,), generator=torch.Generator().manual_seed(0))
    packed = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
    packed.data.requires_grad_()
    return packed


def _ours(pair: Pair, given: Any, mode: str) -> Any:
    time_major = not isinstance(given, PackedSequence)

    def run() -> Any:
        outputs = tt.dynamic_rnn(pair.cell, given, dtype=_data(given).dtype, time_major=time_major)[0]
        return outputs if mode == "inference" else _trained(outputs, given, pair.weights)

    return torch.inference_mode()(run) if mode == "inference" else run


def _theirs(pair: Pair, given: Any, mode: str) -> Any:
    def run() -> Any:
        outputs = pair.module(given)[0]
        return outputs if mode == "inference" else _trained(outputs, given, list(pair.module.parameters()))

    return torch.inference_mode()(run) if mode == "inference" else run


def _data(given: Any) -> Tensor:
    return given.data if isinstance(given, PackedSequence) else given


def _trained(outputs: Any, given: Any, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Outputs and gradients, for the gradient 1 / 1000 of every output."""
    outputs = _data(outputs)
    cotangent = torch.full_like(outputs, 1e-3)
    return (outputs.detach(), *torch.autograd.grad(outputs, [_data(given), *weights], cotangent))


def main() -> None:
    options = read_options(__doc__ or "", seconds=0.0, rounds=7)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    cases = [case for index, case in enumerate(QUICK if options.quick else CASES) if is_mine(index)]
    run_suite("gpu-cudnn", cases, partial(measure, options), options)


if __name__ == "__main__":
    main()
