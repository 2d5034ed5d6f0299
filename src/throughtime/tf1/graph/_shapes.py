"""`TensorShape` and `Dimension`: static shapes, in which sizes and the rank may be unknown."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any


class Dimension:
    """The size of one axis, None if it is not known; arithmetic with an unknown size is unknown."""

    __slots__ = ("_value",)

    def __init__(self, value: Any):
        if isinstance(value, Dimension):
            value = value.value
        if value is not None:
            value = operator.index(value) if not isinstance(value, str | bytes) else int(value)
            if value < 0:
                raise ValueError(f"Dimension {value} must be >= 0")
        self._value: int | None = value

    @property
    def value(self) -> int | None:
        """The size, or None."""
        return self._value

    def is_compatible_with(self, other: Any) -> bool:
        """Whether both may be the same size."""
        other = as_dimension(other)
        return self._value is None or other.value is None or self._value == other.value

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise unless both may be the same size."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        """The size that both tell."""
        other = as_dimension(other)
        self.assert_is_compatible_with(other)
        return other if self._value is None else self

    def _with(self, other: Any, function: Callable[[int, int], int]) -> Any:
        try:
            other = as_dimension(other)
        except (TypeError, ValueError):
            return NotImplemented
        unknown = self._value is None or other.value is None
        return Dimension(None if unknown else function(int(self), other.value))

    def _compare(self, other: Any, function: Callable[[int, int], bool]) -> Any:
        try:
            other = as_dimension(other)
        except (TypeError, ValueError):
            return NotImplemented
        return function(self._value, other.value) if self._value is not None and other.value is not None else None

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b // a)

    def __truediv__(self, other: Any) -> Any:
        raise TypeError("unsupported operand for /: a Dimension; use // instead")

    def __div__(self, other: Any) -> Any:
        return self // other

    def __mod__(self, other: Any) -> Any:
        return self._with(other, operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b % a)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, operator.ge)

    def __hash__(self) -> int:
        return hash(self._value)

    def __int__(self) -> int:
        if self._value is None:
            raise TypeError("int() of an unknown Dimension; use tf.shape for its size at run time")
        return self._value

    __index__ = __int__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __repr__(self) -> str:
        return f"Dimension({self._value})"


def as_dimension(value: Any) -> Dimension:
    """`value` as a `Dimension`."""
    return value if isinstance(value, Dimension) else Dimension(value)


class TensorShape:
    """The static shape of a tensor: a list of dimensions, or nothing if the rank is not known."""

    __slots__ = ("_sizes",)

    def __init__(self, dims: Any):
        self._sizes: tuple[int | None, ...] | None = _sizes_of(dims)

    @property
    def sizes(self) -> tuple[int | None, ...] | None:
        """The sizes as plain ints and Nones; None if the rank is unknown."""
        return self._sizes

    @property
    def dims(self) -> list[Dimension] | None:
        """The dimensions."""
        return None if self._sizes is None else [Dimension(size) for size in self._sizes]

    @property
    def ndims(self) -> int | None:
        """The rank, or None."""
        return None if self._sizes is None else len(self._sizes)

    rank = ndims

    def as_list(self) -> list[int | None]:
        """The sizes as a list."""
        return list(self._known())

    def _known(self) -> tuple[int | None, ...]:
        if self._sizes is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape; use tf.shape, or set_shape")
        return self._sizes

    def num_elements(self) -> int | None:
        """The number of elements, or None."""
        if not self.is_fully_defined():
            return None
        count = 1
        for size in self._known():
            count *= size or 0
        return count

    def is_fully_defined(self) -> bool:
        """Whether rank and sizes are all known."""
        return self._sizes is not None and None not in self._sizes

    def assert_is_fully_defined(self) -> None:
        """Raise unless everything is known."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether one tensor could have both shapes."""
        other = as_shape(other)
        if self._sizes is None or other.sizes is None:
            return True
        pairs = zip(self._sizes, other.sizes, strict=False)
        return len(self._sizes) == len(other.sizes) and all(a is None or b is None or a == b for a, b in pairs)

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise unless one tensor could have both shapes."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {as_shape(other)} are incompatible")

    def merge_with(self, other: Any) -> TensorShape:
        """The shape that both tell."""
        other = as_shape(other)
        self.assert_is_compatible_with(other)
        if self._sizes is None or other.sizes is None:
            return other if self._sizes is None else self
        return TensorShape([b if a is None else a for a, b in zip(self._sizes, other.sizes, strict=True)])

    def concatenate(self, other: Any) -> TensorShape:
        """The dimensions of both, one after the other."""
        other = as_shape(other)
        if self._sizes is None or other.sizes is None:
            return TensorShape(None)
        return TensorShape([*self._sizes, *other.sizes])

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, known to have `rank` dimensions."""
        try:
            return self.merge_with(TensorShape([None] * int(rank)))
        except ValueError:
            raise ValueError(f"Shape {self} must have rank {rank}") from None

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape, if it has at least `rank` dimensions."""
        if self.ndims is not None and self.ndims < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape, if it has at most `rank` dimensions."""
        if self.ndims is not None and self.ndims > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise unless the rank may be `rank`."""
        if self.ndims not in {None, rank}:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def __getitem__(self, key: Any) -> Any:
        if self._sizes is None:
            return TensorShape(None) if isinstance(key, slice) else Dimension(None)
        return TensorShape(self._sizes[key]) if isinstance(key, slice) else Dimension(self._sizes[key])

    def __iter__(self) -> Iterator[Dimension]:
        if self._sizes is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter([Dimension(size) for size in self._sizes])

    def __len__(self) -> int:
        if self._sizes is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self._sizes)

    def __bool__(self) -> bool:
        return self._sizes is not None

    def __eq__(self, other: object) -> bool:
        try:
            return self._sizes == as_shape(other).sizes
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._sizes)

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return as_shape(other).concatenate(self)

    def __str__(self) -> str:
        if self._sizes is None:
            return "<unknown>"
        inside = ", ".join("?" if size is None else str(size) for size in self._sizes)
        return f"({inside},)" if len(self._sizes) == 1 else f"({inside})"

    def __repr__(self) -> str:
        return f"TensorShape({None if self._sizes is None else [Dimension(size) for size in self._sizes]})"


def _sizes_of(dims: Any) -> tuple[int | None, ...] | None:
    if dims is None:
        return None
    if isinstance(dims, TensorShape):
        return dims.sizes
    try:
        items = list(dims)
    except TypeError:
        items = [dims]
    return tuple(None if item is None else Dimension(item).value for item in items)


def as_shape(value: Any) -> TensorShape:
    """`value` as a `TensorShape`."""
    return value if isinstance(value, TensorShape) else TensorShape(value)


def unknown_shape(ndims: int | None = None) -> TensorShape:
    """A shape of which at most the rank is known."""
    return TensorShape(None if ndims is None else [None] * ndims)


UNKNOWN = TensorShape(None)
