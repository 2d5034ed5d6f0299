"""What is taken as a tensor, and what goes with it: numpy arrays, devices, autocast, rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from throughtime._errors import problem, type_name


def as_tensor(name: str, value: Any) -> Tensor:
    """`value` as a dense tensor without a change of dtype; numpy arrays and numbers are taken too."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided and not value.is_nested:
            fix = "Convert it with `.to_dense()`."
            raise TypeError(
                problem(f"`{name}` must be a dense tensor", got=value.layout, expected="torch.strided", fix=fix)
            )
        if value.is_quantized:
            fix = "Convert it with `.dequantize()`."
            raise TypeError(problem(f"`{name}` must hold plain numbers", got=value.dtype, expected="a float", fix=fix))
        return value
    if isinstance(value, np.ndarray):
        return _from_array(name, value)
    if isinstance(value, np.number | np.bool_ | complex | float | int):
        return torch.as_tensor(value)
    raise TypeError(
        problem(
            f"`{name}` holds something that is no tensor",
            got=type_name(value),
            expected="tensors or numpy arrays",
            fix="Convert it with `torch.as_tensor`.",
        )
    )


def _from_array(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares the array's memory where torch can share it, and copies it where it cannot."""
    if array.dtype.kind not in "biufc":
        raise TypeError(
            problem(
                f"`{name}` is an array of objects or text",
                got=f"numpy dtype {array.dtype}",
                expected="an array of numbers",
                fix="Pad ragged rows to one length, then convert with `.astype(np.float32)`.",
            )
        )
    # torch takes neither read-only memory, nor foreign byte orders, nor arrays that run backwards.
    if not array.flags.writeable or not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    return torch.as_tensor(array)


def autocast_on(device: torch.device) -> bool:
    """Whether autocast may change dtypes on this device now."""
    # torch.compile cannot ask the general question: torch 2.11's stops at it.
    available = device.type in ("cpu", "cuda") or torch.amp.is_autocast_available(device.type)
    return available and torch.is_autocast_enabled(device.type)


def records_gradients() -> bool:
    """Whether torch notes what is computed: inference mode does not, whatever else is switched on within it."""
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def check_same_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise a `ValueError` unless both tensors are on one device."""
    if tensor.device != other.device:
        fix = f"Move one: `{name}.to({str(other.device)!r})`, or `cell.to({str(tensor.device)!r})`."
        if tensor.is_meta:
            fix = f"A meta tensor has no values: pass real `{name}`, or `cell.to('meta')` for shapes alone."
        elif other.is_meta:
            where = f"on {str(tensor.device)!r}"
            fix = f"Meta tensors have no values: make {other_name} {where}, or `{name}.to('meta')` for shapes alone."
        raise ValueError(
            problem(
                f"`{name}` and {other_name} are on different devices",
                got=f"{tensor.device} and {other.device}",
                expected="one device",
                fix=fix,
            )
        )


def has_values(tensor: Tensor) -> bool:
    """Whether the values can be read: not of a tensor that only stands for another while it is traced."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.device.type != "meta"


# A tuple of types: torch.compile cannot trace their union.
_LAZY = (UninitializedParameter, UninitializedBuffer)


def is_lazy(tensor: Any) -> bool:
    """Whether a parameter is still to be made; torch's function of this name cannot be traced by torch.compile."""
    return isinstance(tensor, _LAZY)


def rowwise(values: Tensor, like: Tensor) -> Tensor:
    """`values` [B] or [B, W], with axes of one after them, so that each stands for a whole row of `like` [B, ...]."""
    return values.view(*values.shape, *[1] * (like.ndim - values.ndim))


def backwards(steps: Tensor, lengths: Any) -> Tensor:
    """`steps` [T, B, ...] with each row backwards within its length; what lies past it stays where it is."""
    time = torch.arange(len(steps), device=steps.device).unsqueeze(1)
    ends = torch.as_tensor(lengths, dtype=torch.int64, device=steps.device).clamp(0, len(steps))
    source = torch.where(time < ends, ends - 1 - time, time)
    return steps.gather(0, rowwise(source, steps).expand_as(steps))
