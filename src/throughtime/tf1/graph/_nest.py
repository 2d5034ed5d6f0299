"""`tf.nest` and its older names: nested structures of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from throughtime.tf1._namespace import export

PLACES = ("nest", "contrib.framework.nest", "python.util.nest", "python.framework.nest")


def is_nested(structure: Any) -> bool:
    """Whether something is a structure rather than a leaf."""
    if isinstance(structure, Mapping):
        return True
    return isinstance(structure, Sequence) and not isinstance(structure, str | bytes)


def _children(structure: Any) -> list[Any]:
    """Parts in TensorFlow's order: that of sorted keys for a dict."""
    if isinstance(structure, Mapping):
        return [structure[key] for key in _keys(structure)]
    return list(structure)


def _keys(structure: Any) -> list[Any]:
    try:
        return sorted(structure)
    except TypeError:
        raise TypeError("nest only supports dicts with sortable keys.") from None


def _rebuilt(structure: Any, parts: list[Any]) -> Any:
    if isinstance(structure, Mapping):
        values = dict(zip(_keys(structure), parts, strict=True))
        return type(structure)((key, values[key]) for key in structure)  # type: ignore[call-arg]
    return structure._make(parts) if hasattr(structure, "_make") else type(structure)(parts)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """The leaves of a structure, in order."""
    del expand_composites
    if not is_nested(structure):
        return [structure]
    return [leaf for part in _children(structure) for leaf in flatten(part)]


def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """Leaves in the form of a structure."""
    del expand_composites
    if not is_nested(flat_sequence):
        raise TypeError("flat_sequence must be a sequence")
    leaves = list(flat_sequence)
    if not is_nested(structure):
        if len(leaves) != 1:
            raise ValueError(f"Structure is a scalar but len(flat_sequence) == {len(leaves)} > 1")
        return leaves[0]
    wanted = len(flatten(structure))
    if wanted != len(leaves):
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} elements, but flat_sequence had {len(leaves)} elements."
        )
    rest = iter(leaves)
    return _packed(structure, rest)


def _packed(structure: Any, leaves: Any) -> Any:
    if not is_nested(structure):
        return next(leaves)
    return _rebuilt(structure, [_packed(part, leaves) for part in _children(structure)])


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Raise unless both have the same form."""
    del expand_composites
    if is_nested(nest1) != is_nested(nest2):
        raise ValueError(f"The two structures don't have the same nested structure: {nest1} and {nest2}")
    if not is_nested(nest1):
        return
    if check_types and type(nest1) is not type(nest2) and not (isinstance(nest1, dict) and isinstance(nest2, dict)):
        raise TypeError(
            f"The two structures don't have the same sequence type: {type(nest1).__name__} and {type(nest2).__name__}"
        )
    first, second = _children(nest1), _children(nest2)
    if len(first) != len(second) or (isinstance(nest1, Mapping) and _keys(nest1) != _keys(nest2)):
        raise ValueError(f"The two structures don't have the same number of elements: {nest1} and {nest2}")
    for one, other in zip(first, second, strict=True):
        assert_same_structure(one, other, check_types)


def map_structure(func: Callable[..., Any], *structure: Any, **options: Any) -> Any:
    """`func` of the leaves of structures of one form."""
    check_types = options.pop("check_types", True)
    options.pop("expand_composites", None)
    if options:
        raise ValueError(f"Only valid keyword arguments are `check_types` and `expand_composites`, not: {[*options]}")
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types)
    leaves = zip(*map(flatten, structure), strict=True)
    return pack_sequence_as(structure[0], [func(*parts) for parts in leaves])


def flatten_up_to(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> list[Any]:
    """The parts of `input_tree` where `shallow_tree` has its leaves."""
    if not is_nested(shallow_tree):
        return [input_tree]
    if not is_nested(input_tree):
        raise TypeError(f"If shallow structure is a sequence, input must also be a sequence: got {type(input_tree)}")
    first, second = _children(shallow_tree), _children(input_tree)
    if len(first) != len(second):
        raise ValueError("The two structures don't have the same sequence length.")
    return [leaf for pair in zip(first, second, strict=True) for leaf in flatten_up_to(*pair, check_types)]


def map_structure_up_to(shallow_tree: Any, func: Callable[..., Any], *inputs: Any, **_: Any) -> Any:
    """`func` of the parts of `inputs` where `shallow_tree` has its leaves."""
    parts = zip(*[flatten_up_to(shallow_tree, tree) for tree in inputs], strict=True)
    return pack_sequence_as(shallow_tree, [func(*one) for one in parts])


def flatten_dict_items(dictionary: Mapping[Any, Any]) -> dict[Any, Any]:
    """A dict in which nested keys are replaced by their leaves."""
    result: dict[Any, Any] = {}
    for key, value in dictionary.items():
        for one, item in zip(flatten(key), flatten(value), strict=True) if is_nested(key) else ((key, value),):
            if one in result:
                raise ValueError(f"Could not flatten dictionary: key {one} is not unique.")
            result[one] = item
    return result


for _place in PLACES:
    for _function in (
        assert_same_structure,
        flatten,
        flatten_dict_items,
        flatten_up_to,
        is_nested,
        map_structure,
        map_structure_up_to,
        pack_sequence_as,
    ):
        export(f"{_place}.{_function.__name__}", _function)
    export(f"{_place}.is_sequence", is_nested)
