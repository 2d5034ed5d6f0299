"""`dynamic_rnn` in hostile hands: wrong types, shapes, forms and cells in every argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import F32, STEPS, ZEROS, B, H, I, Returning, Row, T, X, check, rows, run
from torch.nn.utils.rnn import pack_sequence

import throughtime as tt

pytestmark = pytest.mark.covers("errors")


class DuckTyped:
    """A cell by duck typing only: no `nn.Module`, no base class."""

    state_size = output_size = H

    def __init__(self, state: Any) -> None:
        self.state = state

    def zero_state(self, batch_size: int, dtype: torch.dtype) -> Any:
        return self.state

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        return state, state


class Uncallable(DuckTyped):
    """A cell whose `zero_state` is the state itself."""

    zero_state = ZEROS

    def __init__(self) -> None: ...


class Forgetful(tt.RNNCell):
    """A cell that does not call the constructor of its base."""

    state_size = output_size = H

    def __init__(self) -> None: ...


STATES = [
    Row(
        f"initial state {name}",
        error,
        ("`initial_state`", got),
        lambda cell, value=value: tt.dynamic_rnn(cell, X, initial_state=value),
    )
    for name, value, error, got in [
        ("text", "zeros", TypeError, "got str"),
        ("a function", lambda: ZEROS, TypeError, "got function"),
        ("an object", object(), TypeError, "got object"),
        ("an array of objects", np.array([None]), TypeError, "object"),
        ("sparse", ZEROS.to_sparse(), TypeError, "torch.sparse_coo"),
        ("a number", 0.0, ValueError, "got ()"),
        ("one row", torch.zeros(H), ValueError, "got (5,)"),
        ("of rank 3", torch.zeros(B, H, 1), ValueError, "got (2, 5, 1)"),
    ]
]

NESTED_STATES = [
    Row(
        f"LSTM state {name}",
        error,
        ("`initial_state`", got),
        lambda _, value=value: tt.dynamic_rnn(tt.LSTMCell(H), X, initial_state=value),
    )
    for name, value, error, got in [
        ("of Nones", (None, None), TypeError, "got NoneType"),
        ("with a None", (ZEROS, None), TypeError, "got NoneType"),
        ("of text", ("c", "h"), TypeError, "got str"),
        ("with a TensorArray", (ZEROS, tt.TensorArray(F32)), TypeError, "got TensorArray"),
        ("of one part", (ZEROS,), ValueError, "got (*,)"),
        ("of three parts", (ZEROS,) * 3, ValueError, "got (*, *, *)"),
        ("of no part", (), ValueError, "got ()"),
        ("too deep", ((ZEROS, ZEROS),), ValueError, "got ((*, *),)"),
        ("a dict", {"c": ZEROS, "h": ZEROS}, TypeError, "got {'c': *, 'h': *}"),
        ("stacked", torch.zeros(2, B, H), TypeError, "got a tensor of shape (2, 2, 5)"),
        ("with a wide part", (ZEROS, torch.zeros(B, 6)), ValueError, "got (2, 6)"),
    ]
]

INPUTS = [
    Row(f"inputs {name}", error, ("`inputs`", *says), lambda cell, value=value: run(cell, value))
    for name, value, error, *says in [
        ("text", "abc", TypeError, "got str", "tensors or numpy arrays", "`torch.as_tensor`"),
        ("a generator", (step for step in STEPS), TypeError, "got generator"),
        ("a module", torch.nn.Linear(2, 2), TypeError, "got Linear"),
        ("a set", {1.0, 2.0}, TypeError, "got set"),
        ("with a None", (X, None), TypeError, "got NoneType"),
        ("a number", 1.0, ValueError, "got shape ()"),
        ("a list of steps", STEPS, ValueError, "got shape (2, 4)", "tt.static_rnn"),
        ("nested lists of numbers", [[[1.0, 2.0]]], ValueError, "got shape ()", "A list is a nest"),
        ("an array of objects", np.array([[[None]]]), TypeError, "object"),
        ("an array of text", np.array([[["a"]]]), TypeError, "got", "array"),
        ("sparse", X.to_sparse(), TypeError, "torch.sparse_coo", "`.to_dense()`"),
        ("an empty tuple", (), ValueError, "got ()", "at least one tensor"),
        ("an empty dict", {}, ValueError, "got {}", "at least one tensor"),
        ("a nest for a core cell", (X, X), TypeError, "got tuple", "a tensor [B, I]", "Concatenate nested inputs"),
    ]
]

NUMBERS = [
    Row(
        f"inputs {inputs.dtype}",
        ValueError,
        ("floating point inputs", f"got {inputs.dtype}", "`inputs.float()`"),
        lambda cell, inputs=inputs: run(cell, inputs),
    )
    for inputs in (X > 0, X + 0j, X.to(torch.uint8))
]

LENGTHS = [
    Row(f"lengths {name}", error, ("`sequence_length`", *says), lambda cell, value=value: run(cell, X, value))
    for name, value, error, *says in [
        ("text", "ab", TypeError, "got str"),
        ("of text", ["1", "2"], TypeError, "got ['1', '2']", "a vector of 2 ints", "whole numbers"),
        ("with a None", [1, None], TypeError, "got [1, None]"),
        ("ragged", [[1], [1, 2]], TypeError, "got [[1], [1, 2]]"),
        ("a dict", {0: 1, 1: 2}, TypeError, "got dict"),
        ("a generator", (length for length in (1, 2)), TypeError, "got generator"),
        ("an array of objects", np.array([1, 2], object), TypeError, "numpy dtype object", "numbers"),
        ("empty", [], tt.InvalidArgumentError, "got shape (0,)", "shape (2,)"),
        ("NaN", [1.0, float("nan")], tt.InvalidArgumentError, "got [1.0, nan]", "whole numbers", "Remove NaN and Inf"),
        ("Inf", [1.0, float("inf")], tt.InvalidArgumentError, "got [1.0, inf]", "whole numbers"),
        ("complex", [1j, 2], tt.InvalidArgumentError, "whole numbers"),
        ("sparse", torch.tensor([1, 2]).to_sparse(), TypeError, "torch.sparse_coo"),
        ("without values", torch.tensor([1, 2], device="meta"), tt.InvalidArgumentError, "meta"),
    ]
]

OPTIONS = [
    Row(f"{name} {value!r}", error, (f"`{name}`", *says), lambda cell, o={name: value}: run(cell, X, **o))
    for name, value, error, *says in [
        ("dtype", "float32", TypeError, "got 'float32'", "Pass `dtype=torch.float32`"),
        ("dtype", np.float32, TypeError, "numpy.float32", "Pass `dtype=torch.float32`"),
        ("dtype", float, TypeError, "got <class 'float'>", "Pass `dtype=torch.float32`"),
        ("parallel_iterations", "3", TypeError, "got '3'", "an int of at least 1"),
        ("parallel_iterations", True, TypeError, "got True", "an int of at least 1"),
        ("parallel_iterations", [1], TypeError, "got [1]", "an int of at least 1"),
        ("checkpoint_every", 0, ValueError, "got 0", "an int of at least 1"),
        ("checkpoint_every", -2, ValueError, "got -2", "an int of at least 1"),
        ("checkpoint_every", 1.5, TypeError, "got 1.5", "an int of at least 1"),
        ("checkpoint_every", True, TypeError, "got True", "an int of at least 1"),
        ("scope", 1, TypeError, "got int", "a str or None", "names the variables"),
        ("scope", ["a"], TypeError, "got list", "a str or None"),
        ("swap_memory", "yes", TypeError, "got 'yes'", "True or False"),
        ("time_major", "no", TypeError, "got 'no'", "True or False"),
        ("all_states", [True, False], TypeError, "got [True, False]", "True or False"),
    ]
] + [
    Row(
        f"{name} a tensor",
        TypeError,
        (f"`{name}`", "True or False"),
        lambda cell, name=name: run(cell, X, **{name: torch.tensor([3, 1])}),
    )
    for name in ("swap_memory", "time_major", "all_states")
]

PACKED = pack_sequence([torch.ones(3, I), torch.ones(2, I)])
JAGGED = torch.nested.nested_tensor([torch.ones(3, I), torch.ones(2, I)], layout=torch.jagged)
OTHER_JAGGED = torch.nested.nested_tensor([torch.ones(3, I), torch.ones(1, I)], layout=torch.jagged)
FORMS = [
    Row(
        "packed with lengths",
        ValueError,
        ("`sequence_length` is given twice", "Leave `sequence_length` out for packed and jagged inputs"),
        lambda cell: run(cell, PACKED, [3, 2]),
    ),
    Row(
        "jagged with lengths",
        ValueError,
        ("`sequence_length` is given twice", "Leave `sequence_length` out for packed and jagged inputs"),
        lambda cell: run(cell, JAGGED, [3, 2]),
    ),
    Row(
        "jagged and time-major",
        ValueError,
        ("a NestedTensor is batch-major", "got time_major=True", "Leave `time_major` out"),
        lambda cell: run(cell, JAGGED, time_major=True),
    ),
    Row(
        "ragged in the features",
        ValueError,
        ("NestedTensor", "dimension 2", "dimension 1"),
        lambda cell: run(cell, JAGGED.transpose(1, 2)),
    ),
    Row(
        "packed beside padded",
        TypeError,
        ("mix packed, jagged and padded", "got PackedSequence, a tensor of shape (2, 3, 4)", "leaves of one kind"),
        lambda cell: run(cell, (PACKED, X)),
    ),
    Row(
        "jagged beside packed",
        TypeError,
        ("mix packed, jagged and padded", "PackedSequence", "leaves of one kind", "same form"),
        lambda cell: run(cell, [JAGGED, PACKED]),
    ),
    Row(
        "packed with a None",
        TypeError,
        ("mix packed, jagged and padded", "NoneType", "leaves of one kind"),
        lambda cell: run(cell, (PACKED, None)),
    ),
    Row(
        "packed of other lengths",
        ValueError,
        ("packed `inputs` of a nest differ in lengths", "got [2, 1, 1]", "[2, 2, 1]", "same lengths"),
        lambda cell: run(cell, (PACKED, pack_sequence([torch.ones(3, I), torch.ones(1, I)]))),
    ),
    Row(
        "jagged of other lengths",
        ValueError,
        ("jagged `inputs` of a nest differ in lengths", "got [3, 1]", "[3, 2]", "same lengths"),
        lambda cell: run(cell, (JAGGED, OTHER_JAGGED)),
    ),
    Row(
        "packed without features",
        ValueError,
        ("wrong rank", "ndim=1", "ndim=2, [B, I]", "`x.unsqueeze(-1)`"),
        lambda cell: run(cell, pack_sequence([torch.ones(3)])),
    ),
]

CELLS = [
    Row(f"cell {name}", TypeError, ("`cell` is not an RNNCell", *says), lambda _, cell=cell: run(cell, X))
    for name, cell, *says in [
        ("None", None, "got NoneType without"),
        ("text", "lstm", "got str without"),
        ("a list of cells", [tt.GRUCell(H)], "got list without"),
        ("a function", lambda inputs, state: (inputs, state), "got function without state_size, output_size"),
        ("of torch", torch.nn.GRUCell(I, H), "got GRUCell without state_size, output_size, zero_state"),
        ("of the base class", tt.RNNCell(), "got RNNCell without state_size, output_size"),
        ("without a zero_state to call", Uncallable(), "got Uncallable without zero_state"),
    ]
]

RETURNS = [
    Row(f"a cell that returns {name}", error, says, lambda _, f=function: run(Returning(f), X))
    for name, function, error, *says in [
        ("nothing", lambda _, s: None, TypeError, "must return a pair", "got NoneType", "`return output, state`"),
        ("its state alone", lambda _, s: s, TypeError, "must return a pair", "got a tensor of shape (2, 5)"),
        ("three values", lambda _, s: (s, s, s), TypeError, "must return a pair", "(output, state)"),
        ("no output", lambda _, s: (None, s), TypeError, "output", "got NoneType", "(2, 5)"),
        ("text", lambda _, s: ("h", s), TypeError, "output", "got str"),
        ("a number", lambda _, s: (0.0, s), TypeError, "output", "got float"),
        ("an array", lambda _, s: (s.numpy(), s), TypeError, "output", "got ndarray"),
        ("an output of one row", lambda _, s: (s[:1], s), ValueError, "output", "got (1, 5)", "(2, 5)"),
        ("a nested output", lambda _, s: ((s, s), s), ValueError, "output", "got (*, *)", "expected *"),
        ("no state", lambda _, s: (s, None), TypeError, "state", "got NoneType"),
        ("a state as an array", lambda _, s: (s, s.numpy()), TypeError, "state", "got ndarray"),
        ("a nested state", lambda _, s: (s, (s, s)), ValueError, "state", "got (*, *)", "expected *"),
        ("a scalar state", lambda _, s: (s, s.sum()), ValueError, "state", "got ()", "(2, 5)"),
        ("a state of another dtype", lambda _, s: (s, s.double()), TypeError, "state", "got torch.float64"),
        (
            "a state elsewhere",
            lambda _, s: (s, s.to("meta")),
            ValueError,
            "`state`",
            "different devices",
            "got meta and cpu",
        ),
    ]
]

ZERO_STATES = [
    Row(
        f"a zero state {name}", error, ("zero state of DuckTyped", got), lambda _, value=value: run(DuckTyped(value), X)
    )
    for name, value, error, got in [
        ("missing", None, TypeError, "got NoneType"),
        ("of text", "zeros", TypeError, "got str"),
        ("for another batch", torch.zeros(3, H), ValueError, "got (3, 5)"),
        ("of another width", torch.zeros(B, 6), ValueError, "got (2, 6)"),
        ("nested", (ZEROS, ZEROS), ValueError, "got (*, *)"),
    ]
]

SIZES = [
    Row(
        f"{name} {size!r}",
        error,
        (f"`cell.{name}`", f"got {size!r}", "an int"),
        lambda _, sizes={name: size}: run(Returning(lambda _, s: (s, s), **sizes), X),
    )
    for name in ("state_size", "output_size")
    for size, error in ((None, TypeError), ("a", TypeError), (5.0, TypeError), (-1, ValueError))
]

DEVICES = [
    Row(
        "state on another device",
        ValueError,
        ("`inputs` and `state`", "different devices", "got cpu and meta", "`inputs.to('meta')`"),
        lambda cell: run(cell, X, initial_state=ZEROS.to("meta")),
    ),
    Row(
        "parameters on another device",
        ValueError,
        (
            "`inputs` and the cell's parameters",
            "different devices",
            "got cpu and meta",
            "make the cell's parameters on 'cpu'",
        ),
        lambda _: run(tt.GRUCell(H, input_size=I).to("meta"), X, initial_state=ZEROS),
    ),
]


@rows(
    [
        *STATES,
        *NESTED_STATES,
        *INPUTS,
        *NUMBERS,
        *LENGTHS,
        *OPTIONS,
        *FORMS,
        *CELLS,
        *ZERO_STATES,
        *SIZES,
        *DEVICES,
    ]
)
def test_wrong_arguments(row: Row) -> None:
    check(row)


BUILT = tt.GRUCell(H, input_size=I)
NO_STEPS = [
    Row(f"{name} and {why}", error, tuple(says), lambda cell, make=make, x=inputs, o=options: run(make(cell), x, **o))
    for why, steps, options in (("T = 0", 0, {}), ("no lengths", T, {"sequence_length": [0, 0]}))
    for name, make, inputs, error, *says in [
        ("integers", lambda cell: cell, X[:, :steps].long(), ValueError, "floating point inputs", "got torch.int64"),
        ("float64", lambda cell: cell, X[:, :steps].double(), TypeError, "differ in dtype", "torch.float64"),
        ("rank 4", lambda cell: cell, X[:, :steps, None], ValueError, "wrong rank", "ndim=3"),
        ("a nest", lambda cell: cell, (X[:, :steps],) * 2, TypeError, "must be one tensor", "got tuple"),
        ("another width", lambda _: BUILT, X[:, :steps, :3], ValueError, "another width", "expected [B, 4]"),
    ]
]


@rows(NO_STEPS)
def test_no_steps_are_checked_like_any(row: Row) -> None:
    """A mistake must not depend on the lengths of the batch it is made in."""
    check(row)


@rows(RETURNS)
def test_cells_are_held_to_what_they_say(row: Row) -> None:
    check(row)


def test_a_cell_that_was_never_initialised() -> None:
    says = ("`cell`", "got Forgetful", "Call `super().__init__()`")
    check(Row("never initialised", TypeError, says, lambda _: run(Forgetful(), X)))


def test_a_wrong_first_step_is_the_last() -> None:
    seen = []
    cell = Returning(lambda inputs, state: (seen.append(inputs), state))
    with pytest.raises(TypeError, match="no tensor"), tt.backend("reference"):
        run(cell, X)
    assert len(seen) == 1


def test_a_wrong_step_is_traced_for_nothing() -> None:
    """What is wrong with a step is said by the reference, in the same words, on every backend."""
    cell = Returning(lambda inputs, state: (None, state))
    with pytest.raises(TypeError) as direct, tt.backend("reference"):
        run(cell, X)
    with pytest.raises(TypeError, match="no tensor") as found:
        run(cell, X)
    assert str(found.value) == str(direct.value)


def test_a_cell_of_its_own_may_fail_in_its_own_words() -> None:
    def divide(_inputs: Any, _state: Any) -> None:
        raise ZeroDivisionError("by the cell itself")

    with pytest.raises(ZeroDivisionError, match="by the cell itself"):
        run(Returning(divide), X)


def test_a_cell_must_define_its_step() -> None:
    class Stepless(tt.RNNCell):
        state_size = output_size = H

    with pytest.raises(
        NotImplementedError, match=r"Stepless must define forward\(inputs, state\) -> \(output, state\)"
    ):
        run(Stepless(), X)


def test_run_time_errors_can_be_caught_as_value_errors() -> None:
    with pytest.raises(ValueError, match="vector of length batch_size"):
        run(tt.GRUCell(H), X, [1])
    assert issubclass(tt.InvalidArgumentError, ValueError)


def test_a_cell_that_failed_can_be_used() -> None:
    cell = tt.GRUCell(H)
    for wrong in (X.long(), X.double(), X[..., None]):
        with pytest.raises((TypeError, ValueError)):
            run(cell, wrong)
    outputs, _ = run(cell, X.repeat(1, 1, 2))
    assert outputs.shape == (B, T, H)
