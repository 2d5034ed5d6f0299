"""Whether a model of the sizes asked for can be made at all, found out without making it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from throughtime.cli._user_errors import UserError, refuse
from throughtime.cli.tables import Layout
from throughtime.cli.tasks._models import Shape
from throughtime.cli.tasks._tasks import make_model
from throughtime.train._checkpoint import check_weights

# A weight, its gradient and the two moments of AdamW.
NUMBERS_A_WEIGHT = 4


def check_fits_weights(layout: Layout, shape: Shape, weights: Path) -> None:
    """The model is the one of a weights file: names and shapes are compared on the meta device, which has no memory."""
    try:
        with safe_open(weights, framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        # The reader of the weights says what is wrong with them.
        check_fits_memory(layout, shape)
        return
    with torch.device("meta"):
        model = make_model(layout, shape)
        tensors = {name: torch.empty(sides) for name, sides in shapes.items()}
    try:
        check_weights(model, tensors)
    except ValueError as error:
        raise UserError(f"{weights}: {error}") from None


def check_fits_memory(layout: Layout, shape: Shape) -> None:
    """What training needs for the weights alone is less than this machine has."""
    with torch.device("meta"):
        model = make_model(layout, shape)
    # The model is made here in any case; a GPU has the rest in memory of its own.
    numbers = 1 if torch.cuda.is_available() else NUMBERS_A_WEIGHT
    needed = numbers * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    there = _memory()
    if there is not None and needed > there:
        got, expected = (
            f"{needed / 2**30:,.0f} GiB for its weights",
            f"less than {there / 2**30:,.0f} GiB, which is here",
        )
        refuse("the model is larger than memory", got=got, expected=expected, fix="Choose fewer units or layers.")


def _memory() -> int | None:
    """The bytes of memory of this machine, where the system says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
