"""Every random number generator that training draws from, so that a resumed run draws the same."""

from __future__ import annotations

import math
import random

import numpy as np
import torch
from torch import Tensor, nn

from throughtime.cells._rng import drawing


def random_state(model: nn.Module) -> dict[str, Tensor]:
    """The generators of torch, Python and numpy, and those of the cells that have one of their own."""
    version, numbers, spare = random.getstate()
    _, keys, position, has_spare, cached = np.random.get_state()  # noqa: NPY002
    state = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *numbers]),
        "python.spare": torch.tensor(math.nan if spare is None else spare, dtype=torch.float64),
        "numpy": torch.tensor([*map(int, keys), position, has_spare]),
        "numpy.spare": torch.tensor(cached, dtype=torch.float64),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    for path, module in drawing(model):
        _, generators = module.noise_state()
        state |= {f"cell.{device.type}.{path}": numbers for device, numbers in generators.items()}
    return dict(sorted(state.items()))


def set_random_state(model: nn.Module, state: dict[str, Tensor], device: torch.device) -> None:
    """Go back to what `random_state` has seen; `device` is where this process computes."""
    torch.set_rng_state(state["torch"])
    version, *numbers = state["python"].tolist()
    spare = state["python.spare"].item()
    random.setstate((version, tuple(numbers), None if math.isnan(spare) else spare))
    *keys, position, has_spare = state["numpy"].tolist()
    legacy = ("MT19937", np.array(keys, np.uint32), position, has_spare, state["numpy.spare"].item())
    np.random.set_state(legacy)  # noqa: NPY002
    if torch.cuda.is_available() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
    for path, module in drawing(model):
        found = {kind: state.get(f"cell.{kind}.{path}") for kind in ("cpu", "cuda")}
        places = {"cpu": torch.device("cpu"), "cuda": device}
        module.set_noise_state(({}, {places[kind]: numbers for kind, numbers in found.items() if numbers is not None}))


def of_its_own(rank: int) -> None:
    """Give a worker other random numbers than the first one has, but the same in every run."""
    torch.manual_seed(int(torch.randint(2**62, ())) + rank)
