"""Defaults of what the user does not say: sizes and training, from the amount of data."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG
from throughtime.cli.tasks._models import Shape

# With fewer steps of the optimiser nothing is learned, however often the data was seen.
LEAST_STEPS = 200


class Recipe(NamedTuple):
    """How to train: AdamW, a learning rate that rises to its peak and falls to nothing, gradients clipped."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 1e-2
    clip_norm: float = 1.0
    truncate: int | None = None
    # Epochs without a lower validation loss after which training stops; None: never.
    patience: int | None = None

    @property
    def may_stop_early(self) -> bool:
        """Whether validation can end training before the last epoch."""
        return self.patience is not None and self.patience < self.epochs


# Epochs to wait for a lower validation loss: at least these, and this share of all.
LEAST_PATIENCE, PATIENT_SHARE = 5, 1 / 3


def with_patience(recipe: Recipe) -> Recipe:
    """The recipe with its early stopping: not before the learning rate, which rises first, has had time to fall."""
    patience = max(LEAST_PATIENCE, math.ceil(PATIENT_SHARE * recipe.epochs))
    # A patience of all epochs never stops.
    return recipe._replace(patience=min(patience, recipe.epochs))


def default_shape(task: str, sequences: int, steps: int, horizon: int) -> Shape:
    """The fewer the sequences, the more noise and dropout: without them few sequences are learned by heart."""
    scarce = min(1.0, math.sqrt(300 / max(1, sequences)))
    if task == CLASSIFY:
        return Shape(units=96, dropout=max(0.2, 0.5 * scarce), noise=0.9 * scarce)
    if task == TAG:
        return Shape(units=96, dropout=max(0.2, 0.5 * scarce), noise=0.2 * scarce)
    if task == FORECAST:
        return Shape(units=64, dropout=0.0, noise=0.02, horizon=horizon)
    if task == GENERATE:
        return Shape(units=256 if steps > 200_000 else 128, dropout=0.2)
    return Shape(cell="gru", units=128, dropout=0.2)


def default_recipe(task: str, examples: int, steps: int) -> Recipe:
    """Enough steps of the optimiser for the data; small data is seen more often."""
    batch_size = 32 if examples <= 2_000 else 64 if examples <= 10_000 else 128
    if task == GENERATE:
        return Recipe(
            epochs=max(3, min(40, 4_000_000 // max(1, steps))), batch_size=32, learning_rate=4e-3, truncate=64
        )
    batches = math.ceil(examples / batch_size)
    fewest = math.ceil(LEAST_STEPS / batches)
    if task in (CLASSIFY, TAG):
        return Recipe(epochs=max(4, fewest, min(30, 6_000 // batches)), batch_size=batch_size, learning_rate=5e-3)
    if task == FORECAST:
        return Recipe(epochs=max(5, fewest, min(60, 3_000 // batches)), batch_size=batch_size, learning_rate=5e-3)
    return Recipe(epochs=max(4, fewest, min(40, 12_000 // batches)), batch_size=batch_size, learning_rate=3e-3)


def optimiser(
    model: nn.Module, recipe: Recipe, batches: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The optimiser and its schedule over all steps."""
    adam = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = max(2, recipe.epochs * batches)
    return adam, torch.optim.lr_scheduler.OneCycleLR(adam, recipe.learning_rate, total_steps=steps)
