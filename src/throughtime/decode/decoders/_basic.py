"""`BasicDecoder`: a cell, a helper that feeds it, and a layer on its outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import problem, type_name
from throughtime._tensors import autocast_on
from throughtime.cells._base import check_cell
from throughtime.cells._copies import call_on_copies
from throughtime.decode._decoder import Decoder
from throughtime.decode._dense import layer_size
from throughtime.decode.helpers._helper import Helper


class BasicDecoderOutput(NamedTuple):
    """What one step gives, or all steps: `rnn_output`, the cell's outputs or the layer's, and `sample_id`.

    >>> import torch, throughtime as tt
    >>> tt.decode.BasicDecoderOutput(torch.zeros(2, 5), torch.zeros(2))._fields
    ('rnn_output', 'sample_id')
    """

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """Samples from a cell step by step; where the next input comes from is the helper's business.

    Args:
        cell: A cell.
        helper: A `Helper`: `TrainingHelper` to learn, `GreedyEmbeddingHelper` to use what was learnt, and others.
        initial_state: The state to start from, such as an encoder's final one.
        output_layer: A module on the cell's outputs, such as `nn.Linear` to the vocabulary; None for none.

    >>> import torch, throughtime as tt
    >>> cell, table, project = tt.LSTMCell(8), torch.nn.Embedding(6, 3), torch.nn.Linear(8, 6)
    >>> helper = tt.decode.GreedyEmbeddingHelper(table, start_tokens=[1, 1, 1], end_token=0)
    >>> decoder = tt.decode.BasicDecoder(cell, helper, cell.zero_state(3, torch.float32), project)
    >>> outputs, state, lengths = tt.decode.dynamic_decode(decoder, maximum_iterations=4)
    >>> outputs.rnn_output.shape[2], int(lengths.max()) <= 4
    (6, True)
    """

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: nn.Module | None = None) -> None:
        check_cell("cell", cell)
        if not isinstance(helper, Helper):
            fix = "Pass tt.decode.TrainingHelper(...), or a class of your own that inherits from tt.decode.Helper."
            raise TypeError(
                problem("`helper` is no Helper", got=type_name(helper), expected="a tt.decode.Helper", fix=fix)
            )
        check_output_layer(output_layer)
        self.cell = cell
        self.helper = helper
        self.output_layer = output_layer
        self.initial_state = _pytree.conform(cell.state_size, initial_state, "`initial_state`")

    @property
    def batch_size(self) -> int:
        """B, as the helper has it."""
        return self.helper.batch_size

    @property
    def output_size(self) -> Any:
        """The size of a row of outputs and samples."""
        return BasicDecoderOutput(layered_size(self.cell, self.output_layer), self.helper.sample_ids_shape)

    @property
    def output_dtype(self) -> Any:
        """The dtypes of outputs and samples."""
        dtype = _pytree.floating_dtype(self.initial_state) or torch.get_default_dtype()
        outputs = _pytree.map_leaves(lambda _: dtype, self.output_size.rnn_output)
        return BasicDecoderOutput(outputs, self.helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Tensor, Any, Any]:
        """`(finished, first_inputs, initial_state)`."""
        finished, inputs = self.helper.initialize()
        return finished, inputs, self.initial_state

    def step(
        self, time: Any, inputs: Any, state: Any, name: str | None = None
    ) -> tuple[BasicDecoderOutput, Any, Any, Tensor]:
        """`(outputs, next_state, next_inputs, finished)`: one step of the cell, one sample from it."""
        outputs, state = call_on_copies(self.cell, inputs, state)
        if self.output_layer is not None:
            outputs = layered(self.output_layer, outputs)
        sample_ids = self.helper.sample(time, outputs, state)
        finished, next_inputs, state = self.helper.next_inputs(time, outputs, state, sample_ids)
        return BasicDecoderOutput(outputs, sample_ids), state, next_inputs, finished


def check_output_layer(layer: Any) -> None:
    """Raise unless `layer` is a module, or None."""
    if layer is not None and (not isinstance(layer, nn.Module) or isinstance(layer, type)):
        fix = "Pass torch.nn.Linear(units, vocabulary) or the like."
        raise TypeError(
            problem("`output_layer` is no layer", got=type_name(layer), expected="an nn.Module, or None", fix=fix)
        )


def layered(layer: nn.Module, outputs: Any) -> Any:
    """What comes out of a layer on the outputs of a cell; torch's own says of a clash of dtypes which they are only."""
    if type(layer) is nn.Linear and isinstance(outputs, Tensor):
        wanted = layer.weight.dtype
        if outputs.dtype != wanted and not autocast_on(outputs.device):
            what = "the outputs of the cell have another dtype than `output_layer`"
            fix = f"Convert one: `output_layer.to({outputs.dtype})`, or cell, state and inputs to {wanted}."
            raise TypeError(problem(what, got=outputs.dtype, expected=wanted, fix=fix))
    return layer(outputs)


def layered_size(cell: Any, layer: nn.Module | None) -> Any:
    """The size of what comes out of a cell and the layer on it."""
    return cell.output_size if layer is None else layer_size(layer, lambda: cell.output_size)
