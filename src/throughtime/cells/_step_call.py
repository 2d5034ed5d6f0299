"""The call of a built-in cell: one step, typed, with advice for those who call it like a layer."""

from __future__ import annotations

import inspect
from typing import Any, overload

from torch import Tensor

from throughtime._errors import problem, type_name
from throughtime.cells._base import RNNCell
from throughtime.cells._cell_types import Cell, State
from throughtime.cells._scope import ParameterScope

_NAMES = frozenset({"inputs", "state"})


class StepCall(RNNCell):
    """A cell that is called with inputs and a state, and says so."""

    @overload
    def __call__(self: Cell[State], inputs: Any, state: Any) -> tuple[Tensor, State]: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A step."""
        if len(args) != 2:
            _check_call(self, args, kwargs)
        for part in self._modules.values():
            if isinstance(part, ParameterScope) and part._forward_pre_hooks:
                part.before_a_step()
        return super().__call__(*args, **kwargs)


def _check_call(cell: StepCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a `TypeError` for arguments that the cell's `forward` does not take, before anything is built."""
    if len(args) + len(kwargs) == 2 and kwargs.keys() <= _NAMES:
        return
    try:
        inspect.signature(cell.forward).bind(*args, **kwargs)
    except TypeError:
        name = type(cell).__name__
        given = [*map(type_name, args), *(f"{key}=" for key in kwargs)]
        fix = "Pass the state second, in one piece: that of an LSTM is `tt.LSTMStateTuple(c, h)`."
        if len(given) < 2:
            fix = (
                f"To run over sequences [B, T, I], in nn.Sequential too, use `tt.RNN({name}(...), returns='outputs')`; "
                "for one step, make the first state with `cell.zero_state(batch_size, dtype)`."
            )
        what, got = f"a call of `{name}` is one step, with inputs and a state", ", ".join(given) or "nothing"
        raise TypeError(problem(what, got=got, expected="cell(inputs, state)", fix=fix)) from None
