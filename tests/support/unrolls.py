"""One list of unrolls, a line for each way through time: all of them must give what the oracle gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import compare
from descriptors import Case, dims
from oracle import both_directions, forget_masks, oracle

Lengths = Sequence[int] | None
Unrolling = Callable[[Any, Any, Lengths, Any, torch.dtype], tuple[Any, Any]]
"""`unroll(cell, inputs, lengths, state, dtype)`, with inputs and outputs [B, T, ...]."""

COMPILED = ("aten", "cpu")
EVERY_BACKEND = ("reference", *COMPILED)


def on(backend: str, unroll: Unrolling, **options: Any) -> Unrolling:
    """An unroll that runs on one backend."""

    def run(*problem: Any) -> Any:
        with tt.backend(backend):
            return unroll(*problem, **options)

    return run


def transposed(tree: Any) -> Any:
    """Batch-major sequences as time-major ones, or back."""
    return pytree.tree_map(lambda leaf: leaf.transpose(0, 1), tree)


def split(tree: Any) -> list[Any]:
    """Sequences [B, T, ...] as a list of T steps."""
    leaves, structure = pytree.tree_flatten(tree)
    return [structure.unflatten(step) for step in zip(*(leaf.unbind(1) for leaf in leaves), strict=True)]


def joined(steps: Sequence[Any]) -> Any:
    """A list of T steps as sequences [B, T, ...]."""
    return pytree.tree_map(lambda *leaves: torch.stack(leaves, 1), *steps)


def clipped(lengths: Lengths, inputs: Any) -> list[int]:
    """Lengths as they count: from 0 to T."""
    batch, time = pytree.tree_leaves(inputs)[0].shape[:2]
    return [time] * batch if lengths is None else [max(0, min(time, length)) for length in lengths]


def dynamic(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype, **options: Any) -> Any:
    return tt.dynamic_rnn(cell, inputs, lengths, state, dtype, **options)


def time_major(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    outputs, final = tt.dynamic_rnn(cell, transposed(inputs), lengths, state, dtype, time_major=True)
    return transposed(outputs), final


def module(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    return tt.RNN(cell, dtype=dtype)(inputs, lengths, state)


def static(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    outputs, final = tt.static_rnn(cell, split(inputs), state, dtype, lengths)
    return joined(outputs), final


class Saver(dict):
    """The least that `static_state_saving_rnn` asks of a state saver."""

    state = dict.__getitem__
    save_state = dict.__setitem__


def state_saving(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    leaves, structure = pytree.tree_flatten(state)
    names = [f"leaf {index}" for index in range(len(leaves))]
    saver = Saver(zip(names, leaves, strict=True))
    outputs, final = tt.static_state_saving_rnn(cell, split(inputs), saver, structure.unflatten(names), lengths)
    assert all(saver[name] is leaf for name, leaf in zip(names, pytree.tree_leaves(final), strict=True))
    return joined(outputs), final


def raw(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    steps, ends = split(inputs), torch.tensor(clipped(lengths, inputs))
    row = pytree.tree_map(lambda size: torch.zeros(dims(size), dtype=dtype), cell.output_size, is_leaf=_is_size)

    def loop_fn(time: Tensor, output: Any, cell_state: Any, _loop_state: Any) -> Any:
        first = output is None
        inputs_now = steps[min(int(time), len(steps) - 1)]
        return time >= ends, inputs_now, state if first else cell_state, row if first else output, None

    emitted, final, _ = tt.raw_rnn(cell, loop_fn)

    def padded(array: tt.TensorArray) -> Tensor:
        stacked = array.stack().transpose(0, 1)
        idle = stacked.new_zeros(len(ends), len(steps) - array.size(), *stacked.shape[2:])
        return torch.cat([stacked, idle], 1)

    return pytree.tree_map(padded, emitted), final


def to_packed(inputs: Any, lengths: Sequence[int]) -> Any:
    """Sequences [B, T, ...] as `PackedSequence`s."""
    pack = partial(pack_padded_sequence, lengths=torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    return pytree.tree_map(pack, inputs)


def from_packed(outputs: Any, lengths: Sequence[int], time: int) -> Any:
    """And back."""
    unpack = partial(pad_packed_sequence, batch_first=True, total_length=time)
    return pytree.tree_map(lambda leaf: unpack(leaf)[0], outputs, is_leaf=_is_packed)


def to_jagged(inputs: Any, lengths: Sequence[int]) -> Any:
    """Sequences [B, T, ...] as jagged `NestedTensor`s."""
    offsets = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))

    def leaf(one: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(one[_alive(lengths, one.shape[1])], offsets)

    return pytree.tree_map(leaf, inputs)


def from_jagged(outputs: Any, lengths: Sequence[int], time: int) -> Any:
    """And back."""
    places = _alive(lengths, time).flatten().nonzero().squeeze(1)

    def leaf(one: Tensor) -> Tensor:
        rows = one.values()
        blank = rows.new_zeros(len(lengths) * time, *rows.shape[1:])
        return blank.index_put((places,), rows).unflatten(0, (len(lengths), time))

    return pytree.tree_map(leaf, outputs)


def _alive(lengths: Sequence[int], time: int) -> Tensor:
    return torch.arange(time) < torch.tensor(lengths)[:, None]


def without_padding(to: Any, back: Any) -> tuple[Unrolling, Unrolling]:
    """One direction and both, over another form of sequences."""

    def one_way(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
        real, time = clipped(lengths, inputs), pytree.tree_leaves(inputs)[0].shape[1]
        outputs, final = tt.dynamic_rnn(cell, to(inputs, real), None, state, dtype)
        return back(outputs, real, time), final

    def both_ways(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
        real, time = clipped(lengths, inputs), pytree.tree_leaves(inputs)[0].shape[1]
        outputs, finals = tt.bidirectional_dynamic_rnn(cell, cell, to(inputs, real), None, state, state, dtype)
        return back(outputs, real, time), finals

    return one_way, both_ways


packed, both_packed = without_padding(to_packed, from_packed)
jagged, both_jagged = without_padding(to_jagged, from_jagged)


def looped(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    """A `while_loop` with a TensorArray, as a user would write it, every row masked by hand."""
    steps, ends = split(inputs), torch.tensor(clipped(lengths, inputs))
    leaves, structure = pytree.tree_flatten(cell.output_size, is_leaf=_is_size)
    arrays = [tt.TensorArray(dtype, size=len(steps), element_shape=(len(ends), *dims(size))) for size in leaves]
    forget_masks(cell)

    def body(time: Tensor, state: Any, arrays: Any) -> Any:
        alive = time < ends
        output, new = cell(pytree.tree_map(lambda x: _where(alive, x, torch.zeros_like(x)), steps[int(time)]), state)
        output = pytree.tree_map(lambda leaf: _where(alive, leaf, torch.zeros_like(leaf)), output)
        state = pytree.tree_map(lambda leaf, old: _where(alive, leaf, old), new, state)
        arrays = [array.write(time, leaf) for array, leaf in zip(arrays, pytree.tree_leaves(output), strict=True)]
        return time + 1, state, arrays

    _, final, arrays = tt.while_loop(lambda time, *_: bool(time < ends.max()), body, (torch.tensor(0), state, arrays))
    return transposed(structure.unflatten([array.stack() for array in arrays])), final


def _where(alive: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(alive.view(-1, *[1] * (new.ndim - 1)), new, old) if new.ndim else new


def _is_size(node: object) -> bool:
    return isinstance(node, torch.Size)


def _is_packed(node: object) -> bool:
    return isinstance(node, PackedSequence)


def both(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    return tt.bidirectional_dynamic_rnn(cell, cell, inputs, lengths, state, state, dtype)


def both_time_major(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    outputs, finals = tt.bidirectional_dynamic_rnn(
        cell, cell, transposed(inputs), lengths, state, state, dtype, time_major=True
    )
    return transposed(outputs), finals


def both_static(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    outputs, *finals = tt.static_bidirectional_rnn(cell, cell, split(inputs), state, state, dtype, lengths)
    return _halves(joined(outputs)), tuple(finals)


def both_stacked(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    outputs, *finals = tt.stack_bidirectional_dynamic_rnn([cell], [cell], inputs, [state], [state], dtype, lengths)
    return _halves(outputs), tuple(final for (final,) in finals)


def both_stacked_static(cell: Any, inputs: Any, lengths: Lengths, state: Any, dtype: torch.dtype) -> Any:
    outputs, *finals = tt.stack_bidirectional_rnn([cell], [cell], split(inputs), [state], [state], dtype, lengths)
    return _halves(joined(outputs)), tuple(final for (final,) in finals)


def _halves(outputs: Any) -> tuple[Any, Any]:
    """The outputs of both directions, which lie side by side on the first feature axis."""
    return tuple(pytree.tree_map(lambda leaf, way=way: leaf.chunk(2, 2)[way], outputs) for way in (0, 1))


class Unroll(NamedTuple):
    """A way through time, and what it must give; the oracle's answer in one direction or in both."""

    name: str
    run: Unrolling
    reference: Unrolling = oracle
    empty_sequences: bool = True
    # It calls the cell itself, step by step: no backend has a part in it.
    by_hand: bool = False

    def check(self, case: Case, lengths: Lengths, backend: str = "auto") -> None:
        """Compare values, final states, all gradients: a compiled backend with the reference, else with the oracle."""
        runs = on("reference", self.run) if backend in COMPILED else self.reference, on(backend, self.run)
        reference, candidate = (
            lambda cell, inputs, state, run=run: run(cell, inputs, lengths, state, case.dtype) for run in runs
        )
        compare(reference, candidate, case.cell, case.inputs, case.state)


UNROLLS = [
    Unroll("dynamic", dynamic),
    Unroll("dynamic time-major", time_major),
    Unroll("dynamic packed", packed, empty_sequences=False),
    Unroll("dynamic jagged", jagged),
    Unroll("dynamic recomputed", partial(dynamic, checkpoint_every=2)),
    Unroll("dynamic swapped", partial(dynamic, swap_memory=True, parallel_iterations=1)),
    Unroll("module", module),
    Unroll("static", static),
    Unroll("static state-saving", state_saving),
    Unroll("raw", raw, by_hand=True),
    Unroll("while_loop", looped, by_hand=True),
    Unroll("both", both, both_directions),
    Unroll("both time-major", both_time_major, both_directions),
    Unroll("both packed", both_packed, both_directions, empty_sequences=False),
    Unroll("both jagged", both_jagged, both_directions),
    Unroll("both static", both_static, both_directions),
    Unroll("both stacked", both_stacked, both_directions),
    Unroll("both stacked static", both_stacked_static, both_directions),
]
EVERY_UNROLL = {unroll.name: unroll for unroll in UNROLLS}


def each_unroll(*, but: str | None = None) -> pytest.MarkDecorator:
    """Run a test for every unroll whose name does not end so."""
    chosen = [unroll for unroll in UNROLLS if but is None or not unroll.name.endswith(but)]
    return pytest.mark.parametrize("unroll", chosen, ids=lambda unroll: unroll.name)
