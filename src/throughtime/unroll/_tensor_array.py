"""`TensorArray`: a list of tensors that can be written step by step inside a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import InvalidArgumentError, check_dtype, check_positive_int, problem, shape_of


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
        element_shape: Sequence[int] | None = None,
        infer_shape: bool = True,
    ) -> None:
        self.dtype = check_dtype("dtype", dtype)
        self.dynamic_size = dynamic_size
        self.clear_after_read = clear_after_read
        self.infer_shape = infer_shape
        self.element_shape = None if element_shape is None else tuple(element_shape)
        self._size = 0 if size is None else check_positive_int("size", size, minimum=0)
        self._version = 0
        self._slots = _Slots()

    def size(self) -> int:
        """How many elements there are."""
        return self._size

    def write(self, index: int | Tensor, value: Any) -> TensorArray:
        """A new array with `value` at `index`."""
        return self._extended([(int(index), value)])

    def unstack(self, value: Any) -> TensorArray:
        """A new array with the rows of `value` [N, ...] at 0 .. N-1."""
        rows = torch.as_tensor(value).unbind(0)
        return self._extended(list(enumerate(rows)))

    def scatter(self, indices: Sequence[int] | Tensor, value: Any) -> TensorArray:
        """A new array with the rows of `value` [N, ...] at the N `indices`."""
        rows = torch.as_tensor(value).unbind(0)
        places = torch.as_tensor(indices).tolist()
        if len(places) != len(rows):
            raise InvalidArgumentError(
                problem(
                    "scatter needs one index for each row",
                    got=f"{len(places)} indices, {len(rows)} rows",
                    expected="as many",
                    fix="Pass one index for each row of `value`.",
                )
            )
        return self._extended(list(zip(places, rows, strict=True)))

    def split(self, value: Any, lengths: Sequence[int] | Tensor) -> TensorArray:
        """A new array with `value` [N, ...] cut into pieces of the given lengths."""
        pieces = torch.split(torch.as_tensor(value), torch.as_tensor(lengths).tolist())
        if self.infer_shape and len({shape_of(piece) for piece in pieces}) > 1:
            raise ValueError(
                problem(
                    "split makes elements of different shapes",
                    got=[shape_of(piece) for piece in pieces],
                    expected="one element shape",
                    fix="Pass `infer_shape=False` to the array.",
                )
            )
        return self._extended(list(enumerate(pieces)))

    def read(self, index: int | Tensor) -> Tensor:
        """The element at `index`."""
        place = self._check_index(int(index))
        if place in self._slots.cleared:
            raise InvalidArgumentError(
                problem(
                    f"element {place} was read before and then cleared",
                    got="a second read",
                    expected="one read",
                    fix="Pass `clear_after_read=False` to the array.",
                )
            )
        value = self._element(place)
        if self.clear_after_read:
            self._slots.cleared.add(place)
        return value

    def gather(self, indices: Sequence[int] | Tensor) -> Tensor:
        """The elements at `indices`, stacked."""
        return self._stacked([self.read(index) for index in torch.as_tensor(indices).tolist()])

    def stack(self) -> Tensor:
        """All elements as one tensor [size, ...]."""
        return self._stacked([self.read(index) for index in range(self._size)])

    def concat(self) -> Tensor:
        """All elements joined along their first axis."""
        elements = [self.read(index) for index in range(self._size)]
        return torch.cat(elements) if elements else self._stacked([])

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
        place = self._check_index(index, growing=self.dynamic_size)
        tensor = self._check_value(value)
        if place in self._slots.values or place in self._slots.cleared:
            raise InvalidArgumentError(
                problem(
                    f"element {place} was written before",
                    got="a second write",
                    expected="one write for each element",
                    fix="Write to another index, or gather the results and add them up first.",
                )
            )
        if self.element_shape is None and self.infer_shape:
            self.element_shape = shape_of(tensor)
        self._slots.values[place] = (tensor, self._version)
        self._size = max(self._size, place + 1)

    def _check_index(self, index: int, *, growing: bool = False) -> int:
        if index < 0 or (index >= self._size and not growing):
            raise InvalidArgumentError(
                problem(
                    "index out of bounds",
                    got=index,
                    expected=f"0 to {self._size - 1}",
                    fix="Make the array larger, or pass `dynamic_size=True` to let writes extend it.",
                )
            )
        return index

    def _check_value(self, value: Any) -> Tensor:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=self.dtype)
        if tensor.dtype != self.dtype:
            raise InvalidArgumentError(
                problem(
                    "the dtype of the value is not that of the array",
                    got=tensor.dtype,
                    expected=self.dtype,
                    fix=f"Convert it with `.to({self.dtype})`.",
                )
            )
        if self.infer_shape and self.element_shape is not None and shape_of(tensor) != self.element_shape:
            raise ValueError(
                problem(
                    "inconsistent shapes: all elements must have one shape",
                    got=shape_of(tensor),
                    expected=self.element_shape,
                    fix="Pass `infer_shape=False` to the array, or write one shape.",
                )
            )
        return tensor

    def _element(self, place: int) -> Tensor:
        value, version = self._slots.values.get(place, (None, 0))
        if value is not None and version <= self._version:
            return value
        if self.element_shape is None:
            raise InvalidArgumentError(
                problem(
                    f"element {place} was never written, and its shape is not known",
                    got="no element",
                    expected="at least one write, or `element_shape`",
                    fix="Pass `element_shape=` to the array.",
                )
            )
        return torch.zeros(self.element_shape, dtype=self.dtype, device=self._device())

    def _device(self) -> torch.device | None:
        """Zeros go where the first element lies."""
        return next((value.device for value, _ in self._slots.values.values()), None)

    def _stacked(self, elements: list[Tensor]) -> Tensor:
        if elements:
            return torch.stack(elements)
        return torch.zeros(0, *(self.element_shape or ()), dtype=self.dtype, device=self._device())
