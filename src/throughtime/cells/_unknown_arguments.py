"""Constructor arguments that torch and Keras spell differently: the error names the argument that does it here."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from throughtime._errors import problem, type_name

_SIZE = "The number of units is `num_units`, as in `tt.LSTMCell(64)`."
_WIDTH = "Pass `input_size=`, or leave it out: the first inputs tell it."
_BIAS = "These cells have a bias; `tt.nn.LSTM(..., bias=False)` has none."
_SEQUENCE = "A cell computes one step: `tt.RNN(cell, returns='outputs')` runs it over a sequence, "
_LAYOUT = _SEQUENCE + "[B, T, I], or [T, B, I] with `time_major=True`."
_RESULT = _SEQUENCE + "`returns='state'` gives the final state alone."
_DROPOUT = (
    "Use `tt.DropoutWrapper(cell, output_keep_prob=0.9)`: 0.9 is the probability to keep a value, one minus the rate."
)
_BIDIRECTIONAL = (
    "Use `tt.bidirectional_dynamic_rnn(cell_fw, cell_bw, inputs)`, which takes one cell for each direction."
)
_BACKWARDS = "Use `tt.bidirectional_dynamic_rnn`, whose second cell starts at the end of each sequence."
_STATE = "Pass the last state on: `outputs, state = tt.dynamic_rnn(cell, inputs, initial_state=state)`."
_INITIALIZER = (
    "Pass a function such as `torch.nn.init.orthogonal_`: `initializer` of LSTMs, `kernel_initializer` of GRUs."
)
_FORGET = "Pass `forget_bias=`, which is added at run time and is 1.0 by default."
_GATES = "The gates are sigmoids; `activation` is the function of the candidate. Subclass tt.RNNCell for others."
_DEVICE = "Move the cell after it is made: `cell.to(device)`."

ADVICE = {
    **dict.fromkeys(("hidden_size", "units", "hidden_dim", "n_units", "hidden_units"), _SIZE),
    **dict.fromkeys(("input_shape", "input_dim", "in_features"), _WIDTH),
    "num_layers": "Stack cells: `tt.MultiRNNCell([tt.LSTMCell(64) for _ in range(num_layers)])`.",
    **dict.fromkeys(("bias", "use_bias"), _BIAS),
    **dict.fromkeys(("batch_first", "time_major"), _LAYOUT),
    **dict.fromkeys(("return_sequences", "return_state"), _RESULT),
    **dict.fromkeys(("dropout", "recurrent_dropout", "p", "rate"), _DROPOUT),
    "keep_prob": "Pass `input_keep_prob`, `output_keep_prob` or `state_keep_prob` to `tt.DropoutWrapper`.",
    "bidirectional": _BIDIRECTIONAL,
    "go_backwards": _BACKWARDS,
    "stateful": _STATE,
    "proj_size": "Pass `num_proj=`, which `tt.LSTMCell` has.",
    "nonlinearity": "Pass `activation=`, as in `activation='relu'`.",
    "recurrent_activation": _GATES,
    **dict.fromkeys(("kernel_initializer", "recurrent_initializer", "initializer"), _INITIALIZER),
    "unit_forget_bias": _FORGET,
    "device": _DEVICE,
}
"""By the name that another framework has for an argument: how to ask for the same here."""


class CheckedArguments:
    """A mixin: arguments that a constructor of this package does not take are refused with advice.

    It is `__new__`, so that every constructor keeps its own signature for readers and tools.
    """

    advice: Mapping[str, str] = ADVICE

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Check the arguments before `__init__` runs."""
        make: Any = super().__new__
        # torch.compile traces no more than this.
        if torch.compiler.is_compiling():
            return make(cls)
        constructor: Any = cls.__init__
        # The constructor of a user's subclass takes what it likes.
        if constructor.__module__.partition(".")[0] == __name__.partition(".")[0]:
            code = constructor.__code__
            named = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            if not code.co_flags & inspect.CO_VARKEYWORDS:
                _check_names(cls, kwargs, named)
            if not code.co_flags & inspect.CO_VARARGS:
                _check_count(cls, args, named[: code.co_argcount - 1])
            _check_torch_order(cls, args, named)
        return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)


def _check_names(cls: type[CheckedArguments], given: Mapping[str, Any], named: Sequence[str]) -> None:
    for name, value in given.items():
        if name not in named:
            close = difflib.get_close_matches(name, named, n=1)
            fix = cls.advice.get(name) or (f"Write `{close[0]}=` instead." if close else f"Leave `{name}` out.")
            shown = repr(value) if isinstance(value, bool | int | float | str) else type_name(value)
            what, expected = f"`{cls.__name__}` has no argument `{name}`", f"one of {', '.join(named)}"
            raise TypeError(problem(what, got=f"{name}={shown}", expected=expected, fix=fix))


def _check_count(cls: type[CheckedArguments], given: Sequence[Any], named: Sequence[str]) -> None:
    if len(given) > len(named):
        what = f"`{cls.__name__}` takes fewer arguments without a name"
        got, expected = ", ".join(map(type_name, given)), ", ".join(named)
        fix = cls.advice.get("", "Pass the others by name.")
        raise TypeError(problem(what, got=got, expected=expected, fix=fix))


def _check_torch_order(cls: type[CheckedArguments], given: Sequence[Any], named: Sequence[str]) -> None:
    """`LSTMCell(input_size, hidden_size)` is torch's order."""
    two_sizes = len(given) > 1 and type(given[0]) is type(given[1]) is int
    if two_sizes and len(named) > 1 and named[1] in ("use_peepholes", "activation"):
        what = f"`{cls.__name__}` takes the number of units first, and no second size"
        fix = f"Write `{cls.__name__}({given[1]}, input_size={given[0]})`; `input_size` may be left out."
        raise TypeError(problem(what, got=f"{given[0]}, {given[1]}", expected=f"num_units, {named[1]}", fix=fix))
