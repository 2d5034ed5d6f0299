"""State as JSON and tensors: what an optimiser or a schedule remembers, written down without pickle."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from throughtime._errors import problem, type_name

TENSOR, PAIRS, TUPLE = "$tensor", "$pairs", "$tuple"


def encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """`value` in the words of JSON; every tensor in it goes to `tensors`, under the path where it was found."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        # Safetensors wants plain memory that no two tensors share.
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {TENSOR: path}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: encode(part, tensors, f"{path}.{key}") for key, part in value.items()}
        # JSON would turn whole numbers into text.
        return {PAIRS: [[encode(key, tensors, path), encode(value[key], tensors, f"{path}.{key}")] for key in value]}
    if isinstance(value, list | tuple):
        parts = [encode(part, tensors, f"{path}.{index}") for index, part in enumerate(value)]
        return {TUPLE: parts} if isinstance(value, tuple) else parts
    what, expected = f"a checkpoint cannot hold `{path}`", "numbers, text, tensors, lists, tuples and dicts"
    fix = "Leave it out of the object's `state_dict`."
    raise TypeError(problem(what, got=type_name(value), expected=expected, fix=fix))


def decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What `encode` was given."""
    if isinstance(value, list):
        return [decode(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        return tensors[value[TENSOR]]
    if TUPLE in value:
        return tuple(decode(part, tensors) for part in value[TUPLE])
    if PAIRS in value:
        return {decode(key, tensors): decode(part, tensors) for key, part in value[PAIRS]}
    return {key: decode(part, tensors) for key, part in value.items()}
