"""`DType`: TensorFlow's element types and the torch and numpy types that store them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from throughtime._errors import problem


class DType:
    """An element type. `float32_ref` is the type of a variable's storage, `float32` that of its value."""

    def __init__(self, name: str, torch_dtype: torch.dtype | None, numpy_dtype: Any, number: int, ref: bool = False):
        self.name = f"{name}_ref" if ref else name
        self._base_name = name
        self.torch_dtype = torch_dtype
        self.as_numpy_dtype = numpy_dtype
        self.as_datatype_enum = number + 100 * ref
        self.is_ref_dtype = ref

    @property
    def _is_ref_dtype(self) -> bool:
        return self.is_ref_dtype

    @property
    def base_dtype(self) -> DType:
        """The type of the values."""
        return _BY_NAME[self._base_name]

    @property
    def _as_ref(self) -> DType:
        return _REFS[self._base_name]

    @property
    def real_dtype(self) -> DType:
        """The type of the real part."""
        return {"complex64": float32, "complex128": float64}.get(self._base_name, self.base_dtype)

    @property
    def is_floating(self) -> bool:
        """Whether values are real floating-point numbers."""
        return self.torch_dtype is not None and self.torch_dtype.is_floating_point

    @property
    def is_complex(self) -> bool:
        """Whether values are complex numbers."""
        return self.torch_dtype is not None and self.torch_dtype.is_complex

    @property
    def is_integer(self) -> bool:
        """Whether values are integers (booleans are none)."""
        return self.torch_dtype not in {None, torch.bool} and not self.is_floating and not self.is_complex

    @property
    def is_bool(self) -> bool:
        """Whether values are booleans."""
        return self._base_name == "bool"

    @property
    def is_unsigned(self) -> bool:
        """Whether values are unsigned integers."""
        return self._base_name.startswith("uint")

    @property
    def is_quantized(self) -> bool:
        """Quantised types are not supported."""
        return False

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients pass through values of this type; those of arrays in loops do."""
        return self.is_floating or self.is_complex or self._base_name == "variant"

    @property
    def is_numpy_compatible(self) -> bool:
        """Whether numpy has the type."""
        return self._base_name not in {"resource", "variant"}

    @property
    def min(self) -> Any:
        """The smallest value."""
        return self.limits[0]

    @property
    def max(self) -> Any:
        """The largest value."""
        return self.limits[1]

    @property
    def limits(self) -> tuple[Any, Any]:
        """The smallest and the largest value."""
        if self.is_bool:
            return False, True
        if self.torch_dtype is None or self.is_complex:
            raise TypeError(f"{self.name} has no smallest and largest value")
        if not self.is_floating:
            whole = torch.iinfo(self.torch_dtype)
            return whole.min, whole.max
        real, kind = torch.finfo(self.torch_dtype), self.as_numpy_dtype
        return kind(real.min), kind(real.max)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 1 if self.torch_dtype is None else self.torch_dtype.itemsize

    def is_compatible_with(self, other: Any) -> bool:
        """Whether values of `other` may stand where this type is expected."""
        return self.base_dtype == as_dtype(other).base_dtype

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None:
            return False
        try:
            return bool(self.as_datatype_enum == as_dtype(other).as_datatype_enum)
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self.as_datatype_enum

    def __str__(self) -> str:
        return f"<dtype: '{self.name}'>"

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)


_ROWS: tuple[tuple[str, torch.dtype | None, Any, int], ...] = (
    ("float32", torch.float32, np.float32, 1),
    ("float64", torch.float64, np.float64, 2),
    ("int32", torch.int32, np.int32, 3),
    ("uint8", torch.uint8, np.uint8, 4),
    ("int16", torch.int16, np.int16, 5),
    ("int8", torch.int8, np.int8, 6),
    ("string", None, np.object_, 7),
    ("complex64", torch.complex64, np.complex64, 8),
    ("int64", torch.int64, np.int64, 9),
    ("bool", torch.bool, np.bool_, 10),
    ("bfloat16", torch.bfloat16, np.float32, 14),
    ("uint16", torch.uint16, np.uint16, 17),
    ("complex128", torch.complex128, np.complex128, 18),
    ("float16", torch.float16, np.float16, 19),
    ("resource", None, np.object_, 20),
    ("variant", None, np.object_, 21),
    ("uint32", torch.uint32, np.uint32, 22),
    ("uint64", torch.uint64, np.uint64, 23),
)
_BY_NAME = {row[0]: DType(*row) for row in _ROWS}
_REFS = {row[0]: DType(*row, ref=True) for row in _ROWS}
_BY_TORCH = {dtype.torch_dtype: dtype for dtype in _BY_NAME.values() if dtype.torch_dtype is not None}
_BY_NUMBER = {dtype.as_datatype_enum: dtype for dtype in (*_BY_NAME.values(), *_REFS.values())}
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "object": "string", "str": "string"}

float16, float32, float64, bfloat16 = (_BY_NAME[name] for name in ("float16", "float32", "float64", "bfloat16"))
int8, int16, int32, int64 = (_BY_NAME[name] for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (_BY_NAME[name] for name in ("uint8", "uint16", "uint32", "uint64"))
bool_, string = _BY_NAME["bool"], _BY_NAME["string"]
complex64, complex128 = _BY_NAME["complex64"], _BY_NAME["complex128"]
resource, variant = _BY_NAME["resource"], _BY_NAME["variant"]

ALL_DTYPES: dict[str, DType] = {
    **_BY_NAME,
    **{f"{name}_ref": ref for name, ref in _REFS.items()},
    "half": float16,
    "double": float64,
}
_PYTHON_TYPES: dict[Any, DType] = {
    float: float32,
    int: int32,
    bool: bool_,
    str: string,
    bytes: string,
    complex: complex128,
}


def as_dtype(value: Any) -> DType:
    """The `DType` of a name, a numpy or torch type, a Python type, or TensorFlow's number of one."""
    if isinstance(value, DType):
        return value
    try:
        found = _PYTHON_TYPES.get(value) or _BY_TORCH.get(value) or _BY_NUMBER.get(value)
    except TypeError:
        found = None
    found = found or _from_name(value)
    if found is None:
        raise TypeError(
            problem(
                "Cannot convert value to a TensorFlow DType", got=repr(value), expected="a dtype", fix="Use tf.float32."
            )
        )
    return found


def _from_name(value: Any) -> DType | None:
    if isinstance(value, str) and value in ALL_DTYPES:
        return ALL_DTYPES[value]
    try:
        dtype = np.dtype(value)
    except TypeError:
        return None
    name = "string" if dtype.kind in "SUO" else dtype.name
    return _BY_NAME.get(_ALIASES.get(name, name))


def from_torch(dtype: torch.dtype) -> DType:
    """The `DType` that a torch type stores."""
    return _BY_TORCH[dtype]
