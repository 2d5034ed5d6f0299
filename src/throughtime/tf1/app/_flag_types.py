"""One flag: its name, its kind, and what a text on the command line means for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_TRUE, _FALSE = {"true", "t", "1", "yes", "y"}, {"false", "f", "0", "no", "n"}


class FlagsError(Exception):
    """A wrong flag."""


class UnrecognizedFlagError(FlagsError):
    """A flag that was not defined."""


class IllegalFlagValueError(FlagsError):
    """A value that a flag does not take."""


class DuplicateFlagError(FlagsError):
    """A flag that is defined twice."""


class UnparsedFlagAccessError(FlagsError):
    """A flag was read before the command line was parsed."""


class Flag:
    """A flag with its default, its current value and its description."""

    def __init__(self, name: str, default: Any, help: str | None, parse: Callable[[Any], Any], kind: str) -> None:  # noqa: A002
        self.name, self.help, self.kind = name, help or "", kind
        self._parse = parse
        self.present = 0
        self.is_required = False
        self.default = self.checked(default)
        self.value = self.default

    @property
    def is_boolean(self) -> bool:
        """Whether `--flag` and `--noflag` stand alone."""
        return self.kind == "bool"

    def checked(self, value: Any) -> Any:
        """The value that a text or an object means."""
        if value is None:
            return None
        try:
            return self._parse(value)
        except (ValueError, TypeError) as error:
            message = f"flag --{self.name}={value}: got {value!r}, expected {self.kind}. Correct the value. ({error})"
            raise IllegalFlagValueError(message) from None

    def take(self, value: Any) -> None:
        """Set what the command line says."""
        self.value = self.checked(value)
        self.present += 1

    def text(self) -> str:
        """The flag as it is written on the command line."""
        if self.is_boolean:
            return f"--{self.name}" if self.value else f"--no{self.name}"
        return "" if self.value is None else f"--{self.name}={self.value}"


class MultiFlag(Flag):
    """A flag that may be there several times: each adds to a list."""

    def checked(self, value: Any) -> Any:
        """The list that a text, or a list of objects, means."""
        if value is None:
            return None
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        return [super(MultiFlag, self).checked(each) for each in values]

    def take(self, value: Any) -> None:
        """Append; the first one replaces the default."""
        added = self.checked(value)
        self.value = [*self.value, *added] if self.present else added
        self.present += 1


def parse_bool(value: Any) -> bool:
    """True, False, or a word for one of them."""
    word = str(value).lower()
    if isinstance(value, str) and word not in _TRUE | _FALSE:
        raise ValueError("not a word for true or false")
    return word in _TRUE if isinstance(value, str) else bool(value)


def parse_int(value: Any) -> int:
    """A whole number, in any base that Python writes; a float is refused."""
    if isinstance(value, str):
        return int(value, 0) if value.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"} else int(value)
    if isinstance(value, bool) or value != int(value):
        raise TypeError("not a whole number")
    return int(value)


def parse_float(value: Any) -> float:
    """A number."""
    return float(value)


def parse_list(value: Any) -> list[str]:
    """Words between commas."""
    if not isinstance(value, str):
        return list(value)
    return [word.strip() for word in value.split(",")] if value else []


def one_of(values: Sequence[str], case_sensitive: bool = True) -> Callable[[Any], Any]:
    """A parser of one of several words."""

    def parse(value: Any) -> Any:
        found = [
            word for word in values if word == value or (not case_sensitive and word.lower() == str(value).lower())
        ]
        if not found:
            raise ValueError(f"one of {', '.join(values)}")
        return found[0]

    return parse
