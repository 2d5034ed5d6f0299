"""Everything that the rest of a run depends on: how it gets into a checkpoint, and out of it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from throughtime._errors import InvalidArgumentError, problem
from throughtime.train._checkpoint import Checkpoints, set_weights, weights_of
from throughtime.train._measure import Sums
from throughtime.train._randomness import of_its_own, random_state, set_random_state
from throughtime.train._workers import Worker, gathered, wait_for_all


@dataclass
class Place:
    """Where a run stands: in which epoch, at which batch and window of it, and what it has seen so far."""

    epoch: int = 1
    batch: int = 0
    window: int = 0
    step: int = 0
    sums: Sums = field(default_factory=lambda: Sums({}))
    seconds: float = 0.0
    best_value: float = math.nan
    epochs_without_better: int = 0


class Snapshot(NamedTuple):
    """What a run knows itself: its place, its best weights, the leaves of the state it carries, if it has stopped."""

    place: Place
    best: dict[str, Tensor] | None
    carried: list[Tensor] | None
    stopped_early: bool


@dataclass
class Snapshots:
    """The checkpoints of a run, and whose state is in them besides its own."""

    checkpoints: Checkpoints
    worker: Worker
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler | None
    scaler: torch.amp.GradScaler
    device: torch.device
    train: Any

    def save(self, snapshot: Snapshot, suffix: str) -> None:
        """Write a checkpoint; all workers take part, for each has random numbers of its own."""
        mine = random_state(self.model)
        everyones = {name: gathered(numbers, self.worker) for name, numbers in mine.items()}
        if self.worker.is_first:
            place = snapshot.place
            state = {
                "place": asdict(place) | {"sums": list(place.sums)},
                "stopped_early": snapshot.stopped_early,
                "batches": len(self.train),
                "optimizer": self.optimizer.state_dict(),
                "schedule": None if self.schedule is None else self.schedule.state_dict(),
                "scaler": self.scaler.state_dict(),
                "random": [{name: everyones[name][rank] for name in mine} for rank in range(self.worker.size)],
                "carried": snapshot.carried,
            }
            self.checkpoints.save(f"{place.step:08d}{suffix}", weights_of(self.model), snapshot.best, state)
        wait_for_all(self.worker)

    def load(self) -> tuple[Snapshot, dict[str, Tensor] | None] | None:
        """Put the newest checkpoint back, if there is one; left to the run are its own part, and its random numbers."""
        loaded = self.checkpoints.load()
        if loaded is None:
            return None
        weights, best, state = loaded
        if state["batches"] != len(self.train):
            what, fix = "the run was trained on other batches", "Use the same data and batch size, or another folder."
            expected = f"{state['batches']} batches"
            raise InvalidArgumentError(problem(what, got=len(self.train), expected=expected, fix=fix))
        _check_begun("schedule", now=self.schedule is not None, before=state["schedule"] is not None)
        _check_begun("precision=torch.float16", now=self.scaler.is_enabled(), before=bool(state["scaler"]))
        set_weights(self.model, weights)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        place = Place(**state["place"] | {"sums": Sums(*state["place"]["sums"])})
        return Snapshot(place, best, state["carried"], state["stopped_early"]), self._random(state["random"])

    def _random(self, everyones: list[dict[str, Tensor]]) -> dict[str, Tensor] | None:
        """This worker's random numbers."""
        if self.worker.rank < len(everyones):
            return everyones[self.worker.rank]
        # More workers than before: the new ones draw numbers of their own.
        set_random_state(self.model, everyones[0], self.device)
        of_its_own(self.worker.rank)
        return None


def _check_begun(name: str, *, now: bool, before: bool) -> None:
    """Refuse to go on with an option that a run began without, or the reverse."""
    if now != before:
        what, fix = f"the run began {'with' if before else 'without'} `{name}`", "Go on as it began."
        got, expected = (f"`{name}`" if there else f"no `{name}`" for there in (now, before))
        raise InvalidArgumentError(problem(what, got=got, expected=expected, fix=fix))
