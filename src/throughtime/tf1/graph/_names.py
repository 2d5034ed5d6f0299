"""Unique names and name scopes, as TensorFlow makes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

_VALID_OP = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$")
_VALID_SCOPE = re.compile(r"^[A-Za-z0-9_.\\/>-]*$")


class Names:
    """The names in use in a graph and the scope that is open; names are compared without case."""

    def __init__(self) -> None:
        self.in_use: dict[str, int] = {}
        self.scope = ""

    def unique(self, name: str, mark_as_used: bool = True) -> str:
        """`name` inside of the open scope, with `_1`, `_2` … added if it is taken."""
        if self.scope:
            name = f"{self.scope}/{name}"
        key = name.lower()
        count = self.in_use.get(key, 0)
        if mark_as_used:
            self.in_use[key] = count + 1
        if count == 0:
            return name
        base = key
        while key in self.in_use:
            key = f"{base}_{count}"
            count += 1
        if mark_as_used:
            self.in_use[base] = count
            self.in_use[key] = 1
        return f"{name}_{count - 1}"

    def for_operation(self, name: str) -> str:
        """The full name of a new operation; a name that ends with "/" is taken as it is."""
        if name.endswith("/"):
            return name[:-1]
        if not (_VALID_OP if not self.scope else _VALID_SCOPE).match(name):
            raise ValueError(f"'{name}' is not a valid node name: use letters, digits, '.', '_', '-' and '/'")
        return self.unique(name)

    @contextlib.contextmanager
    def open_scope(self, name: str | None) -> Iterator[str]:
        """Open a scope for new names; None or "" closes all, "scope/" opens a known one again."""
        if name and not (_VALID_SCOPE if self.scope else _VALID_OP).match(name):
            raise ValueError(f"'{name}' is not a valid scope name: use letters, digits, '.', '_', '-' and '/'")
        before = self.scope
        if not name:
            self.scope = ""
        elif name.endswith("/"):
            self.scope = name[:-1]
        else:
            self.scope = self.unique(name)
        try:
            yield f"{self.scope}/" if self.scope else ""
        finally:
            self.scope = before
