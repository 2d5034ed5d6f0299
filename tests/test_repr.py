"""What people see when they print a cell: how it was made."""

from __future__ import annotations

import pytest

import throughtime as tt

pytestmark = pytest.mark.covers("conformance")


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (tt.BasicRNNCell(5), "BasicRNNCell(5)"),
        (tt.LSTMCell(5), "LSTMCell(5)"),
        (tt.LSTMCell(5, True, 0.5, num_proj=3), "LSTMCell(\n  5, use_peepholes=True, cell_clip=0.5, num_proj=3\n"),
        (
            tt.DropoutWrapper(tt.BasicRNNCell(5), 0.5),
            "DropoutWrapper(\n  input_keep_prob=0.5\n  (cell): BasicRNNCell(5)\n",
        ),
        (tt.EmbeddingWrapper(tt.BasicRNNCell(5), 9, 2), "EmbeddingWrapper(\n  9, 2\n"),
        (tt.RNN(tt.BasicRNNCell(5), returns="state"), "RNN(\n  returns='state'\n"),
    ],
)
def test_repr_says_how_it_was_made(cell: tt.RNNCell, shown: str) -> None:
    assert repr(cell).startswith(shown)
