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

_CONVOLUTIONS = {
    1: (nn.Conv1d, nn.ConvTranspose1d),
    2: (nn.Conv2d, nn.ConvTranspose2d),
    3: (nn.Conv3d, nn.ConvTranspose3d),
}
# Layers whose parameters have the same axes in TensorFlow; containers of parameters have them in the user's order.
_ALIKE = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.ParameterList, nn.ParameterDict)


class ParameterSlot(NamedTuple):
    """A parameter, and in which order TensorFlow's variable has its axes; None is the same order."""

    parameter: Tensor
    axes: tuple[int, ...] | None = None

    def in_tensorflow(self) -> Tensor:
        """The parameter as TensorFlow has it."""
        found = self.parameter.detach()
        return found if self.axes is None else found.permute(self.axes)

    def in_torch(self, value: Tensor) -> Tensor:
        """TensorFlow's value as torch has it."""
        return value if self.axes is None else value.permute(self._back())

    def shape_in_torch(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """TensorFlow's shape as torch has it; one of another rank is left as it is, and fits nothing."""
        if self.axes is None or len(shape) != len(self.axes):
            return shape
        return tuple(shape[axis] for axis in self._back())

    def _back(self) -> list[int]:
        assert self.axes is not None
        return [self.axes.index(axis) for axis in range(len(self.axes))]


class Targets(NamedTuple):
    """Parameters by name; the scopes that are theirs alone; the modules that they belong to."""

    places: dict[str, ParameterSlot]
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


def _places(scope: str, part: Any) -> Iterator[tuple[str, ParameterSlot]]:
    if isinstance(part, RNNCell):
        yield from ((name, ParameterSlot(parameter)) for name, parameter in _cell_places(part, scope))
    elif isinstance(part, nn.Module):
        yield from _module_places(scope, part)
    elif isinstance(part, Tensor):
        yield scope, ParameterSlot(part)
    else:
        what, expected = f"{scope!r} has nothing to load or to save", "a cell, a module or a tensor"
        raise TypeError(problem(what, got=type_name(part), expected=expected, fix=_FIX))


def _module_places(scope: str, root: nn.Module) -> Iterator[tuple[str, ParameterSlot]]:
    """The parameters of a module by their own names; those of layers that TensorFlow has, as it has them."""
    seen: set[int] = set()
    for path, module in root.named_modules():
        own = dict(module.named_parameters(recurse=False))
        axes = _kernel_axes(module)
        if axes is None:
            _check_layout(_joined(scope, path.replace(".", "/")), module, own)
        for name, parameter in own.items():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                is_kernel = axes is not None and name == "weight"
                level = _joined(_joined(scope, path.replace(".", "/")), "kernel" if is_kernel else name)
                yield level, ParameterSlot(parameter, axes if is_kernel else None)


def _kernel_axes(module: nn.Module) -> tuple[int, ...] | None:
    """The axes of a layer's `weight` in the order of TensorFlow's `kernel`: space, in, out; None for other modules.

    Torch has out, in, space; the weight of a transposed convolution is in, out, space, and TensorFlow's space, out, in.
    """
    if isinstance(module, nn.Linear):
        return (1, 0)
    rank = next((rank for rank, kinds in _CONVOLUTIONS.items() if isinstance(module, kinds)), None)
    return None if rank is None else (*range(2, 2 + rank), 1, 0)


def _check_layout(name: str, module: nn.Module, own: Mapping[str, Tensor]) -> None:
    """Refuse layers of torch whose layout is not known to be TensorFlow's: nothing would fit, or fit by chance."""
    if type(module).__module__.startswith("torch.nn.") or isinstance(module, nn.RNNBase):
        for path, parameter in own.items():
            if not isinstance(module, _ALIKE) and not is_lazy(parameter) and parameter.ndim > 1:
                what = f"the layout of {name!r} differs between torch and TensorFlow"
                fix = "Give its parameters as tensors by their names, in TensorFlow's layout."
                expected = "a cell, a Linear, a convolution, an embedding, or a module of your own"
                got = f"`{path}` of a {type_name(module)}"
                raise TypeError(problem(what, got=got, expected=expected, fix=fix))


def _cell_places(cell: RNNCell, scope: str) -> Iterator[tuple[str, nn.Parameter]]:
    """A cell's parameters by name; one that has none would silently be left as it is."""
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
