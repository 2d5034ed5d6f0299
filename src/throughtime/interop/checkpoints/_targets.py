"""What variables are loaded into, or saved from: parameters by the names that TensorFlow has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from throughtime._errors import check_name, problem, type_name
from throughtime._tensors import is_lazy
from throughtime.cells import RNNCell
from throughtime.interop._fused import FusedRNNCell
from throughtime.interop._tf_names import tf_variables
from throughtime.unroll import RNN

_FIX = (
    "Say which variables each part has, as in `{'rnn': model.cell, 'dense': model.linear, 'embedding': "
    "model.embedding.weight}`."
)


class Place(NamedTuple):
    """A parameter, and whether it is the transpose of TensorFlow's variable."""

    parameter: Tensor
    turned: bool = False

    def in_tensorflow(self) -> Tensor:
        """The parameter as TensorFlow has it."""
        found = self.parameter.detach()
        return found.t() if self.turned else found


class Targets(NamedTuple):
    """Parameters by name; the scopes that are theirs alone; the modules that they belong to."""

    places: dict[str, Place]
    scopes: list[str]
    modules: list[nn.Module]

    @property
    def called(self) -> str:
        """What to call all of this in a message."""
        return " and ".join(dict.fromkeys(type(module).__name__ for module in self.modules)) or "what was passed"


def targets(target: Any, scope: str | None) -> Targets:
    """The parameters of a cell, or of each part of a model, by the names that TensorFlow has for them."""
    scope = check_name("scope", scope)
    if isinstance(target, Mapping):
        parts = {_joined(scope or "", name): part for name, part in target.items()}
    else:
        cell = _cell_of(target)
        if not isinstance(cell, RNNCell):
            expected = "a cell, a tt.RNN, or a dict of the parts of a model by their scopes"
            raise TypeError(problem("`target` has no names", got=type_name(target), expected=expected, fix=_FIX))
        own = target.scope if isinstance(target, RNN) else None
        parts = {_scope(cell, own if scope is None else scope): cell}
    found = Targets({}, [], [])
    for name, part in parts.items():
        _add(found, name, part)
    if not found.places:
        what, fix = "`target` has no parameters", "A cell that makes its own needs `cell.build(inputs_shape)` first."
        raise ValueError(problem(what, got=found.called, expected="something to load or to save", fix=fix))
    return found


def _scope(cell: RNNCell, scope: str | None) -> str:
    return (cell.variable_scope or "rnn") if scope is None else scope


def _joined(scope: str, name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(problem("`target` has a part without a scope", got=repr(name), expected="a str", fix=_FIX))
    return "/".join(part for part in (scope, name) if part)


def _cell_of(part: Any) -> Any:
    """The cell that a module runs, or the module itself."""
    while isinstance(part, RNN | FusedRNNCell):
        part = getattr(part, "cell", None)
    return part


def _add(found: Targets, scope: str, part: Any) -> None:
    """Note the parameters of one part."""
    part = _cell_of(part)
    for name, place in _places(scope, part):
        if name in found.places:
            what, fix = f"two parts have a variable {name!r}", "Give each a scope of its own."
            raise ValueError(problem(what, got="two parameters", expected="one", fix=fix))
        found.places[name] = place
    if isinstance(part, nn.Module):
        found.modules.append(part)
        # Without a scope, what lies beside belongs to others.
        tops = dict.fromkeys(name.split("/")[0] for name in found.places)
        found.scopes.extend([scope] if scope else tops)


def _places(scope: str, part: Any) -> Iterator[tuple[str, Place]]:
    if isinstance(part, RNNCell):
        yield from ((name, Place(parameter)) for name, parameter in _cell_places(part, scope))
    elif isinstance(part, nn.Linear):
        yield _joined(scope, "kernel"), Place(part.weight, turned=True)
        if part.bias is not None:
            yield _joined(scope, "bias"), Place(part.bias)
    elif isinstance(part, nn.Module):
        for path, parameter in part.named_parameters():
            yield _joined(scope, path.replace(".", "/")), Place(parameter)
    elif isinstance(part, Tensor):
        yield scope, Place(part)
    else:
        what, expected = f"{scope!r} has nothing to load or to save", "a cell, a module or a tensor"
        raise TypeError(problem(what, got=type_name(part), expected=expected, fix=_FIX))


def _cell_places(cell: RNNCell, scope: str) -> Iterator[tuple[str, nn.Parameter]]:
    """A cell's parameters by name; one that has none would be left as it is, and nobody would know."""
    names = tf_variables(cell, scope)
    known = {id(parameter) for parameter in names.values()}
    for path, parameter in cell.named_parameters():
        if id(parameter) not in known:
            what, fix = f"`{path}` has no name in TensorFlow", "Inherit from tt.RNNCell, or name it in a dict."
            raise ValueError(problem(what, got="a cell that is no tt.RNNCell", expected="a tt.RNNCell", fix=fix))
    yield from names.items()


def check_built(found: Targets) -> None:
    """Raise unless all parameters exist."""
    unbuilt = [name for name, place in found.places.items() if is_lazy(place.parameter)]
    if unbuilt:
        what, fix = f"{found.called} has no weights yet", "Call it once, or make it with `input_size=`."
        raise ValueError(problem(what, got=f"{unbuilt[0]!r} without a shape", expected="weights to save", fix=fix))
