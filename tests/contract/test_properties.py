"""What holds for every cell, nest, length and dtype: hypothesis searches for a counterexample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import check_same, compare, measure
from descriptors import BY_NAME, DESCRIPTORS, Case, Descriptor, Pair, nest, poisoned, random_inputs, settled
from oracle import oracle
from unrolls import EVERY_UNROLL, UNROLLS, both, clipped, dynamic, transposed

pytestmark = pytest.mark.covers("properties")

F64 = torch.float64
CARRYING = ["dynamic", "dynamic time-major", "dynamic jagged", "dynamic recomputed", "module", "static", "raw"]

JUST_ONE = [BY_NAME["GRU"]]
# An unroll draws masks of its own: two unrolls are never one.
WITHOUT_DROPOUT = [descriptor for descriptor in DESCRIPTORS if "Dropout" not in descriptor.name]
# A scalar has seen the longest of the batch: it does know its mates.
INDEPENDENT = [each for each in WITHOUT_DROPOUT if each.name not in {"integer counters", "scalar state"}]


class Problem(NamedTuple):
    """Everything that makes a case, in a form that people can read."""

    descriptor: Descriptor
    batch: int
    time: int
    lengths: list[int] | None
    dtype: torch.dtype
    seed: int

    def case(self) -> Case:
        """The tensors."""
        torch.manual_seed(self.seed)
        return self.descriptor.case(self.batch, self.time, self.dtype)

    @property
    def real(self) -> list[int]:
        """The lengths as they count."""
        given = [self.time] * self.batch if self.lengths is None else self.lengths
        return [max(0, min(self.time, length)) for length in given]


_leaf_sizes = st.integers(1, 3) | st.builds(lambda *dims: torch.Size(dims), st.integers(1, 2), st.integers(1, 2))


def _structures(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(children, min_size=1, max_size=2)
        | st.tuples(children, children)
        | st.builds(Pair, children, children)
        | st.dictionaries(st.sampled_from("zab"), children, min_size=1, max_size=2)
    )


sizes = st.recursive(_leaf_sizes, _structures, max_leaves=3)


@st.composite
def nest_descriptors(draw: st.DrawFn) -> Descriptor:
    """A cell of any nests."""
    nests = draw(sizes), draw(sizes), draw(sizes)
    return nest(f"NestCell{nests}", *nests)


@st.composite
def problems(
    draw: st.DrawFn,
    descriptors: Sequence[Descriptor] = DESCRIPTORS,
    *,
    nests: bool = True,
    lengths: bool | None = None,
    shortest: int = -1,
) -> Problem:
    """Any cell on any batch; `lengths` says whether there must be some."""
    descriptor = draw(st.sampled_from(descriptors) | nest_descriptors() if nests else st.sampled_from(descriptors))
    batch, time = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    drawn = st.lists(st.integers(shortest, time + 1), min_size=batch, max_size=batch)
    given = draw(drawn if lengths else st.none() | drawn)
    return Problem(
        descriptor, batch, time, given, draw(st.sampled_from([F64, torch.float32])), draw(st.integers(0, 99))
    )


def cut(tree: Any, *index: Any) -> Any:
    """Every leaf indexed alike; what has no rows stays whole."""
    return pytree.tree_map(lambda leaf: leaf[index] if leaf.ndim else leaf, tree)


def rows_of(tree: Any, rows: list[int]) -> Any:
    """The given rows of every leaf."""
    return cut(tree, torch.tensor(rows, dtype=torch.long))


def cat(trees: Sequence[Any], axis: int) -> Any:
    """Nests joined leaf by leaf."""
    return pytree.tree_map(lambda *leaves: torch.cat(leaves, axis), *trees)


def reversed_rows(tree: Any, lengths: Sequence[int]) -> Any:
    """Every sequence [B, T, ...] turned round, with its padding left where it is."""
    time = pytree.tree_leaves(tree)[0].shape[1]
    index = torch.tensor([[*reversed(range(length)), *range(length, time)] for length in lengths])
    return pytree.tree_map(lambda leaf: leaf[torch.arange(len(lengths))[:, None], index], tree)


def compare_case(case: Case, reference: Any, candidate: Any) -> None:
    """Compare two functions `(cell, inputs, state) -> results` on a case."""
    compare(reference, candidate, case.cell, case.inputs, case.state)


def plain(problem: Problem, unroll: Any = dynamic, lengths: Any = None) -> Any:
    """The problem as it stands, by one unroll."""
    given = problem.lengths if lengths is None else lengths
    return lambda cell, inputs, state: unroll(cell, inputs, given, state, problem.dtype)


@settings(max_examples=200)
@given(st.data())
def test_all_unrolls_give_what_the_oracle_gives(data: st.DataObject) -> None:
    # Without a `dtype` argument not every state will do; `test_conformance` has those that do.
    unroll = data.draw(st.sampled_from([unroll for unroll in UNROLLS if unroll.name != "static state-saving"]))
    problem = data.draw(problems(shortest=-1 if unroll.empty_sequences else 1))
    case = problem.case()
    # Compiled if it can be, or step by step.
    backend = data.draw(st.sampled_from(["auto", "reference"]))
    unroll.check(case._replace(inputs=poisoned(case.inputs, problem.real)), problem.lengths, backend)


@settings(max_examples=60)
@given(problems(lengths=True), st.sampled_from([torch.nan, torch.inf, -torch.inf, 1e30]))
def test_padding_is_never_seen(problem: Problem, poison: float) -> None:
    def candidate(cell: Any, inputs: Any, state: Any) -> Any:
        return plain(problem)(cell, poisoned(inputs, problem.real, poison), state)

    compare_case(problem.case(), plain(problem), candidate)


@settings(max_examples=60)
@given(problems(INDEPENDENT, lengths=True), st.data())
def test_a_sequence_does_not_know_its_batch_mates(problem: Problem, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(problem.batch)))
    first = data.draw(st.integers(0, problem.batch))
    back = [order.index(row) for row in range(problem.batch)]

    def in_two_batches(cell: Any, inputs: Any, state: Any) -> Any:
        results = [
            dynamic(
                cell, rows_of(inputs, rows), [problem.lengths[row] for row in rows], rows_of(state, rows), problem.dtype
            )
            for rows in (order[:first], order[first:])
        ]
        return rows_of(cat(results, 0), back)

    compare_case(problem.case(), plain(problem), in_two_batches)


@settings(max_examples=60)
@given(problems(lengths=True), st.integers(1, 3), st.sampled_from(["dynamic", "dynamic time-major", "static", "raw"]))
def test_more_padding_changes_nothing(problem: Problem, more: int, name: str) -> None:
    unroll = EVERY_UNROLL[name].run

    def padded_further(cell: Any, inputs: Any, state: Any) -> Any:
        longer = cat([inputs, cut(inputs, slice(None), [0] * more)], 1)
        outputs, final = plain(problem, unroll, problem.real)(cell, poisoned(longer, problem.real), state)
        assert not any(leaf[:, problem.time :].any() for leaf in pytree.tree_leaves(outputs))
        return cut(outputs, slice(None), slice(problem.time)), final

    compare_case(problem.case(), plain(problem), padded_further)


@settings(max_examples=60)
@given(problems(WITHOUT_DROPOUT), st.integers(1, 4), st.sampled_from(CARRYING))
def test_two_halves_with_carried_state_are_one_run(problem: Problem, middle: int, name: str) -> None:
    unroll, middle = EVERY_UNROLL[name].run, min(middle, problem.time)

    def in_two_halves(cell: Any, inputs: Any, state: Any) -> Any:
        early, late = (cut(inputs, slice(None), half) for half in (slice(middle), slice(middle, None)))
        outputs, state = unroll(cell, early, problem.real, state, problem.dtype)
        if middle == problem.time:
            return outputs, state
        rest, state = unroll(cell, late, [length - middle for length in problem.real], state, problem.dtype)
        return cat([outputs, rest], 1), state

    compare_case(problem.case(), plain(problem), in_two_halves)


@settings(max_examples=60)
@given(problems(WITHOUT_DROPOUT))
def test_reversing_twice_is_the_identity(problem: Problem) -> None:
    def turned_round(cell: Any, inputs: Any, state: Any) -> Any:
        outputs, finals = plain(problem, both)(cell, reversed_rows(inputs, problem.real), state)
        return tuple(reversed_rows(way, problem.real) for way in outputs[::-1]), finals[::-1]

    compare_case(problem.case(), plain(problem, both), turned_round)


@settings(max_examples=60)
@given(problems(nests=False))
def test_the_backward_direction_is_a_forward_run_over_reversed_inputs(problem: Problem) -> None:
    def by_hand(cell: Any, inputs: Any, state: Any) -> Any:
        # Both directions draw masks, in this order.
        forward, backward = (plain(problem)(cell, way, state) for way in (inputs, reversed_rows(inputs, problem.real)))
        return (forward[0], reversed_rows(backward[0], problem.real)), (forward[1], backward[1])

    compare_case(problem.case(), plain(problem, both), by_hand)


def layered_case(problem: Problem) -> tuple[nn.ModuleList, Any, Any]:
    """Two layers of two directions, with cells and states of their own."""
    torch.manual_seed(problem.seed)
    widths = [(tt.GRUCell(2), 3), (tt.LSTMCell(4), 3), (tt.BasicLSTMCell(3), 6), (tt.BasicRNNCell(2), 6)]
    cells = [settled(cell, random_inputs(width, 1, 1, problem.dtype), problem.dtype) for cell, width in widths]
    states = [pytree.tree_map(torch.randn_like, cell.zero_state(problem.batch, problem.dtype)) for cell in cells]
    return nn.ModuleList(cells), random_inputs(3, problem.batch, problem.time, problem.dtype), states


@settings(max_examples=60)
@given(problems(JUST_ONE, nests=False), st.booleans())
def test_a_stack_is_layer_upon_layer(problem: Problem, time_major: bool) -> None:
    def stacked(cells: Any, inputs: Any, states: Any) -> Any:
        turn = transposed if time_major else lambda tree: tree
        outputs, states_fw, states_bw = tt.stack_bidirectional_dynamic_rnn(
            list(cells[::2]),
            list(cells[1::2]),
            turn(inputs),
            states[::2],
            states[1::2],
            problem.dtype,
            problem.lengths,
            time_major=time_major,
        )
        return turn(outputs), states_fw, states_bw

    def by_hand(cells: Any, inputs: Any, states: Any) -> Any:
        finals: list[Any] = []
        for layer in (0, 2):
            ways = [
                oracle(
                    cells[layer + way], inputs, problem.lengths, states[layer + way], problem.dtype, reverse=way == 1
                )
                for way in (0, 1)
            ]
            inputs = torch.cat([outputs for outputs, _ in ways], -1)
            finals += [final for _, final in ways]
        return inputs, tuple(finals[::2]), tuple(finals[1::2])

    compare(by_hand, stacked, *layered_case(problem))


@settings(max_examples=60)
@given(problems(), st.booleans())
def test_all_states_are_the_final_states_of_prefixes(problem: Problem, time_major: bool) -> None:
    def prefixes(cell: Any, inputs: Any, state: Any) -> Any:
        torch.manual_seed(0)
        outputs, final = plain(problem, oracle)(cell, inputs, state)
        states = []
        for step in range(problem.time):
            torch.manual_seed(0)
            shorter = [min(length, step + 1) for length in problem.real]
            states.append(oracle(cell, inputs, shorter, state, problem.dtype)[1])
        stacked = pytree.tree_map(lambda *leaves: torch.stack(leaves, 1 if leaves[0].ndim else 0), *states)
        return outputs, final, stacked

    def all_at_once(cell: Any, inputs: Any, state: Any) -> Any:
        turn = _turn_rows if time_major else lambda tree: tree
        outputs, final, states = dynamic(
            cell, turn(inputs), problem.lengths, state, problem.dtype, time_major=time_major, all_states=True
        )
        return turn(outputs), final, turn(states)

    compare_case(problem.case(), prefixes, all_at_once)


def _turn_rows(tree: Any) -> Any:
    """Batch-major to time-major; the history of a scalar [T] has no batch axis."""
    return pytree.tree_map(lambda leaf: leaf.transpose(0, 1) if leaf.ndim > 1 else leaf, tree)


NOISE: dict[str, Callable[[], Any]] = {
    "none": lambda: tt.LSTMCell(3),
    "unseeded": lambda: tt.DropoutWrapper(tt.LSTMCell(3), 0.6, 0.6, 0.6),
    "seeded": lambda: tt.DropoutWrapper(tt.LSTMCell(3), 0.6, 0.6, 0.6, seed=3),
    "variational": lambda: _variational(None),
    "variational seeded": lambda: _variational(3),
    "layers": lambda: tt.MultiRNNCell([_variational(1), tt.DropoutWrapper(tt.GRUCell(2), 0.6, seed=2)]),
}


def _variational(seed: int | None) -> tt.DropoutWrapper:
    return tt.DropoutWrapper(tt.GRUCell(3), 0.6, 0.6, 0.6, True, input_size=3, dtype=F64, seed=seed)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(NOISE)),
    problems(JUST_ONE, nests=False),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_recomputing_changes_nothing(noise: str, problem: Problem, every: int, built: bool, all_states: bool) -> None:
    def run_twice(cell: Any, inputs: Any, state: Any, **options: Any) -> Any:
        # Two unrolls before one backward pass: the second must not disturb what the first will recompute.
        return [
            dynamic(cell, inputs * scale, problem.lengths, state, problem.dtype, all_states=all_states, **options)
            for scale in (1, 2)
        ]

    def measured(**options: Any) -> Any:
        torch.manual_seed(problem.seed)
        cell = NOISE[noise]()
        if built:
            cell.build(3, dtype=problem.dtype)
        inputs = random_inputs(3, problem.batch, problem.time, problem.dtype)
        return measure(partial(run_twice, **options), cell, inputs, None)

    check_same(measured(), measured(checkpoint_every=every))


@settings(max_examples=60)
@given(problems(), st.integers(1, 6))
def test_recomputing_changes_nothing_for_any_cell(problem: Problem, every: int) -> None:
    compare_case(problem.case(), plain(problem), plain(problem, partial(dynamic, checkpoint_every=every)))


@settings(max_examples=60)
@given(problems(nests=False), st.integers(0, 4))
def test_lengths_are_clipped_to_the_steps_there_are(problem: Problem, beyond: int) -> None:
    wild = [
        length + beyond if length == problem.time else length - beyond if length == 0 else length
        for length in problem.real
    ]
    assert clipped(wild, problem.case().inputs) == problem.real
    compare_case(problem.case(), plain(problem, lengths=problem.real), plain(problem, lengths=wild))
