"""`tf.slice` and `tf.strided_slice`."""

from __future__ import annotations

from typing import Any

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._slicing import get_item
from throughtime.tf1.ops._structure import takes_strings
from throughtime.tf1.ops._table import Static, Tensor, ints, operation, static_or_tensor


def _sliced_shape(input_: Any, begin: Any, size: Any) -> list[Any]:
    from throughtime.tf1.ops._helpers import sizes_of  # noqa: PLC0415

    return [sizes_of(size)]


@operation("slice", op_name="Slice", fallback_rule=_sliced_shape)
@takes_strings
def slice_(input_: Tensor, begin: Static, size: Static) -> Tensor:
    """The part that begins at `begin` and has this size; -1 is all that is left."""
    for axis, (first, count) in enumerate(zip(ints(begin), ints(size), strict=True)):
        left = input_.shape[axis] - first
        if count > left:
            raise ValueError(f"Expected size[{axis}] in [0, {left}], but got {count}")
        input_ = input_.narrow(axis, first, left if count == -1 else count)
    return input_


@exported("strided_slice")
def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Any:
    """A slice with steps; bits of the masks leave out an end, drop an axis or add one."""
    begins, ends = _items(begin), _items(end)
    steps = [1] * len(begins) if strides is None else _items(strides)
    key: list[Any] = []
    for place, (first, last, step) in enumerate(zip(begins, ends, steps, strict=True)):
        bit = 1 << place
        if ellipsis_mask & bit:
            key.append(Ellipsis)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(first)
        else:
            key.append(slice(None if begin_mask & bit else first, None if end_mask & bit else last, step))
    return get_item(input_, tuple(key), name or "StridedSlice")


def _items(value: Any) -> list[Any]:
    found = static_or_tensor(value)
    if isinstance(found, list | tuple):
        return list(found)
    tensor = convert_to_tensor(found)
    count = (tensor.shape.sizes or (None,))[0]
    if count is None:
        raise ValueError(f"begin, end and strides need a known size, got {tensor.shape}")
    return [tensor[place] for place in range(count)]
