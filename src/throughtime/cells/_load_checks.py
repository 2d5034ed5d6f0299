"""Weights that are loaded before a cell is built: torch takes them as they come, so their shapes are ours to check."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from throughtime._errors import problem

Shapes = dict[str, tuple[int, ...]]


class _Side(NamedTuple):
    """A side of a parameter: `fixed` numbers, and `growth` more for every `multiple` inputs."""

    fixed: int
    growth: int
    multiple: int

    def inputs(self, length: int) -> int | None:
        """How wide inputs are if this side is so long; None if it never is."""
        count, rest = divmod(length - self.fixed, self.growth)
        return None if rest or count < 0 else count * self.multiple

    def __str__(self) -> str:
        if not self.growth:
            return str(self.fixed)
        share = self.growth / self.multiple
        inputs = "I" if share == 1 else f"{share:g} * I" if share > 1 else f"I / {1 / share:g}"
        return f"{inputs} + {self.fixed}" if self.fixed else inputs


def check_shapes(cell: str, loaded: Shapes, expected: Shapes, why: str) -> None:
    """Raise unless every parameter of `loaded` is of the shape that is expected, and say why it is."""
    for path, shape in loaded.items():
        if path in expected and shape != expected[path]:
            raise ValueError(_wrong(cell, path, shape, f"{expected[path]} {why}"))


def check_loaded(cell: str, loaded: Shapes, shapes_for: Callable[[int], Shapes], multiple: int) -> None:
    """Raise unless there are inputs for which the cell has parameters of these shapes.

    No input has been seen yet: its width, a multiple of `multiple`, follows from the shape of the weights.
    """
    sides = _sides(shapes_for, multiple)
    if sides is None:
        return
    for path, shape in loaded.items():
        if path in sides and not _fits(shape, sides[path]):
            raise ValueError(_wrong(cell, path, shape, f"[{', '.join(map(str, sides[path]))}]"))
    found = _first_width(loaded, sides)
    if found is not None:
        path, width = found
        check_shapes(cell, loaded, shapes_for(width), f"beside `{path}` {loaded[path]}")


def input_size_of(shapes: Shapes, shapes_for: Callable[[int], Shapes], multiple: int) -> int | None:
    """How wide the inputs are that parameters of these shapes are for; None if the shapes do not tell."""
    sides = _sides(shapes_for, multiple)
    found = None if sides is None else _first_width(shapes, sides)
    return None if found is None else found[1]


def _first_width(shapes: Shapes, sides: dict[str, list[_Side]]) -> tuple[str, int] | None:
    """The first parameter that grows with the inputs, and the width of inputs that it is for."""
    for path, shape in shapes.items():
        for length, side in zip(shape, sides.get(path, ()), strict=False):
            width = side.inputs(length) if side.growth else None
            if width is not None:
                return path, width
    return None


def _sides(shapes_for: Callable[[int], Shapes], multiple: int) -> dict[str, list[_Side]] | None:
    """The sides of all parameters; None for a user's cell whose sides do not grow evenly with its inputs."""
    none, once, twice = (shapes_for(count * multiple) for count in range(3))
    sides: dict[str, list[_Side]] = {}
    for path, fixed in none.items():
        steps = list(zip(fixed, once[path], twice[path], strict=True))
        if any(two - one != one - zero or one < zero for zero, one, two in steps):
            return None
        sides[path] = [_Side(zero, one - zero, multiple) for zero, one, _ in steps]
    return sides


def _fits(shape: tuple[int, ...], sides: list[_Side]) -> bool:
    """Whether there are inputs for which a parameter has this shape."""
    if len(shape) != len(sides):
        return False
    pairs = list(zip(shape, sides, strict=True))
    widths = {side.inputs(length) for length, side in pairs if side.growth}
    stays = all(length == side.fixed for length, side in pairs if not side.growth)
    return stays and None not in widths and len(widths) <= 1


def _wrong(cell: str, path: str, shape: tuple[int, ...], expected: str) -> str:
    return problem(
        f"the loaded `{path}` does not fit {cell}",
        got=f"shape {shape}",
        expected=expected,
        fix="Load the weights of a cell that was made with the same arguments as this one.",
    )
