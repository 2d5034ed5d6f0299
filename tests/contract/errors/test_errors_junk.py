"""Junk in every argument of everything public: taken, or refused in the house form. Nothing else may come out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from _error_rows import F32, STEPS, ZEROS, B, H, I, Watched, X, junk, refusal

import throughtime as tt

pytestmark = pytest.mark.covers("errors")


class Saver:
    """Has a state under every name, and saves none."""

    def state(self, _name: Any) -> torch.Tensor:
        return ZEROS

    def save_state(self, _name: Any, _state: Any) -> None: ...


def loop_fn(time: torch.Tensor, output: Any, state: Any, _loop_state: Any) -> tuple[Any, ...]:
    return time >= 2, X[:, 0], ZEROS if output is None else state, output, None


def once() -> Callable[..., bool]:
    """A condition that holds for one step, whatever the variables are."""
    answers = iter([True, False])
    return lambda *_: next(answers)


def layers() -> list[Any]:
    return [tt.GRUCell(H), tt.GRUCell(H)]


# Arguments that work, for everything that can be called; its signature says what else there is.
RIGHT: dict[Callable[..., Any], Callable[[], dict[str, Any]]] = {
    tt.dynamic_rnn: lambda: {"cell": Watched(), "inputs": X, "dtype": F32},
    tt.bidirectional_dynamic_rnn: lambda: {"cell_fw": Watched(), "cell_bw": Watched(), "inputs": X, "dtype": F32},
    tt.static_rnn: lambda: {"cell": Watched(), "inputs": STEPS, "dtype": F32},
    tt.static_bidirectional_rnn: lambda: {"cell_fw": Watched(), "cell_bw": Watched(), "inputs": STEPS, "dtype": F32},
    tt.static_state_saving_rnn: lambda: {
        "cell": Watched(), "inputs": STEPS, "state_saver": Saver(), "state_name": "h",
    },
    tt.stack_bidirectional_rnn: lambda: {"cells_fw": layers(), "cells_bw": layers(), "inputs": STEPS, "dtype": F32},
    tt.stack_bidirectional_dynamic_rnn: lambda: {"cells_fw": layers(), "cells_bw": layers(), "inputs": X, "dtype": F32},
    tt.raw_rnn: lambda: {"cell": Watched(), "loop_fn": loop_fn},
    tt.while_loop: lambda: {"cond": once(), "body": lambda *variables: variables, "loop_vars": [torch.tensor(0)]},
    tt.explain: lambda: {"cell": Watched(), "inputs": X, "dtype": F32},
    tt.backend: lambda: {"name": "auto"},
    tt.accelerate: lambda: {"module": torch.nn.GRU(I, H)},
    tt.TensorArray: lambda: {"dtype": F32},
    tt.RNN: lambda: {"cell": Watched()},
    tt.BasicRNNCell: lambda: {"num_units": H},
    tt.GRUCell: lambda: {"num_units": H},
    tt.BasicLSTMCell: lambda: {"num_units": H},
    tt.LSTMCell: lambda: {"num_units": H},
    tt.MultiRNNCell: lambda: {"cells": layers()},
    tt.DropoutWrapper: lambda: {"cell": tt.GRUCell(H)},
    tt.ResidualWrapper: lambda: {"cell": tt.GRUCell(I)},
    tt.DeviceWrapper: lambda: {"cell": tt.GRUCell(H), "device": "cpu"},
    tt.InputProjectionWrapper: lambda: {"cell": tt.GRUCell(H), "num_proj": 3},
    tt.OutputProjectionWrapper: lambda: {"cell": tt.GRUCell(H), "output_size": 3},
    tt.EmbeddingWrapper: lambda: {"cell": tt.GRUCell(H), "embedding_classes": 7, "embedding_size": 3},
}  # fmt: skip
PLACES = [(function, name) for function in RIGHT for name in inspect.signature(function).parameters]


def use(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Call a function; what is a cell, a module or a context then runs, so that junk it has kept is met."""
    made = function(**arguments)
    if isinstance(made, AbstractContextManager):
        with made:
            return
    inputs = torch.zeros(B, 2, 1, dtype=torch.int64) if isinstance(made, tt.EmbeddingWrapper) else X
    if isinstance(made, tt.RNNCell):
        tt.dynamic_rnn(made, inputs, dtype=F32)
    elif isinstance(made, tt.RNN):
        made(inputs.transpose(0, 1) if made.time_major else inputs)


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_right_arguments_work(function: Callable[..., Any]) -> None:
    use(function, RIGHT[function]())


@pytest.mark.parametrize(("function", "name"), PLACES, ids=[f"{function.__name__}-{name}" for function, name in PLACES])
def test_junk(function: Callable[..., Any], name: str) -> None:
    for value in junk():
        try:
            use(function, {**RIGHT[function](), name: value})
        except Exception as error:
            complaint = refusal(error)
            assert complaint is None, f"{name}={value!r}: {complaint}"


def test_everything_public_is_here() -> None:
    public = {value for value in map(tt.__dict__.get, tt.__all__) if callable(value)}
    # `threads` takes no arguments.
    assert public - set(RIGHT) == {tt.RNNCell, tt.LSTMStateTuple, tt.InvalidArgumentError, tt.threads}
