"""Cells around a cell that change what goes in or comes out: projections and embeddings."""

from __future__ import annotations

import math
from typing import Any, Generic

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime import _pytree
from throughtime._errors import InvalidArgumentError, check_positive_int, problem, shape_of, type_name
from throughtime._tensors import has_values
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._base import RNNCell, check_cell
from throughtime.cells._cell_types import Cell, State, Wrapped_co
from throughtime.cells._copies import call_on_copies
from throughtime.cells._lazy_build import build_once, repeatable
from throughtime.cells._parameters import Initializer, LazyCell, check_inputs, chosen, glorot_uniform, zeros
from throughtime.cells._wrappers import Wrapping


class _LazyWrapper(Wrapping, LazyCell, Generic[Wrapped_co]):
    """A wrapper with parameters of its own."""

    def __init__(self, cell: Wrapped_co, reuse: bool | None) -> None:
        super().__init__(None, None, reuse)
        check_cell("cell", cell)
        self.cell = cell

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Build the wrapper and the cell inside."""
        super().build(inputs_shape, dtype=dtype, device=device)
        if isinstance(self.cell, RNNCell):
            build_once(self.cell, self.inner_inputs_shape(inputs_shape), dtype, device)

    def inner_inputs_shape(self, inputs_shape: Any) -> Any:
        """The shape of what the cell inside sees."""
        return inputs_shape


class InputProjectionWrapper(_LazyWrapper[Wrapped_co]):
    """A linear map before a cell: `cell(activation(x @ kernel + bias), state)`, with no activation by default.

    >>> import torch, throughtime as tt
    >>> cell = tt.InputProjectionWrapper(tt.GRUCell(4), num_proj=2)
    >>> tt.dynamic_rnn(cell, torch.ones(1, 2, 9), dtype=torch.float32)[0].shape
    torch.Size([1, 2, 4])
    """

    kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        cell: Wrapped_co,
        num_proj: int,
        activation: Activation | str | None = None,
        input_size: int | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        self.num_proj = check_positive_int("num_proj", num_proj)
        self.activation = None if activation is None else resolve_activation(activation)
        self.declare("kernel", glorot_uniform)
        self.declare("bias", zeros)
        if input_size is not None:
            self.build(input_size)

    def extra_repr(self) -> str:
        """The width that the inputs are projected to, and their own once it is known."""
        return ", ".join(filter(None, [f"num_proj={self.num_proj}", self.shown_input_size()]))

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (input_size, self.num_proj), "bias": (self.num_proj,)}

    def inner_inputs_shape(self, inputs_shape: Any) -> Any:
        """The cell inside sees the projected inputs."""
        return (None, self.num_proj)

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs fit the projection."""
        check_inputs(inputs, self.kernel)

    def forward(self: InputProjectionWrapper[Cell[State]], inputs: Tensor, state: Any) -> tuple[Any, State]:
        """One step of the cell inside on the projected `inputs` [B, I]."""
        self.check_step(inputs, state)
        projected = torch.addmm(self.bias, inputs, self.kernel)
        output, state = call_on_copies(
            self.cell, projected if self.activation is None else self.activation(projected), state
        )
        return output, state


class OutputProjectionWrapper(_LazyWrapper[Wrapped_co]):
    """A linear map after a cell: `activation(output @ kernel + bias)`, with no activation by default.

    Outputs past a sequence's length are zeros all the same: the projection is inside the cell, the zeros are outside.

    >>> import torch, throughtime as tt
    >>> cell = tt.OutputProjectionWrapper(tt.GRUCell(4), output_size=2)
    >>> tt.dynamic_rnn(cell, torch.ones(1, 2, 9), dtype=torch.float32)[0].shape
    torch.Size([1, 2, 2])
    """

    kernel: Tensor
    bias: Tensor

    def __init__(
        self,
        cell: Wrapped_co,
        output_size: int,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._output_size = check_positive_int("output_size", output_size)
        self._inner_size = _vector_size(self.cell.output_size)
        self.activation = None if activation is None else resolve_activation(activation)
        self.declare("kernel", glorot_uniform)
        self.declare("bias", zeros)
        if input_size is not None:
            self.build(input_size)

    @property
    def output_size(self) -> int:
        """The width of the projected outputs."""
        return self._output_size

    def extra_repr(self) -> str:
        """The width that the outputs are projected to."""
        return f"output_size={self.output_size}"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (self._inner_size, self.output_size), "bias": (self.output_size,)}

    def check_step(self, inputs: Any, state: Any) -> None:
        """What fits the cell inside fits."""
        if isinstance(self.cell, RNNCell):
            self.cell.check_step(inputs, state)

    def initialize_parameters(self, inputs: Any, state: Any = None) -> None:
        """What goes in is the inner cell's business: the projection takes dtype and device of the state."""
        if not self.built:
            device = next((leaf.device for leaf in _pytree.flatten(state) if isinstance(leaf, Tensor)), None)
            LazyCell.build(self, self._inner_size, dtype=_pytree.floating_dtype(state), device=device)

    def forward(self: OutputProjectionWrapper[Cell[State]], inputs: Any, state: Any) -> tuple[Tensor, State]:
        """One step of the cell inside, its output projected to [B, output_size]."""
        output, state = call_on_copies(self.cell, inputs, state)
        projected = torch.addmm(self.bias, output, self.kernel)
        return (projected if self.activation is None else self.activation(projected)), state


class EmbeddingWrapper(_LazyWrapper[Wrapped_co]):
    """Looks integer inputs up in a table before a cell: ids [B] or [B, 1] become rows of `embedding`.

    The table is [embedding_classes, embedding_size], uniform in ±sqrt(3) at first (unit variance), and takes the
    dtype of the state.

    >>> import torch, throughtime as tt
    >>> cell = tt.EmbeddingWrapper(tt.GRUCell(4), embedding_classes=10, embedding_size=3)
    >>> tt.dynamic_rnn(cell, torch.tensor([[[1], [2]]]), dtype=torch.float32)[0].shape
    torch.Size([1, 2, 4])
    """

    embedding: Tensor

    def __init__(
        self,
        cell: Wrapped_co,
        embedding_classes: int,
        embedding_size: int,
        initializer: Initializer | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        self.embedding_classes = check_positive_int("embedding_classes", embedding_classes)
        self.embedding_size = check_positive_int("embedding_size", embedding_size)
        self.declare("embedding", chosen("initializer", initializer, _unit_variance))

    def extra_repr(self) -> str:
        """The size of the table."""
        return f"{self.embedding_classes}, {self.embedding_size}"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        return {"embedding": (self.embedding_classes, self.embedding_size)}

    def inner_inputs_shape(self, inputs_shape: Any) -> Any:
        """The cell inside sees the looked up rows."""
        return (None, self.embedding_size)

    def initialize_parameters(self, inputs: Tensor, state: Any = None) -> None:
        """Unlike other cells, the table takes its dtype from the state: the inputs are integers."""
        if not self.built:
            self.check_step(inputs, state)
            self.build(inputs.shape, dtype=_pytree.floating_dtype(state), device=inputs.device)

    def forward(self: EmbeddingWrapper[Cell[State]], inputs: Tensor, state: Any) -> tuple[Any, State]:
        """One step of the cell inside on the rows that `inputs` [B] or [B, 1] name."""
        self.check_step(inputs, state)
        if has_values(inputs):
            self.check_values(inputs)
        rows = functional.embedding(inputs.reshape(-1).long(), self.embedding)
        output, state = call_on_copies(self.cell, rows, state)
        return output, state

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs are integers, one for each row, that the table has rows for."""
        ids = inputs
        fix = "Convert with `ids.long()`, one id for each row."
        if not isinstance(ids, Tensor):
            expected = "a tensor of integers"
            raise TypeError(
                problem("EmbeddingWrapper takes integer ids", got=type_name(ids), expected=expected, fix=fix)
            )
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            expected = "an integer dtype"
            raise TypeError(problem("EmbeddingWrapper takes integer ids", got=ids.dtype, expected=expected, fix=fix))
        if ids.ndim == 0 or ids.shape[1:].numel() != 1:
            expected = "[B] or [B, 1]"
            raise ValueError(
                problem("EmbeddingWrapper takes one id a row", got=shape_of(ids), expected=expected, fix=fix)
            )

    def check_values(self, inputs: Any) -> None:
        """Every id has a row in the table. On a GPU a look would wait for the device; there the lookup itself fails."""
        if inputs.device.type == "cpu" and inputs.numel():
            low, high = int(inputs.min()), int(inputs.max())
            if low < 0 or high >= self.embedding_classes:
                expected = f"0 to {self.embedding_classes - 1}"
                fix = "Raise `embedding_classes`, or map unknown ids to one."
                got = f"ids from {low} to {high}"
                raise InvalidArgumentError(
                    problem("an id is outside of the table", got=got, expected=expected, fix=fix)
                )


def _unit_variance(tensor: Tensor) -> None:
    nn.init.uniform_(tensor, -math.sqrt(3), math.sqrt(3))


def _vector_size(size: Any) -> int:
    """The width of an output that is one vector a row."""
    if isinstance(size, torch.Size) and len(size) == 1:
        return size[0]
    if not isinstance(size, int):
        what = "OutputProjectionWrapper needs a cell with one vector as output"
        fix = "Project inside of the cell instead."
        raise TypeError(problem(what, got=f"output_size {size}", expected="an int", fix=fix))
    return size
