"""`TensorArray`: a list of tensors that can be written step by step inside a loop."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime._errors import (
    InvalidArgumentError,
    check_dtype,
    check_flag,
    check_positive_int,
    problem,
    shape_of,
    type_name,
)
from throughtime._tensors import as_tensor


class _Slots:
    """Storage shared by the versions of one array: slot -> (value, the version that wrote it)."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[Tensor, int]] = {}
        self.cleared: set[int] = set()
        self.newest = 0


class TensorArray:
    """Tensors of one shape by index, written once each; every write gives a new array and leaves the old one as it was.

    `write`, `unstack`, `scatter` and `split` return the new array: keep it, as in `array = array.write(i, x)`.
    Versions share their storage, so a write costs the same at every length, and gradients flow through all of it.
    With `clear_after_read` (the default) an element can be read once. Slots never written read as zeros once the
    element shape is known.

    >>> import torch, throughtime as tt
    >>> array = tt.TensorArray(torch.float32, size=0, dynamic_size=True)
    >>> for step in range(3):
    ...     array = array.write(step, torch.full((2,), float(step)))
    >>> array.stack().tolist()
    [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    """

    def __init__(
        self,
        dtype: torch.dtype,
        size: int | None = None,
        dynamic_size: bool = False,
        clear_after_read: bool = True,
        *,
        element_shape: Sequence[int | None] | None = None,
        infer_shape: bool = True,
    ) -> None:
        self.dtype = check_dtype("dtype", dtype)
        self.dynamic_size = check_flag("dynamic_size", dynamic_size)
        self.clear_after_read = check_flag("clear_after_read", clear_after_read)
        self.infer_shape = check_flag("infer_shape", infer_shape)
        self.element_shape = None if element_shape is None else _check_element_shape(element_shape)
        self._size = 0 if size is None else check_positive_int("size", size, minimum=0)
        self._version = 0
        self._slots = _Slots()

    def size(self) -> int:
        """How many elements there are."""
        return self._size

    def write(self, index: int | Tensor, value: Any) -> TensorArray:
        """A new array with `value` at `index`."""
        return self._extended([(_check_index_type(index), value)])

    def unstack(self, value: Any) -> TensorArray:
        """A new array with the rows of `value` [N, ...] at 0 .. N-1."""
        return self._extended(list(enumerate(self._rows(value).unbind(0))))

    def scatter(self, indices: Sequence[int] | Tensor, value: Any) -> TensorArray:
        """A new array with the rows of `value` [N, ...] at the N `indices`."""
        rows, places = self._rows(value).unbind(0), _check_indices("indices", indices)
        if len(places) != len(rows):
            got, fix = f"{len(places)} indices, {len(rows)} rows", "Pass one index for each row of `value`."
            raise InvalidArgumentError(
                problem("scatter needs one index for each row", got=got, expected="as many", fix=fix)
            )
        return self._extended(list(zip(places, rows, strict=True)))

    def split(self, value: Any, lengths: Sequence[int] | Tensor) -> TensorArray:
        """A new array with `value` [N, ...] cut into pieces of the given lengths."""
        rows, sizes = self._rows(value), _check_indices("lengths", lengths)
        if any(size < 0 for size in sizes) or sum(sizes) != len(rows):
            what, fix = "`lengths` must add up to the rows of `value`", "Correct the lengths."
            raise InvalidArgumentError(problem(what, got=f"{sizes} (sum {sum(sizes)})", expected=len(rows), fix=fix))
        pieces = torch.split(rows, sizes)
        if self.infer_shape and len({shape_of(piece) for piece in pieces}) > 1:
            what, fix = "split makes elements of different shapes", "Pass `infer_shape=False` to the array."
            got = [shape_of(piece) for piece in pieces]
            raise ValueError(problem(what, got=got, expected="one element shape", fix=fix))
        return self._extended(list(enumerate(pieces)))

    def read(self, index: int | Tensor) -> Tensor:
        """The element at `index`."""
        place = _check_index_type(index)
        (value,) = self._elements([place])
        self._clear([place])
        return value

    def gather(self, indices: Sequence[int] | Tensor) -> Tensor:
        """The elements at `indices`, stacked."""
        return self._stacked(_check_indices("indices", indices))

    def stack(self) -> Tensor:
        """All elements as one tensor [size, ...]."""
        return self._stacked(list(range(self._size)))

    def concat(self) -> Tensor:
        """All elements joined along their first axis."""
        elements = self._elements(range(self._size))
        if not elements:
            return self._stacked([])
        shapes = [shape_of(element) for element in elements]
        if () in shapes or len({shape[1:] for shape in shapes}) > 1:
            what, fix = "elements of these shapes cannot be concatenated", "Use `stack`, or read them one by one."
            raise ValueError(problem(what, got=shapes, expected="shapes equal but for the first axis", fix=fix))
        self._clear(range(self._size))
        return torch.cat(elements)

    def __repr__(self) -> str:
        return f"TensorArray(dtype={self.dtype}, size={self._size}, element_shape={self.element_shape})"

    def _extended(self, writes: list[tuple[int, Any]]) -> TensorArray:
        new = self._next_version()
        for index, value in writes:
            new._put(index, value)
        return new

    def _next_version(self) -> TensorArray:
        new = TensorArray(
            self.dtype,
            self._size,
            self.dynamic_size,
            self.clear_after_read,
            element_shape=self.element_shape,
            infer_shape=self.infer_shape,
        )
        new._slots = self._slots
        if self._version != self._slots.newest:
            # Someone has written to a later version already: this one branches off with storage of its own.
            new._slots = _Slots()
            new._slots.values = {place: slot for place, slot in self._slots.values.items() if slot[1] <= self._version}
        new._version = new._slots.newest = self._slots.newest + 1
        return new

    def _put(self, index: int, value: Any) -> None:
        place = self._check_bounds(index, growing=self.dynamic_size)
        tensor = self._check_value(value)
        if place in self._slots.values or place in self._slots.cleared:
            done = "written" if place in self._slots.values else "read"
            what, fix = f"element {place} was {done} before", "Write to another index."
            raise InvalidArgumentError(problem(what, got="another write", expected="one write, then reads", fix=fix))
        if self.infer_shape:
            self.element_shape = shape_of(tensor)
        self._slots.values[place] = (tensor, self._version)
        self._size = max(self._size, place + 1)

    def _check_bounds(self, index: int, *, growing: bool = False) -> int:
        if index < 0 or (index >= self._size and not growing):
            what = "index out of bounds"
            fix = "Make the array larger, or pass `dynamic_size=True` to let writes extend it."
            expected = f"0 to {self._size - 1}" if self._size else "an array that is not empty"
            raise InvalidArgumentError(problem(what, got=index, expected=expected, fix=fix))
        return index

    def _tensor(self, value: Any) -> Tensor:
        """A tensor or array as it is; Python's numbers, which have no dtype of their own, in that of the array."""
        if isinstance(value, Tensor | np.ndarray | np.generic):
            return as_tensor("value", value)
        try:
            return torch.as_tensor(value, dtype=self.dtype)
        except (TypeError, ValueError, RuntimeError):
            fix = "Write tensors, arrays or numbers."
            message = problem(
                "`value` is no tensor", got=type_name(value), expected=f"a tensor of {self.dtype}", fix=fix
            )
            raise TypeError(message) from None

    def _rows(self, value: Any) -> Tensor:
        tensor = self._tensor(value)
        if not tensor.ndim:
            fix = "Use `write` for one element."
            raise ValueError(problem("`value` must have rows", got="shape ()", expected="[N, ...]", fix=fix))
        return tensor

    def _check_value(self, value: Any) -> Tensor:
        tensor = self._tensor(value)
        if tensor.dtype != self.dtype:
            what, fix = "the dtype of the value is not that of the array", f"Convert it with `.to({self.dtype})`."
            raise InvalidArgumentError(problem(what, got=tensor.dtype, expected=self.dtype, fix=fix))
        shape = self.element_shape
        if shape is not None and not _matches(shape_of(tensor), shape):
            what = "inconsistent shapes: all elements must have one shape"
            fix = "Pass `infer_shape=False` and no `element_shape` to the array, or write one shape."
            raise ValueError(problem(what, got=shape_of(tensor), expected=shape, fix=fix))
        return tensor

    def _elements(self, places: Iterable[int]) -> list[Tensor]:
        """The elements at these places, if all can be read; they are still there then."""
        found: list[Tensor] = []
        gone = set(self._slots.cleared)
        for place in places:
            if self._check_bounds(place) in gone:
                what = f"element {place} was read before and then cleared"
                fix = "Pass `clear_after_read=False` to the array."
                raise InvalidArgumentError(problem(what, got="a second read", expected="one read", fix=fix))
            found.append(self._element(place))
            if self.clear_after_read:
                gone.add(place)
        return found

    def _clear(self, places: Iterable[int]) -> None:
        """What was read may be read no more."""
        if self.clear_after_read:
            self._slots.cleared.update(places)

    def _element(self, place: int) -> Tensor:
        value, version = self._slots.values.get(place, (None, 0))
        if value is not None and version <= self._version:
            return value
        shape = [size for size in self.element_shape or () if size is not None]
        if self.element_shape is None or len(shape) < len(self.element_shape):
            what = f"element {place} was never written, and its shape is not known"
            expected, fix = "at least one write, or `element_shape`", "Pass `element_shape=` to the array."
            raise InvalidArgumentError(problem(what, got="no element", expected=expected, fix=fix))
        return torch.zeros(shape, dtype=self.dtype, device=self._device())

    def _device(self) -> torch.device | None:
        """Zeros are made on the device of the first element."""
        return next((value.device for value, _ in self._slots.values.values()), None)

    def _stacked(self, places: list[int]) -> Tensor:
        elements = self._elements(places)
        if not elements:
            shape = [size or 0 for size in self.element_shape or ()]
            return torch.zeros(0, *shape, dtype=self.dtype, device=self._device())
        shapes = sorted({shape_of(element) for element in elements})
        if len(shapes) > 1:
            what, fix = "elements of different shapes cannot be stacked", "Use `concat`, or read them one by one."
            raise ValueError(problem(what, got=shapes, expected="one shape", fix=fix))
        self._clear(places)
        return torch.stack(elements)


def _check_index_type(index: Any) -> int:
    """An index is an int, or a tensor of one."""
    try:
        if isinstance(index, bool) or getattr(index, "dtype", None) == torch.bool:
            raise TypeError
        return operator.index(index)
    except (TypeError, RuntimeError):
        got = type_name(index) if isinstance(index, Tensor) else repr(index)
        fix = "Write one element at a time; `scatter` takes several."
        message = problem("`index` must be an integer", got=got, expected="an int or an integer tensor ()", fix=fix)
        raise TypeError(message) from None


def _check_indices(name: str, values: Any) -> list[int]:
    """A vector of integers as a list."""
    try:
        vector = as_tensor(name, values) if isinstance(values, np.ndarray) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        fix = "Pass a list of ints."
        message = problem(f"`{name}` must be a vector of integers", got=repr(values), expected="shape (N,)", fix=fix)
        raise TypeError(message) from None
    whole = not (vector.is_floating_point() or vector.is_complex() or vector.dtype == torch.bool)
    if vector.ndim != 1 or not (whole or not vector.numel()):
        got, fix = f"shape {shape_of(vector)} of {vector.dtype}", "Pass a list of ints."
        error = ValueError if whole else TypeError
        raise error(problem(f"`{name}` must be a vector of integers", got=got, expected="shape (N,)", fix=fix))
    return [int(value) for value in vector.tolist()]


def _check_element_shape(shape: Any) -> tuple[int | None, ...]:
    """Sizes, or None for one that the first write decides."""
    sizes = tuple(shape) if isinstance(shape, list | tuple) else None
    if sizes is None or not all(size is None or isinstance(size, int | np.integer) for size in sizes):
        fix = "Pass the shape of one element, as in `element_shape=(2, 3)`."
        what = "`element_shape` must be a shape"
        raise TypeError(problem(what, got=repr(shape), expected="a tuple of sizes and Nones", fix=fix))
    if any(size is not None and size < 0 for size in sizes):
        fix = "Use None for a size that is not known."
        raise ValueError(problem("`element_shape` has a negative size", got=sizes, expected="sizes >= 0", fix=fix))
    return sizes


def _matches(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted, strict=True))
