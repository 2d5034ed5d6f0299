"""`tt.RNN`: wrong arguments are found when the module is made, not when it first runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _error_rows import ZEROS, H, I, Row, X, check, rows
from torch.nn.utils.rnn import pack_sequence

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

MADE = [
    Row(f"{name} {value!r}", error, (f"`{name}`", *says), lambda cell, o={name: value}: tt.RNN(cell, **o))
    for name, value, error, *says in [
        ("returns", "all", ValueError, "got 'all'", "('both', 'outputs', 'state')", "Leave it out for both"),
        ("returns", None, ValueError, "got None", "('both', 'outputs', 'state')"),
        ("returns", ["both"], ValueError, "got ['both']", "('both', 'outputs', 'state')"),
        ("dtype", "float32", TypeError, "got 'float32'", "Pass `dtype=torch.float32`"),
        ("parallel_iterations", -3, TypeError, "got -3", "an int of at least 1"),
        ("checkpoint_every", 0, ValueError, "got 0", "an int of at least 1"),
        ("scope", 3, TypeError, "got int", "a str or None"),
        ("time_major", "no", TypeError, "got 'no'", "True or False"),
        ("swap_memory", "no", TypeError, "got 'no'", "True or False"),
        ("all_states", "no", TypeError, "got 'no'", "True or False"),
    ]
] + [
    Row("cell None", TypeError, ("`cell` is not an RNNCell", "got NoneType"), lambda _: tt.RNN(None)),
    Row("cell a class", TypeError, ("`cell` is not an RNNCell", "`GRUCell(num_units)`"), lambda _: tt.RNN(tt.GRUCell)),
]

CALLED = [
    Row(f"called with {name}", error, says, lambda cell, a=arguments: tt.RNN(cell)(*a))
    for name, arguments, error, says in [
        ("None", (None,), ValueError, ("`inputs` is None", "Pass the sequences")),
        ("nothing", ([],), ValueError, ("`inputs` is empty", "at least one tensor")),
        ("rank 2", (torch.ones(2, 3),), ValueError, ("rank at least 3", "got shape (2, 3)")),
        ("text", ("abc",), TypeError, ("`inputs`", "got str")),
        ("integers", (X.long(),), ValueError, ("floating point inputs", "got torch.int64")),
        ("a scalar length", (X, 3), ValueError, ("`sequence_length` must be a vector", "got shape ()")),
        ("a narrow state", (X, None, ZEROS[:, :3]), ValueError, ("`initial_state`", "got (2, 3)", "(2, 5)")),
        ("packed and lengths", (pack_sequence([torch.ones(3, I)]), [3]), ValueError, ("given twice", "Leave")),
    ]
]


@rows([*MADE, *CALLED])
def test_wrong_arguments(row: Row) -> None:
    check(row)


@pytest.mark.parametrize(("returns", "count"), [("both", 3), ("outputs", 1), ("state", 1)])
def test_what_comes_back_with_all_states(returns: str, count: int) -> None:
    result: Any = tt.RNN(tt.GRUCell(H), returns=returns, all_states=True)(X)
    assert (len(result) if isinstance(result, tuple) else 1) == count
