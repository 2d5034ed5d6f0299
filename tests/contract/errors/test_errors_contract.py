"""The contract's own table of errors: every row, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from _error_rows import F64, ZEROS, B, H, Returning, Row, X, check, rows, run

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

PAGE = Path(__file__).parents[3] / "docs" / "contract.md"

# The contract's own table: each name is a line of the page.
CONTRACT = [
    Row(
        "a cell without what a cell needs",
        TypeError,
        (
            "`cell` is not an RNNCell",
            "got object without state_size, output_size, zero_state",
            "inherit from tt.RNNCell",
        ),
        lambda _: run(object(), X),
    ),
    Row(
        "a class instead of a cell",
        TypeError,
        ("`cell` is not an RNNCell but a class", "got the class LSTMCell", "an instance", "`LSTMCell(num_units)`"),
        lambda _: run(tt.LSTMCell, X),
    ),
    Row(
        "neither `initial_state` nor `dtype`",
        ValueError,
        ("If no `initial_state` is provided, `dtype` must be specified", "got neither", "Pass `dtype=torch.float32`"),
        lambda cell: tt.dynamic_rnn(cell, X),
    ),
    Row(
        "`inputs` None",
        ValueError,
        ("`inputs` is None", "None values not supported", "a tensor [B, T, ...]", "Pass the sequences"),
        lambda cell: run(cell, None),
    ),
    Row(
        "`inputs` empty",
        ValueError,
        ("`inputs` is empty", "got []", "at least one tensor", "Pass the sequences"),
        lambda cell: run(cell, []),
    ),
    Row(
        "`inputs` of rank 1",
        ValueError,
        ("must have rank at least 3", "got shape (3,)", "[B, T, ...]", "`x.unsqueeze(-1)`"),
        lambda cell: run(cell, torch.ones(3)),
    ),
    Row(
        "`inputs` of rank 2",
        ValueError,
        ("must have rank at least 3", "got shape (2, 3)", "[B, T, ...]", "`x.unsqueeze(-1)`"),
        lambda cell: run(cell, torch.ones(2, 3)),
    ),
    Row(
        "`inputs` of rank 4 for a cell of vectors",
        ValueError,
        ("wrong rank", "got ndim=3, shape (2, 4, 6)", "ndim=2, [B, I]", "`tt.dynamic_rnn`", "`x.flatten(2)`"),
        lambda cell: run(cell, torch.ones(2, 3, 4, 6)),
    ),
    Row(
        "nested `inputs` that differ in T",
        ValueError,
        ("Time steps is not the same", "got [3, 2]", "one size, in [B, T, ...]", "Pad or cut"),
        lambda cell: run(cell, (X, X[:, :2])),
    ),
    Row(
        "nested `inputs` that differ in B",
        ValueError,
        ("Batch_size is not the same", "got [2, 1]", "one size, in [B, T, ...]", "Pad or cut"),
        lambda cell: run(cell, {"a": X, "b": X[:1]}),
    ),
    Row(
        "`sequence_length` of rank 0",
        ValueError,
        (
            "`sequence_length` must be a vector of length batch_size",
            "got shape ()",
            "shape (2,)",
            "one length for each row",
        ),
        lambda cell: run(cell, X, torch.tensor(2)),
    ),
    Row(
        "`sequence_length` of rank 2",
        ValueError,
        ("`sequence_length` must be a vector of length batch_size", "got shape (1, 2)", "shape (2,)"),
        lambda cell: run(cell, X, [[1, 2]]),
    ),
    Row(
        "`sequence_length` for another batch",
        tt.InvalidArgumentError,
        (
            "`sequence_length` must be a vector of length batch_size",
            "got shape (3,)",
            "shape (2,)",
            "one length for each row",
        ),
        lambda cell: run(cell, X, [1, 2, 3]),
    ),
    Row(
        "integer `inputs` for a core cell",
        ValueError,
        ("RNN cell only supports floating point inputs", "got torch.int64", "`inputs.float()`", "tt.EmbeddingWrapper"),
        lambda cell: run(cell, X.long()),
    ),
    Row(
        "`inputs` and state of different dtypes",
        TypeError,
        (
            "`inputs` and `state` differ in dtype",
            "got torch.float64 and torch.float32",
            "one dtype",
            "dtype=torch.float64",
        ),
        lambda cell: run(cell, X.numpy().astype(np.float64)),
    ),
    Row(
        "`inputs` and parameters of different dtypes",
        TypeError,
        ("`inputs` and the cell's parameters differ in dtype", "got torch.float32 and torch.float64", "one dtype"),
        lambda _: run(tt.GRUCell(H, dtype=F64), X),
    ),
    Row(
        "`initial_state` and `dtype` that differ",
        TypeError,
        (
            "`dtype` differs from that of the state and of `inputs`",
            "got torch.float64",
            "torch.float32",
            "Leave `dtype` out",
        ),
        lambda cell: run(cell, X, initial_state=ZEROS, dtype=F64),
    ),
    Row(
        "the same, with lengths",
        TypeError,
        ("`dtype` differs from that of the state and of `inputs`", "got torch.float64", "torch.float32"),
        lambda cell: run(cell, X, [3, 1], initial_state=ZEROS, dtype=F64),
    ),
    Row(
        "a cell whose output has another dtype",
        TypeError,
        (
            "the output of the cell Returning has another dtype",
            "got torch.float64",
            "torch.float32",
            "`.to(torch.float32)`",
        ),
        lambda _: run(Returning(lambda _, s: (s.double(), s)), X),
    ),
    Row(
        "a cell whose output has another width",
        ValueError,
        ("Inconsistent shapes", "cell Returning", "`output_size`", "got (2, 6)", "(2, 5)", "Correct `output_size`"),
        lambda _: run(Returning(lambda _, s: (s.new_zeros(B, 6), s)), X),
    ),
    Row(
        "a state that changes its shape",
        ValueError,
        ("state of the cell Returning enters the loop with one shape", "got (2, 6)", "(2, 5)", "shape that came in"),
        lambda _: run(Returning(lambda _, s: (s, s.new_zeros(B, 6))), X),
    ),
    Row(
        "a state that changes its structure",
        ValueError,
        ("state returned by the cell Returning", "nested structure", "got (*, *, *)", "(*, *)", "same structure"),
        lambda _: run(Returning(lambda _, s: (s[0], (*s, s[0])), state_size=(H, H)), X),
    ),
    Row(
        "`initial_state` for another batch",
        ValueError,
        ("`initial_state` has the wrong shape", "got (3, 5)", "(2, 5)", "`cell.zero_state(batch_size, dtype)`"),
        lambda cell: run(cell, X, initial_state=torch.zeros(3, H)),
    ),
    Row(
        "`initial_state` of another width",
        ValueError,
        ("`initial_state` has the wrong shape", "got (2, 6)", "(2, 5)", "`cell.zero_state(batch_size, dtype)`"),
        lambda cell: run(cell, X, initial_state=torch.zeros(B, 6)),
    ),
    Row(
        "one tensor as the state of an LSTM",
        TypeError,
        ("`initial_state`", "got a tensor of shape (2, 5)", "LSTMStateTuple(c=*, h=*)", "one tensor"),
        lambda _: run(tt.LSTMCell(H), X, initial_state=ZEROS),
    ),
    Row(
        "states of different dtypes without `dtype`",
        ValueError,
        ("different inferred dtypes", "got torch.float32, torch.int64", "one dtype", "Pass `dtype=`"),
        lambda _: tt.dynamic_rnn(
            Returning(lambda _, s: (s[0], s), state_size=(H, H)), X, initial_state=(ZEROS, ZEROS.long())
        ),
    ),
    Row(
        "`parallel_iterations` below 0",
        TypeError,
        ("`parallel_iterations`", "got -1", "an int of at least 1, or None", "Leave it out"),
        lambda cell: run(cell, X, parallel_iterations=-1),
    ),
    Row(
        "`parallel_iterations` not whole",
        TypeError,
        ("`parallel_iterations`", "got 1.5", "an int of at least 1, or None", "Leave it out"),
        lambda cell: run(cell, X, parallel_iterations=1.5),
    ),
    Row(
        "`reuse=True`",
        ValueError,
        ("`reuse`", "got reuse=True", "None or False", "use the same cell object twice"),
        lambda _: tt.GRUCell(H, reuse=True),
    ),
]


@rows(CONTRACT)
def test_the_contract(row: Row) -> None:
    check(row)


def page_rows() -> dict[str, str]:
    """The table of errors on the page: what is wrong, and what we raise."""
    table = re.search(r"^\| wrong \|.*?\n\n", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert table is not None
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].strip().splitlines()[2:]]
    return {wrong: ours for wrong, _, ours in cells}


def test_the_page_lists_every_row() -> None:
    documented = page_rows()
    assert {row.name: f"`{row.error.__name__}`" for row in CONTRACT} == {
        wrong: ours.split(":")[0] for wrong, ours in documented.items() if not ours.startswith(("accepted", "not here"))
    }
