"""What the user got wrong, in one line: raised anywhere, reported once, by the command."""

from collections.abc import Sequence
from typing import NoReturn

# Characters of a message that names may take.
ROOM = 120
# Characters of a part of a message: several paths fit.
LONGEST = 2000


class UserError(Exception):
    """A bad file, column, value or flag. The command prints it as one line and ends with exit code 2."""


def user_error(what: str, *, got: object, expected: object, fix: str) -> UserError:
    """A mistake in the form of every message of the package."""
    # The form lives in the library, whose import takes seconds: not for `--help`.
    from throughtime._errors import problem  # noqa: PLC0415

    parts = {"got": _clipped(got), "expected": _clipped(expected), "fix": fix}
    return UserError(" ".join(problem(_clipped(what), **parts).split()))


def _clipped(part: object) -> str:
    """A part of a message; of one that quotes a cell as long as a book, the beginning and the end."""
    text = str(part)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def refuse(what: str, *, got: object, expected: object, fix: str) -> NoReturn:
    """Raise a `mistake`."""
    raise user_error(what, got=got, expected=expected, fix=fix)


def listed(names: Sequence[str]) -> str:
    """`a, b, c`; of many names the first, and how many there are besides."""
    shown = list(names)
    while len(shown) > 1 and len(", ".join(shown)) > ROOM:
        shown.pop()
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")
