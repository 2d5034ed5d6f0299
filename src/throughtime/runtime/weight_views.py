"""What a kernel reads of a cell's tensors: parts at known distances from where those begin, as long as they lie so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from throughtime.backends.cpu.loop import CpuLoop
from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Value


class _WeightView(NamedTuple):
    """A part of one of the tensors: which one, bytes from its beginning, strides, and its shape."""

    tensor: int
    offset: int
    strides: tuple[int, ...]
    shape: tuple[Any, ...]

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        tensor = tensors[self.tensor]
        start = tensor.storage_offset() + self.offset // tensor.itemsize
        return tensor.as_strided(self.shape, self.strides, start)


class WeightViews:
    """The constants and matrices that a loop reads, and views for whoever comes after it."""

    def __init__(
        self, loop: CpuLoop, views: Sequence[Value], parts: dict[Value, _WeightView], tensors: Sequence[Tensor]
    ) -> None:
        self._constants = [given if isinstance(given, Tensor) else parts[given] for given in loop.constants]
        self._matrices = [parts[value] for value in loop.matrices]
        self._views = [parts[value] for value in views]
        self._strides = [(index, tensors[index].stride()) for index in sorted({part.tensor for part in parts.values()})]

    @classmethod
    def of(cls, loop: CpuLoop, env: Env, tensors: Sequence[Tensor], views: Sequence[Value] = ()) -> WeightViews | None:
        """Where in the tensors all of it lies, as `env` has it; None if something lies elsewhere."""
        parts: dict[Value, _WeightView] = {}
        for value in (*loop.matrices, *(given for given in loop.constants if isinstance(given, Value)), *views):
            found = env.get(value)
            index = None if found is None else _owner(found, tensors)
            if found is None or index is None or (found.ndim != 2 and not found.is_contiguous()):
                return None
            if found.dtype is not tensors[index].dtype:
                return None
            parts[value] = _WeightView(index, found.data_ptr() - tensors[index].data_ptr(), found.stride(), value.shape)
        return cls(loop, views, parts, tensors)

    def fit(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors lie in memory as those did, and with their signs."""
        for index, strides in self._strides:
            if tensors[index].stride() != strides or tensors[index].is_neg():
                return False
        return True

    def addresses(self, tensors: Sequence[Tensor]) -> tuple[list[int], list[tuple[int, ...]]]:
        """Those of the constants, and those of the matrices with their strides."""
        starts = [tensor.data_ptr() for tensor in tensors]
        constants = [
            starts[given.tensor] + given.offset if isinstance(given, _WeightView) else given.data_ptr()
            for given in self._constants
        ]
        return constants, [(starts[tensor] + offset, *strides) for tensor, offset, strides, _ in self._matrices]

    def views(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [part.of(tensors) for part in self._views]


def _owner(part: Tensor, tensors: Sequence[Tensor]) -> int | None:
    storage = part.untyped_storage().data_ptr()
    owners = [index for index, tensor in enumerate(tensors) if tensor.untyped_storage().data_ptr() == storage]
    # Several tensors on one storage may part ways.
    return owners[0] if len(owners) == 1 else None
