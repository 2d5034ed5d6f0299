"""Whole numbers as arguments: tokens, lengths, parents."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import InvalidArgumentError, problem, shape_of
from throughtime._tensors import as_tensor

_FORMS = {
    0: ("a scalar", "shape ()"),
    1: ("a vector", "shape (B,)"),
    2: ("[B, W]", "[B, W]"),
    3: ("[T, B, W]", "[T, B, W]"),
}


def whole_numbers(name: str, value: Any, ndim: int, fix: str) -> Tensor:
    """`value` as an int64 tensor of `ndim` axes, from a tensor, an array, a list or a number."""
    form, expected = _FORMS[ndim]
    if isinstance(value, list | tuple | range):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            what = f"`{name}` must be whole numbers"
            raise TypeError(problem(what, got=repr(value), expected=expected, fix=fix)) from None
    tensor = as_tensor(name, value)
    if tensor.ndim != ndim:
        raise ValueError(
            problem(f"`{name}` must be {form}", got=f"shape {shape_of(tensor)}", expected=expected, fix=fix)
        )
    real = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
    if real and tensor.numel():
        raise TypeError(
            problem(f"`{name}` must be whole numbers", got=tensor.dtype, expected="an integer dtype", fix=fix)
        )
    check_values_known(name, tensor)
    return tensor.long()


def check_values_known(name: str, tensor: Tensor) -> None:
    """Raise for a tensor that has a shape but no values."""
    if tensor.device.type == "meta":
        what, fix = f"`{name}` has no values", "Pass it on a real device."
        raise InvalidArgumentError(problem(what, got="a tensor on the meta device", expected="known values", fix=fix))


def row_shape(name: str, value: Any) -> torch.Size:
    """The shape of a row: an int, or a sequence of them."""
    try:
        sizes = [operator.index(value)] if isinstance(value, int) else [operator.index(size) for size in value]
    except TypeError:
        sizes = [-1]
    if isinstance(value, bool) or any(size < 0 for size in sizes):
        fix = "Pass the dimensions of one row: [] for one number, [3] for three."
        raise TypeError(problem(f"`{name}` must be a shape", got=repr(value), expected="a list of sizes", fix=fix))
    return torch.Size(sizes)
