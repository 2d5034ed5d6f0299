"""Data that is legal but odd: read as what it means, or refused in one line; never a traceback, never a pickle."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_files import call, is_one_line_of_error, quickly
from throughtime.cli.tables import open_table

pytestmark = pytest.mark.covers("cli")

ROWS = 40
NAMES = [f"s{row // 4}" for row in range(ROWS)]
LABELS = ["ab"[row // 4 % 2] for row in range(ROWS)]


def parquet(path: Path, odd: Any) -> Path:
    pa, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"id": NAMES, "x": [row % 7 / 2 for row in range(ROWS)], "odd": odd, "label": LABELS}
    writer.write_table(pa.table(columns), path)
    return path


def viewed(kind: str, *values: int, **options: Any) -> Callable[[Any], Any]:
    """A column of dates and times by the whole numbers that they are stored as."""

    def make(pa: Any) -> Any:
        unit, _, resolution = kind.partition(" ")
        made = getattr(pa, unit)(*filter(None, [resolution]), **options)
        stored = pa.int32() if unit == "date32" else pa.int64()
        return pa.array([values[row % len(values)] for row in range(ROWS)], stored).view(made)

    return make


def not_text(pa: Any) -> Any:
    """Text by its type, and not by its bytes."""
    return pa.Array.from_buffers(pa.string(), ROWS, pa.array([b"\xff\xfe"] * ROWS).buffers())


UNREADABLE = {
    "a date after the calendar": (viewed("date32", 10**7), "date32[day]: date value out of range"),
    "a date before it": (viewed("date32", -(10**6)), "date32[day]: date value out of range"),
    "milliseconds far away": (viewed("timestamp ms", 10**17), "timestamp[ms]: "),
    "microseconds far away": (viewed("timestamp us", 2**62), "timestamp[us]: date value out of range"),
    "an unknown zone": (viewed("timestamp ms", 0, tz="Mars/Olympus"), "timestamp[ms, tz=Mars/Olympus]: "),
    "a span too long": (viewed("duration s", 2**62), "duration[s]: "),
    "bytes that are no text": (lambda pa: pa.array([b"\xff\xfe"] * ROWS), "binary: Invalid UTF8 payload"),
    "text that is no text": (not_text, "string: 'utf-8' codec can't decode byte 0xff"),
}
NESTED = {
    "lists": lambda pa: pa.array([[1, 2]] * ROWS),
    "records": lambda pa: pa.array([{"a": 1}] * ROWS),
    "maps": lambda pa: pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
}
READABLE = {
    "nanoseconds": (
        viewed("timestamp ns", 1_000, 2_001),
        ["1970-01-01 00:00:00.000001000", "1970-01-01 00:00:00.000002001"],
    ),
    "whole microseconds": (viewed("timestamp ns", 0, 10**9), ["1970-01-01 00:00:00", "1970-01-01 00:00:01"]),
    "a zone": (viewed("timestamp ms", 0, 1_000, tz="UTC"), ["1970-01-01 00:00:00+00:00", "1970-01-01 00:00:01+00:00"]),
    "decimals": (lambda pa: pa.array([Decimal("1.25"), Decimal("0.50")] * 20), [1.25, 0.5]),
    "categories": (lambda pa: pa.array(["u", "v"] * 20).dictionary_encode(), ["u", "v"]),
    "categories of numbers": (lambda pa: pa.array([7, 8] * 20).dictionary_encode(), [7, 8]),
    "text as bytes": (lambda pa: pa.array(["é".encode(), b"b"] * 20), ["é", "b"]),
    "text as bytes of one length": (lambda pa: pa.array([b"ab", b"cd"] * 20, pa.binary(2)), ["ab", "cd"]),
    "nothing at all": (lambda pa: pa.nulls(ROWS), ["", ""]),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_columns_that_python_has_no_words_for(case: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    make, words = UNREADABLE[case]
    path = parquet(tmp_path / "a.parquet", make(pa))
    line = f"{path}, column `odd` cannot be read: got {words}"
    for result in (call("inspect", path), quickly(path, tmp_path / "run")):
        is_one_line_of_error(result, line, "expected numbers, text in UTF-8, or dates of the years 1 to 9999")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", NESTED)
def test_nested_columns(case: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", NESTED[case](pytest.importorskip("pyarrow")))
    is_one_line_of_error(call("inspect", path), f"{path}, column `odd` is nested: got ")


@pytest.mark.parametrize("case", READABLE)
def test_columns_that_are_read_as_what_they_mean(case: str, tmp_path: Path) -> None:
    make, values = READABLE[case]
    path = parquet(tmp_path / "a.parquet", make(pytest.importorskip("pyarrow")))
    assert next(open_table(path).pieces()).columns["odd"][:2].tolist() == values
    assert call("inspect", path).exit_code == 0


def arrays(path: Path, **odd: Any) -> Path:
    np.savez(path, lengths=np.full(10, 4), x=np.ones((ROWS, 2)), **odd)
    return path


def flagged(path: Path, offset: int, value: int) -> Path:
    """An archive whose members say something of themselves, in both places where they do."""
    content = bytearray(arrays(path).read_bytes())
    for mark, place in ((b"PK\3\4", offset), (b"PK\1\2", offset + 2)):
        at = content.find(mark)
        while at >= 0:
            content[at + place] |= value
            at = content.find(mark, at + 1)
    path.write_bytes(content)
    return path


def with_header(path: Path, header: str) -> Path:
    text = header.encode().ljust(118) + b"\n"
    made = io.BytesIO()
    np.save(made, np.full(10, 4))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lengths.npy", made.getvalue())
        archive.writestr("x.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + bytes(640))
    return path


class Trap:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


ARCHIVES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "encrypted": (lambda path: flagged(path, 6, 1), "is not an NPZ file: got File 'lengths.npy' is encrypted"),
    "strongly encrypted": (lambda path: flagged(path, 6, 0x41), "is not an NPZ file: got strong encryption"),
    "compressed in another way": (lambda path: flagged(path, 8, 99), "got That compression method is not supported"),
    "a header that never ends": (lambda path: with_header(path, "(" * 90), "is not an NPZ file: got "),
    "a header that is a program": (lambda path: with_header(path, "__import__('os').mkdir('sprung')"), "got malformed"),
    "objects": (lambda path: arrays(path, odd=np.array([Trap()] * ROWS)), "got `odd` of Python objects"),
    "records of objects": (lambda path: arrays(path, odd=np.zeros(ROWS, [("a", "O")])), "got `odd` of records"),
    "bytes that are no text": (lambda path: arrays(path, odd=np.array([b"\xff"] * ROWS)), "has text that is not UTF-8"),
    "half of a surrogate": (lambda path: arrays(path, odd=np.array(["\ud800"] * ROWS)), "got '\\ud800', expected text"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_cannot_be_read(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, words = ARCHIVES[case]
    path = make(tmp_path / "a.npz")
    for result in (call("inspect", path), quickly(path, tmp_path / "run")):
        is_one_line_of_error(result, f"Error: {path} ", words)
    assert [one.name for one in tmp_path.iterdir()] == ["a.npz"], "no pickle was loaded, and nothing is left"


TEXT = "id,x,label\n" + "".join(
    f"{name},{row % 7},é{label}\n" for row, (name, label) in enumerate(zip(NAMES, LABELS, strict=True))
)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-32", "cp1252"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
def test_text_in_other_encodings(encoding: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(TEXT.encode(encoding))
    for result in (call("inspect", path), quickly(path, tmp_path / "run")):
        is_one_line_of_error(result, f"Error: {path} is not a text file: got bytes that are not UTF-8 in line ")


def test_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    for number in range(4):
        Path(os.fsdecode(os.fsencode(folder) + b"/%d\xff.csv" % number)).write_text("x,label\n1,a\n")
    line = "the name of a file is not UTF-8: got "
    for path in (folder, next(folder.iterdir())):
        is_one_line_of_error(call("inspect", path), line, "\\udcff.csv', expected a name in UTF-8. Rename it.")
        is_one_line_of_error(quickly(path, tmp_path / "run"), line)
    is_one_line_of_error(call("inspect", os.fsdecode(b"nothing\xff")), "cannot read nothing\\udcff: got no such file")
