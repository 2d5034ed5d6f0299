"""`linear` of joined inputs, and the wrappers that project with it."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._variable_scope import get_variable, get_variable_scope, variable_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn._cell import RNNCell, check_cell


def _zeros() -> Any:
    return lookup("zeros_initializer")()


@exported(
    "contrib.rnn.linear",
    "python.ops.rnn_cell._linear",
    "python.ops.rnn_cell.linear",
    "python.ops.rnn_cell_impl._linear",
    "nn.rnn_cell._linear",
    "nn.rnn_cell.linear",
)
def linear(
    args: Any,
    output_size: int,
    bias: bool,
    bias_initializer: Any = None,
    kernel_initializer: Any = None,
    scope: Any = None,
) -> Tensor:
    """`concat(args, 1) @ kernel + bias`, with variables `kernel` and `bias` of the open scope."""
    if scope is not None:
        with variable_scope(scope):
            return linear(args, output_size, bias, bias_initializer, kernel_initializer)
    if args is None or (isinstance(args, list | tuple) and not args):
        raise ValueError("`args` must be specified")
    parts = [convert_to_tensor(one) for one in (args if isinstance(args, list | tuple) else [args])]
    for part in parts:
        if part.shape.ndims != 2 or part.shape[1].value is None:
            raise ValueError(f"linear expects matrices of known width, got shape {part.shape}")
    width, dtype = sum(part.shape.as_list()[1] or 0 for part in parts), parts[0].dtype.base_dtype
    kernel = get_variable("kernel", [width, output_size], dtype=dtype, initializer=kernel_initializer)
    if not bias:
        return create_op("MatMul", _product, [kernel.value(), *parts]).outputs[0]
    if isinstance(bias_initializer, int | float):
        bias_initializer = lookup("constant_initializer")(bias_initializer, dtype=dtype)
    biases = get_variable("bias", [output_size], dtype=dtype, initializer=bias_initializer or _zeros())
    return create_op("BiasAdd", _product_and_bias, [biases.value(), kernel.value(), *parts]).outputs[0]


def _product(kernel: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
    return torch.mm(parts[0] if len(parts) == 1 else torch.cat(parts, 1), kernel)


def _product_and_bias(bias: torch.Tensor, kernel: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, parts[0] if len(parts) == 1 else torch.cat(parts, 1), kernel)


class _Projecting(RNNCell):
    """A cell with the state of the one inside."""

    def __init__(self, cell: Any, reuse: Any = None):
        super().__init__(_reuse=reuse)
        check_cell(cell)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        """The sizes of the cell inside."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """The size of the cell inside."""
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The zero state of the cell inside."""
        return self._cell.zero_state(batch_size, dtype)


@exported("contrib.rnn.OutputProjectionWrapper", "nn.rnn_cell.OutputProjectionWrapper")
class OutputProjectionWrapper(_Projecting):
    """The cell's output, projected to `output_size`."""

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None):
        super().__init__(cell, reuse)
        if output_size < 1:
            raise ValueError(f"Parameter output_size must be > 0: {output_size}.")
        self._output_size = output_size
        self._activation = activation

    @property
    def output_size(self) -> Any:
        """The size of the projection."""
        return self._output_size

    def call(self, inputs: Any, state: Any) -> Any:
        """One step of the cell inside, and the projection of its output."""
        output, new = self._cell(inputs, state)
        projected = linear(output, self._output_size, True)
        return (self._activation(projected) if self._activation else projected), new


@exported("contrib.rnn.InputProjectionWrapper", "nn.rnn_cell.InputProjectionWrapper")
class InputProjectionWrapper(_Projecting):
    """The cell on its inputs, projected to `num_proj`."""

    def __init__(self, cell: Any, num_proj: int, activation: Any = None, input_size: Any = None, reuse: Any = None):
        del input_size
        super().__init__(cell, reuse)
        self._num_proj = num_proj
        self._activation = activation

    def call(self, inputs: Any, state: Any) -> Any:
        """The projection of the inputs, and one step of the cell inside."""
        projected = linear(inputs, self._num_proj, True)
        return self._cell(self._activation(projected) if self._activation else projected, state)


@exported("contrib.rnn.EmbeddingWrapper", "nn.rnn_cell.EmbeddingWrapper")
class EmbeddingWrapper(_Projecting):
    """The cell on embeddings of its inputs, which are indices."""

    def __init__(
        self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None, reuse: Any = None
    ):
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                f"Both embedding_classes and embedding_size must be > 0: {embedding_classes}, {embedding_size}."
            )
        self._classes, self._size = embedding_classes, embedding_size
        self._initializer = initializer

    def call(self, inputs: Any, state: Any) -> Any:
        """The embedding of the inputs, and one step of the cell inside."""
        # TensorFlow's limit for a variance of one.
        limit = 3.0**0.5
        initializer = self._initializer or get_variable_scope().initializer
        if initializer is None:
            initializer = lookup("random_uniform_initializer")(-limit, limit)
        parts = state if not isinstance(state, tuple) else state[0]
        table = get_variable("embedding", [self._classes, self._size], initializer=initializer, dtype=parts.dtype)
        kernel = lambda rows, ids: rows[ids.reshape(-1).long()]  # noqa: E731
        embedded = create_op("GatherV2", kernel, [table.value(), convert_to_tensor(inputs)]).outputs[0]
        return self._cell(embedded, state)
