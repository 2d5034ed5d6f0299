"""Teacher forcing at once: all inputs are known, so decoding is `dynamic_rnn`, and is compiled like it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime.cells._copies import call_on_copies
from throughtime.cells._wrappers import CellWrapper
from throughtime.decode._decoder import Decoder
from throughtime.decode.decoders._basic import BasicDecoder, BasicDecoderOutput, layered, layered_size
from throughtime.decode.helpers._training import TrainingHelper
from throughtime.unroll import dynamic_rnn


class LayeredCell(CellWrapper):
    """A cell with a layer on its outputs: one step of both, so that the engine can move the layer out of the loop."""

    def __init__(self, cell: Any, layer: nn.Module) -> None:
        super().__init__(cell)
        self.layer = layer
        self._output_size = layered_size(cell, layer)

    @property
    def output_size(self) -> Any:
        """The size of what the layer gives."""
        return self._output_size

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """One step of the cell, through the layer."""
        output, state = call_on_copies(self.cell, inputs, state)
        return layered(self.layer, output), state


def decode_at_once(
    decoder: Decoder, limit: int | None, *, parallel_iterations: int | None, swap_memory: bool, scope: str
) -> tuple[Any, Any, Tensor] | None:
    """What the steps of `decoder` would give, time-major, from one `dynamic_rnn`; None if only steps can tell.

    Only these very classes: one that inherits from them may do anything in its steps.
    """
    if type(decoder) is not BasicDecoder or type(decoder.helper) is not TrainingHelper:
        return None
    helper, state = decoder.helper, decoder.initial_state
    dtype = _pytree.floating_dtype(state) or _pytree.floating_dtype(helper.inputs)
    steps = min(int(helper.lengths.max()) if helper.batch_size else 0, helper.max_time if limit is None else limit)
    # A TensorArray in the state wants every step in its turn.
    if not steps or dtype is None or not all(isinstance(leaf, Tensor) for leaf in _pytree.flatten(state)):
        return None
    cell = decoder.cell if decoder.output_layer is None else LayeredCell(decoder.cell, decoder.output_layer)
    lengths = helper.lengths.clamp(max=steps)
    outputs, final_state = dynamic_rnn(
        cell,
        _pytree.map_leaves(lambda leaf: leaf[:steps], helper.inputs),
        lengths,
        state,
        dtype,
        parallel_iterations,
        swap_memory,
        time_major=True,
        scope=scope,
    )
    # Past the end outputs are zeros, and so is the place of the largest of them.
    sample_ids = helper.sample(torch.tensor(steps), outputs, final_state)
    return BasicDecoderOutput(outputs, sample_ids), final_state, lengths.to(helper.sequence_length.device)
