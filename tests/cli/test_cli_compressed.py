"""Compressed text files: read as what is inside, within limits, and refused in one line where they are damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli_files import call, gestures, is_one_line_of_error, quickly, said, text
from throughtime import _file_limits as limits
from throughtime.cli._user_errors import UserError
from throughtime.cli.tables import open_table

pytestmark = pytest.mark.covers("cli")

Compress = Callable[[bytes], bytes]
COMPRESSIONS: dict[str, Compress] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def packed(path: Path, suffix: str) -> Path:
    target = path.with_name(path.name + suffix)
    target.write_bytes(COMPRESSIONS[suffix.lower()](path.read_bytes()))
    return target


def refused(path: Path, *words: str) -> None:
    with pytest.raises(UserError) as mistake:
        list(open_table(path).pieces())
    for word in words:
        assert word in str(mistake.value)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize("suffix", [*COMPRESSIONS, ".GZ"])
def test_a_compressed_table_is_the_table(suffix: str, tmp_path: Path) -> None:
    plain = gestures(tmp_path / "a.b.csv")
    first, second = (list(open_table(path).pieces()) for path in (plain, packed(plain, suffix)))
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.columns.keys() == other.columns.keys()
        for name, values in one.columns.items():
            np.testing.assert_array_equal(values, other.columns[name])


def test_tabs_and_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a,1\tb\n1\t2\n")
    assert open_table(packed(tmp_path / "a.tsv", ".xz")).columns == ["a,1", "b"]
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\rthree\n")
    whole = next(open_table(packed(tmp_path / "a.txt", ".gz")).pieces()).columns["text"][0]
    assert whole == (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_several_members_and_padding(suffix: str, tmp_path: Path) -> None:
    compress, path = COMPRESSIONS[suffix], tmp_path / f"a.csv{suffix}"
    path.write_bytes(compress(b"a,b\n1,2\n") + compress(b"") + compress(b"3,4\n") + bytes(8))
    piece = next(open_table(path).pieces())
    assert piece.columns["a"].tolist() == ["1", "3"]


def test_a_run_on_a_compressed_file_and_on_a_folder_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = packed(gestures(tmp_path / "moves.csv"), ".gz")
    result = call("train", path, "--epochs", 2, "--units", 8)
    assert result.exit_code == 0, said(result)
    assert (tmp_path / "runs" / "moves" / "report.html").exists()
    assert call("predict", "runs/moves", path).exit_code == 0
    assert (tmp_path / "moves-predictions.csv").read_text().startswith("id,")
    for kind in ("red", "blue"):
        (tmp_path / "folder" / kind).mkdir(parents=True)
        for number in range(6):
            packed(text(tmp_path / "folder" / kind / f"{number}.v1.txt"), ".bz2")
            (tmp_path / "folder" / kind / f"{number}.v1.txt").unlink()
    names = [piece.columns["sequence"][0] for piece in open_table(tmp_path / "folder").pieces()]
    assert names[0] == "blue/0.v1"
    assert call("inspect", tmp_path / "folder").exit_code == 0


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("cut", [1, 40])
def test_a_file_that_ends_too_soon(suffix: str, cut: int, tmp_path: Path) -> None:
    path = packed(gestures(tmp_path / "a.csv"), suffix)
    path.write_bytes(path.read_bytes()[:-cut])
    words = f"{path} cannot be decompressed: got ", f"expected a whole file of the format {suffix}"
    refused(path, *words)
    is_one_line_of_error(quickly(path, tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_file_that_is_not_compressed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_text("a,b\n1,2\n")
    refused(path, f"{path} cannot be decompressed: got ", "Compress it again, or give it decompressed.")
    path.write_bytes(b"")
    with pytest.raises(UserError):
        open_table(path)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_bomb_of_rows(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPANDED_BYTES", 2**20)
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](b"a,b\n" + b"1,2\n" * 2**19))
    refused(path, f"expands to too many bytes: got more than {2**20:,} in ", "or give it decompressed.")


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_bomb_without_an_end_of_a_row(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](b"a,b\n" + b"1" * (6 * limits.ROW_BYTES)))
    tracemalloc.start()
    try:
        refused(path, "begins a row that is too long")
        assert tracemalloc.get_traced_memory()[1] < 4 * limits.ROW_BYTES
    finally:
        tracemalloc.stop()


def test_a_compressed_text_is_no_larger_than_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("throughtime.cli.tables._csv.TEXT_BYTES", 1000)
    monkeypatch.setattr("throughtime.cli.tables._bounds.TEXT_BYTES", 1000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a" * 1001))
    refused(tmp_path / "a.txt.gz", "is too large: got more than 1,000 bytes, expected at most 1,000 in one text file")


def test_a_dictionary_as_large_as_memory(tmp_path: Path) -> None:
    made = bytearray(lzma.compress(b"a,b\n1,2\n", lzma.FORMAT_XZ))
    # The dictionary's size is the last byte of the block header's filter; the header is checked by a CRC.
    size = (made[12] + 1) * 4
    place = made.index(b"\x21\x01", 12) + 2
    made[place] = 39
    made[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(made[12 : 12 + size - 4]))
    (tmp_path / "a.csv.xz").write_bytes(made)
    refused(tmp_path / "a.csv.xz", "cannot be decompressed: got Memory usage limit exceeded")


def test_a_line_that_is_no_text_is_found_in_what_is_inside(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 9 + b"\xff,2\n"))
    refused(tmp_path / "a.csv.gz", "bytes that are not UTF-8 in line 11")
