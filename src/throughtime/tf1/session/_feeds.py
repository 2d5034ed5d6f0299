"""Feeds: a `feed_dict` as tensors and the values that replace them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from throughtime import _pytree
from throughtime.tf1._errors import InvalidArgumentError
from throughtime.tf1.graph._graph import Graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._user_line import describe_line
from throughtime.tf1.ops._convert import numpy_value


def flatten_feeds(graph: Graph, feed_dict: Any) -> list[tuple[Tensor, Any]]:
    """Pairs of a tensor and what is fed for it; a nest of tensors takes a nest of values."""
    if not feed_dict:
        return []
    if not hasattr(feed_dict, "items"):
        raise TypeError(f"feed_dict must be a dict, got {type(feed_dict).__name__}: use {{placeholder: value}}")
    pairs: list[tuple[Tensor, Any]] = []
    for key, value in feed_dict.items():
        pairs.extend((_element(graph, tensor), one) for tensor, one in _pairs(key, value))
    return pairs


def _pairs(key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    if hasattr(key, "_feed_pairs"):
        yield from key._feed_pairs(value)
    elif isinstance(key, list | tuple):
        if not isinstance(value, list | tuple | np.ndarray) or len(value) != len(key):
            raise ValueError(
                f"The value fed for a structure of {len(key)} tensors must have the same structure: "
                f"got {type(value).__name__}"
            )
        for one, item in zip(key, value, strict=True):
            yield from _pairs(one, item)
    else:
        yield key, value


def _element(graph: Graph, key: Any) -> Tensor:
    try:
        found = graph.as_graph_element(key, allow_operation=False)
    except (KeyError, ValueError, TypeError) as error:
        raise TypeError(f"Cannot interpret feed_dict key as Tensor: {error.args[0]}") from None
    assert isinstance(found, Tensor)
    return found


def feed_value(tensor: Tensor, value: Any, device: torch.device) -> Any:
    """`value` as the value of `tensor`, checked."""
    if (
        type(value) is np.ndarray
        and tensor.dtype.base_dtype.as_numpy_dtype is value.dtype.type
        and value.dtype.hasobject is False
    ):
        array = value
    elif isinstance(value, torch.Tensor) and value.dtype == tensor.dtype.torch_dtype:
        _check_shape(tensor, tuple(value.shape))
        return value.detach().to(device)
    else:
        array = _as_array(tensor, value)
    _check_shape(tensor, array.shape)
    if tensor.dtype.torch_dtype is None:
        return array
    if not array.flags.writeable or any(stride < 0 for stride in array.strides) or not array.dtype.isnative:
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    result = torch.from_numpy(array)
    if result.dtype != tensor.dtype.torch_dtype:
        result = result.to(tensor.dtype.torch_dtype)
    return result if device.type == "cpu" else result.to(device)


def _as_array(tensor: Tensor, value: Any) -> np.ndarray[Any, Any]:
    dtype = tensor.dtype.base_dtype
    if isinstance(value, Tensor) or hasattr(value, "_as_tensor"):
        raise TypeError(
            "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python scalars, strings, "
            f"lists, numpy ndarrays. For reference, the tensor object was {value} which was passed to the feed with "
            f"key {tensor}; run it first and feed its value."
        )
    if dtype.torch_dtype is None:
        return numpy_value(value, dtype)
    if isinstance(value, int) and dtype.is_integer and not dtype.limits[0] <= value <= dtype.limits[1]:
        raise TypeError(
            f"Type of feed value {value} with type {type(value)} is not compatible with Tensor type {dtype.name}."
        )
    try:
        with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            return np.asarray(value, dtype=dtype.as_numpy_dtype)
    except (TypeError, ValueError, OverflowError) as error:
        where = f"Tensor {tensor.name!r} of {dtype.name}{describe_line(tensor.op.line)}"
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"Cannot feed a value of type {type(value).__name__} for {where}: {error}") from None


def _check_shape(tensor: Tensor, shape: tuple[int, ...]) -> None:
    sizes = tensor.shape.sizes
    if sizes is None:
        return
    if len(sizes) == len(shape) and all(want is None or want == size for want, size in zip(sizes, shape, strict=True)):
        return
    raise ValueError(
        f"Cannot feed value of shape {shape} for Tensor {tensor.name!r}, which has shape '{tensor.shape}'"
        f"{describe_line(tensor.op.line)}; reshape the value, or use None for dimensions that change"
    )


__all__ = ["InvalidArgumentError", "_pytree", "feed_value", "flatten_feeds"]
