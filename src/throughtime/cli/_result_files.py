"""Results written row by row, and given their name only when they are whole."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from throughtime._setting import Setting
from throughtime.cli._user_errors import refuse

SUFFIXES = (".csv", ".tsv", ".parquet")
SCREEN = "standard output"


class Rows(Protocol):
    """What results are given to."""

    def write(self, rows: Sequence[Sequence[object]]) -> None:
        """Append rows."""
        ...


def check_output(path: Path) -> None:
    """The suffix is one that can be written, and so is the place."""
    if str(path) == "-":
        return
    if path.suffix.lower() not in SUFFIXES:
        fix = "Choose a name with one of these suffixes, or `-` to print."
        refuse("`--out` has an unknown format", got=repr(path.name), expected=" or ".join(SUFFIXES), fix=fix)
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not rights.value.can_write(folder):
        got = "a folder" if path.is_dir() else why_not(folder) if folder.is_dir() else f"no folder {folder}"
        refuse(
            f"cannot write `--out` {path}", got=got, expected="a file in a folder to write to", fix="Choose another."
        )


def _is_read_only(folder: Path) -> bool:
    # Windows has neither.
    flags = os.statvfs(folder).f_flag if hasattr(os, "statvfs") else 0
    return bool(flags & getattr(os, "ST_RDONLY", 0))


@dataclass(frozen=True)
class Rights:
    """What the system says about a folder."""

    can_write: Callable[[Path], bool] = lambda folder: os.access(folder, os.W_OK)
    is_read_only: Callable[[Path], bool] = _is_read_only


rights = Setting(Rights())


def why_not(folder: Path) -> str:
    """What keeps one from writing to a folder."""
    if rights.value.is_read_only(folder):
        return f"{folder}, which is on a read-only file system"
    return f"{folder}, which you have no permission to write to"


@contextmanager
def naming(place: object) -> Iterator[None]:
    """An error of the system that does not say what it is about, such as a full disk, is about this place."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(place)
        raise


@contextmanager
def results(path: Path, columns: list[str]) -> Iterator[Rows]:
    """A file that takes the place of an earlier one at the end of the block, and not if the block fails."""
    if str(path) == "-":
        with naming(SCREEN):
            yield _Csv(sys.stdout, columns, ",")
            sys.stdout.flush()
        return
    # With it comes torch, and help pages are to open at once.
    from throughtime._atomic_files import whole  # noqa: PLC0415

    with naming(path), whole(path) as new:
        if path.suffix.lower() == ".parquet":
            with _parquet(new, columns) as rows:
                yield rows
        else:
            with new.open("w", encoding="utf-8", newline="") as file:
                yield _Csv(file, columns, "\t" if path.suffix.lower() == ".tsv" else ",")


class _Csv:
    def __init__(self, file: Any, columns: list[str], delimiter: str) -> None:
        self._writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        self._writer.writerow(columns)

    def write(self, rows: Sequence[Sequence[object]]) -> None:
        self._writer.writerows([_plain(cell) for cell in row] for row in rows)


def _plain(cell: object) -> object:
    # What was read from a column is of numpy's types, and keeps all its digits.
    return f"{cell:.6g}" if type(cell) is float else cell


@contextmanager
def _parquet(path: Path, columns: list[str]) -> Iterator[Rows]:
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        fix = "Run `pip install throughtime[parquet]`, or write CSV."
        refuse("Parquet needs pyarrow", got="no pyarrow here", expected="it installed", fix=fix)

    class Out:
        writer: Any = None

        def write(self, rows: Sequence[Sequence[object]]) -> None:
            parts = zip(*rows, strict=True) if rows else [()] * len(columns)
            table = pa.table(dict(zip(columns, map(list, parts), strict=True)))
            self.writer = self.writer or parquet.ParquetWriter(path, table.schema)
            self.writer.write_table(table.cast(self.writer.schema))

    out = Out()
    try:
        yield out
        if out.writer is None:
            out.write([])
    finally:
        if out.writer is not None:
            out.writer.close()
