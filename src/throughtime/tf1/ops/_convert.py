"""`convert_to_tensor`: Python numbers, lists, arrays, variables and nests of tensors as tensors of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from throughtime._errors import problem
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import DType, as_dtype, float32, float64, int32, int64, string
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shape_inference import LARGEST_HOST_VALUE, same_host_value
from throughtime.tf1.graph._shapes import Dimension, TensorShape, as_shape

_CONVERSIONS: list[tuple[type, Callable[..., Any]]] = []


@exported("register_tensor_conversion_function")
def register_tensor_conversion_function(
    base_type: Any, conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Teach `convert_to_tensor` a type: `conversion_func(value, dtype, name, as_ref)` returns a tensor."""
    del priority
    kinds = base_type if isinstance(base_type, tuple) else (base_type,)
    _CONVERSIONS.extend((kind, conversion_func) for kind in kinds)


@exported("convert_to_tensor", "convert_to_tensor_or_sparse_tensor", "convert_to_tensor_or_indexed_slices")
def convert_to_tensor(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None, dtype_hint: Any = None
) -> Tensor:
    """`value` as a tensor of the default graph."""
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    if isinstance(value, Tensor) or hasattr(value, "_as_tensor"):
        return _with_dtype(value if isinstance(value, Tensor) else value._as_tensor(), wanted)
    for kind, conversion in reversed(_CONVERSIONS):
        if isinstance(value, kind):
            found: Tensor = conversion(value, dtype=wanted, name=name, as_ref=False)
            return found
    if isinstance(value, TensorShape):
        return _from_shape(value, wanted, name)
    if isinstance(value, list | tuple) and _has_tensor(value):
        return _packed(value, wanted, name)
    hint = preferred_dtype or dtype_hint
    if wanted is None and hint is not None:
        try:
            return constant(value, hint, name=name or "Const")
        except (TypeError, ValueError):
            wanted = None
    return constant(value, wanted, name=name or "Const")


def _with_dtype(tensor: Tensor, wanted: DType | None) -> Tensor:
    if wanted is not None and tensor.dtype.base_dtype != wanted:
        raise ValueError(
            f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype {tensor.dtype.name}: "
            f"{str(tensor)!r}; use tf.cast"
        )
    return tensor


def _from_shape(shape: TensorShape, wanted: DType | None, name: str | None) -> Tensor:
    if not shape.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {shape}; use tf.shape")
    return constant(np.array(shape.as_list(), np.int64), wanted or int32, name=name or "shape_as_tensor")


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_tensor, value))
    return isinstance(value, Tensor) or hasattr(value, "_as_tensor")


def _packed(values: Sequence[Any], wanted: DType | None, name: str | None) -> Tensor:
    """A list with tensors among its items, packed along a new first axis."""
    wanted = wanted or _dtype_among(values)
    items = [convert_to_tensor(item, wanted) for item in values]
    return create_op("Pack", lambda *parts: torch.stack(parts), items, name=name or "packed").outputs[0]


def _dtype_among(values: Any) -> DType | None:
    for item in values:
        if isinstance(item, list | tuple):
            found = _dtype_among(item)
            if found is not None:
                return found
        elif isinstance(item, Tensor) or hasattr(item, "_as_tensor"):
            return as_dtype(item.dtype).base_dtype
    return None


def numpy_value(value: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """`value` as an array of TensorFlow's default types: Python floats are float32, ints int32, strings objects."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    value = _without_dimensions(value)
    if value is None:
        raise ValueError("None values not supported.")
    if dtype is not None and dtype.is_integer:
        _check_integers(value, dtype)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"Can't convert non-rectangular Python sequence to Tensor: {error}") from None
    if array.dtype.kind in "SUO":
        return _strings(array, value, dtype)
    from_numpy = isinstance(value, np.ndarray | np.generic) or _has_numpy(value)
    target = dtype or (as_dtype(array.dtype) if from_numpy else _python_dtype(array))
    if dtype is string:
        _refuse(value, dtype)
    return np.asarray(array, target.as_numpy_dtype)


def _check_integers(value: Any, dtype: DType) -> None:
    """Python floats are no integers; arrays are converted."""
    if isinstance(value, list | tuple):
        for item in value:
            _check_integers(item, dtype)
    elif isinstance(value, float | complex | str) and not isinstance(value, np.generic):
        _refuse(value, dtype)


def _refuse(value: Any, dtype: DType) -> None:
    got, expected = f"{value!r} of type {type(value).__name__!r}", dtype.name
    raise TypeError(
        problem(f"Expected {dtype.name}", got=got, expected=expected, fix="Use tf.cast, or pass that type.")
    )


def _without_dimensions(value: Any) -> Any:
    if isinstance(value, Dimension):
        return value.value
    if isinstance(value, list | tuple) and any(isinstance(item, Dimension | list | tuple) for item in value):
        return [_without_dimensions(item) for item in value]
    return value


def _has_numpy(value: Any) -> bool:
    while isinstance(value, list | tuple) and len(value):
        value = value[0]
    return isinstance(value, np.ndarray | np.generic)


def _python_dtype(array: np.ndarray[Any, Any]) -> DType:
    if array.dtype == np.int64:
        large = array.size and (array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min)
        return int64 if large else int32
    return float32 if array.dtype == np.float64 else as_dtype(array.dtype)


def _strings(array: np.ndarray[Any, Any], value: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    wrong = next((item for item in _leaves(array, value) if not isinstance(item, str | bytes)), None)
    if wrong is not None:
        raise TypeError(f"Failed to convert object of type {type(value).__name__} to Tensor. Contents: {wrong!r}.")
    if dtype is not None and dtype != string:
        _refuse(value, dtype)
    items = [item.encode() if isinstance(item, str) else bytes(item) for item in array.astype(object).flat]
    return np.array([*items, None], object)[:-1].reshape(array.shape)


def _leaves(array: np.ndarray[Any, Any], value: Any) -> list[Any]:
    """The items as they were given: numpy makes strings of numbers next to strings."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(np.asarray(item), item)]
    return list(array.astype(object).flat)


def torch_value(array: np.ndarray[Any, Any], dtype: DType) -> Any:
    """An array as the value of a tensor: torch's, or the array itself for strings."""
    if dtype.torch_dtype is None:
        return array
    return torch.as_tensor(np.array(array)).to(dtype.torch_dtype)


@exported("constant", "constant_v1")
def constant(
    value: Any, dtype: Any = None, shape: Any = None, name: str = "Const", verify_shape: bool = False
) -> Tensor:
    """A constant; with `shape`, the last element fills what `value` does not."""
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    array = numpy_value(value, wanted)
    if shape is not None:
        array = _shaped(array, as_shape(shape), verify_shape)
    found = wanted or as_dtype(array.dtype)
    return constant_of(torch_value(array, found), found, name)


def constant_of(value: Any, dtype: DType, name: str = "Const") -> Tensor:
    """A constant of a torch value (or of an array of strings)."""
    op = create_op(
        "Const", lambda: value, name=name, dtypes=[dtype], shapes=[tuple(value.shape)], attrs={"value": value}
    )
    tensor = op.outputs[0]
    small = isinstance(value, torch.Tensor) and value.numel() <= LARGEST_HOST_VALUE
    if small and (dtype.is_integer or dtype.is_bool or value.ndim == 0):
        tensor.host = (value, value)
    return tensor


def _shaped(array: np.ndarray[Any, Any], shape: TensorShape, verify: bool) -> np.ndarray[Any, Any]:
    sizes = [size or 0 for size in shape.as_list()]
    if verify and tuple(sizes) != array.shape:
        raise TypeError(f"Expected Tensor's shape: {tuple(sizes)}, got {array.shape}.")
    count = int(np.prod(sizes))
    if array.size > count:
        raise ValueError(f"Too many elements provided. Needed at most {count}, but received {array.size}")
    flat = array.reshape(-1)
    if array.size < count:
        flat = np.concatenate([flat, np.repeat(flat[-1:], count - array.size)])
    return flat.reshape(sizes)


@exported("get_static_value", "contrib.util.constant_value")
def constant_value(tensor: Any, partial: bool = False) -> Any:
    """The value of a tensor that derives from constants alone, as an array; None if it is not known."""
    del partial
    if not isinstance(tensor, Tensor):
        return None if not hasattr(tensor, "_as_tensor") else constant_value(tensor._as_tensor())
    if tensor.op.type == "Const":
        value = tensor.op.attrs["value"]
        return value.numpy() if isinstance(value, torch.Tensor) else value
    if tensor.host is not None and same_host_value(tensor.host):
        return tensor.host[0].numpy()
    return None


@exported("is_tensor", "contrib.framework.is_tensor")
def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor or a variable."""
    return isinstance(x, Tensor) or hasattr(x, "_as_tensor")


__all__ = ["constant", "constant_value", "convert_to_tensor", "float64", "is_tensor"]
