"""Everything that the rest of a run depends on: how it gets into a checkpoint, and out of it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from throughtime._errors import InvalidArgumentError, problem
from throughtime.train._accumulate import Sums
from throughtime.train._checkpoint import Checkpoints, check_weights, set_weights, weights_of
from throughtime.train._distributed import Worker, gathered, wait_for_all
from throughtime.train._rng_state import of_its_own, random_state, set_random_state
from throughtime.train.data._buckets import Buckets


@dataclass
class Position:
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

    place: Position
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
                "kinds": self._kinds(),
                "buckets": self._buckets(),
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
        self._check(weights, state)
        set_weights(self.model, weights)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        place = Position(**state["place"] | {"sums": Sums(*state["place"]["sums"])})
        return Snapshot(place, best, state["carried"], state["stopped_early"]), self._random(state["random"])

    def _check(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Refuse to go on with anything that the run did not begin with; versions before wrote less of it down."""
        if state["batches"] != len(self.train):
            what, fix = "the run was trained on other batches", "Use the same data and batch size, or another folder."
            expected = f"{state['batches']} batches"
            raise InvalidArgumentError(problem(what, got=len(self.train), expected=expected, fix=fix))
        _check_same("the run was trained on other batches", self._buckets(), state.get("buckets"))
        _check_begun("schedule", now=self.schedule is not None, before=state["schedule"] is not None)
        _check_begun("precision=torch.float16", now=self.scaler.is_enabled(), before=bool(state["scaler"]))
        _check_same("the run began otherwise", self._kinds(), state.get("kinds"))
        # A schedule of another length would be replaced by the one before, and end too early or too late.
        _check_same("the run began otherwise", _total_steps(self.schedule), state["schedule"])
        check_weights(self.model, weights)
        now, before = map(_group_sizes, (self.optimizer.state_dict(), state["optimizer"]))
        _check_same("the run began otherwise", {"parameters a group": now}, {"parameters a group": before})

    def _kinds(self) -> dict[str, str | None]:
        return {"optimizer": type(self.optimizer).__name__, "schedule": _schedule_name(self.schedule)}

    def _buckets(self) -> dict[str, Any] | None:
        """What decides which sequences meet; not the size of batches, of which only the number matters."""
        sampler = getattr(self.train, "batch_sampler", None)
        if not isinstance(sampler, Buckets):
            return None
        return {
            "seed": sampler.seed,
            "shuffle": sampler.shuffle,
            "jitter": float(sampler.jitter),
            "sequences": len(sampler.lengths),
            "steps": int(sampler.lengths.sum()),
        }

    def _random(self, everyones: list[dict[str, Tensor]]) -> dict[str, Tensor] | None:
        """This worker's random numbers."""
        if self.worker.rank < len(everyones):
            return everyones[self.worker.rank]
        # More workers than before: the new ones draw numbers of their own.
        set_random_state(self.model, everyones[0], self.device)
        of_its_own(self.worker.rank)
        return None


def _schedule_name(schedule: Any) -> str | None:
    """The class of a schedule, with those of the schedules inside it."""
    if schedule is None:
        return None
    parts = [str(_schedule_name(part)) for part in getattr(schedule, "_schedulers", ())]
    return type(schedule).__name__ + (f"({', '.join(parts)})" if parts else "")


def _total_steps(schedule: Any) -> dict[str, int]:
    """The steps that a schedule is made for, if it says so."""
    return {"total_steps": schedule.total_steps} if hasattr(schedule, "total_steps") else {}


def _group_sizes(optimizer: dict[str, Any]) -> list[int]:
    return [len(group["params"]) for group in optimizer["param_groups"]]


def _check_same(what: str, now: dict[str, Any] | None, before: dict[str, Any] | None) -> None:
    """Refuse to go on where something has another value than the run began with."""
    for name, value in (now or {}).items():
        if before is not None and value != before[name]:
            got, expected, fix = (
                f"{name} {value}",
                f"{name} {before[name]}",
                "Go on as it began, or use another folder.",
            )
            raise InvalidArgumentError(problem(what, got=got, expected=expected, fix=fix))


def _check_begun(name: str, *, now: bool, before: bool) -> None:
    """Refuse to go on with an option that a run began without, or the reverse."""
    if now != before:
        what, fix = f"the run began {'with' if before else 'without'} `{name}`", "Go on as it began."
        got, expected = (f"`{name}`" if there else f"no `{name}`" for there in (now, before))
        raise InvalidArgumentError(problem(what, got=got, expected=expected, fix=fix))
