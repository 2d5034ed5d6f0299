"""A trained model, back from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import throughtime as tt
from throughtime.cli import _run_folder
from throughtime.cli._user_errors import UserError, refuse
from throughtime.cli.tables import Layout
from throughtime.cli.tasks._models import Shape
from throughtime.cli.tasks._sizes import check_fits_weights
from throughtime.cli.tasks._tasks import make_model


class Saved(NamedTuple):
    """A model ready for use; `finished` is False when it comes from a checkpoint on the way."""

    model: nn.Module
    layout: Layout
    shape: Shape
    finished: bool


def load(folder: Path, device: torch.device) -> Saved:
    """The model of a run: with its final weights or, before the end of training, those of the last checkpoint."""
    values = _run_folder.read_run(folder)
    layout, shape = Layout.from_json(values["layout"]), Shape(**values["shape"])
    final, checkpoint = folder / _run_folder.WEIGHTS, tt.train.latest_checkpoint(folder)
    if not final.exists() and checkpoint is None:
        refuse(
            f"{folder} has no weights yet",
            got="a run without a checkpoint",
            expected=_run_folder.WEIGHTS,
            fix=f"Train first: `throughtime train --resume {folder}`.",
        )
    weights = final if final.exists() or checkpoint is None else checkpoint / _run_folder.WEIGHTS
    # Sizes that were edited must not be allocated.
    check_fits_weights(layout, shape, weights)
    model = make_model(layout, shape)
    try:
        tt.train.load_weights(model, weights)
    except ValueError as error:
        raise UserError(f"{folder}: {error}") from None
    return Saved(model.to(device).eval(), layout, shape, final.exists())
