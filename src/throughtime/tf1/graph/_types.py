"""Exports dtypes and shapes."""

from __future__ import annotations

from throughtime.tf1._namespace import export
from throughtime.tf1.graph import _dtypes, _shapes

for _name, _dtype in _dtypes.ALL_DTYPES.items():
    export(_name, _dtype)
    export(f"dtypes.{_name}", _dtype)
export("DType", _dtypes.DType)
export("dtypes.DType", _dtypes.DType)
export("as_dtype", _dtypes.as_dtype)
export("dtypes.as_dtype", _dtypes.as_dtype)
export("TensorShape", _shapes.TensorShape)
export("Dimension", _shapes.Dimension)
export("dimension_value", lambda dimension: getattr(dimension, "value", dimension))
export("compat.dimension_value", lambda dimension: getattr(dimension, "value", dimension))
