"""TensorFlow's dtypes: their numbers in a file, their names, and torch's."""

from __future__ import annotations

from typing import NamedTuple

import torch

from throughtime.interop.checkpoints._corruption import Damaged


class DType(NamedTuple):
    """A dtype by TensorFlow's number and name; strings, and a few others, have none of torch's."""

    number: int
    name: str
    torch: torch.dtype | None

    @property
    def itemsize(self) -> int:
        """The bytes of one number; 0 where torch has none."""
        return 0 if self.torch is None else self.torch.itemsize


STRING = DType(7, "string", None)
_ALL = [
    DType(1, "float32", torch.float32),
    DType(2, "float64", torch.float64),
    DType(3, "int32", torch.int32),
    DType(4, "uint8", torch.uint8),
    DType(5, "int16", torch.int16),
    DType(6, "int8", torch.int8),
    STRING,
    DType(8, "complex64", torch.complex64),
    DType(9, "int64", torch.int64),
    DType(10, "bool", torch.bool),
    DType(14, "bfloat16", torch.bfloat16),
    DType(17, "uint16", torch.uint16),
    DType(18, "complex128", torch.complex128),
    DType(19, "float16", torch.float16),
    DType(22, "uint32", torch.uint32),
    DType(23, "uint64", torch.uint64),
    DType(24, "float8_e5m2", torch.float8_e5m2),
    DType(25, "float8_e4m3fn", torch.float8_e4m3fn),
    # Whole numbers that stand for others: what they are is kept, what they stand for is not in the file.
    DType(11, "qint8", torch.int8),
    DType(12, "quint8", torch.uint8),
    DType(13, "qint32", torch.int32),
    DType(15, "qint16", torch.int16),
    DType(16, "quint16", torch.uint16),
]
_BY_NUMBER = {each.number: each for each in _ALL}
# The first of a dtype is the plain one.
_BY_TORCH = {each.torch: each for each in reversed(_ALL)}


def by_number(number: int) -> DType:
    """The dtype that has this number in a file; that of a reference is 100 more."""
    return _BY_NUMBER.get(number - 100 if number > 100 else number) or DType(number, f"dtype {number}", None)


def by_torch(dtype: torch.dtype) -> DType | None:
    """TensorFlow's name for a dtype, if it has one."""
    return _BY_TORCH.get(dtype)


def known(dtype: DType) -> torch.dtype:
    """The dtype of torch that holds such numbers; those that others hold can be listed, but not read."""
    if dtype.torch is None:
        raise Damaged(f"TensorFlow's {dtype.name}, which torch has nothing for")
    return dtype.torch


def by_name(name: str) -> torch.dtype | None:
    """The dtype of torch for TensorFlow's name of one."""
    return next((each.torch for each in _ALL if each.name == name), None)
