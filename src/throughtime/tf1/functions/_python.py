"""Operations that leave the graph: Python functions and printing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from throughtime.tf1._errors import OutOfRangeError
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import UNKNOWN
from throughtime.tf1.ops._convert import convert_to_tensor, numpy_value, torch_value


def _as_numpy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        # The function may change what it gets.
        array = value.detach().cpu().clone().numpy()
        return array[()] if array.ndim == 0 else array
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


@exported("py_func", "numpy_function")
def py_func(func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None) -> Any:
    """A Python function of arrays as an operation; gradients do not pass."""
    del stateful
    alone = not isinstance(Tout, list | tuple)
    dtypes = [as_dtype(one).base_dtype for one in ([Tout] if alone else Tout)]
    inputs = [convert_to_tensor(one) for one in inp]

    def kernel(state: Any, *values: Any) -> Any:
        try:
            result = func(*map(_as_numpy, values))
        except StopIteration as error:
            raise OutOfRangeError(None, None, f"StopIteration: {error}") from error
        results = list(result) if isinstance(result, list | tuple) and not alone else [result]
        if not dtypes:
            return None
        if len(results) != len(dtypes):
            raise ValueError(f"py_func returns {len(results)} values, expected {len(dtypes)}: give Tout for each")
        made = [_returned(one, dtype, state) for one, dtype in zip(results, dtypes, strict=True)]
        return tuple(made)

    op = create_op(
        "PyFunc",
        kernel,
        inputs,
        name=name,
        dtypes=dtypes,
        shapes=[UNKNOWN] * len(dtypes),
        stateful=True,
        differentiable=False,
        attrs={"tuple": True},
    )
    if not dtypes:
        return op
    return op.outputs[0] if alone else op.outputs


def _returned(value: Any, dtype: Any, state: Any) -> Any:
    array = np.asarray(value)
    found = as_dtype(array.dtype)
    if found != dtype and not (dtype.torch_dtype is None and found.torch_dtype is None):
        if isinstance(value, np.ndarray | np.generic):
            raise ValueError(f"py_func returned {found.name}, expected {dtype.name}: convert it, or change Tout")
        array = numpy_value(value, dtype)
    made = torch_value(numpy_value(array, dtype) if dtype.torch_dtype is None else array, dtype)
    return made.to(state.device) if isinstance(made, torch.Tensor) and state is not None else made


@exported("Print")
def Print(  # noqa: N802
    input_: Any,
    data: Any,
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """The value of `input_`; prints `data` to standard error whenever it is computed."""
    value = convert_to_tensor(input_)
    shown = [convert_to_tensor(one) for one in data]
    printed = [0]

    def kernel(state: Any, first: Any, *rest: Any) -> Any:
        del state
        if first_n is None or first_n < 0 or printed[0] < first_n:
            printed[0] += 1
            print((message or "") + "".join(_shown(one, summarize or 3) for one in rest), file=sys.stderr)  # noqa: T201
        return first

    return create_op(
        "Print",
        kernel,
        [value, *shown],
        name=name,
        dtypes=[value.dtype.base_dtype],
        shapes=[value.shape],
        stateful=True,
    ).outputs[0]


def _shown(value: Any, most: int) -> str:
    """The first `most` elements, as TensorFlow shows them."""
    array = np.asarray(_as_numpy(value))
    left = [array.size if most < 0 else most]
    return f"[{_item(array[()])}]" if array.ndim == 0 else _shown_part(array, left)


def _shown_part(array: np.ndarray[Any, Any], left: list[int]) -> str:
    if array.ndim == 1:
        taken = array[: left[0]]
        left[0] -= len(taken)
        return "[" + " ".join(map(_item, taken)) + ("..." if len(taken) < len(array) else "") + "]"
    parts = []
    for part in array:
        if left[0] <= 0:
            parts.append("...")
            break
        parts.append(_shown_part(part, left))
    return "[" + "".join(parts) + "]"


def _item(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.bool_):
        return "1" if value else "0"
    return f"{value:.9g}" if isinstance(value, np.floating) else str(value)
