"""Compressed text files: `.csv.gz`, `.tsv.bz2`, `.txt.xz`, ... are read as the files inside them, within limits."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from throughtime._file_limits import BYTES_PER_BYTE, EXPANDED_BYTES, XZ_MEMORY_BYTES, most_bytes
from throughtime._text import plural
from throughtime.cli._user_errors import refuse

_BLOCK = 1 << 16
# What the three decompressors raise for bytes that they did not write, or that end too soon.
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)

COMPRESSIONS: dict[str, Callable[[Path], io.RawIOBase | gzip.GzipFile]] = {
    ".gz": lambda path: gzip.GzipFile(path, "rb"),
    ".bz2": lambda path: _Members(path, bz2.BZ2Decompressor),
    ".xz": lambda path: _Members(path, lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)),
}
# Files that are read from first byte to last; the other formats are compressed inside.
COMPRESSIBLE = (".csv", ".tsv", ".txt")


def suffix_of(path: Path) -> str:
    """The suffix that tells the format: of a compressed text file both, in small letters.

    >>> from pathlib import Path
    >>> from throughtime.cli._compressed import suffix_of
    >>> suffix_of(Path("a.b.CSV.gz")), suffix_of(Path("a.b.csv")), suffix_of(Path("a.parquet.gz"))
    ('.csv.gz', '.csv', '.gz')
    """
    inner, outer = "", path.suffix.lower()
    if outer in COMPRESSIONS:
        inner = path.with_suffix("").suffix.lower()
    return inner + outer if inner in COMPRESSIBLE else outer


def stem_of(path: Path) -> str:
    """The name of a file without the suffix that tells its format.

    >>> from pathlib import Path
    >>> from throughtime.cli._compressed import stem_of
    >>> stem_of(Path("here/a.b.csv.gz")), stem_of(Path("a.npz"))
    ('a.b', 'a')
    """
    return path.name[: len(path.name) - len(suffix_of(path))] if path.suffix else path.name


def open_bytes(path: Path) -> io.RawIOBase:
    """The bytes of a text file, decompressed where its suffix says so; damage and excess are the user's mistakes."""
    compression = path.suffix.lower()
    return _Bounded(path, COMPRESSIONS[compression](path)) if compression in COMPRESSIONS else io.FileIO(path)


class _Bounded(io.RawIOBase):
    """A decompressed file that may expand to no more than `most_bytes` of its size."""

    def __init__(self, path: Path, source: io.RawIOBase | gzip.GzipFile) -> None:
        self.path, self.source, self.total = path, source, 0
        self.size = path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.source.read(len(buffer)) or b""
        except _DAMAGED as error:
            refuse(
                f"{self.path} cannot be decompressed",
                got=" ".join(str(error).split()),
                expected=f"a whole file of the format {self.path.suffix}",
                fix="Compress it again, or give it decompressed.",
            )
        self.total += len(data)
        if self.total > most_bytes(self.size):
            refuse(
                f"{self.path} expands to too many bytes",
                got=f"more than {most_bytes(self.size):,} in {plural(self.size, 'byte')}",
                expected=f"at most {BYTES_PER_BYTE} bytes a byte of the file, or {EXPANDED_BYTES:,}",
                fix="Check where it comes from, or give it decompressed.",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.source.close()
        super().close()


class _Members(io.RawIOBase):
    """A file of compressed streams one after another; unlike `bz2` and `lzma` files it can bound the memory."""

    def __init__(self, path: Path, make: Callable[[], Any]) -> None:
        self.file, self.make, self.decompressor = path.open("rb"), make, make()

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        while True:
            given = b""
            if self.decompressor.eof:
                given = (self.decompressor.unused_data or self.file.read(_BLOCK)).lstrip(b"\0")
                if not given:
                    return b""
                self.decompressor = self.make()
            elif self.decompressor.needs_input:
                given = self.file.read(_BLOCK)
                if not given:
                    msg = "the file ends in the middle"
                    raise EOFError(msg)
            data: bytes = self.decompressor.decompress(given, size)
            if data:
                return data

    def close(self) -> None:
        self.file.close()
        super().close()
