"""`BasicDecoder`: a cell, a helper that gives its inputs, and a layer on its outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.rnn._cell import check_cell, dims_of, map_sizes
from throughtime.tf1.seq2seq._decoder import Decoder
from throughtime.tf1.seq2seq._helpers import Helper


@exported("contrib.seq2seq.BasicDecoderOutput")
class BasicDecoderOutput(NamedTuple):
    """The output of a step, and what was sampled from it."""

    rnn_output: Any
    sample_id: Any


def check_layer(output_layer: Any) -> None:
    """Raise unless a layer or nothing was given."""
    if output_layer is not None and not callable(output_layer):
        raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}; use tf.layers.Dense(units)")


def output_sizes(cell: Any, output_layer: Any) -> Any:
    """The shape of what the cell and the layer give for a sequence."""
    if output_layer is None:
        return map_sizes(lambda size: TensorShape(dims_of(size)), cell.output_size)
    if hasattr(output_layer, "compute_output_shape"):
        return output_layer.compute_output_shape(TensorShape([None, *dims_of(cell.output_size)]))[1:]
    units = getattr(output_layer, "units", None)
    return TensorShape(None) if units is None else TensorShape([units])


@exported("contrib.seq2seq.BasicDecoder")
class BasicDecoder(Decoder):
    """Steps of a cell on the inputs that a helper gives."""

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None):
        check_cell(cell)
        if not isinstance(helper, Helper):
            raise TypeError(f"helper must be a Helper, received: {type(helper)}; use tf.contrib.seq2seq.TrainingHelper")
        check_layer(output_layer)
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        """The helper's."""
        return self._helper.batch_size

    @property
    def output_size(self) -> Any:
        """Sizes of outputs and samples."""
        return BasicDecoderOutput(output_sizes(self._cell, self._output_layer), self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> Any:
        """Outputs have the dtype of the state."""
        dtype = _pytree.flatten(self._initial_state)[0].dtype.base_dtype
        rows = map_sizes(lambda _: dtype, output_sizes(self._cell, self._output_layer))
        return BasicDecoderOutput(rows, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> Any:
        """The helper's first inputs, and the initial state."""
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """One step of the cell, its layer and the helper."""
        with name_scope(name, "BasicDecoderStep"):
            outputs, new_state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            samples = self._helper.sample(time=time, outputs=outputs, state=new_state)
            finished, new_inputs, new_state = self._helper.next_inputs(
                time=time, outputs=outputs, state=new_state, sample_ids=samples
            )
        return BasicDecoderOutput(outputs, samples), new_state, new_inputs, finished
