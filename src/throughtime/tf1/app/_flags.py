"""`tf.flags`: the flags of a program, and their values on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from throughtime.tf1.app._flag_types import DuplicateFlagError, Flag, UnrecognizedFlagError


class FlagValues:
    """The flags of a program as attributes; the command line is parsed at the first read.

    >>> from throughtime.tf1.app._flag_types import Flag, parse_int
    >>> from throughtime.tf1.app._flags import FlagValues
    >>> flags = FlagValues()
    >>> flags.add(Flag("epochs", 3, "How often.", parse_int, "an int"))
    >>> flags(["program.py", "--epochs=5", "data.txt"])
    ['program.py', 'data.txt']
    >>> flags.epochs
    5
    """

    def __init__(self) -> None:
        vars(self).update(_flags={}, _parsed=False, _modules={})

    def add(self, flag: Flag, module: str = "") -> None:
        """Define a flag; a module may define its own once more, as a notebook's cell does."""
        if flag.name in self._flags and self._modules[flag.name] != module:
            was = self._modules[flag.name]
            fix = "Give one of them another name."
            message = f"The flag '{flag.name}' is defined twice: got {module}, expected {was} alone. {fix}"
            raise DuplicateFlagError(message)
        self._flags[flag.name] = flag
        self._modules[flag.name] = module

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
        """Parse a command line; the words that are left, with the program's name first."""
        left, words = list(argv[:1]), list(argv[1:])
        while words:
            word = words.pop(0)
            if word == "--":
                left += words
                break
            if not word.startswith("-") or word == "-":
                left.append(word)
            elif not self._take(word, words):
                if not known_only:
                    raise self._unknown(word)
                left.append(word)
        self.mark_as_parsed()
        return left

    def _take(self, word: str, following: list[str]) -> bool:
        """Set the flag of one word, perhaps with the next one for a value; whether there is such a flag."""
        name, equals, value = word.lstrip("-").partition("=")
        flag = self._flags.get(name) or self._flags.get(name.replace("-", "_"))
        if flag is None:
            turned_off = self._flags.get(name.removeprefix("no")) if name.startswith("no") else None
            if turned_off is None or not turned_off.is_boolean or equals:
                return False
            turned_off.take(False)
        elif equals:
            flag.take(value)
        elif flag.is_boolean:
            flag.take(True)
        elif not following:
            raise UnrecognizedFlagError(f"Missing value for flag --{name}: got nothing, expected {flag.kind}.")
        else:
            flag.take(following.pop(0))
        return True

    def _unknown(self, word: str) -> UnrecognizedFlagError:
        name = word.lstrip("-").partition("=")[0]
        near = get_close_matches(name, self._flags, 3, 0.6)
        advice = f"Did you mean: {', '.join(near)} ?" if near else f"The flags are: {', '.join(sorted(self._flags))}."
        return UnrecognizedFlagError(f"Unknown command line flag '{name}'. {advice}")

    def mark_as_parsed(self) -> None:
        """Permit reading without a command line."""
        vars(self)["_parsed"] = True

    def is_parsed(self) -> bool:
        """Whether a command line was parsed."""
        return bool(vars(self)["_parsed"])

    def _parse_once(self) -> None:
        if not self.is_parsed():
            self(sys.argv)

    # Programs of all ages parse by hand: `FLAGS._parse_flags()`.
    def _parse_flags(self, args: Sequence[str] | None = None) -> list[str]:
        return self([sys.argv[0], *(sys.argv[1:] if args is None else args)])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        # Programs older than 1.5 iterate over `FLAGS.__flags`, whose values are plain then.
        if name == "__flags":
            self._parse_once()
            return self._flags
        if name not in vars(self)["_flags"]:
            near = get_close_matches(name, self._flags, 1, 0.6)
            raise AttributeError(
                f"no flag is named {name!r}.{f' Did you mean {near[0]!r}?' if near else ''}", name=name
            )
        self._parse_once()
        return self._flags[name].value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._flags:
            raise AttributeError(f"no flag is named {name!r}. Define it with `flags.DEFINE_string` or the like.")
        flag = self._flags[name]
        flag.value = flag.checked(value)

    def __delattr__(self, name: str) -> None:
        if name not in self._flags:
            raise AttributeError(name)
        del self._flags[name], self._modules[name]

    def __getitem__(self, name: str) -> Flag:
        found: Flag = self._flags[name]
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._flags

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def __len__(self) -> int:
        return len(self._flags)

    def __dir__(self) -> list[str]:
        return sorted(self._flags)

    def flag_values_dict(self) -> dict[str, Any]:
        """All values by name."""
        self._parse_once()
        return {name: flag.value for name, flag in self._flags.items()}

    def flags_into_string(self) -> str:
        """All flags as lines of a command line."""
        return "".join(f"{line}\n" for line in (flag.text() for flag in self._flags.values()) if line)

    def get_help(self) -> str:
        """A line or two for each flag."""
        return "\n".join(_help_lines(flag) for _, flag in sorted(self._flags.items()))

    def set_default(self, name: str, value: Any) -> None:
        """Change a default."""
        flag = self._flags[name]
        flag.default = flag.checked(value)
        if not flag.present:
            flag.value = flag.default

    def unparse_flags(self) -> None:
        """Forget the command line."""
        vars(self)["_parsed"] = False
        for flag in self._flags.values():
            flag.value, flag.present = flag.default, 0


def _help_lines(flag: Flag) -> str:
    head = f"  --[no]{flag.name}" if flag.is_boolean else f"  --{flag.name}"
    default = (
        ""
        if flag.default is None
        else f"\n    (default: {str(flag.default).lower() if flag.is_boolean else flag.default!r})"
    )
    return f"{head}: {flag.help}{default}"


FLAGS = FlagValues()
