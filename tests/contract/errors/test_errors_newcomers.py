"""Calls as people make them who come from torch, Keras or TensorFlow: the message names what does it here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from _error_rows import F32, ZEROS, B, H, I, Row, T, X, check, rows, run
from torch import nn

import throughtime as tt
from descriptors import BY_NAME

pytestmark = pytest.mark.covers("errors")

STEP, META = X[:, 0], X.to("meta")
LSTM = tt.LSTMCell

KEYWORDS = [
    Row(
        f"{kind.__name__} {name}",
        TypeError,
        (f"`{kind.__name__}` has no argument `{name}`", f"got {name}={value!r}", "expected one of num_units", says),
        lambda _, kind=kind, o={name: value}: kind(H, **o),
    )
    for kind in (tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell, tt.BasicLSTMCell)
    for name, value, says in [
        ("hidden_size", 4, "`num_units`"),
        ("units", 4, "`num_units`"),
        ("input_dim", 4, "`input_size=`"),
        ("num_layers", 2, "`tt.MultiRNNCell(["),
        ("bias", False, "`tt.nn.LSTM(..., bias=False)`"),
        ("use_bias", False, "`tt.nn.LSTM(..., bias=False)`"),
        ("batch_first", True, "`time_major=True`"),
        ("dropout", 0.1, "`tt.DropoutWrapper(cell, output_keep_prob=0.9)`"),
        ("recurrent_dropout", 0.1, "`tt.DropoutWrapper("),
        ("return_sequences", True, "`tt.RNN(cell, returns='outputs')`"),
        ("return_state", True, "`returns='state'`"),
        ("bidirectional", True, "`tt.bidirectional_dynamic_rnn("),
        ("go_backwards", True, "`tt.bidirectional_dynamic_rnn`"),
        ("stateful", True, "`outputs, state = tt.dynamic_rnn(cell, inputs, initial_state=state)`"),
        ("proj_size", 2, "`num_proj=`"),
        ("nonlinearity", "relu", "`activation='relu'`"),
        ("recurrent_activation", "sigmoid", "Subclass tt.RNNCell"),
        ("recurrent_initializer", "orthogonal", "`torch.nn.init.orthogonal_`"),
        ("unit_forget_bias", True, "`forget_bias=`"),
        ("device", "cpu", "`cell.to(device)`"),
        ("activaton", "relu", "Write `activation=` instead"),
        ("nonsense", 1, "Leave `nonsense` out"),
    ]
]

MADE = [
    Row(name, TypeError, says, lambda _, call=call: call())
    for name, call, *says in [
        ("sizes by name alone", lambda: LSTM(hidden_size=4), "`LSTMCell` has no argument `hidden_size`", "`num_units`"),
        ("torch's order, LSTM", lambda: LSTM(3, 4), "got 3, 4", "`LSTMCell(4, input_size=3)`"),
        ("torch's order, GRU", lambda: tt.GRUCell(3, 4), "got 3, 4", "`GRUCell(4, input_size=3)`"),
        ("torch's order, RNN", lambda: tt.BasicRNNCell(3, 4), "expected num_units, activation", "`BasicRNNCell(4, inp"),
        ("dropout by rate", lambda: tt.DropoutWrapper(LSTM(4), p=0.1), "no argument `p`", "one minus the rate"),
        ("dropout by one word", lambda: tt.DropoutWrapper(LSTM(4), keep_prob=0.1), "`output_keep_prob`"),
        ("a stack of arguments", lambda: tt.MultiRNNCell(LSTM(4), LSTM(4)), "`cells` must be a list", "got LSTMCell"),
        ("RNN of sizes", lambda: tt.RNN(3, 4), "got int, int", "`tt.nn.RNN`", "`tt.RNN(tt.LSTMCell(64))`"),
        ("RNN of a size", lambda: tt.RNN(64), "`cell` is not an RNNCell", "got int", "`tt.LSTMCell(64)`"),
        ("RNN with units", lambda: tt.RNN(units=64), "`tt.RNN(tt.LSTMCell(64))`"),
        ("RNN return_sequences", lambda: tt.RNN(LSTM(4), return_sequences=True), "`returns='outputs'`"),
        ("RNN batch_first", lambda: tt.RNN(LSTM(4), batch_first=True), "[B, T, I] by default", "`time_major=True`"),
        ("RNN num_layers", lambda: tt.RNN(LSTM(4), num_layers=2), "`tt.RNN(tt.MultiRNNCell(["),
        ("RNN lengths", lambda: tt.RNN(LSTM(4), sequence_length=[1, 2]), "Pass it in the call"),
        ("RNN of torch's", lambda: tt.RNN(nn.LSTM(3, 4)), "got LSTM", "`tt.nn.LSTM`"),
        ("cells of sizes", lambda: tt.MultiRNNCell([4, 4]), "`cells[0]`", "`tt.LSTMCell(64)`"),
    ]
]

CALLED = [
    Row(name, error, says, lambda _, call=call: call())
    for name, call, error, *says in [
        (
            "a cell in nn.Sequential",
            lambda: nn.Sequential(LSTM(64), nn.Linear(64, 2))(X),
            TypeError,
            "a call of `LSTMCell` is one step",
            "got a tensor of shape (2, 3, 4)",
            "nn.Sequential",
            "`tt.RNN(LSTMCell(...), returns='outputs')`",
        ),
        ("a built cell in nn.Sequential", lambda: nn.Sequential(tt.GRUCell(H, input_size=I))(X), TypeError, "`tt.RNN("),
        ("a stack in nn.Sequential", lambda: nn.Sequential(tt.MultiRNNCell([LSTM(4)]))(X), TypeError, "`tt.RNN(Multi"),
        ("dropout in nn.Sequential", lambda: nn.Sequential(tt.DropoutWrapper(LSTM(4)))(X), TypeError, "`tt.RNN(Drop"),
        ("no state", lambda: LSTM(H)(STEP), TypeError, "expected cell(inputs, state)", "`cell.zero_state(batch_size"),
        ("no state by name", lambda: LSTM(H)(inputs=STEP), TypeError, "got inputs=", "`cell.zero_state(batch_size"),
        ("nothing at all", LSTM(H), TypeError, "got nothing", "expected cell(inputs, state)"),
        ("torch's name of a state", lambda: LSTM(H)(STEP, hx=(ZEROS,) * 2), TypeError, "hx=", "Pass the state second"),
        ("a state in pieces", lambda: LSTM(H)(STEP, ZEROS, ZEROS), TypeError, "`tt.LSTMStateTuple(c, h)`"),
        ("a sequence for a step", lambda: LSTM(H)(X, (ZEROS,) * 2), ValueError, "ndim=3", "`tt.RNN(cell)`"),
        ("arguments swapped", lambda: run(X, LSTM(H)), TypeError, "Pass the cell first"),
        ("a list of cells", lambda: run([LSTM(H)], X), TypeError, "got list", "`tt.MultiRNNCell(["),
        ("nn.Sequential of cells", lambda: run(nn.Sequential(LSTM(H)), X), TypeError, "`tt.MultiRNNCell(["),
        ("a module around a cell", lambda: run(tt.RNN(LSTM(H)), X), TypeError, "`module.cell`", "unrolls by itself"),
        ("a drop-in", lambda: tt.explain(tt.nn.LSTM(I, H), X), TypeError, "`module.cell(0)`"),
        ("a mask", lambda: run(LSTM(H), X, torch.ones(B, T)), ValueError, "shape (2, 3)", "`mask.sum(1)`"),
        (
            "a state for lengths",
            lambda: tt.RNN(LSTM(H))(X, (ZEROS,) * 2),
            TypeError,
            "shape (2, 5)",
            "`initial_state=`",
        ),
        (
            "torch's state",
            lambda: run(tt.GRUCell(H), X, initial_state=ZEROS[None]),
            ValueError,
            "got (1, 2, 5)",
            "`h[0]`",
        ),
        ("token ids", lambda: run(LSTM(H), torch.zeros(B, T, dtype=torch.long)), ValueError, "torch.nn.Embedding"),
        (
            "a module on a module's results",
            lambda: nn.Sequential(tt.RNN(LSTM(H)), tt.RNN(LSTM(H)))(X),
            ValueError,
            "`tt.RNN(cell, returns='outputs')`",
        ),
        ("meta inputs", lambda: run(LSTM(H, input_size=I), META), ValueError, "got meta and cpu", "pass real `inputs`"),
        ("meta inputs, not built", lambda: run(LSTM(H), META), ValueError, "meta device", "`input_size=`"),
        ("a meta step", lambda: LSTM(H)(META[:, 0], (ZEROS.to("meta"),) * 2), ValueError, "meta"),
        ("not built, on meta", lambda: run(LSTM(H).to("meta"), META), ValueError, "cannot be built", "`input_size=`"),
        ("a plan of meta inputs", lambda: tt.explain(LSTM(H), META), ValueError, "meta device", "`input_size=`"),
        (
            "a device for a backend",
            lambda: tt.backend("cuda").__enter__(),
            ValueError,
            "got 'cuda'",
            "that of the inputs",
        ),
    ]
]


@rows([*KEYWORDS, *MADE, *CALLED])
def test_calls_of_newcomers(row: Row) -> None:
    check(row)


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        (tt, "LSTM", "`tt.nn.LSTM`"),
        (tt, "LSTMBlockCell", "`tt.cells.LSTMBlockCell`"),
        (tt, "BeamSearchDecoder", "`tt.decode.BeamSearchDecoder`"),
        (tt, "SimpleRNNCell", "`tt.BasicRNNCell`"),
        (tt, "Bidirectional", "`tt.bidirectional_dynamic_rnn`"),
        (tt, "contrib", "`tt.cells`"),
        (tt, "seq2seq", "`tt.decode`"),
        (tt.nn, "dynamic_rnn", "`tt.dynamic_rnn`"),
        (tt.nn, "rnn_cell", "`tt.LSTMCell`"),
        (tt.nn, "LSTMCell", "`tt.LSTMCell`"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_names_that_are_elsewhere(module: Any, name: str, says: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert f"has no attribute {name!r}. " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("module", [tt, tt.nn], ids=lambda module: module.__name__)
def test_names_that_are_nowhere(module: Any) -> None:
    with pytest.raises(AttributeError) as caught:
        module.nowhere  # noqa: B018
    assert str(caught.value) == f"module {module.__name__!r} has no attribute 'nowhere'"


class TestUsersCells:
    """The checks are for our own constructors and calls: those of a user take what they like."""

    def test_a_constructor_takes_any_name(self) -> None:
        class Sized(tt.GRUCell):
            def __init__(self, hidden_size: int, **others: Any) -> None:
                super().__init__(hidden_size, **others)

        assert Sized(hidden_size=4, input_size=3).num_units == 4
        with pytest.raises(TypeError, match="units"):
            Sized(hidden_size=4, units=3)

    def test_a_base_with_arguments_of_its_own(self) -> None:
        class Tagged:
            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                made = super().__new__(cls)
                made.tags = (args, kwargs)
                return made

        class Both(tt.GRUCell, Tagged):
            pass

        assert Both(4, input_size=3).tags == ((4,), {"input_size": 3})

    def test_a_state_may_be_optional(self) -> None:
        class Own(tt.GRUCell):
            def forward(self, inputs: Any, state: Any = None, scale: float = 1.0) -> Any:
                state = self.zero_state(len(inputs), F32) if state is None else state
                return super().forward(inputs * scale, state)

        cell = Own(H, input_size=I)
        torch.testing.assert_close(cell(STEP), cell(STEP, ZEROS))
        torch.testing.assert_close(cell(STEP, ZEROS, 2.0), cell(2 * STEP, ZEROS))


@pytest.mark.parametrize("kind", sorted({type(one.make(4)) for one in BY_NAME.values()}, key=str))
def test_constructors_keep_their_signatures(kind: type) -> None:
    """Readers and tools see each constructor's own arguments."""
    assert list(inspect.signature(kind).parameters) == list(inspect.signature(kind.__init__).parameters)[1:]
