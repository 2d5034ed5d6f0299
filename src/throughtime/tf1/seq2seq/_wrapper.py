"""`AttentionWrapper`: a cell that looks at memories."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from throughtime import _pytree
from throughtime import tf1 as tf
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._tensor_array import TensorArray
from throughtime.tf1.graph._dtypes import int32
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.layers._core_layers import Dense
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn._cell import RNNCell, check_cell
from throughtime.tf1.seq2seq._attention import AttentionMechanism
from throughtime.tf1.seq2seq._nodes import node, zeros


class _StateParts(NamedTuple):
    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any


@exported("contrib.seq2seq.AttentionWrapperState")
class AttentionWrapperState(_StateParts):
    """The state of an `AttentionWrapper`."""

    __slots__ = ()

    def clone(self, **changes: Any) -> AttentionWrapperState:
        """The state with other parts of the same shapes."""
        new = self._replace(**changes)
        for old_leaf, leaf in zip(_pytree.flatten(self), _pytree.flatten(new), strict=True):
            if (
                isinstance(old_leaf, Tensor)
                and isinstance(leaf, Tensor)
                and not leaf.shape.is_compatible_with(old_leaf.shape)
            ):
                raise ValueError(
                    f"The shape of the AttentionWrapperState must stay: got {leaf.shape}, expected {old_leaf.shape}; "
                    "with a BeamSearchDecoder, use tile_batch on the encoder's state"
                )
        return new


def _context(alignments: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.matmul(alignments.unsqueeze(1), values).squeeze(1)


def compute_attention(
    mechanism: Any, cell_output: Any, attention_state: Any, attention_layer: Any
) -> tuple[Any, Any, Any]:
    """`(attention, alignments, next_state)` of one mechanism."""
    alignments, next_state = mechanism(cell_output, state=attention_state)
    context = node("BatchMatMulV2", _context, [alignments, mechanism.values])
    if attention_layer is None:
        return context, alignments, next_state
    return attention_layer(tf.concat([cell_output, context], 1)), alignments, next_state


def _check_rows(row: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    if row.ndim and row.shape[0] != int(batch):
        from throughtime.tf1._errors import InvalidArgumentError  # noqa: PLC0415

        raise InvalidArgumentError(
            None,
            None,
            f"Non-matching batch sizes between the memory (encoder output) and the state: got {row.shape[0]}, expected "
            f"{int(batch)}; with a BeamSearchDecoder, use tf.contrib.seq2seq.tile_batch with multiplier=beam_width",
        )
    return row


@exported("contrib.seq2seq.AttentionWrapper")
class AttentionWrapper(RNNCell):
    """Steps of a cell on its inputs joined with what it attended to."""

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[[Any, Any], Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
        attention_layer: Any = None,
        attention_fn: Callable[..., Any] | None = None,
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        check_cell(cell)
        self._is_multi = isinstance(attention_mechanism, list | tuple)
        mechanisms = tuple(attention_mechanism) if self._is_multi else (attention_mechanism,)
        for one in mechanisms:
            if not isinstance(one, AttentionMechanism):
                raise TypeError(
                    "attention_mechanism must be an AttentionMechanism or list of multiple AttentionMechanism "
                    f"instances, saw type: {type(one).__name__}"
                )
        if cell_input_fn is not None and not callable(cell_input_fn):
            raise TypeError(f"cell_input_fn must be callable, saw type: {type(cell_input_fn).__name__}")
        self._cell, self._attention_mechanisms = cell, mechanisms
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: tf.concat([inputs, attention], -1))
        self._attention_layers = self._layers(attention_layer_size, attention_layer)
        self._attention_layer_size = sum(self._widths(attention_layer_size))
        self._attention_fn = attention_fn or compute_attention
        self._output_attention, self._alignment_history = output_attention, alignment_history
        self._initial_cell_state = None
        if initial_cell_state is not None:
            self._initial_cell_state = _pytree.map_leaves(self._checked, initial_cell_state)

    def _layers(self, sizes: Any, layers: Any) -> tuple[Any, ...] | None:
        if sizes is not None and layers is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        given = layers if sizes is None else sizes
        if given is None:
            return None
        found = tuple(given) if isinstance(given, list | tuple) else (given,)
        if len(found) != len(self._attention_mechanisms):
            raise ValueError(
                "If provided, attention_layer_size must contain exactly one integer per attention_mechanism, saw: "
                f"{len(found)} vs {len(self._attention_mechanisms)}"
            )
        if sizes is None:
            return found
        return tuple(
            Dense(size, name="attention_layer", use_bias=False, dtype=mechanism.dtype)
            for size, mechanism in zip(found, self._attention_mechanisms, strict=True)
        )

    def _widths(self, sizes: Any) -> list[int]:
        if self._attention_layers is None:
            return [one.values.shape.as_list()[-1] for one in self._attention_mechanisms]
        return [int(layer.units) for layer in self._attention_layers]

    def _checked(self, leaf: Any) -> Tensor:
        tensor = convert_to_tensor(leaf)
        return node("Identity", _check_rows, [tensor, self._attention_mechanisms[0].batch_size], like=tensor)

    def _item_or_tuple(self, items: Iterable[Any]) -> Any:
        found = tuple(items)
        return found if self._is_multi else found[0]

    @property
    def output_size(self) -> Any:
        """The attention, or the output of the cell inside."""
        return self._attention_layer_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        """Sizes in the structure of the state."""
        places = [one.alignments_size for one in self._attention_mechanisms]
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            time=TensorShape([]),
            attention=self._attention_layer_size,
            alignments=self._item_or_tuple(places),
            attention_state=self._item_or_tuple(one.state_size for one in self._attention_mechanisms),
            alignment_history=self._item_or_tuple(size if self._alignment_history else () for size in places),
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """The initial cell state, or zeros, and zeros for what was attended to."""
        with name_scope(f"{type(self).__name__}ZeroState"):
            state = self._initial_cell_state
            if state is None:
                state = self._cell.zero_state(batch_size, dtype)
            alignments = [one.initial_alignments(batch_size, dtype) for one in self._attention_mechanisms]
            histories = (self._history(one, dtype) if self._alignment_history else () for one in alignments)
            return AttentionWrapperState(
                cell_state=_pytree.map_leaves(self._checked, state),
                time=tf.zeros([], dtype=int32),
                attention=zeros(batch_size, self._attention_layer_size, dtype),
                alignments=self._item_or_tuple(alignments),
                attention_state=self._item_or_tuple(
                    one.initial_state(batch_size, dtype) for one in self._attention_mechanisms
                ),
                alignment_history=self._item_or_tuple(histories),
            )

    @staticmethod
    def _history(alignments: Tensor, dtype: Any) -> TensorArray:
        return TensorArray(dtype, size=0, dynamic_size=True, element_shape=alignments.shape, clear_after_read=False)

    def call(self, inputs: Any, state: Any) -> Any:
        """One step of the cell, and what it attends to then."""
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(
                f"Expected state to be instance of AttentionWrapperState. Received type {type(state)} instead; "
                "use zero_state(...).clone(cell_state=...)"
            )
        output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        before = state.attention_state if self._is_multi else (state.attention_state,)
        layers = self._attention_layers or (None,) * len(before)
        parts = [
            self._attention_fn(mechanism, output, old, layer)
            for mechanism, old, layer in zip(self._attention_mechanisms, before, layers, strict=True)
        ]
        attention = parts[0][0] if len(parts) == 1 else tf.concat([part[0] for part in parts], 1)
        new = AttentionWrapperState(
            time=state.time + 1,
            cell_state=cell_state,
            attention=attention,
            attention_state=self._item_or_tuple(part[2] for part in parts),
            alignments=self._item_or_tuple(part[1] for part in parts),
            alignment_history=self._written(state, [part[1] for part in parts]),
        )
        return (attention if self._output_attention else output), new

    def _written(self, state: Any, alignments: list[Any]) -> Any:
        histories = state.alignment_history if self._is_multi else (state.alignment_history,)
        return self._item_or_tuple(
            history.write(state.time, one) if self._alignment_history else ()
            for history, one in zip(histories, alignments, strict=True)
        )
