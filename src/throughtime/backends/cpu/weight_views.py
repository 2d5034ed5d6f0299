"""Views of a cell's tensors that a kernel reads: offsets that hold as long as the strides do not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Value

if TYPE_CHECKING:
    from throughtime.backends.cpu.loop import CpuLoop


class _WeightView(NamedTuple):
    """A view of one of the tensors: the index of that tensor, the offset in bytes, strides and shape."""

    tensor: int
    offset: int
    strides: tuple[int, ...]
    shape: torch.Size

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        tensor = tensors[self.tensor]
        start = tensor.storage_offset() + self.offset // tensor.itemsize
        return tensor.as_strided(self.shape, self.strides, start)


class WeightViews:
    """The constants and matrices that a loop reads, and views for the section after it."""

    def __init__(
        self, loop: CpuLoop, after: Sequence[Value], views: dict[Value, _WeightView], tensors: Sequence[Tensor]
    ) -> None:
        self._constants = [given if isinstance(given, Tensor) else views[given] for given in loop.constants]
        self._matrices = [views[value] for value in loop.matrices]
        self._after = [views[value] for value in after]
        self._strides = [(index, tensors[index].stride()) for index in sorted({view.tensor for view in views.values()})]

    @classmethod
    def of(cls, loop: CpuLoop, env: Env, tensors: Sequence[Tensor], after: Sequence[Value] = ()) -> WeightViews | None:
        """The views as they are in `env`; None if something that is read is not a view of one tensor."""
        views: dict[Value, _WeightView] = {}
        for value in (*loop.matrices, *(given for given in loop.constants if isinstance(given, Value)), *after):
            found = env.get(value)
            index = None if found is None else _owner(found, tensors)
            if found is None or index is None or (found.ndim != 2 and not found.is_contiguous()):
                return None
            if found.dtype is not tensors[index].dtype:
                return None
            views[value] = _WeightView(index, found.data_ptr() - tensors[index].data_ptr(), found.stride(), found.shape)
        return cls(loop, after, views, tensors)

    def fit(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors have the same strides as those, and no negative bit."""
        for index, strides in self._strides:
            if tensors[index].stride() != strides or tensors[index].is_neg():
                return False
        return True

    def addresses(self, tensors: Sequence[Tensor]) -> tuple[list[int], list[tuple[int, ...]]]:
        """The addresses of the constants; the addresses and strides of the matrices."""
        starts = [tensor.data_ptr() for tensor in tensors]
        constants = [
            starts[given.tensor] + given.offset if isinstance(given, _WeightView) else given.data_ptr()
            for given in self._constants
        ]
        return constants, [(starts[tensor] + offset, *strides) for tensor, offset, strides, _ in self._matrices]

    def views(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [view.of(tensors) for view in self._after]


def _owner(view: Tensor, tensors: Sequence[Tensor]) -> int | None:
    """The index of the tensor that owns the storage of a view."""
    storage = view.untyped_storage().data_ptr()
    owners = [index for index, tensor in enumerate(tensors) if tensor.untyped_storage().data_ptr() == storage]
    # Tensors that share a storage may get storages of their own later.
    return owners[0] if len(owners) == 1 else None
