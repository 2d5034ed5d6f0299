"""Two directions and stacks of them: both cells, both states and every layer are checked before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import F32, F64, STEPS, ZEROS, B, H, Returning, Row, Watched, X, check, rows
from torch import Tensor

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

WIDE = torch.zeros(B, 6)


def both(*args: Any, **options: Any) -> Any:
    return tt.bidirectional_dynamic_rnn(*args, **{"dtype": F32, **options})


def static(*args: Any, **options: Any) -> Any:
    return tt.static_bidirectional_rnn(*args, **{"dtype": F32, **options})


def stack(cells_fw: Any, cells_bw: Any, inputs: Any = X, *args: Any, **options: Any) -> Any:
    return tt.stack_bidirectional_dynamic_rnn(cells_fw, cells_bw, inputs, *args, **{"dtype": F32, **options})


def static_stack(cells_fw: Any, cells_bw: Any, inputs: Any = STEPS, *args: Any, **options: Any) -> Any:
    return tt.stack_bidirectional_rnn(cells_fw, cells_bw, inputs, *args, **{"dtype": F32, **options})


def gru() -> tt.GRUCell:
    return tt.GRUCell(H)


def pair() -> Returning:
    """A cell with two outputs."""
    return Returning(lambda _, s: ((s, s), s), output_size=(H, H))


def table() -> Returning:
    """A cell whose output is a matrix for each row."""
    return Returning(lambda i, s: (s.new_zeros(len(i), 3, 2), s), output_size=torch.Size([3, 2]))


DYNAMIC = [
    Row(name, error, tuple(says), call)
    for name, call, error, *says in [
        ("fw None", lambda cell: both(None, cell, X), TypeError, "`cell_fw` is not an RNNCell", "got NoneType"),
        ("bw None", lambda cell: both(cell, None, X), TypeError, "`cell_bw` is not an RNNCell", "got NoneType"),
        ("bw a class", lambda cell: both(cell, tt.GRUCell, X), TypeError, "`cell_bw`", "`GRUCell(num_units)`"),
        ("inputs for bw", lambda cell: both(cell, X, gru()), TypeError, "`cell_bw`", "got a tensor of shape (2, 3, 4)"),
        ("inputs None", lambda cell: both(cell, gru(), None), ValueError, "`inputs` is None", "Pass the sequences"),
        ("scope 1", lambda cell: both(cell, gru(), X, scope=1), TypeError, "`scope`", "got int"),
        (
            "negative parallel_iterations",
            lambda cell: both(cell, gru(), X, parallel_iterations=-1),
            TypeError,
            "`parallel_iterations`",
            "got -1",
        ),
        (
            "swap_memory text",
            lambda cell: both(cell, gru(), X, swap_memory="no"),
            TypeError,
            "`swap_memory`",
            "True or False",
        ),
        (
            "scalar lengths",
            lambda cell: both(cell, gru(), X, 1),
            ValueError,
            "vector of length batch_size",
            "got shape ()",
        ),
        (
            "short lengths",
            lambda cell: both(cell, gru(), X, [1]),
            tt.InvalidArgumentError,
            "got shape (1,)",
            "shape (2,)",
        ),
        (
            "no dtype",
            lambda cell: tt.bidirectional_dynamic_rnn(cell, gru(), X),
            ValueError,
            "If no `initial_state_fw` or `initial_state_bw` is provided, `dtype` must be specified",
            "Pass `dtype=torch.float32`",
        ),
        (
            "no dtype and one state",
            lambda cell: tt.bidirectional_dynamic_rnn(cell, gru(), X, initial_state_fw=ZEROS),
            ValueError,
            "`dtype` must be specified",
            "both initial states",
        ),
        (
            "wide fw state",
            lambda cell: both(gru(), cell, X, initial_state_fw=WIDE),
            ValueError,
            "`initial_state_fw` has the wrong shape",
            "got (2, 6)",
            "(2, 5)",
        ),
        (
            "wide bw state",
            lambda cell: both(cell, gru(), X, initial_state_bw=WIDE),
            ValueError,
            "`initial_state_bw` has the wrong shape",
            "got (2, 6)",
            "(2, 5)",
        ),
        (
            "bw state of another dtype",
            lambda cell: both(gru(), cell, X, initial_state_bw=ZEROS.double(), dtype=F64),
            TypeError,
            "dtype",
            "torch.float64",
            "torch.float32",
        ),
    ]
]

STATIC = [
    Row(f"static {name}", error, tuple(says), call)
    for name, call, error, *says in [
        ("fw None", lambda cell: static(None, cell, STEPS), TypeError, "`cell_fw` is not an RNNCell"),
        ("bw 5", lambda cell: static(cell, 5, STEPS), TypeError, "`cell_bw` is not an RNNCell", "got int"),
        ("a tensor", lambda cell: static(cell, gru(), X), TypeError, "list of steps", "`x.unbind(1)`"),
        ("no steps", lambda cell: static(cell, gru(), []), ValueError, "must not be empty"),
        (
            "no dtype",
            lambda cell: tt.static_bidirectional_rnn(cell, gru(), STEPS),
            ValueError,
            "`dtype` must be specified",
        ),
        (
            "wide bw state",
            lambda cell: static(cell, gru(), STEPS, None, WIDE),
            ValueError,
            "`initial_state_bw`",
            "got (2, 6)",
        ),
        (
            "outputs of two structures",
            lambda cell: static(cell, pair(), STEPS),
            ValueError,
            "`cell_fw`",
            "`cell_bw`",
            "joined",
        ),
        (
            "outputs of two ranks",
            lambda cell: static(cell, table(), STEPS),
            ValueError,
            "`cell_fw`",
            "`cell_bw`",
            "joined",
        ),
    ]
]

LAYERS = [
    Row(f"{function.__name__} {name}", error, tuple(says), lambda cell, f=function, call=call: call(f, cell))
    for function in (stack, static_stack)
    for name, call, error, *says in [
        ("tuple", lambda f, cell: f((cell,), [gru()]), ValueError, "`cells_fw` must be a list of cells", "got tuple"),
        ("None", lambda f, cell: f([cell], None), ValueError, "`cells_bw` must be a list of cells", "got None"),
        (
            "one cell",
            lambda f, cell: f(cell, [gru()]),
            ValueError,
            "`cells_fw` must be a list",
            "`cells_fw=[LSTMCell(8)",
        ),
        ("no cells", lambda f, _: f([], []), ValueError, "`cells_fw`", "got an empty list", "at least one cell"),
        ("an array", lambda f, cell: f(np.ones(2), [cell]), ValueError, "`cells_fw`", "got ndarray"),
        ("a tensor", lambda f, cell: f([cell], torch.ones(2)), ValueError, "`cells_bw`", "got a tensor of shape (2,)"),
        ("uneven", lambda f, cell: f([cell], [gru(), gru()]), ValueError, "must have the same length", "got 1 and 2"),
        ("a None above", lambda f, cell: f([cell, gru()], [gru(), None]), TypeError, "`cells_bw[1]` is not an RNNCell"),
        ("a class above", lambda f, cell: f([cell, tt.GRUCell], [gru(), gru()]), TypeError, "`cells_fw[1]`", "a class"),
        ("scope 1", lambda f, cell: f([cell], [gru()], scope=1), TypeError, "`scope`", "got int"),
        ("dtype text", lambda f, cell: f([cell], [gru()], dtype="f"), TypeError, "`dtype`", "got 'f'"),
        ("no dtype", lambda f, cell: f([cell], [gru()], dtype=None), ValueError, "`dtype` must be specified"),
        (
            "states in a tuple",
            lambda f, cell: f([cell], [gru()], initial_states_fw=(ZEROS,)),
            ValueError,
            "`initial_states_fw` must be a list of states",
            "got tuple",
            "a list of 1 states",
        ),
        (
            "states for other layers",
            lambda f, cell: f([cell], [gru()], initial_states_bw=[ZEROS, ZEROS]),
            ValueError,
            "`initial_states_bw` must be a list of states",
            "got a list of 2",
            "for each layer",
        ),
        (
            "a wide state above",
            lambda f, cell: f([cell, gru()], [gru(), gru()], initial_states_bw=[None, WIDE]),
            ValueError,
            "`initial_states_bw[1]` has the wrong shape",
            "got (2, 6)",
            "(2, 5)",
        ),
    ]
] + [
    Row("stack of None", ValueError, ("`inputs` is None",), lambda cell: stack([cell], [gru()], None)),
    Row("stack of a tensor", TypeError, ("list of steps",), lambda cell: static_stack([cell], [gru()], X)),
    Row(
        "stack and negative parallel_iterations",
        TypeError,
        ("`parallel_iterations`", "got -1"),
        lambda cell: stack([cell], [gru()], parallel_iterations=-1),
    ),
]


@rows([*DYNAMIC, *STATIC, *LAYERS])
def test_wrong_arguments(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("function", [stack, static_stack])
def test_one_cell_in_two_layers_of_different_width(function: Any) -> None:
    shared = [gru()] * 2
    with pytest.raises(ValueError, match="another width than the cell was built for"):
        function(shared, [gru(), gru()])


@pytest.mark.parametrize("function", [stack, static_stack])
def test_layers_in_a_module_list(function: Any) -> None:
    outputs, states_fw, _ = function(torch.nn.ModuleList([gru()]), torch.nn.ModuleList([gru()]))
    assert len(states_fw) == 1
    assert outputs[0].shape[-1] == 2 * H


@pytest.mark.parametrize("lengths", [[3.7, 1.2], [99, -4]], ids=["floats", "out of range"])
def test_lengths_mean_what_they_mean_elsewhere(lengths: list[float]) -> None:
    cells = gru(), gru()
    expected = both(*cells, X, [min(max(int(length), 0), 3) for length in lengths])
    torch.testing.assert_close(both(*cells, X, lengths), expected, rtol=0, atol=0)


def test_nothing_runs_forwards_when_backwards_is_wrong() -> None:
    cell = Watched()
    with pytest.raises(ValueError, match="initial_state_bw"):
        both(cell, Watched(), X, initial_state_bw=WIDE)
    assert cell.calls == 0


def test_both_directions_are_checked_before_either_runs() -> None:
    """A backward cell for another width is found before the forward cell has done anything."""
    calls = []

    class Counting(tt.BasicRNNCell):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            calls.append(1)
            return super().forward(inputs, state)

    with pytest.raises(ValueError, match="another width"):
        tt.bidirectional_dynamic_rnn(Counting(H), tt.GRUCell(H, input_size=9), X, dtype=torch.float32)
    states = [torch.zeros(B, H), None]
    with pytest.raises(ValueError, match="`dtype` must be specified"):
        tt.stack_bidirectional_dynamic_rnn([Counting(H), gru()], [Counting(H), gru()], X, states, states)
    assert calls == []
