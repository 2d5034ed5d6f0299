"""LLVM IR that is written by hand: `.ll` files beside the modules that use them.

Each file is valid LLVM IR: there is no substitution. Values that Python needs too are read from the file:

* a constant, from a line such as `@ring_slots = private unnamed_addr constant i64 4`; loads of it are folded when the
  file is compiled;
* the fields of a record, from its type: one field a line, with its name first in the comment. All fields are 64-bit
  words, or arrays of them.

A file that is embedded in a generated module may call functions of that module. It declares them, and the declarations
are left out where it is embedded.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files

_CONSTANT = re.compile(r"^@(\w+) = private unnamed_addr constant i64 (-?\d+)$", re.MULTILINE)
_DECLARATION = re.compile(r"^declare .*\n", re.MULTILINE)
_FIELD = re.compile(r"^  (?:i64|ptr|\[(\d+) x \S+\]),? *; (\w+)")


@dataclass(frozen=True)
class IrFile:
    """A file of LLVM IR: its whole text."""

    text: str

    @property
    def definitions(self) -> str:
        """The text without declarations, to be embedded in a module that defines what they declare."""
        return _DECLARATION.sub("", self.text)

    @property
    def constants(self) -> dict[str, int]:
        """The named constants."""
        return {name: int(number) for name, number in _CONSTANT.findall(self.text)}

    def fields(self, record: str) -> dict[str, int]:
        """The offset of each field of a record type, in 64-bit words; `end` is the size."""
        _, found, rest = self.text.partition(f"\n%{record} = type {{\n")
        if not found:
            raise KeyError(record)
        offsets, offset = dict[str, int](), 0
        for line in rest.partition("\n}")[0].splitlines():
            length, name = _field(record, line)
            offsets[name] = offset
            offset += length
        return {**offsets, "end": offset}


def _field(record: str, line: str) -> tuple[int, str]:
    match = _FIELD.match(line)
    if match is None:
        raise ValueError(f"a field of %{record} needs a 64-bit type and a name in its comment, got: {line}")
    length, name = match.groups()
    return 1 if length is None else int(length), name


@functools.cache
def read_ir(package: str, name: str) -> IrFile:
    """The file `name` of a package; a module passes its own `__package__`."""
    return IrFile(files(package).joinpath(name).read_text(encoding="utf-8"))
