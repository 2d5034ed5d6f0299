"""From a path to a table: by its suffix; a folder is one file a sequence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from throughtime._file_limits import FOLDER_ENTRIES
from throughtime.cli._compressed import COMPRESSIBLE, COMPRESSIONS, stem_of, suffix_of
from throughtime.cli._user_errors import listed, refuse
from throughtime.cli.tables._bounds import check_regular
from throughtime.cli.tables._csv import CsvTable, TextTable
from throughtime.cli.tables._npz import NpzTable
from throughtime.cli.tables._parquet import ParquetTable
from throughtime.cli.tables._table import RowChunk, Table

READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".parquet": ParquetTable,
    ".pq": ParquetTable,
    ".npz": NpzTable,
    ".txt": TextTable,
}
READERS |= {inner + outer: READERS[inner] for inner in COMPRESSIBLE for outer in COMPRESSIONS}
# What the column with the names of the files is called.
NAME = "sequence"
KNOWN = ", ".join(suffix for suffix in READERS if suffix.count(".") == 1) + ", or .csv.gz"
_SHEET = "Save the sheet as CSV (UTF-8), or convert it: `pandas.read_excel(path).to_csv('table.csv', index=False)`."
_PACKED = "Unpack it first: of compressed files, .csv, .tsv and .txt are read with .gz, .bz2 or .xz behind."
_FRAME = "Save it as Parquet, as in `frame.to_parquet('table.parquet')`."
# How to make a table of what is none yet.
CONVERSIONS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _SHEET),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz"), _PACKED),
    **dict.fromkeys((".pkl", ".pickle", ".feather", ".h5", ".hdf5"), _FRAME),
    ".npy": "Save it with names: `numpy.savez(path, x=array)`.",
    ".json": "Save the records as CSV: `pandas.read_json(path).to_csv('table.csv', index=False)`.",
}


def open_table(path: Path) -> Table:
    """A table ready to be read; whatever cannot be one is a `Mistake`."""
    _check_names([path])
    if path.is_dir():
        return FolderTable(path)
    check_regular(path)
    suffix = suffix_of(path)
    if suffix not in READERS:
        fix = CONVERSIONS.get(suffix, "Save it as CSV (UTF-8), or in another of these formats.")
        refuse(f"{path} has an unknown format", got=f"suffix {path.suffix!r}", expected=KNOWN, fix=fix)
    try:
        return READERS[suffix](path)
    except OSError as error:
        got = error.strerror or " ".join(str(error).split())
        refuse(f"cannot read {path}", got=got, expected="a file that can be read", fix="Check the file and its path.")


class FolderTable:
    """One file a sequence: its name is the sequence's, and a folder inside the folder is the label of what it holds."""

    sequence: str | None = NAME

    def __init__(self, path: Path) -> None:
        self.path = path
        self.empty = 0
        # How many lines there were before each of the files read so far.
        self.starts: list[int] = []
        self.files = _files_in(path)
        if not self.files:
            expected, fix = f"files of the formats {KNOWN}", "Check the folder."
            refuse(f"{path} has no sequences", got="a folder without a table or a text", expected=expected, fix=fix)
        _check_names(self.files)
        self.labelled = any(file.parent != path for file in self.files)
        first = open_table(self.files[0])
        inner = [name for name in first.columns if name != NAME]
        self.columns = [NAME, *inner, *(["label"] if self.labelled else [])]
        self.holds_texts = isinstance(first, TextTable)
        if self.labelled and "label" in inner:
            refuse(
                f"{path} labels its files twice",
                got="folders inside it and a column `label`",
                expected="one of them",
                fix="Rename the column, or put all files in one folder.",
            )

    def pieces(self) -> Iterator[RowChunk]:
        """File after file; lines are counted on from file to file."""
        self.starts, until, self.empty = [], 0, 0
        for file in self.files:
            table, before = open_table(file), until
            self.starts.append(before)
            inner = [name for name in table.columns if name != NAME]
            expected = [name for name in self.columns if name not in {NAME, *(["label"] * self.labelled)}]
            if inner != expected:
                refuse(
                    f"{file} is not like {self.files[0]}",
                    got=f"columns {listed(inner)}",
                    expected=listed(expected),
                    fix="Give all files the same columns.",
                )
            name = str(file.relative_to(self.path).with_name(stem_of(file)))
            self.empty += 1
            for place, piece in enumerate(table.pieces()):
                self.empty -= place == 0
                named = {NAME: np.full(len(piece), name, object)}
                label = {"label": np.full(len(piece), str(file.parent.relative_to(self.path)), object)}
                kept = {column: piece.columns[column] for column in inner}
                until = before + int(piece.lines[-1])
                yield RowChunk(named | kept | (label if self.labelled else {}), piece.lines + before)

    def place(self, line: int) -> str:
        """The file that a line is in, and where in it."""
        which = bisect_left(self.starts, line) - 1
        return open_table(self.files[which]).place(line - self.starts[which])


def _files_in(folder: Path) -> list[Path]:
    """The tables and texts in a folder and in folders inside it, by name."""
    fix = "Give the folder that has the sequences."
    if folder.resolve().parent == folder.resolve():
        got, expected = "the root of the file system", "a folder that has sequences only"
        refuse(f"{folder} is not a folder of sequences", got=got, expected=expected, fix=fix)
    files: list[Path] = []
    for count, file in enumerate(folder.rglob("*")):
        if count == FOLDER_ENTRIES:
            got, expected = f"more than {count:,} files and folders", f"at most {FOLDER_ENTRIES:,}"
            refuse(f"{folder} has too many files", got=got, expected=expected, fix=fix)
        # Systems and editors leave files of their own behind, whose names begin with a point.
        if suffix_of(file) in READERS and not file.name.startswith("."):
            files.append(file)
    return sorted(files)


def _check_names(paths: Iterable[Path]) -> None:
    """Names of files are names of sequences and runs: they can be written."""
    for path in paths:
        try:
            str(path).encode("utf-8")
        except UnicodeError:
            expected, fix = "a name in UTF-8", "Rename it."
            refuse("the name of a file is not UTF-8", got=ascii(str(path)), expected=expected, fix=fix)
