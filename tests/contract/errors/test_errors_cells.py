"""Cells: constructors, building, states and single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from _error_rows import F32, F64, I64, ZEROS, B, H, I, Returning, Row, X, check, rows, run
from torch import Tensor

import throughtime as tt
from descriptors import BY_NAME, IDS

pytestmark = pytest.mark.covers("errors")

CORE = [tt.BasicRNNCell, tt.GRUCell, tt.BasicLSTMCell, tt.LSTMCell]
INPUT = torch.zeros(B, I)


def made(kinds: list[Any], cases: list[tuple[Any, ...]]) -> list[Row]:
    """Rows for `kind(5, name=value)`, for every kind of cell."""
    return [
        Row(
            f"{kind.__name__} {name} {value!r}",
            error,
            (f"`{name}`", *says),
            lambda _, kind=kind, o={name: value}: kind(**{"num_units": H, **o}),
        )
        for kind in kinds
        for name, value, error, *says in cases
    ]


EVERY_CELL = made(
    CORE,
    [
        ("num_units", -1, ValueError, "got -1", "an int of at least 0"),
        ("num_units", 5.0, TypeError, "got 5.0", "an int of at least 0", "whole number"),
        ("num_units", "5", TypeError, "got '5'", "an int of at least 0"),
        ("num_units", None, TypeError, "got None"),
        ("num_units", True, TypeError, "got True"),
        ("num_units", [5], TypeError, "got [5]"),
        ("activation", "nope", ValueError, "got 'nope'", "a name such as 'tanh' or 'relu'", "`torch.relu`"),
        ("activation", "stack", ValueError, "got 'stack'", "a name such as 'tanh' or 'relu'"),
        ("activation", 5, ValueError, "got 5", "a function"),
        ("reuse", True, ValueError, "got reuse=True", "None or False", "use the same cell object twice"),
        ("dtype", "float32", TypeError, "got 'float32'", "`dtype=torch.float32`"),
        ("dtype", np.float32, TypeError, "numpy.float32", "`dtype=torch.float32`"),
        ("dtype", I64, ValueError, "got torch.int64", "floating point"),
        ("dtype", torch.complex64, ValueError, "got torch.complex64", "floating point"),
        ("input_size", -1, ValueError, "got -1", "an int of at least 0"),
        ("input_size", 2.0, TypeError, "got 2.0", "an int of at least 0"),
        ("input_size", "5", TypeError, "got '5'"),
        ("name", 5, TypeError, "got int", "a str or None"),
    ],
)

ONE_CELL = [
    *made(
        [tt.LSTMCell],
        [
            ("cell_clip", -1.0, ValueError, "got -1.0", "a number of at least 0"),
            ("cell_clip", "a", TypeError, "got 'a'", "number"),
            ("cell_clip", [1], TypeError, "got [1]", "number"),
            ("cell_clip", float("nan"), ValueError, "got nan"),
            ("proj_clip", -1.0, ValueError, "got -1.0", "a number of at least 0"),
            ("proj_clip", "a", TypeError, "got 'a'", "number"),
            ("num_proj", 0, ValueError, "got 0", "an int of at least 1"),
            ("num_proj", 2.5, TypeError, "got 2.5", "an int of at least 1"),
            ("num_unit_shards", 0, ValueError, "got 0", "an int of at least 1"),
            ("num_proj_shards", "a", TypeError, "got 'a'", "an int of at least 1"),
            ("initializer", 5, TypeError, "got 5", "callable"),
            ("initializer", "glorot_uniform", TypeError, "got 'glorot_uniform'", "callable"),
            ("use_peepholes", "no", TypeError, "got 'no'", "True or False"),
        ],
    ),
    *made(
        [tt.LSTMCell, tt.BasicLSTMCell],
        [
            ("forget_bias", "a", TypeError, "got 'a'", "number"),
            ("forget_bias", None, TypeError, "got None", "number"),
            ("forget_bias", [1.0], TypeError, "got [1.0]", "number"),
            ("state_is_tuple", "no", TypeError, "got 'no'", "True or False"),
        ],
    ),
    *made(
        [tt.GRUCell],
        [
            ("kernel_initializer", 5, TypeError, "got 5", "callable"),
            ("bias_initializer", "zeros", TypeError, "got 'zeros'", "callable"),
        ],
    ),
]

BUILDS = [
    Row(f"build {shape!r}", error, ("`input_size`", *says), lambda cell, shape=shape: cell.build(shape))
    for shape, error, *says in [
        (None, TypeError, "got None"),
        ("a", TypeError, "got 'a'"),
        (-1, ValueError, "got -1"),
        (3.5, TypeError, "got 3.5"),
        ((None, None), TypeError, "got None"),
        ((2, -3), ValueError, "got -3"),
        ((), TypeError, "got ()"),
    ]
] + [
    Row(f"build dtype {dtype!r}", error, tuple(says), lambda cell, dtype=dtype: cell.build(3, dtype=dtype))
    for dtype, error, *says in [
        (torch.int32, ValueError, "floating point parameters", "got torch.int32", "Leave `dtype` out"),
        ("float32", TypeError, "`dtype` must be a torch dtype", "got 'float32'"),
    ]
]

ZERO_STATES = [
    Row(f"{type(cell).__name__} zero_state {arguments}", error, says, lambda _, c=cell, a=arguments: c.zero_state(*a))
    for cell in (tt.GRUCell(H), tt.LSTMCell(H), tt.MultiRNNCell([tt.GRUCell(H)]), tt.DropoutWrapper(tt.GRUCell(H)))
    for arguments, error, *says in [
        ((-1, F32), ValueError, "`batch_size`", "got -1", "an int of at least 0"),
        (("a", F32), TypeError, "`batch_size`", "got 'a'"),
        ((2.0, F32), TypeError, "`batch_size`", "got 2.0"),
        ((2, "float32"), TypeError, "`dtype`", "got 'float32'"),
        ((2, F32, "nope"), ValueError, "`device` is unknown", "got 'nope'", "'cuda:0'"),
        ((2, F32, "cuda:99"), ValueError, "`device` is not available", "got cuda:99", "'cpu'"),
    ]
] + [
    Row(
        "zero_state of a size that is none",
        TypeError,
        ("`cell.state_size` has a leaf that is no size", "got 'wide'", "an int or a torch.Size"),
        lambda _: Returning(None, state_size=(H, "wide")).zero_state(B, F32),
    )
]

INITIAL_STATES = [
    Row(f"get_initial_state {options}", error, tuple(says), lambda cell, o=options: cell.get_initial_state(**o))
    for options, error, *says in [
        ({}, ValueError, "`batch_size` and `dtype`", "batch_size=None, dtype=None", "or pass `inputs`"),
        ({"batch_size": 2}, ValueError, "`batch_size` and `dtype`", "dtype=None"),
        ({"inputs": INPUT, "batch_size": 3}, ValueError, "`batch_size` differs from that of `inputs`", "got 3", "2"),
        ({"inputs": INPUT, "dtype": F64}, ValueError, "`dtype` differs from that of `inputs`", "got torch.float64"),
        ({"inputs": "a"}, TypeError, "`inputs`", "got str"),
        ({"inputs": torch.zeros(())}, TypeError, "`inputs`", "shape ()", "[B, ...]"),
    ]
]


def flat() -> tt.LSTMCell:
    return tt.LSTMCell(H, state_is_tuple=False)


def stacked(**options: Any) -> tt.MultiRNNCell:
    return tt.MultiRNNCell([tt.GRUCell(H), tt.GRUCell(H)], **options)


CALLS = [
    Row(f"step {name}", error, tuple(says), call)
    for name, call, error, *says in [
        ("without a state", lambda cell: cell(INPUT), TypeError, "is one step", "shape (2, 4)", "`cell.zero_state("),
        ("with a state None", lambda cell: cell(INPUT, None), TypeError, "`state` must be a tensor", "got NoneType"),
        ("with a state of text", lambda cell: cell(INPUT, "h"), TypeError, "`state` must be a tensor", "got str"),
        (
            "with a wide state",
            lambda cell: cell(INPUT, torch.zeros(B, 6)),
            ValueError,
            "`state`",
            "got (2, 6)",
            "[2, 5]",
        ),
        (
            "with a long state",
            lambda cell: cell(INPUT, torch.zeros(3, H)),
            ValueError,
            "`state`",
            "got (3, 5)",
            "[2, 5]",
        ),
        (
            "with a float64 state",
            lambda cell: cell(INPUT, ZEROS.double()),
            TypeError,
            "differ in dtype",
            "torch.float64",
        ),
        ("with an array", lambda cell: cell(INPUT.numpy(), ZEROS), TypeError, "must be one tensor", "got ndarray"),
        (
            "with integers",
            lambda cell: cell(INPUT.long(), ZEROS),
            ValueError,
            "floating point inputs",
            "got torch.int64",
        ),
        ("over a sequence", lambda cell: cell(X, ZEROS), ValueError, "wrong rank", "ndim=3, shape (2, 3, 4)", "ndim=2"),
        ("over a row", lambda cell: cell(INPUT[0], ZEROS), ValueError, "wrong rank", "ndim=1", "ndim=2"),
        (
            "LSTM with one state",
            lambda _: tt.LSTMCell(H)(INPUT, ZEROS),
            TypeError,
            "`state`",
            "LSTMStateTuple(c=*, h=*)",
        ),
        ("LSTM with three", lambda _: tt.LSTMCell(H)(INPUT, (ZEROS,) * 3), ValueError, "`state`", "got (*, *, *)"),
        ("LSTM with a wide c", lambda _: tt.LSTMCell(H)(INPUT, (X[0], ZEROS)), ValueError, "`state.c`", "got (3, 4)"),
        ("LSTM with a wide h", lambda _: tt.LSTMCell(H)(INPUT, (ZEROS, X[0])), ValueError, "`state.h`", "got (3, 4)"),
        ("flat LSTM with two", lambda _: flat()(INPUT, (ZEROS, ZEROS)), TypeError, "`state`", "got tuple", "[B, 10]"),
        ("flat LSTM with half", lambda _: flat()(INPUT, ZEROS), ValueError, "`state`", "got (2, 5)", "[2, 10]"),
        (
            "stack with one state",
            lambda _: stacked()(INPUT, ZEROS),
            ValueError,
            "Expected state to be a tuple of length 2",
        ),
        ("stack with none", lambda _: stacked()(INPUT, None), ValueError, "tuple of length 2", "got NoneType"),
        (
            "stack with a dict",
            lambda _: stacked()(INPUT, {0: ZEROS, 1: ZEROS}),
            ValueError,
            "tuple of length 2",
            "got {",
        ),
        (
            "stack with three",
            lambda _: stacked()(INPUT, (ZEROS,) * 3),
            ValueError,
            "tuple of length 2",
            "got (*, *, *)",
        ),
        (
            "flat stack with two",
            lambda _: stacked(state_is_tuple=False)(INPUT, (ZEROS, ZEROS)),
            TypeError,
            "`state`",
            "got tuple",
            "[B, 10]",
        ),
        (
            "flat stack with half",
            lambda _: stacked(state_is_tuple=False)(INPUT, ZEROS),
            ValueError,
            "got (2, 5)",
            "[B, 10]",
        ),
    ]
]

STACKS = [
    Row(f"MultiRNNCell {name}", error, tuple(says), lambda _, a=arguments: tt.MultiRNNCell(*a))
    for name, arguments, error, *says in [
        ("of None", (None,), TypeError, "`cells` must be a list", "got NoneType", "`MultiRNNCell([LSTMCell(8)"),
        ("of one cell", (tt.GRUCell(H),), TypeError, "`cells` must be a list", "got GRUCell"),
        ("of a dict", ({0: tt.GRUCell(H)},), TypeError, "`cells` must be a list", "got dict"),
        ("of a generator", ((tt.GRUCell(H) for _ in range(2)),), TypeError, "`cells` must be a list", "got generator"),
        ("of nothing", ([],), ValueError, "`cells` is empty", "at least one cell"),
        ("of a class", ([tt.GRUCell],), TypeError, "`cells[0]` is not an RNNCell but a class"),
        ("with a None", ([tt.GRUCell(H), None],), TypeError, "`cells[1]` is not an RNNCell", "got NoneType"),
        ("of lists", ([[tt.GRUCell(H)]],), TypeError, "`cells[0]` is not an RNNCell", "got list"),
        ("of sizes", ([128, 256],), TypeError, "`cells[0]` is not an RNNCell", "got int"),
        ("flat, of LSTMs", ([tt.LSTMCell(H)], False), ValueError, "`state_is_tuple=False`", "cells[0]", "an int"),
        (
            "flat, of matrices",
            ([Returning(None, state_size=torch.Size([2, 3]))], False),
            ValueError,
            "`state_is_tuple=False`",
            "cells[0]",
        ),
        ("state_is_tuple text", ([tt.GRUCell(H)], "no"), TypeError, "`state_is_tuple`", "True or False"),
    ]
]


@rows([*EVERY_CELL, *ONE_CELL, *BUILDS, *ZERO_STATES, *INITIAL_STATES, *CALLS, *STACKS])
def test_wrong_arguments(row: Row) -> None:
    check(row)


SHARED = {
    "GRUCell": (lambda: tt.GRUCell(H), 3, "MultiRNNCell([GRUCell(5) for _ in range(3)])"),
    "LSTMCell": (lambda: tt.LSTMCell(H), 2, "MultiRNNCell([LSTMCell(5) for _ in range(2)])"),
}
SAME = (
    "Dimensions must be equal",
    "the same",
    "share one kernel",
    "got widths 4 and 5",
    "one cell object for each layer",
)


@pytest.mark.parametrize(("make", "count", "code"), SHARED.values(), ids=SHARED)
def test_one_cell_in_every_layer_shows_the_right_code(make: Any, count: int, code: str) -> None:
    cell = make()
    says = (*SAME, f"`{code}`", f"`[cell] * {count}`")
    check(Row("shared", ValueError, says, lambda _: run(tt.MultiRNNCell([cell] * count), X)))
    assert not cell.built
    # The advice is code that runs.
    run(eval(code, {name: getattr(tt, name) for name in tt.__all__}), X)


WRAPPED = {
    "one wrapper twice": lambda cell: [tt.DropoutWrapper(cell)] * 2,
    "two wrappers of one cell": lambda cell: [tt.DropoutWrapper(cell), tt.DropoutWrapper(cell)],
    "two wrappers, twice wrapped": lambda cell: [tt.DeviceWrapper(tt.DropoutWrapper(cell), "cpu") for _ in range(2)],
}


@pytest.mark.parametrize("layers", WRAPPED.values(), ids=WRAPPED)
def test_one_cell_in_the_wrappers_of_two_layers(layers: Any) -> None:
    says = (*SAME, "DropoutWrapper(GRUCell(5)", "for _ in range(2)]")
    cell = tt.GRUCell(H)
    check(Row("wrapped", ValueError, says, lambda _: run(tt.MultiRNNCell(layers(cell)), X)))
    assert not cell.built


def test_one_cell_in_two_of_three_layers() -> None:
    cell = tt.GRUCell(H)
    with pytest.raises(ValueError, match="cells 0 and 2 of the MultiRNNCell are the same GRUCell"):
        run(tt.MultiRNNCell([cell, tt.GRUCell(7), cell]), X)
    assert not cell.built


def test_one_cell_in_layers_of_one_width_is_shared() -> None:
    cell = tt.GRUCell(I)
    outputs, _ = run(tt.MultiRNNCell([cell] * 2), X)
    assert outputs.shape == X.shape
    assert len(list(tt.MultiRNNCell([cell] * 2).parameters())) == len(list(cell.parameters()))


@pytest.mark.parametrize("size", [torch.Size([I]), np.int64(I)], ids=repr)
def test_one_cell_above_a_size_that_is_written_otherwise(size: Any) -> None:
    cell, between = tt.GRUCell(I), Returning(lambda x, h: (x, h), output_size=size)
    assert run(tt.MultiRNNCell([cell, between, cell]), X)[0].shape == X.shape
    with pytest.raises(ValueError, match="got widths 4 and 3, expected one cell object for each layer"):
        run(tt.MultiRNNCell([cell, Returning(None, output_size=torch.Size([3])), cell]), X)


def test_a_cell_keeps_the_width_of_its_first_call() -> None:
    cell = tt.GRUCell(H, input_size=I)
    with pytest.raises(ValueError, match=r"another width than the cell was built for: got \(2, 6\), expected \[B, 4\]"):
        run(cell, torch.ones(B, 3, 6))


@pytest.mark.parametrize("name", [name for name, descriptor in BY_NAME.items() if descriptor.input_size != IDS])
def test_inputs_of_another_dtype_than_the_weights(name: str) -> None:
    """Of our own cells it is for us to say so, not for torch."""
    cell, inputs, _, _ = BY_NAME[name].case(2, 3, F32)
    if not type(cell).__module__.startswith("throughtime."):
        pytest.skip("a cell of the tests")
    with pytest.raises(TypeError, match=r"differ in dtype: got torch.float64"):
        tt.dynamic_rnn(cell, pytree.tree_map(Tensor.double, inputs), dtype=F64)


def test_the_parts_of_a_state_that_differ() -> None:
    with pytest.raises(TypeError, match=r"got c torch.float32, h torch.float64, expected one dtype"):
        _ = tt.LSTMStateTuple(ZEROS, ZEROS.double()).dtype


@pytest.mark.parametrize("kind", CORE)
@pytest.mark.parametrize("units", [0, np.int64(3), torch.tensor(3)], ids=["0", "int64", "tensor"])
def test_sizes_that_are_welcome(kind: Any, units: Any) -> None:
    outputs, _ = run(kind(units), X)
    assert outputs.shape == (B, 3, int(units))


def test_a_stack_is_checked_to_the_top_before_anything_is_built() -> None:
    """A second layer built for another width is found before the first one is built."""
    stack = tt.MultiRNNCell([tt.GRUCell(3), tt.GRUCell(3, input_size=9)])
    with pytest.raises(ValueError, match="another width"):
        tt.dynamic_rnn(stack, torch.ones(2, 3, 4), dtype=torch.float32)
    assert not stack.cells[0].built


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("linear", [-2.0, -0.5, 0.0, 1.0]),
        ("exponential", [0.1353, 0.6065, 1.0, 2.7183]),
        ("swish", [-0.2384, -0.1888, 0.0, 0.7311]),
        ("hard_sigmoid", [0.1, 0.4, 0.5, 0.7]),
        ("leaky_relu", [-0.4, -0.1, 0.0, 1.0]),
        ("softmax", [0.0303, 0.1360, 0.2242, 0.6095]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_names_of_activations_mean_what_tensorflow_does(name: str, values: list[float]) -> None:
    """As the cells of version 1 in TensorFlow 2.21 take them."""
    found = tt.BasicRNNCell(2, activation=name).activation(torch.tensor([[-2.0, -0.5, 0.0, 1.0]]))
    torch.testing.assert_close(found, torch.tensor([values]), atol=1e-4, rtol=0)
