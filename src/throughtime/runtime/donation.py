"""What was kept for a backward pass, and who may write over it: the last to need it, if nobody else is at it."""

from __future__ import annotations

from throughtime._errors import problem
from throughtime._fork_safety import fork_safe_lock

_lock = fork_safe_lock()


class DonationLock:
    """One for each graph. Every backward pass enters it; one that is the last may `take` what was kept.

    Threads may go back through one graph together, and a pass may fail after it has written over what it needs.
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
        """Whether this pass, which is inside, may write from now on: nobody else is inside, or will be."""
        with _lock:
            self._is_taken = self._inside == 1
            return self._is_taken
