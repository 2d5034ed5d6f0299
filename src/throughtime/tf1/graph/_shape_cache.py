"""Results of probes by kernel, static arguments and inputs: an unrolled program makes the same node many times."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from throughtime._lru import LruCache
from throughtime.tf1.graph._shape_inference import Inferred

if TYPE_CHECKING:
    from throughtime.tf1.graph._operation import Operation, Tensor

_LARGEST_KEY = 16
_FOUND: LruCache[Hashable, tuple[list[Inferred], bool]] = LruCache(4096)


class _NoKeyError(Exception):
    """Something that cannot be a part of a key."""


def static_key(value: Any) -> Hashable:
    """A static argument as a part of a key; numbers of different types differ."""
    if isinstance(value, list | tuple):
        return (type(value), *map(static_key, value))
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return type(value), value
    if type(value).__hash__ is not None and hasattr(value, "as_datatype_enum"):
        return int(value.as_datatype_enum)
    raise _NoKeyError


def probe_key(kernel: Callable[..., Any], parts: dict[str, Any], is_input: Callable[[Any], bool]) -> Hashable | None:
    """What the outputs of a kernel depend on besides its inputs; None if that cannot be told."""
    try:
        return kernel, tuple(
            (name, "input" if is_input(value) else _of_list(value, is_input)) for name, value in parts.items()
        )
    except _NoKeyError:
        return None


def _of_list(value: Any, is_input: Callable[[Any], bool]) -> Hashable:
    if isinstance(value, list) and value and all(map(is_input, value)):
        return "inputs", len(value)
    return static_key(value)


def _input_key(tensor: Tensor) -> Hashable:
    host = tensor.host
    if host is None:
        return tensor.dtype.as_datatype_enum, tensor.shape.sizes
    if host[0].numel() > _LARGEST_KEY or host[1].numel() > _LARGEST_KEY:
        raise _NoKeyError
    values = tuple((tuple(one.shape), tuple(one.flatten().tolist())) for one in host)
    return tensor.dtype.as_datatype_enum, values


def infer_once(key: Hashable | None, op: Operation, infer: Callable[[], list[Inferred]]) -> list[Inferred]:
    """What `infer` gives for a node like this one."""
    if key is None:
        return infer()
    try:
        full = (key, tuple(map(_input_key, op.inputs)))
    except _NoKeyError:
        return infer()
    known = _FOUND.lookup(full)
    if known is None:
        found = infer()
        _FOUND.insert(full, (found, bool(op.attrs.get("tuple"))))
        return found
    found, op.attrs["tuple"] = known
    return found
