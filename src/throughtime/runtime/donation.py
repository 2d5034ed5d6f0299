"""Donation: the last backward pass through a graph may overwrite saved values, if no other pass is running."""

from __future__ import annotations

from throughtime._errors import problem
from throughtime._fork_safety import fork_safe_lock

_lock = fork_safe_lock()


class DonationLock:
    """One for each graph. Every backward pass enters it; the last one may `take` the saved values.

    Several threads may run backward passes through one graph, and a pass may fail after it has overwritten values.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._is_taken = False

    def __enter__(self) -> None:
        with _lock:
            if self._is_taken:
                what = "what this backward pass needs has been written over by another one"
                got = "a second pass, beside or after one without `retain_graph=True`"
                fix = "Pass `retain_graph=True` to all but the last; if the last has failed, run the cell again."
                raise RuntimeError(problem(what, got=got, expected="no pass after the last", fix=fix))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with _lock:
            self._inside -= 1

    def take(self) -> bool:
        """Whether this pass may overwrite saved values: no other pass is running, and none can start any more."""
        with _lock:
            self._is_taken = self._inside == 1
            return self._is_taken
