"""Pooling layers."""

from __future__ import annotations

from typing import Any

from throughtime.tf1._namespace import export, lookup
from throughtime.tf1.layers._base import Layer
from throughtime.tf1.layers._convolutional import sizes_of


class _Pooling(Layer):
    """The largest value, or the mean, of each window."""

    rank, kind = 2, "MAX"

    def __init__(
        self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last",
        name: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(name=name, **options)
        self.pool_size, self.strides = sizes_of(pool_size, self.rank), sizes_of(strides, self.rank)
        self.padding, self.data_format = padding.upper(), data_format

    def call(self, inputs: Any, *args: Any, **arguments: Any) -> Any:
        """The output."""
        del args, arguments
        first = self.data_format == "channels_first"
        rank = self.rank + 2
        if first:
            inputs = lookup("transpose")(inputs, [0, *range(2, rank), 1])
        pooled = lookup("nn.pool")(inputs, self.pool_size, self.kind, self.padding, strides=self.strides)
        return lookup("transpose")(pooled, [0, rank - 1, *range(1, rank - 1)]) if first else pooled


def _make(kind: str, rank: int) -> type[_Pooling]:
    name = f"{'Max' if kind == 'MAX' else 'Average'}Pooling{rank}D"
    text = f"{'The largest value' if kind == 'MAX' else 'The mean'} of each window over {rank} axes."
    return type(name, (_Pooling,), {"rank": rank, "kind": kind, "__doc__": text})


def _function(layer_class: type[_Pooling]) -> Any:
    def pool(
        inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last",
        name: str | None = None,
    ) -> Any:  # fmt: skip
        return layer_class(pool_size, strides, padding, data_format, name)(inputs)

    pool.__doc__ = layer_class.__doc__
    return pool


for _rank in (1, 2, 3):
    for _kind in ("MAX", "AVG"):
        _class = _make(_kind, _rank)
        export(f"layers.{_class.__name__}", _class)
        export(f"layers.{'max' if _kind == 'MAX' else 'average'}_pooling{_rank}d", _function(_class))
