"""TensorFlow's names for a cell's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from throughtime._errors import check_name, problem, type_name
from throughtime.cells import (
    CompiledWrapper,
    DeviceWrapper,
    DropoutWrapper,
    HighwayWrapper,
    MultiRNNCell,
    ResidualWrapper,
    RNNCell,
    ZoneoutWrapper,
)

# These add no level to the names of what they wrap, and what they own lies beside it; other wrappers are a level.
_NAMELESS = (DropoutWrapper, ResidualWrapper, DeviceWrapper, HighwayWrapper, CompiledWrapper, ZoneoutWrapper)

# An attention mechanism makes this layer when it is made itself, before any decoder runs: outside of all scopes.
_OUTSIDE = "memory_layer"


def tf_variables(cell: RNNCell, scope: str | None = None) -> dict[str, nn.Parameter]:
    """A cell's parameters by the names of TensorFlow's variables.

    `scope` is that of the unroll; None takes the one of the cell's first unroll, or "rnn", and "" is for a cell that is
    called by itself.

    >>> import throughtime as tt
    >>> list(tt.interop.tf_variables(tt.LSTMCell(4, num_proj=2, input_size=3)))
    ['rnn/lstm_cell/kernel', 'rnn/lstm_cell/bias', 'rnn/lstm_cell/projection/kernel']
    """
    if not isinstance(cell, RNNCell):
        raise TypeError(
            problem(
                "TensorFlow's names are known for tt.RNNCell only",
                got=type_name(cell),
                expected="a tt.RNNCell",
                fix="Inherit from tt.RNNCell.",
            )
        )
    scope = (cell.variable_scope or "rnn") if check_name("scope", scope) is None else scope
    names: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    paths = {id(parameter): path for path, parameter in cell.named_parameters()}
    for found, parameter in _walk(cell, scope or ""):
        # A cell used in two layers keeps the names of the first.
        if id(parameter) not in seen:
            seen.add(id(parameter))
            name = _outside(found, names) if f"/{_OUTSIDE}/" in found else found
            if name in names:
                raise ValueError(_same_name(name, paths[id(names[name])], paths[id(parameter)]))
            names[name] = parameter
    return names


def _same_name(name: str, first: str, second: str) -> str:
    """As TensorFlow, where the second variable of a name cannot be made either."""
    return problem(
        f"two parameters have TensorFlow's name {name!r}",
        got=f"`{first}` and `{second}`",
        expected="a name for each",
        fix="Give cells names of their own, or put the cell inside into a MultiRNNCell, which is a level in the names.",
    )


def _outside(name: str, taken: Iterable[str]) -> str:
    """The name of such a layer's variable: TensorFlow counts layers that are called the same."""
    variable = name.rpartition("/")[2]
    count = sum(other.endswith(f"/{variable}") for other in taken if other.startswith(_OUTSIDE))
    return f"{_OUTSIDE}_{count}/{variable}" if count else f"{_OUTSIDE}/{variable}"


def _walk(cell: RNNCell, scope: str) -> Iterator[tuple[str, nn.Parameter]]:
    prefix = scope if isinstance(cell, _NAMELESS) else f"{scope}/{cell.name}".removeprefix("/")
    inner: list[tuple[str, Any]] = []
    if isinstance(cell, MultiRNNCell):
        inner = [(f"{prefix}/cell_{index}", layer) for index, layer in enumerate(cell.cells)]
    elif isinstance(getattr(cell, "cell", None), RNNCell):
        inner = [(prefix, cell.cell)]
    inside = {id(parameter) for _, layer in inner if isinstance(layer, nn.Module) for parameter in layer.parameters()}
    for path, parameter in cell.named_parameters():
        if id(parameter) not in inside:
            yield f"{prefix}/{path.replace('.', '/')}".removeprefix("/"), parameter
    for layer_scope, layer in inner:
        if isinstance(layer, RNNCell):
            yield from _walk(layer, layer_scope)
