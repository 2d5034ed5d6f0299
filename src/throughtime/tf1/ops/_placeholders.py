"""Placeholders: tensors that a session is fed."""

from __future__ import annotations

from typing import Any

from throughtime.tf1._errors import InvalidArgumentError
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import as_shape
from throughtime.tf1.ops._convert import convert_to_tensor


@exported("placeholder")
def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor that every run must feed."""
    found = as_dtype(dtype)

    def unfed() -> Any:
        raise InvalidArgumentError(
            None,
            op,
            f"You must feed a value for placeholder tensor '{op.name}' with dtype {found.name}"
            + (f" and shape {op.outputs[0].shape}" if shape is not None else "")
            + f": pass it in feed_dict={{{op.name}: value}}",
        )

    op = create_op("Placeholder", unfed, name=name, dtypes=[found.base_dtype], shapes=[as_shape(shape)])
    return op.outputs[0]


@exported("placeholder_with_default")
def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:  # noqa: A002
    """A tensor that a run may feed, else it has the value of `input`."""
    default = convert_to_tensor(input, name="input")
    if not default.shape.is_compatible_with(shape):
        raise ValueError(f"The default's shape {default.shape} does not fit the placeholder's shape {as_shape(shape)}")
    kernel = lambda value: value  # noqa: E731
    return create_op(
        "PlaceholderWithDefault",
        kernel,
        [default],
        name=name,
        dtypes=[default.dtype.base_dtype],
        shapes=[as_shape(shape)],
    ).outputs[0]
