"""Models of published packages through `tt.accelerate`, with their packages imported, against plain torch.

Each model has a process of its own. Outputs and the gradient of every weight are compared with torch's in float64,
outputs and the gradient as a whole in float32, all without dropout, before anything is timed. Then both are timed in
turn as their authors wrote them, in float32 and with dropout.

    python benchmarks/real_models.py [--quick]
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import throughtime as tt
from fresh import Case, ask, is_asked
from layouts import Row
from package_models import MODELS, Model
from peer import interpreter, missing
from record import interleaved, ratio, summary, timed
from runs import check
from suite import Options, read_options, run_suite

MODES = "training", "inference"
QUICK = 8
"""What `--quick` divides sizes by."""


def trained(model: Model) -> list[Tensor]:
    """A training step: outputs, and the gradient of every weight that has one."""
    outputs = model.train(model.module)
    weights = list(filter(lambda weight: weight.requires_grad, model.module.parameters()))
    cotangent = torch.linspace(-1, 1, outputs.numel()).reshape(outputs.shape)
    gradients = torch.autograd.grad(outputs, weights, cotangent, allow_unused=True)
    return [outputs.detach(), *filter(lambda each: each is not None, gradients)]


@torch.inference_mode()
def inferred(model: Model) -> list[Tensor]:
    return [model.infer(model.module)]


STEPS: dict[str, Callable[[Model], list[Tensor]]] = {"training": trained, "inference": inferred}


def without_zeros(ours: list[Tensor], theirs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Without gradients that are zero but for rounding, as that of a bias which a normalisation takes away again."""
    least = 1000 * torch.finfo(theirs[0].dtype).eps * max(float(each.abs().max()) for each in theirs)
    pairs = [pair for pair in zip(ours, theirs, strict=True) if max(float(each.abs().max()) for each in pair) > least]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def prepared(model: Model, mode: str, *, accelerated: bool, dropout: bool) -> Model:
    """A copy of the model."""
    module = copy.deepcopy(model.module).train(mode == "training")
    for part in () if dropout else module.modules():
        if isinstance(part, nn.RNNBase):
            part.dropout = 0.0
        elif "Dropout" in type(part).__name__:
            part.eval()
    return model._replace(module=tt.accelerate(module) if accelerated else module)


def compared(name: str, scale: int, mode: str) -> float:
    """The largest difference in float64; raises where any is more than rounding."""
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        model = MODELS[name](scale)
        # Some constants come from NumPy, in float32.
        model.module.to(dtype)
        sides = (STEPS[mode](prepared(model, mode, accelerated=fast, dropout=False)) for fast in (True, False))
        ours, theirs = sides
        if dtype == torch.float32:
            # Small gradients of a deep network are differences of large numbers: rounding is relative to all of it.
            ours, theirs = ([each[0], *_as_one(each[1:])] for each in (ours, theirs))
        difference = check(f"{name}, {mode}, {dtype}", *without_zeros(ours, theirs))
    torch.set_default_dtype(torch.float32)
    return difference


def _as_one(gradients: list[Tensor]) -> list[Tensor]:
    return [torch.cat([each.flatten() for each in gradients])] if gradients else []


def answer(case: Case) -> dict[str, Any]:
    """In a fresh process: times of both sides in both modes."""
    # Of the packages, about versions of each other.
    warnings.simplefilter("ignore")
    name, scale, found = case["model"], case["scale"], {}
    for mode in MODES:
        difference, model = compared(name, scale, mode), MODELS[name](scale)
        sides = {"throughtime": True, "torch": False}
        turns = {
            side: timed(partial(STEPS[mode], prepared(model, mode, accelerated=fast, dropout=True)))
            for side, fast in sides.items()
        }
        taken = interleaved(turns, rounds=case["rounds"], seconds=case["seconds"])
        found[mode] = {**{side: summary(each) for side, each in taken.items()}, "difference": difference}
    return {**found, "runtime": tt.threads().file}


def measure(options: Options, scale: int, name: str) -> list[Row]:
    case = {"model": name, "scale": scale, "rounds": options.rounds, "seconds": options.seconds}
    found = ask(__file__, case, python=interpreter("models"))
    return [
        {"cell": name, "mode": mode, **found[mode], "ratio": ratio(found[mode]["torch"], found[mode]["throughtime"])}
        for mode in MODES
    ]


def main() -> None:
    if is_asked(answer):
        return
    options = read_options(__doc__ or "", seconds=5.0)
    if interpreter("models") is None:
        print(missing("models"), file=sys.stderr)
        return
    run_suite("real-models", MODELS, partial(measure, options, QUICK if options.quick else 1), options)


if __name__ == "__main__":
    main()
