"""Which class of ours stands for which of torch, in both directions: plain, parametrized, or a user's own subclass."""

from __future__ import annotations

import functools
import types
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from throughtime.nn._modules import GRU, LSTM, RNN

_OURS: dict[type, type] = {nn.LSTM: LSTM, nn.GRU: GRU, nn.RNN: RNN}
_TORCHS = {ours: torchs for torchs, ours in _OURS.items()}
# Methods that torch's `forward` calls and ours may not: a subclass with one of its own may depend on that call.
_CALLED_BY_FORWARD = (
    "__call__",
    "_update_flat_weights",
    "check_forward_args",
    "check_hidden_size",
    "check_input",
    "get_expected_cell_size",
    "get_expected_hidden_size",
    "permute_hidden",
)
_ORIGIN = "_throughtime_subclass_of"


def torchs_base(kind: type) -> type | None:
    """The class of torch that we have one for, among the classes that `kind` inherits from."""
    return next((base for base in kind.__mro__ if base in _OURS), None)


def without_parametrization(kind: type) -> type:
    """The class of a module before torch gave it properties for weights that are computed."""
    is_made = "__getstate__" in vars(kind) and kind.__name__.startswith("Parametrized")
    return kind.__bases__[0] if is_made and kind.__module__ == parametrize.__name__ else kind


def own_method(kind: type) -> str | None:
    """A method of a user's subclass because of which ours cannot stand for torch's; None if there is none.

    A `forward` that calls `super().forward` calls ours then, with the same meaning.
    """
    own = kind.__mro__[: kind.__mro__.index(torchs_base(kind) or kind)]
    for name in _CALLED_BY_FORWARD:
        if any(name in vars(base) for base in own):
            return name
    forwards = [vars(base)["forward"] for base in own if "forward" in vars(base)]
    return None if all(map(_calls_super_forward, forwards)) else "forward"


def _calls_super_forward(method: Any) -> bool:
    code = getattr(method, "__code__", None)
    return code is not None and "__class__" in code.co_freevars and {"super", "forward"} <= set(code.co_names)


def class_of_ours(kind: type) -> Any:
    """The class that takes the place of one of torch's, or of a user's subclass of it."""
    plain = without_parametrization(kind)
    return _like(kind, plain, _OURS.get(plain) or _subclass_of_ours(plain))


def class_of_torchs(kind: type) -> Any:
    """The class that `class_of_ours` was asked for; None for a class that a user has made of ours."""
    plain = without_parametrization(kind)
    origin = _TORCHS.get(plain) or vars(plain).get(_ORIGIN)
    return None if origin is None else _like(kind, plain, origin)


def _like(kind: type, plain: type, replacement: type) -> type:
    """The replacement of `plain`, with the properties of `kind` if that was made for computed weights."""
    if plain is kind:
        return replacement
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__", "__doc__")}
    return type(kind)(kind.__name__, (replacement,), own)


class _NotAnnounced:
    """The first base of a class that is made here: an `__init_subclass__` of the user is not called for it.

    That may require arguments, raise, or register the class.
    """

    def __init_subclass__(cls) -> None:
        """Nothing; no call of `super()` either."""


def _announces(kind: type) -> bool:
    """Whether a class or one that it inherits from has an `__init_subclass__`."""
    return any("__init_subclass__" in vars(base) for base in kind.__mro__[:-1])


def announces_without_dict(kind: type) -> bool:
    """Whether it does, and its first base has no `__dict__`, as `abc.ABC`.

    No class with another first base has the layout of its instances, so theirs cannot be changed.
    """
    return _announces(kind) and kind.__base__ is not None and not kind.__base__.__dictoffset__


@functools.cache
def _subclass_of_ours(kind: type) -> type:
    """A user's subclass with ours between it and torch's: what it calls by `super()` is ours."""
    base = torchs_base(kind)
    assert base is not None
    named = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    body: dict[str, Any] = {**named, _ORIGIN: kind}
    if not any({"__reduce__", "__reduce_ex__"} & vars(each).keys() for each in kind.__mro__[:-1]):
        body["__reduce_ex__"] = _reduce
    bases = (*([_NotAnnounced] if _announces(kind) else []), kind, _OURS[base])
    return types.new_class(kind.__name__, bases, exec_body=lambda space: space.update(body))


def _reduce(module: Any, protocol: Any) -> tuple[Any, ...]:
    """As any object, but for its class: that is made, and can be found by no name."""
    reduced: Any = object.__reduce_ex__(module, max(protocol, 2))
    return _blank, (getattr(type(module), _ORIGIN),), *reduced[2:]


def _blank(kind: type) -> Any:
    return object.__new__(_subclass_of_ours(kind))
