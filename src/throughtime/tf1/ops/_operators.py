"""The operators of `Tensor` and `Variable`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime.tf1._namespace import export, lookup
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._variables import Variable
from throughtime.tf1.ops import _arithmetic, _slicing

_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "truediv",
    "div": "div",
    "floordiv": "floordiv",
    "mod": "floormod",
    "pow": "pow",
    "matmul": "matmul",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
}
# The names that TensorFlow gives the nodes of operators, where they differ from the functions'.
_NODE_NAMES = {
    "subtract": "sub",
    "multiply": "mul",
    "floormod": "mod",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
}
_COMPARED = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def _binary(public: str, reflected: bool) -> Callable[[Any, Any], Any]:
    function = lookup(public)
    name = _NODE_NAMES.get(public, public if public in {"add", "truediv", "pow", "floordiv", "matmul", "div"} else None)

    def operator(x: Any, y: Any) -> Any:
        if not _can_convert(y):
            return NotImplemented
        return function(y, x, name=name) if reflected else function(x, y, name=name)

    return operator


def _can_convert(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | set)


def _set(name: str, function: Callable[..., Any]) -> None:
    for kind in (Tensor, Variable):
        setattr(kind, name, function)


for _name, _public in _BINARY.items():
    _set(f"__{_name}__", _binary(_public, False))
    _set(f"__r{_name}__", _binary(_public, True))
for _name, _public in _COMPARED.items():
    _set(f"__{_name}__", _binary(_public, False))
_set("__neg__", _arithmetic.negative)
_set("__abs__", _arithmetic.absolute)
_set("__invert__", _arithmetic.logical_not)
_set("__getitem__", _slicing.get_item)
export("newaxis", None)
