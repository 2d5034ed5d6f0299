"""The sizes that the suites measure at."""

from __future__ import annotations

from typing import Any, NamedTuple


class Shape(NamedTuple):
    """The size of a batch: B rows of T steps of I features, H units."""

    B: int
    T: int
    I: int  # noqa: E741 (the letter of the dimension)
    H: int

    def __str__(self) -> str:
        return f"B{self.B} T{self.T} I{self.I} H{self.H}"

    def named(self) -> dict[str, Any]:
        """For a result."""
        return {"shape": self._asdict()}


SMALL = Shape(1, 100, 64, 64)
MEDIUM = Shape(32, 100, 128, 128)
ODD = Shape(32, 50, 28, 150)
LONG = Shape(16, 1000, 64, 64)
LARGE = Shape(64, 100, 256, 256)
LARGEST = Shape(32, 100, 512, 512)

ANCHORS = (SMALL, ODD, MEDIUM, LARGE, LARGEST, LONG)
DENSE = (
    *ANCHORS,
    Shape(1, 1000, 64, 128),
    Shape(4, 500, 32, 96),
    Shape(8, 200, 128, 256),
    Shape(64, 50, 100, 100),
    Shape(128, 50, 64, 64),
    Shape(128, 100, 40, 200),
)
TINY = Shape(3, 7, 5, 11)
"""For `--quick`, where the question is whether a suite works."""
