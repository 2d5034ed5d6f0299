"""`DEFINE_*`: one function for each kind of flag, with the argument names of every release."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from throughtime.tf1.app._flag_types import Flag, MultiFlag, one_of, parse_bool, parse_float, parse_int, parse_list
from throughtime.tf1.app._flags import FLAGS, FlagValues

_UNSET: Any = object()


def _definer(kind: str, parse: Callable[[Any], Any], flag_class: type[Flag] = Flag) -> Callable[..., None]:
    def define(
        name: Any = _UNSET,
        default: Any = _UNSET,
        help: Any = None,  # noqa: A002
        flag_values: FlagValues = FLAGS,
        **older: Any,
    ) -> None:
        name = older.pop("flag_name", name)
        default = older.pop("default_value", default)
        text = older.pop("docstring", help)
        older.pop("short_name", None)
        older.pop("required", None)
        limits = {limit: older.pop(limit, None) for limit in ("lower_bound", "upper_bound")}
        if older or _UNSET in (name, default):
            wrong = f"unknown arguments {', '.join(older)}" if older else "no name or default"
            raise TypeError(f"DEFINE for {kind}: got {wrong}, expected (name, default, help). Pass those three.")
        flag = flag_class(name, default, text, _bounded(parse, **limits), kind)
        flag_values.add(flag, _calling_module())

    return define


def _bounded(parse: Callable[[Any], Any], lower_bound: Any, upper_bound: Any) -> Callable[[Any], Any]:
    """The same parser, for numbers within bounds."""
    if lower_bound is None and upper_bound is None:
        return parse

    def within(value: Any) -> Any:
        found = parse(value)
        if (lower_bound is not None and found < lower_bound) or (upper_bound is not None and found > upper_bound):
            raise ValueError(f"a number from {lower_bound} to {upper_bound}")
        return found

    return within


def _calling_module() -> str:
    """The module that defines a flag: the first frame outside of this one."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


define_string = _definer("a text", _text)
define_integer = _definer("an int", parse_int)
define_float = _definer("a number", parse_float)
define_boolean = _definer("bool", parse_bool)
define_list = _definer("words between commas", parse_list)
define_spaceseplist = _definer("words between spaces", lambda value: value.split() if isinstance(value, str) else value)
define_multi_string = _definer("texts", _text, MultiFlag)
define_multi_integer = _definer("ints", parse_int, MultiFlag)
define_multi_float = _definer("numbers", parse_float, MultiFlag)


def define_enum(
    name: str,
    default: Any,
    enum_values: Sequence[str],
    help: str | None = None,  # noqa: A002
    flag_values: FlagValues = FLAGS,
    case_sensitive: bool = True,
    **_: Any,
) -> None:
    """Define a flag that takes one of several words."""
    kind = f"one of {', '.join(enum_values)}"
    flag_values.add(Flag(name, default, help, one_of(enum_values, case_sensitive), kind), _calling_module())


def mark_flag_as_required(flag_name: str, flag_values: FlagValues = FLAGS) -> None:
    """Refuse a command line without this flag, when the program starts."""
    flag_values[flag_name].is_required = True


def mark_flags_as_required(flag_names: Sequence[str], flag_values: FlagValues = FLAGS) -> None:
    """Refuse a command line without these flags."""
    for name in flag_names:
        mark_flag_as_required(name, flag_values)
