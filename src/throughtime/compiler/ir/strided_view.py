"""Strided views of the features of a row: permuted, repeated or sliced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StridedView:
    """Features from `start` on, along axes of `sizes` with `strides`; the last axis is the fastest.

    A stride of 0 repeats features. Transposes, broadcasts and slices of any axis are all of this kind.
    """

    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __repr__(self) -> str:
        along = ", ".join(f"{size} by {stride}" for size, stride in zip(self.sizes, self.strides, strict=True))
        return f"[{self.start}: {along}]"

    @classmethod
    def of(cls, shape: Sequence[int]) -> StridedView:
        """All features of a row of some shape, in order."""
        return cls(0, tuple(shape), contiguous(shape))

    @property
    def width(self) -> int:
        """The number of features that are read."""
        return math.prod(self.sizes)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last index that is read."""
        ends = [(size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)]
        return self.start + sum(min(end, 0) for end in ends), self.start + sum(max(end, 0) for end in ends)

    @property
    def is_contiguous(self) -> bool:
        """Whether it reads a contiguous range in order."""
        return self.joined().strides in ((), (1,))

    def moved(self, features: int) -> StridedView:
        """The same view, shifted by `features`."""
        return StridedView(self.start + features, self.sizes, self.strides)

    def joined(self) -> StridedView:
        """The same view with as few axes as possible."""
        sizes: list[int] = []
        strides: list[int] = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size == 1:
                continue
            if sizes and strides[-1] == size * stride:
                sizes[-1], strides[-1] = sizes[-1] * size, stride
            else:
                sizes.append(size)
                strides.append(stride)
        return StridedView(self.start, tuple(sizes), tuple(strides))

    def shaped(self, shape: Sequence[int]) -> StridedView | None:
        """The same view with axes of other sizes; None if one of them would span two of these."""
        if self.sizes == tuple(shape):
            return self
        own = self.joined()
        parts = [*zip(contiguous(own.sizes), own.sizes, own.strides, strict=True)]
        strides = []
        for apart, size in zip(contiguous(shape), shape, strict=True):
            within = next(((apart // one * by, one * many) for one, many, by in parts if one <= apart), (0, 1))
            if size > 1 and apart * size > within[1]:
                return None
            strides.append(within[0] if size > 1 else 0)
        return StridedView(self.start, tuple(shape), tuple(strides))

    def broadcast(self, shape: Sequence[int]) -> StridedView:
        """Broadcast along axes of size 1 and along missing leading axes."""
        extra = len(shape) - len(self.sizes)
        strides = [0] * extra + [
            0 if size == 1 else stride for size, stride in zip(self.sizes, self.strides, strict=True)
        ]
        return StridedView(self.start, tuple(shape), tuple(strides))

    def permuted(self, order: Sequence[int]) -> StridedView:
        """Its axes in another order."""
        return StridedView(self.start, tuple(self.sizes[a] for a in order), tuple(self.strides[a] for a in order))

    def sliced(self, axis: int, start: int, stop: int, step: int = 1) -> StridedView:
        """A part of one axis."""
        sizes, strides = list(self.sizes), list(self.strides)
        sizes[axis], strides[axis] = len(range(start, stop, step)), strides[axis] * step
        return StridedView(self.start + start * self.strides[axis], tuple(sizes), tuple(strides))

    def flipped(self, axis: int) -> StridedView:
        """One axis from its end to its beginning."""
        strides = list(self.strides)
        strides[axis] = -strides[axis]
        return StridedView(self.start + (self.sizes[axis] - 1) * self.strides[axis], self.sizes, tuple(strides))

    def repeated(self, times: Sequence[int]) -> StridedView:
        """Every axis repeated; missing leading axes have size 1."""
        extra = len(times) - len(self.sizes)
        own = zip((1,) * extra + self.sizes, (0,) * extra + self.strides, strict=True)
        pairs = [((count, 0), axis) for count, axis in zip(times, own, strict=True)]
        sizes, strides = zip(*(axis for pair in pairs for axis in pair), strict=True) if pairs else ((), ())
        return StridedView(self.start, tuple(sizes), tuple(strides))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of contiguous features."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
