"""`RNN`: `dynamic_rnn` as a module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from throughtime import _pytree
from throughtime._errors import check_dtype, check_flag, check_name, problem
from throughtime._pytree import Nest
from throughtime.cells._base import check_cell, shown_options
from throughtime.cells._scripting import NotScriptable
from throughtime.cells._unknown_arguments import ADVICE, CheckedArguments
from throughtime.unroll._arguments import Lengths, check_checkpoint_every, check_parallel_iterations
from throughtime.unroll._batch_format import open_inputs
from throughtime.unroll._dynamic import dynamic_rnn

RETURNS = ("both", "outputs", "state")


_CELL = "Make the cell first, as in `tt.RNN(tt.LSTMCell(64))`; torch's module of this name is `tt.nn.RNN`."
_ADVICE = {
    **ADVICE,
    "": _CELL,
    **dict.fromkeys(("hidden_size", "units", "num_units", "input_size"), _CELL),
    **dict.fromkeys(
        ("return_sequences", "return_state"), "Pass `returns='outputs'`, `'state'`, or `'both'` (default)."
    ),
    "batch_first": "Inputs are [B, T, I] by default; pass `time_major=True` for [T, B, I].",
    "num_layers": "Stack cells: `tt.RNN(tt.MultiRNNCell([tt.LSTMCell(64) for _ in range(num_layers)]))`.",
    **dict.fromkeys(
        ("sequence_length", "initial_state"), "Pass it in the call: `rnn(inputs, sequence_length, initial_state)`."
    ),
}


class RNN(CheckedArguments, NotScriptable, nn.Module):
    """`dynamic_rnn` as a module: called with `(inputs, sequence_length=None, initial_state=None)`.

    `dtype` defaults to that of the (first floating point) inputs. `returns="outputs"` or `"state"` gives that part
    alone, for `nn.Sequential`; the default gives what `dynamic_rnn` gives. The other arguments are those of
    `dynamic_rnn`.

    >>> import torch, throughtime as tt
    >>> model = torch.nn.Sequential(tt.RNN(tt.LSTMCell(16), returns="outputs"), torch.nn.LazyLinear(3))
    >>> model(torch.randn(2, 5, 4)).shape
    torch.Size([2, 5, 3])
    """

    advice = _ADVICE

    def __init__(  # noqa: PLR0913 (public)
        self,
        cell: Any,
        *,
        time_major: bool = False,
        dtype: torch.dtype | None = None,
        parallel_iterations: int | None = None,
        swap_memory: bool = False,
        all_states: bool = False,
        checkpoint_every: int | None = None,
        scope: str | None = None,
        returns: str = "both",
    ) -> None:
        super().__init__()
        check_cell("cell", cell)
        check_parallel_iterations(parallel_iterations)
        choice: Any = returns
        if not isinstance(choice, str) or choice not in RETURNS:
            raise ValueError(
                problem(
                    "`returns` is unknown",
                    got=repr(returns),
                    expected=f"one of {RETURNS}",
                    fix="Leave it out for both.",
                )
            )
        self.cell = cell
        self.time_major = check_flag("time_major", time_major)
        self.dtype = None if dtype is None else check_dtype("dtype", dtype)
        self.parallel_iterations = parallel_iterations
        self.swap_memory = check_flag("swap_memory", swap_memory)
        self.all_states = check_flag("all_states", all_states)
        self.checkpoint_every = check_checkpoint_every(checkpoint_every)
        self.scope = check_name("scope", scope)
        self.returns = returns

    def forward(self, inputs: Nest, sequence_length: Lengths = None, initial_state: Nest = None) -> Nest:
        """Run the cell over `inputs` [B, T, ...]."""
        dtype = self.dtype
        if dtype is None and initial_state is None:
            dtype = _floating_dtype(inputs, self.time_major)
        result = dynamic_rnn(
            self.cell,
            inputs,
            sequence_length,
            initial_state,
            dtype,
            self.parallel_iterations,
            self.swap_memory,
            self.time_major,
            self.scope,
            all_states=self.all_states,
            checkpoint_every=self.checkpoint_every,
        )
        if self.returns == "both":
            return result
        return result[RETURNS.index(self.returns) - 1]

    def extra_repr(self) -> str:
        """The arguments that are not the default."""
        usual = {
            "time_major": False,
            "dtype": None,
            "parallel_iterations": None,
            "swap_memory": False,
            "all_states": False,
            "checkpoint_every": None,
            "scope": None,
            "returns": "both",
        }
        return shown_options(self, usual)


def _floating_dtype(inputs: Nest, time_major: bool) -> torch.dtype:
    form, inputs = open_inputs(inputs, time_major)
    return _pytree.floating_dtype(_pytree.map_leaves(form.rows, inputs)) or torch.get_default_dtype()
