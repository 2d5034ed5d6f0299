"""What a checkpoint says of a variable before it is read, and what it is when it has been."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime.interop.checkpoints._corruption import Damaged
from throughtime.interop.checkpoints._partitioned_variables import Shape, check_rank
from throughtime.interop.checkpoints._protobuf import Message

# Numbers of a variable are counted in 64 bits with a sign.
MOST_NUMBERS = 2**63 - 1

Value = Tensor | NDArray[np.object_]
"""A tensor; texts, which torch has none of, are an array of bytes."""


class Variable(NamedTuple):
    """A variable of a checkpoint: TensorFlow's name of its dtype, its shape, and how many bytes it takes there.

    >>> import throughtime as tt
    >>> tt.interop.Variable("float32", (3, 4), 48)
    Variable(dtype='float32', shape=(3, 4), nbytes=48)
    """

    dtype: str
    shape: Shape
    nbytes: int


def read_shape(message: Message) -> Shape:
    """A shape as it is described in a file."""
    if message.number(3):
        raise Damaged("a variable of unknown rank")
    check_rank(len(message.parts(2)))
    shape = tuple(side.signed(1) for side in message.messages(2))
    if any(side < 0 for side in shape) or prod(shape) > MOST_NUMBERS:
        raise Damaged(f"a variable of shape {shape}")
    return shape


def tensor_of(data: NDArray[np.uint8], dtype: torch.dtype, shape: Shape) -> Tensor:
    """The tensor that lies in these bytes, which are as many as it needs."""
    # Of no bytes torch makes a vector that cannot be seen as another dtype.
    return torch.from_numpy(data).view(dtype).reshape(shape) if data.size else torch.empty(shape, dtype=dtype)


def text_array(shape: Shape, texts: Sequence[bytes]) -> NDArray[np.object_]:
    """An array of texts, as bytes."""
    found: NDArray[Any] = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(shape)
