"""`tensor[...]`: slices, indices, new axes and masks, as TensorFlow's `strided_slice`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor, is_tensor

_PARTS = ("start", "stop", "step")


def get_item(tensor: Any, key: Any, name: str | None = None) -> Tensor:
    """`tensor[key]`."""
    tensor = convert_to_tensor(tensor)
    keys = list(key) if isinstance(key, tuple) else [key]
    inputs: list[Tensor] = [tensor]
    template = [_open(one, inputs) for one in keys]

    def kernel(value: Any, *indices: Any) -> Any:
        return _taken(value, [_filled(one, indices) for one in template])

    kernel.takes_strings = True  # type: ignore[attr-defined]
    op = create_op("StridedSlice", kernel, inputs, name=name or "strided_slice", probe_key=_key(template))
    # TensorFlow makes constants of where a slice begins, ends, and of its steps.
    get_default_graph().skip_ids(3)
    op.outputs[0]._shape = _forget_clipped(tensor.shape, template, op.outputs[0].shape)
    return op.outputs[0]


def _key(template: list[Any]) -> Any:
    """The template as a part of the key by which results of probes are found again."""
    parts = [tuple(getattr(one, part) for part in _PARTS) if isinstance(one, slice) else one for one in template]
    return (
        None if any(isinstance(one, tuple) and any(map(_is_input, one)) for one in parts) else (get_item, _plain(parts))
    )


def _is_input(value: Any) -> bool:
    return isinstance(value, _Input)


def _plain(parts: list[Any]) -> tuple[Any, ...]:
    return tuple("input" if isinstance(one, _Input) else one for one in parts)


class _Input:
    """An index that is a tensor: which one."""

    def __init__(self, place: int):
        self.place = place


def _open(key: Any, inputs: list[Tensor]) -> Any:
    """A key in which tensors of unknown value are replaced by their places among the inputs."""
    if isinstance(key, slice):
        return slice(*[_open(getattr(key, part), inputs) for part in _PARTS])
    if key is None or key is Ellipsis:
        return key
    if is_tensor(key):
        known = constant_value(convert_to_tensor(key))
        if known is None:
            inputs.append(convert_to_tensor(key))
            return _Input(len(inputs) - 2)
        key = known
    if isinstance(key, bool) or not (
        isinstance(key, int)
        or (isinstance(key, np.integer | np.ndarray) and np.ndim(key) == 0)
        or hasattr(key, "__index__")
    ):
        raise TypeError(
            f"Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 "
            f"tensors are valid indices, got {key!r}; use tf.gather or tf.boolean_mask"
        )
    return int(key)


def _filled(key: Any, indices: tuple[Any, ...]) -> Any:
    if isinstance(key, slice):
        return slice(*[_filled(getattr(key, part), indices) for part in _PARTS])
    return int(indices[key.place]) if isinstance(key, _Input) else key


def _taken(value: Any, keys: list[Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value[tuple(keys)]
    flipped = _negative_steps(value, keys)
    return value[tuple(keys)] if flipped is None else flipped


def _negative_steps(value: torch.Tensor, keys: list[Any]) -> torch.Tensor | None:
    """torch has no negative steps: such an axis is taken by index."""
    if not any(isinstance(key, slice) and (key.step or 1) < 0 for key in keys):
        return None
    used = sum(key is not None and key is not Ellipsis for key in keys)
    axis, forward = 0, []
    for key in keys:
        if key is Ellipsis:
            axis += value.ndim - used
        elif key is not None:
            if isinstance(key, slice) and (key.step or 1) < 0:
                chosen = list(range(*key.indices(value.shape[axis])))
                value = value.index_select(axis, torch.tensor(chosen, dtype=torch.long, device=value.device))
                key = slice(None)  # noqa: PLW2901
            axis += 1
        forward.append(key)
    return value[tuple(forward)]


def _forget_clipped(shape: TensorShape, template: list[Any], found: TensorShape) -> TensorShape:
    """A slice of an unknown dimension has an unknown size, whatever the probes say."""
    if shape.sizes is None or found.sizes is None or None not in shape.sizes:
        return found
    used = sum(key is not None and key is not Ellipsis for key in template)
    sizes, axis, place = list(found.sizes), 0, 0
    for key in template:
        if key is Ellipsis:
            axis, place = axis + len(shape.sizes) - used, place + len(shape.sizes) - used
        elif key is None:
            place += 1
        else:
            if isinstance(key, slice):
                if shape.sizes[axis] is None:
                    sizes[place] = None
                place += 1
            axis += 1
    return TensorShape(sizes)
