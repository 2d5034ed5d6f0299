"""A cell that looks at a memory at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import (
    InvalidArgumentError,
    check_callable,
    check_dtype,
    check_flag,
    check_positive_int,
    problem,
    shape_of,
    type_name,
)
from throughtime._tensors import autocast_on
from throughtime.cells._base import RNNCell, check_cell, initial_state
from throughtime.cells._copies import call_on_copies
from throughtime.cells._lazy_build import build_once, repeatable
from throughtime.cells._parameters import input_width
from throughtime.decode._attention_state import AttentionWrapperState
from throughtime.decode._dense import Dense, layer_size
from throughtime.decode.attention._mechanisms import AttentionMechanism, batch_mismatch
from throughtime.decode.attention._memory import Memory
from throughtime.unroll._arguments import fit_state
from throughtime.unroll._tensor_array import TensorArray


class Attending:
    """A mechanism together with the memory of the rows at hand: what an `attention_fn` is given."""

    def __init__(self, mechanism: AttentionMechanism, memory: Memory) -> None:
        self.mechanism = mechanism
        self.memory = memory
        self.keys, self.values, self.mask = memory

    def __call__(self, query: Tensor, state: Any) -> tuple[Tensor, Any]:
        """`(alignments, next_state)` for `query` [B, Q]."""
        alignments, state = self.mechanism(query, state, self.memory)
        return alignments, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)


AttentionFn = Callable[[Attending, Tensor, Any, Any], tuple[Tensor, Tensor, Any]]


def attend(
    attention_mechanism: Attending, cell_output: Tensor, attention_state: Any, attention_layer: Any
) -> tuple[Tensor, Tensor, Any]:
    """`(attention, alignments, next_state)`: the weighted memory, through a layer together with the cell's output."""
    alignments, next_state = attention_mechanism(cell_output, attention_state)
    context = attention_mechanism.read(alignments, attention_mechanism.values)
    if attention_layer is not None:
        context = attention_layer(torch.cat([cell_output, context], 1))
    return context, alignments, next_state


def join_inputs(inputs: Tensor, attention: Tensor) -> Tensor:
    """What the cell inside sees: the inputs next to the attention of the step before."""
    return torch.cat([inputs, attention], -1)


class AttentionWrapper(RNNCell):
    """A cell that sees its last attention with its inputs, and looks at a memory with its output.

    At each step: `cell_output, cell_state = cell(cell_input_fn(inputs, attention), cell_state)`, a mechanism gives
    alignments [B, S] for `cell_output`, the memory weighted by them is the context, and `attention` is that context,
    or with `attention_layer_size` a layer of `[cell_output, context]`. The output is the attention, or with
    `output_attention=False` the cell's output. With a list of mechanisms, their attentions are joined.

    It is a cell like any other: it runs under `dynamic_rnn`, compiled, as well as under `dynamic_decode`. The memory
    travels in the state, so make the state for each batch: `cell.zero_state(batch_size, dtype)`.

    Args:
        cell: The cell inside; its output is a vector.
        attention_mechanism: An `AttentionMechanism`, or a list of them.
        attention_layer_size: The units of the attention layer, one for each mechanism; None for no layer.
        alignment_history: Whether to keep the alignments of all steps, in a `TensorArray`; such a state is not compiled
            (`all_states=True` of `dynamic_rnn` gives the same, and is).
        cell_input_fn: What the cell sees, as a function of inputs and attention; by default both, joined.
        output_attention: Whether the output is the attention.
        initial_cell_state: The state of the cell inside that `zero_state` starts from; None is its own zero state.
        name: The name in TensorFlow's variables.
        attention_layer: A module in the place of `attention_layer_size`, or one for each mechanism.
        attention_fn: A function `(attention_mechanism, cell_output, attention_state, attention_layer) -> (attention,
            alignments, next_attention_state)` in the place of the usual one.
        dtype: The dtype of the attention layer's parameters; None for that of what it sees first.
        input_size: The features of the inputs; with it, and with mechanisms that know their memory's size, all
            parameters are made at once.

    >>> import torch, throughtime as tt
    >>> encoded, lengths = torch.randn(2, 6, 3), [6, 2]
    >>> attention = tt.decode.BahdanauAttention(4, encoded, lengths)
    >>> cell = tt.decode.AttentionWrapper(tt.LSTMCell(8), attention, attention_layer_size=5)
    >>> outputs, state = tt.dynamic_rnn(cell, torch.randn(2, 7, 3), [7, 4], dtype=torch.float32)
    >>> outputs.shape, state.alignments[1, 2:].tolist()
    (torch.Size([2, 7, 5]), [0.0, 0.0, 0.0, 0.0])
    """

    unwatched = RNNCell.unwatched | {"_initial_cell_state"}

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[[Any, Tensor], Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
        attention_layer: Any = None,
        attention_fn: AttentionFn | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(name)
        check_cell("cell", cell)
        self._query_size = _check_query_size(cell)
        mechanisms, self._is_multi = _check_mechanisms(attention_mechanism)
        layers = _check_layers(attention_layer_size, attention_layer, len(mechanisms), dtype)
        for argument, function in (("cell_input_fn", cell_input_fn), ("attention_fn", attention_fn)):
            if function is not None:
                check_callable(argument, function, expected="a function", fix=f"Pass {argument}=function, or None.")
        self.cell = cell
        self._mechanisms = _register(self, [mechanism.name for mechanism in mechanisms], mechanisms)
        self._layers = _register(self, ["attention_layer"] * len(layers), layers)
        self.alignment_history = check_flag("alignment_history", alignment_history)
        self.output_attention = check_flag("output_attention", output_attention)
        self.cell_input_fn = join_inputs if cell_input_fn is None else cell_input_fn
        self.attention_fn = attend if attention_fn is None else attention_fn
        self._initial_cell_state = initial_cell_state
        if input_size is not None:
            self.build(input_size)

    @property
    def attention_mechanisms(self) -> list[Any]:
        """The mechanisms, in order."""
        return [getattr(self, name) for name in self._mechanisms]

    @property
    def attention_layers(self) -> list[Any]:
        """The layer of each mechanism, or None."""
        layers = [getattr(self, name) for name in self._layers]
        return layers or [None] * len(self._mechanisms)

    @property
    def attention_size(self) -> int:
        """A, the features of all attentions together."""
        pairs = zip(self.attention_mechanisms, self.attention_layers, strict=True)
        return sum(_layer_width(layer, self._query_size, mechanism) for mechanism, layer in pairs)

    @property
    def output_size(self) -> Any:
        """The size of the attention, or of the cell's output."""
        return self.attention_size if self.output_attention else self.cell.output_size

    @property
    def state_size(self) -> Any:
        """The sizes of an `AttentionWrapperState`, for the memory of the moment."""
        mechanisms = self.attention_mechanisms
        return AttentionWrapperState(
            cell_state=self.cell.state_size,
            attention=self.attention_size,
            time=torch.Size([]),
            alignments=self._packed([mechanism.alignments_size for mechanism in mechanisms]),
            alignment_history=self._packed([() for _ in mechanisms] if self.alignment_history else []),
            attention_state=self._packed([mechanism.state_size for mechanism in mechanisms]),
            memory=self._packed([Memory(*(part.shape[1:] for part in one.memory)) for one in mechanisms]),
        )

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> AttentionWrapperState:
        """Where decoding starts: no attention yet, and the memory of the mechanisms."""
        batch_size = check_positive_int("batch_size", batch_size, minimum=0)
        dtype = check_dtype("dtype", dtype)
        mechanisms = self.attention_mechanisms
        for mechanism in mechanisms:
            if mechanism.batch_size != batch_size:
                raise InvalidArgumentError(batch_mismatch(batch_size, mechanism.batch_size))
            if mechanism.keys.dtype != dtype:
                what, fix = "the memory has another dtype than the state", "Ask for the memory's, or convert it first."
                raise TypeError(problem(what, got=mechanism.keys.dtype, expected=dtype, fix=fix))
        device = mechanisms[0].keys.device if device is None else device
        alignments = [mechanism.initial_alignments(batch_size, dtype) for mechanism in mechanisms]
        return AttentionWrapperState(
            cell_state=self._first_cell_state(batch_size, dtype, device),
            attention=torch.zeros(batch_size, self.attention_size, dtype=dtype, device=device),
            time=torch.zeros((), dtype=torch.int32, device=device),
            alignments=self._packed(alignments),
            alignment_history=self._packed(
                [_history(alignment) for alignment in alignments] if self.alignment_history else []
            ),
            attention_state=self._packed([mechanism.initial_state(batch_size, dtype) for mechanism in mechanisms]),
            memory=self._packed([mechanism.memory for mechanism in mechanisms]),
        )

    def _first_cell_state(self, batch_size: int, dtype: torch.dtype, device: Any) -> Any:
        if self._initial_cell_state is None:
            with torch.device(device):
                return initial_state(self.cell, batch_size, dtype)
        what = "`initial_cell_state`"
        state = _pytree.conform(self.cell.state_size, self._initial_cell_state, what)
        for leaf in _pytree.flatten(state):
            if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] != batch_size:
                fix = "Give the state of this batch; for beam search, pass it through `tile_batch` first."
                raise InvalidArgumentError(
                    problem(f"{what} has another batch size", got=leaf.shape[0], expected=batch_size, fix=fix)
                )
        return fit_state(self.cell.state_size, state, batch_size, torch.device(device), what)

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Make the parameters of the layers, of the mechanisms and of the cell inside."""
        width, mechanisms = input_width(inputs_shape), self.attention_mechanisms
        lowered = device is not None and autocast_on(torch.device(device))
        if dtype is None or lowered:
            # Nothing is known of the inputs, or not what they are outside of autocast: as the memory is, so are they.
            dtype = mechanisms[0].dtype
        for mechanism, layer in zip(mechanisms, self.attention_layers, strict=True):
            mechanism.build(self._query_size)
            if isinstance(layer, Dense):
                layer.build(self._query_size + mechanism.depth, dtype)
        if isinstance(self.cell, RNNCell):
            seen = self.cell_input_fn(torch.zeros(1, width), torch.zeros(1, self.attention_size))
            if isinstance(seen, Tensor):
                build_once(self.cell, seen.shape, dtype, device)

    def check_step(self, inputs: Any, state: Any) -> None:
        """The state is an `AttentionWrapperState`, and what the cell inside would see fits it."""
        _check_state_type(state)
        if isinstance(self.cell, RNNCell):
            self.cell.check_step(self.cell_input_fn(inputs, state.attention), state.cell_state)

    def forward(self, inputs: Any, state: AttentionWrapperState) -> tuple[Any, AttentionWrapperState]:
        """One step for `inputs` [B, I]: `(output, state)`."""
        _check_state_type(state)
        cell_output, cell_state = call_on_copies(
            self.cell, self.cell_input_fn(inputs, state.attention), state.cell_state
        )
        mechanisms = self.attention_mechanisms
        # A state made by hand may leave the memory to the mechanisms.
        memories = self._unpacked(state.memory) or [mechanism.memory for mechanism in mechanisms]
        carried = zip(mechanisms, memories, self._unpacked(state.attention_state), self.attention_layers, strict=True)
        looks = [
            self.attention_fn(Attending(mechanism, memory), cell_output, previous, layer)
            for mechanism, memory, previous, layer in carried
        ]
        attentions, alignments, next_states = (list(parts) for parts in zip(*looks, strict=True))
        attention = attentions[0] if len(attentions) == 1 else torch.cat(attentions, 1)
        next_state = AttentionWrapperState(
            cell_state=cell_state,
            attention=attention,
            time=state.time + 1,
            alignments=self._packed(alignments),
            alignment_history=self._written(state, alignments),
            attention_state=self._packed(next_states),
            memory=state.memory,
        )
        return attention if self.output_attention else cell_output, next_state

    def _written(self, state: AttentionWrapperState, alignments: list[Tensor]) -> Any:
        if not self.alignment_history:
            return state.alignment_history
        arrays = zip(self._unpacked(state.alignment_history), alignments, strict=True)
        return self._packed([array.write(int(state.time), alignment) for array, alignment in arrays])

    def _packed(self, values: Sequence[Any]) -> Any:
        """One value for each mechanism as they stand in the state: a tuple, or by itself."""
        return tuple(values) if self._is_multi or not values else values[0]

    def _unpacked(self, value: Any) -> Sequence[Any]:
        nothing = isinstance(value, tuple) and not value
        return tuple(value) if self._is_multi or nothing else (value,)


def _check_state_type(state: Any) -> None:
    if not isinstance(state, AttentionWrapperState):
        what, fix = "the state of an AttentionWrapper has another type", "Make it with `cell.zero_state(...)`."
        got = _pytree.describe(state) if _pytree.is_nest(state) else type_name(state)
        raise TypeError(problem(what, got=got, expected="an AttentionWrapperState", fix=fix))


def _check_query_size(cell: Any) -> int:
    size = cell.output_size
    if isinstance(size, bool) or not isinstance(size, int):
        what, fix = "an AttentionWrapper asks with one vector", "Wrap a cell whose output is one vector."
        raise ValueError(problem(what, got=f"output_size {size}", expected="an int", fix=fix))
    return size


def _check_mechanisms(given: Any) -> tuple[list[Any], bool]:
    is_multi = isinstance(given, list | tuple)
    mechanisms = list(given) if is_multi else [given]
    wrong = [mechanism for mechanism in mechanisms if not isinstance(mechanism, AttentionMechanism)]
    if wrong or not mechanisms:
        what, fix = "`attention_mechanism` is no mechanism", "Pass tt.decode.LuongAttention(...) or the like."
        got = type_name(wrong[0]) if wrong else "an empty list"
        raise TypeError(problem(what, got=got, expected="an AttentionMechanism, or a list of them", fix=fix))
    return mechanisms, is_multi


def _check_layers(sizes: Any, layers: Any, count: int, dtype: torch.dtype | None) -> list[nn.Module]:
    """One attention layer for each mechanism, or none at all."""
    if sizes is not None and layers is not None:
        what, fix = "only one of `attention_layer_size` and `attention_layer` can be given", "Leave one out."
        raise ValueError(problem(what, got="both", expected="one of the two", fix=fix))
    name, given = ("attention_layer_size", sizes) if layers is None else ("attention_layer", layers)
    if given is None:
        return []
    parts = list(given) if isinstance(given, list | tuple) else [given]
    if len(parts) != count:
        what, fix = f"`{name}` must have one entry for each mechanism", "Pass a list like that of the mechanisms."
        raise ValueError(problem(what, got=f"{len(parts)}", expected=f"{count}", fix=fix))
    if layers is None:
        called = "the attention layer of AttentionWrapper", "cell"
        return [Dense(check_positive_int(name, size), dtype=dtype).named(*called) for size in parts]
    for layer in parts:
        if not isinstance(layer, nn.Module):
            fix = "Pass tt.decode.Dense(size), torch.nn.Linear or the like."
            raise TypeError(problem(f"`{name}` is no layer", got=type_name(layer), expected="an nn.Module", fix=fix))
    return parts


def _register(wrapper: nn.Module, names: list[str], modules: list[nn.Module]) -> list[str]:
    """Modules under TensorFlow's names; a second one of a name has `_1` after it. One module twice is one module."""
    chosen: dict[int, str] = {}
    for wanted, module in zip(names, modules, strict=True):
        if id(module) not in chosen:
            taken = sum(name == wanted or name.startswith(f"{wanted}_") for name in chosen.values())
            chosen[id(module)] = f"{wanted}_{taken}" if taken else wanted
            wrapper.add_module(chosen[id(module)], module)
    return [chosen[id(module)] for module in modules]


def _layer_width(layer: Any, query_size: int, mechanism: AttentionMechanism) -> int:
    """The features of one attention."""
    width: int = mechanism.depth if layer is None else layer_size(layer, lambda: query_size + mechanism.depth)
    return width


def _history(alignments: Tensor) -> TensorArray:
    shape = shape_of(alignments)
    return TensorArray(alignments.dtype, 0, dynamic_size=True, clear_after_read=False, element_shape=shape)
