"""Records as TensorBoard shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from throughtime._errors import problem
from throughtime.train._callbacks import Callback
from throughtime.train._history import Epoch, History, Step


class TensorBoard(Callback):
    """Writes every record for TensorBoard: `tensorboard --logdir folder` shows the curves.

    Needs `pip install 'throughtime[tensorboard]'`.
    """

    def __init__(self, folder: Path | str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError:
            fix = "Install it: pip install 'throughtime[tensorboard]'."
            message = problem("TensorBoard is not installed", got="no module", expected="tensorboard", fix=fix)
            raise ImportError(message) from None
        self._folder, self._make = Path(folder), SummaryWriter
        self._writer: Any = None

    def begin(self, epochs: int, steps: int, history: History) -> None:
        """Open the file; after a resume, what was written past the checkpoint is hidden."""
        done = history.steps[-1].number if history.steps else 0
        self._writer = self._make(str(self._folder), purge_step=done + 1 if done else None)

    def step(self, step: Step) -> None:
        """Metrics of the batch, gradient norm, learning rate, and seconds."""
        for name, value in step.metrics.items():
            self._writer.add_scalar(f"step/{name}", value, step.number)
        for name in ("gradient_norm", "learning_rate", "seconds", "memory"):
            self._writer.add_scalar(f"step/{name}", getattr(step, name), step.number)

    def epoch(self, epoch: Epoch) -> None:
        """Metrics of training and validation, by the steps so far."""
        for kind in ("train", "valid"):
            for name, value in getattr(epoch, kind).items():
                self._writer.add_scalar(f"{kind}/{name}", value, epoch.step)

    def end(self, history: History) -> None:
        """Close the file."""
        self._writer.close()
