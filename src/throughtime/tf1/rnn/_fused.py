"""`contrib.rnn`'s fused cells and highways: names for what every cell is here, and a gate around a cell."""

from __future__ import annotations

from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import export, exported, lookup
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._variable_scope import get_variable, variable_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn._cell import batch_size_of
from throughtime.tf1.rnn._core_cells import CORE_CELLS
from throughtime.tf1.rnn._dynamic import unrolled
from throughtime.tf1.rnn._wrappers import _Wrapper


@exported("contrib.rnn.HighwayWrapper")
class HighwayWrapper(_Wrapper):
    """A gate lets inputs pass a cell by."""

    def __init__(self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0):
        super().__init__(cell)
        self._couple, self._bias = couple_carry_transform_gates, carry_bias_init

    def wrapped_step(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of the cell inside, and what passes it by."""
        output, new = self._inside(inputs, state, scope, *args, **kwargs)
        return _pytree.map_leaves(self._mixed, inputs, output), new

    def _gate(self, name: str, inputs: Any, bias: float) -> Tensor:
        size, dtype = inputs.shape.as_list()[-1], inputs.dtype.base_dtype
        weight = get_variable(f"{name}_w", [size, size], dtype=dtype)
        first = lookup("constant_initializer")(bias)
        biases = get_variable(f"{name}_b", [size], dtype=dtype, initializer=first)
        return create_op("Gate", _gate, [biases.value(), inputs, weight.value()], name=name).outputs[0]

    def _mixed(self, inputs: Any, output: Any) -> Tensor:
        carry = self._gate("carry", inputs, self._bias)
        if self._couple:
            return create_op("Highway", _coupled, [inputs, output, carry]).outputs[0]
        transform = self._gate("transform", inputs, -self._bias)
        return create_op("Highway", _mixed, [inputs, output, carry, transform]).outputs[0]


def _gate(bias: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.addmm(bias, inputs, weight))


def _coupled(inputs: torch.Tensor, output: torch.Tensor, carry: torch.Tensor) -> torch.Tensor:
    return inputs * carry + output * (1 - carry)


def _mixed(inputs: torch.Tensor, output: torch.Tensor, carry: torch.Tensor, transform: torch.Tensor) -> torch.Tensor:
    return inputs * carry + output * transform


@exported("contrib.rnn.CompiledWrapper")
class CompiledWrapper(_Wrapper):
    """TensorFlow's request for compilation; here every cell is compiled."""

    def __init__(self, cell: Any, compile_stateful: bool = False):
        del compile_stateful
        super().__init__(cell)

    def wrapped_step(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of the cell inside."""
        return self._inside(inputs, state, scope, *args, **kwargs)


@exported("contrib.rnn.FusedRNNCell")
class FusedRNNCell:
    """Cells that are called with whole sequences [T, B, ...]."""

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> Any:
        """Outputs and final state."""
        raise NotImplementedError


@exported("contrib.rnn.FusedRNNCellAdaptor")
class FusedRNNCellAdaptor(FusedRNNCell):
    """Any cell as a fused one."""

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False):
        self._cell = cell
        self._scope_name = "rnn"
        del use_dynamic_rnn

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> Any:
        """Outputs and final state."""
        whole = convert_to_tensor(inputs) if not isinstance(inputs, list | tuple) else lookup("stack")(inputs)
        with variable_scope(scope or self._scope_name):
            outputs, state = unrolled(self._cell, whole, sequence_length, initial_state, dtype, time_major=True)
        if isinstance(inputs, list | tuple):
            outputs = lookup("unstack")(outputs)
        return outputs, state


@exported("contrib.rnn.TimeReversedFusedRNN")
class TimeReversedFusedRNN(FusedRNNCell):
    """A fused cell from the ends of sequences to their starts."""

    def __init__(self, cell: FusedRNNCell):
        self._cell = cell

    def _reversed(self, tensor: Tensor, lengths: Any) -> Tensor:
        if lengths is None:
            return create_op("Reverse", lambda value: value.flip(0), [tensor], name="reverse").outputs[0]
        reverse: Tensor = lookup("reverse_sequence")(tensor, lengths, seq_axis=0, batch_axis=1)
        return reverse

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> Any:
        """Outputs and final state."""
        turned = self._reversed(convert_to_tensor(inputs), sequence_length)
        outputs, state = self._cell(turned, initial_state, dtype, sequence_length, scope)
        return self._reversed(outputs, sequence_length), state


@exported("contrib.rnn.LSTMBlockFusedCell", "contrib.rnn.LSTMBlockWrapper")
class LSTMBlockFusedCell(FusedRNNCellAdaptor):
    """An LSTM over whole sequences [T, B, I]."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: Any = None,
        dtype: Any = None,
        name: str = "lstm_fused_cell",
    ):
        cell = CORE_CELLS["LSTMBlockCell"](
            num_units, forget_bias=forget_bias, cell_clip=cell_clip, use_peephole=use_peephole, reuse=reuse, dtype=dtype
        )
        super().__init__(cell)
        self.num_units = num_units
        self._scope_name = name


def transpose_batch_time(x: Any) -> Tensor:
    """[B, T, ...] as [T, B, ...], and the other way round."""
    return create_op("Transpose", lambda value: value.transpose(0, 1), [convert_to_tensor(x)]).outputs[0]


def best_effort_input_batch_size(flat_input: Any) -> Any:
    """The batch size of inputs [T, B, ...]: a number if one of them knows it."""
    for one in flat_input:
        sizes = one.shape.sizes
        if sizes is not None and len(sizes) > 1 and sizes[1] is not None:
            return sizes[1]
    return batch_size_of(flat_input[0], 1)


for _place in ("contrib.rnn", "python.ops.rnn"):
    export(f"{_place}.transpose_batch_time", transpose_batch_time)
    export(f"{_place}.best_effort_input_batch_size", best_effort_input_batch_size)
    export(f"{_place}._transpose_batch_time", transpose_batch_time)
