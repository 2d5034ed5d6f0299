"""Files that claim, or expand to, far more than they are: one line that names the limit, in little time and memory."""

from __future__ import annotations

import io
import os
import struct
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import throughtime as tt
from throughtime import _file_limits as limits
from throughtime._json_files import read_json, read_json_lines
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError, user_error
from throughtime.cli.tables import open_table, survey
from throughtime.cli.tables._infer_schema import look_over
from throughtime.interop import TFCheckpoint
from throughtime.interop.checkpoints._corruption import Damaged
from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._partitioned_variables import Slice, check_cover
from throughtime.interop.checkpoints._protobuf import field, varint
from throughtime.interop.checkpoints._snappy import decompress
from throughtime.interop.checkpoints._sstable_reader import FOOTER, MAGIC, Table
from throughtime.interop.checkpoints._sstable_writer import table_of

pytestmark = pytest.mark.covers("errors")
SECONDS, MEMORY = 5.0, 2**30


@contextmanager
def within_bounds() -> Iterator[None]:
    """The block takes less than `SECONDS` of this process and less than `MEMORY` more than was taken before."""
    began = time.process_time()
    if sys.platform == "linux":
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
    else:
        yield
    assert time.process_time() - began < SECONDS


def refused(path: Path, *words: str) -> None:
    """A table is refused in one line that has the words."""
    with within_bounds(), pytest.raises(UserError) as raised:
        look_over(path, Columns())
    message = str(raised.value)
    assert all(word in message for word in (*words, ": got ", ", expected ")), message
    assert "\n" not in message
    assert len(message) < 1000


def unreadable(path: Path, *words: str) -> None:
    """A checkpoint is refused in one line that has the words."""
    with within_bounds(), pytest.raises(ValueError, match="cannot be read: got") as raised:
        dict(TFCheckpoint(path))
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert "\n" not in str(raised.value)


# TensorFlow's checkpoints


def block_of(*entries: tuple[int, bytes, bytes]) -> bytes:
    """A block of keys, each by how much it shares with the one before and by the rest, and values."""
    stored = (varint(shared) + varint(len(own)) + varint(len(value)) + own + value for shared, own, value in entries)
    return b"".join(stored) + struct.pack("<II", 0, 1)


def table_file(path: Path, block: bytes, handles: int = 1, kind: int = 0) -> Path:
    """A table of one block, to which some handles lead."""
    stored = block + bytes([kind])
    content = stored + masked(crc32c(stored)).to_bytes(4, "little")
    handle = varint(0) + varint(len(block))
    index = block_of(*[(0, b"%08d" % number, handle) for number in range(handles)]) + b"\0"
    found = content + index + masked(crc32c(index)).to_bytes(4, "little")
    footer = varint(0) + varint(0) + varint(len(content)) + varint(len(index) - 1)
    path.write_bytes(found + footer.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC)
    return path


def test_a_small_index_of_long_keys(tmp_path: Path) -> None:
    repeated = block_of((0, b"k" * 65_000, b""), *[(65_000, b"", b"")] * 120_000)
    path = table_file(tmp_path / "model.ckpt.index", repeated)
    assert path.stat().st_size < 700_000
    unreadable(path, f"keys of more than {limits.INDEX_KEY_BYTES:,} bytes in all")


def test_a_key_that_is_too_long(tmp_path: Path) -> None:
    path = table_file(tmp_path / "model.ckpt.index", block_of((0, b"k" * (limits.KEY_BYTES + 1), b"")))
    unreadable(path, "a key of 65,537 bytes, which has at most 65,536")


def test_too_many_entries(tmp_path: Path) -> None:
    path = table_file(tmp_path / "model.ckpt.index", block_of(*[(0, b"k", b"")] * (limits.INDEX_ENTRIES + 1)))
    unreadable(path, f"more than {limits.INDEX_ENTRIES:,} entries")


def test_many_handles_of_one_block(tmp_path: Path) -> None:
    block = block_of(*[(0, b"%06d" % number, bytes(100)) for number in range(2000)])
    unreadable(table_file(tmp_path / "model.ckpt.index", block, handles=5000), "blocks that overlap")


def test_blocks_in_no_order(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(table_of([(b"%05d" % number, bytes(9000)) for number in range(4)]))
    assert len(dict(Table(path).items())) == 4
    path.write_bytes(table_of([(b"%05d" % number, bytes(9000)) for number in (3, 2, 1, 0)]))
    with pytest.raises(Damaged, match="no order"):
        Table(path)


def test_more_slices_than_entries(tmp_path: Path) -> None:
    entry = field(1, 1) + b"".join([field(7, b"")] * 200_000)
    path = tmp_path / "model.ckpt.index"
    path.write_bytes(table_of([(b"", field(1, 1)), (b"name", entry)]))
    unreadable(path, "more slices than the index has entries")


@pytest.mark.parametrize("sides", [255, 200_000])
def test_more_axes_than_a_variable_has(tmp_path: Path, sides: int) -> None:
    entry = field(1, 1) + field(2, b"".join([field(2, b"")] * sides))
    path = tmp_path / "model.ckpt.index"
    path.write_bytes(table_of([(b"", field(1, 1)), (b"name", entry)]))
    unreadable(path, f"a variable of {sides:,} axes, which has at most {limits.AXES}")


def test_more_numbers_than_64_bits_count(tmp_path: Path) -> None:
    sides = field(2, field(1, 2**40)) * 3
    path = tmp_path / "model.ckpt.index"
    path.write_bytes(table_of([(b"", field(1, 1)), (b"name", field(1, 1) + field(2, sides) + field(7, b""))]))
    unreadable(path, "a variable of shape (1099511627776, 1099511627776, 1099511627776)")


def test_slices_that_share_bytes(tmp_path: Path) -> None:
    """Ten thousand slices of one 40 KB file would be 400 MB."""
    count, size = 10_000, 10_000
    cuts = [Slice((size * number,), (size,)) for number in range(count)]
    extents = b"".join(field(7, field(1, field(1, each.starts[0]) + field(2, each.lengths[0]))) for each in cuts)
    whole = field(1, 1) + field(2, field(2, field(1, count * size))) + extents
    part = field(1, 1) + field(2, field(2, field(1, size))) + field(5, 4 * size)
    entries = {b"": field(1, 1), b"name": whole} | {each.key("name"): part for each in cuts}
    (tmp_path / "model.ckpt.index").write_bytes(table_of(sorted(entries.items())))
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(bytes(4 * size))
    unreadable(tmp_path / "model.ckpt", "slices of 400,000,000 bytes in files of 40,000")


@pytest.mark.parametrize("columns", [1, 200], ids=["along one axis", "along two"])
def test_sixty_thousand_slices(columns: int) -> None:
    rows = 60_000 // columns
    shape = (rows, columns, 7)
    cuts = [Slice((row, column, 0), (1, 1, -1)) for row in range(rows) for column in range(columns)]
    with within_bounds():
        check_cover(shape, cuts)
    for wrong in (cuts[1:], [*cuts, cuts[0]], [cuts[1], *cuts[1:]]):
        with within_bounds(), pytest.raises(Damaged, match="overlap, or are not all"):
            check_cover(shape, wrong)


def test_covers_are_those_that_have_every_number_once() -> None:
    """The corners say the same as counting each number does."""
    draw = np.random.default_rng(0)
    outcomes = set()
    for _ in range(600):
        shape = tuple(int(side) for side in draw.integers(1, 4, size=draw.integers(0, 4)))
        starts = [tuple(int(draw.integers(0, side)) for side in shape) for _ in range(draw.integers(1, 5))]
        cuts = [
            Slice(start, tuple(int(draw.integers(0, side - at + 1)) for at, side in zip(start, shape, strict=True)))
            for start in starts
        ]
        if draw.random() < 0.5 and shape:
            cut = int(draw.integers(0, shape[0] + 1))
            rest = (-1,) * (len(shape) - 1)
            cuts = [Slice((0,) * len(shape), (cut, *rest)), Slice((cut, *[0] * len(rest)), (shape[0] - cut, *rest))]
        counts = np.zeros(shape, int)
        for each in cuts:
            counts[tuple(slice(*bound) for bound in each.bounds(shape))] += 1
        right = bool((counts == 1).all())
        outcomes.add(right)
        try:
            check_cover(shape, cuts)
        except Damaged:
            assert not right, (shape, cuts)
        else:
            assert right, (shape, cuts)
    assert outcomes == {True, False}


def test_slices_with_too_many_corners() -> None:
    cuts = [Slice((0,) * 30, (1,) * 30)] * 2
    with within_bounds(), pytest.raises(Damaged, match=f"more than {limits.SLICE_CORNERS:,} corners"):
        check_cover((2,) * 30, cuts)


def test_far_copies_take_no_longer_than_near_ones() -> None:
    literal = bytes([61 << 2]) + (2**16 - 1).to_bytes(2, "little") + bytes(2**16)
    body = literal * 64
    size = 64 * 2**16
    far = bytes([0 << 2 | 3]) + size.to_bytes(4, "little")
    count = 200_000
    with within_bounds():
        assert len(decompress(varint(size + count) + body + far * count)) == size + count


def test_a_state_of_nothing_but_lines(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\n" * 2**20)
    with within_bounds(), pytest.raises(FileNotFoundError):
        TFCheckpoint(tmp_path)


def test_a_state_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    os.truncate(tmp_path / "checkpoint", limits.STATE_BYTES + 1)
    with within_bounds(), pytest.raises(ValueError, match=f"at most {limits.STATE_BYTES:,} bytes"):
        TFCheckpoint(tmp_path)


# Tables


def npz(path: Path, kind: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def array(shape: tuple[int, ...], dtype: str = "<f4", stored: bytes = b"") -> bytes:
    """An array's file that claims a shape and holds what is stored."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + stored


def numbers(values: object, dtype: type = np.float32) -> bytes:
    stored = io.BytesIO()
    np.save(stored, np.array(values, dtype))
    return stored.getvalue()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 50_000_000), "<f4"),
        ((10**12,), "<i8"),
        ((2**62, 2**62, 2**62), "<f8"),
        ((0, 10**9), "<f4"),
        ((10**12, 2, 0), "<f4"),
    ],
)
def test_arrays_that_claim_more_than_they_hold(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    words = ("expands to too large a table",) if 0 in shape else ("`x` of shape", "claims", "and has 0 bytes")
    refused(npz(tmp_path / "a.npz", x=array(shape, dtype)), *words)


def test_lengths_that_claim_more_than_they_hold(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", x=numbers([1.0, 2.0]), lengths=array((10**12,), "<i8"))
    refused(path, "`lengths` of shape (1000000000000,) claims 8,000,000,000,000 bytes and has 0 bytes")


@pytest.mark.parametrize("length", [10**12, 2**63 - 1])
def test_lengths_that_are_too_long(tmp_path: Path, length: int) -> None:
    path = npz(tmp_path / "a.npz", x=numbers([1.0, 2.0]), lengths=numbers([length, length], np.int64))
    refused(path, "expands to too large a table")


def test_an_array_of_negative_sides(tmp_path: Path) -> None:
    refused(npz(tmp_path / "a.npz", x=array((-1, -1))), "is not an NPZ file", "an array of shape (-1, -1)")


def test_many_columns_that_are_truly_there(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", x=numbers(np.zeros((1, limits.COLUMNS + 1))))
    refused(path, f"got {limits.COLUMNS + 1:,} columns, expected at most {limits.COLUMNS:,}")


@pytest.mark.parametrize("dtype", ["<f8", "|b1"])
def test_a_compressed_array_of_zeros(tmp_path: Path, dtype: str) -> None:
    count = 10 * limits.MIB
    path = npz(tmp_path / "a.npz", x=array((count,), dtype, bytes(count * np.dtype(dtype).itemsize)))
    assert path.stat().st_size < 150_000
    refused(path, "expands to too")


def test_a_long_text_by_sequence_is_not_multiplied(tmp_path: Path) -> None:
    steps = 100_000
    label = np.array(["x" * 50_000])
    path = npz(
        tmp_path / "a.npz",
        x=numbers(np.arange(steps)),
        lengths=numbers([steps], np.int64),
        label=numbers(label, label.dtype.type),
    )
    with within_bounds():
        assert survey(open_table(path), "sequence").facts["label"].longest == 50_000


def test_an_archive_with_a_long_list(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(limits.ARCHIVE_LIST_BYTES // (46 + 60_000) + 2):
            archive.writestr(f"{number:060000d}", b"")
    refused(path, f"which has at most {limits.ARCHIVE_LIST_BYTES:,}")


def test_three_million_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",".join(["x"] * 3_000_000) + "\n")
    refused(tmp_path / "a.csv", f"3,000,000 columns, expected at most {limits.COLUMNS:,}")


def test_as_many_columns_as_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",".join(f"c{place}" for place in range(limits.COLUMNS)) + "\n")
    with within_bounds():
        assert len(open_table(tmp_path / "a.csv").columns) == limits.COLUMNS


@pytest.mark.parametrize("begin", ["", "x,y\n1,2\n"], ids=["header", "row"])
def test_no_newline_for_300_megabytes(tmp_path: Path, begin: str) -> None:
    (tmp_path / "a.csv").write_text(begin)
    os.truncate(tmp_path / "a.csv", 300_000_000)
    line = begin.count("\n") + 1
    refused(tmp_path / "a.csv", f"line {line} begins a row", f"rows of at most {limits.ROW_BYTES:,} bytes")


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x,y\n1,2\n3,"4\n' + "5,6\n" * 5_000_000)
    refused(tmp_path / "a.csv", "line 3 begins a row that is too long")


def test_long_rows_are_read_some_at_a_time(tmp_path: Path) -> None:
    row = "a" * 1_000_000
    (tmp_path / "a.csv").write_text("text\n" + "".join(f"{row}{number}\n" for number in range(40)))
    with within_bounds():
        pieces = [len(piece) for piece in open_table(tmp_path / "a.csv").pieces()]
    assert sum(pieces) == 40
    assert max(pieces) < 12


def test_bytes_that_are_no_text_in_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("ä\n".encode() * 100_000 + b"x" * 200_000 + b"\xff")
    refused(path, "bytes that are not UTF-8 in line 100001")
    path.write_bytes(b"x\n" * 32_768 + "ä".encode()[:1])
    refused(path, "bytes that are not UTF-8 in line 32769")


def test_a_text_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    os.truncate(tmp_path / "a.txt", 300_000_000)
    refused(tmp_path / "a.txt", f"got 300,000,000 bytes, expected at most {limits.TEXT_BYTES:,} in one text file")


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x," + "y" * 5000 + "\n1,2\n")
    refused(tmp_path / "a.csv", "column 2 has too long a name", f"at most {limits.NAME_CHARACTERS:,}")


def test_a_cell_as_long_as_a_book_is_not_quoted_whole(tmp_path: Path) -> None:
    assert len(str(user_error("what", got="x" * 100_000, expected="y", fix="z"))) < 2100


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    refused(tmp_path / "a.csv", "is not a file: got a pipe or a device")


def test_parquet_that_expands_to_many_rows(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"x": pa.array(np.zeros(20_000_000, np.int8))}), tmp_path / "a.parquet")
    refused(
        tmp_path / "a.parquet",
        "20,000,000 rows of 1 column",
        f"at most 16 cells a byte of the file, or {limits.CELLS:,}",
    )


def test_parquet_with_one_long_text_many_times(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 100_000
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 100_000]))
    table = pa.table({"x": pa.array(np.arange(rows)), "label": texts.cast(pa.dictionary(pa.int32(), pa.string()))})
    parquet.write_table(table, tmp_path / "a.parquet", store_schema=False)
    with within_bounds():
        pieces = list(open_table(tmp_path / "a.parquet").pieces())
    assert sum(map(len, pieces)) == rows
    assert {len(text) for piece in pieces for text in piece.columns["label"]} == {100_000}


# JSON


def test_json_that_is_nested_or_large(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" * 1_000_000)
    with within_bounds(), pytest.raises(ValueError, match="nested too deep"):
        read_json(path)
    os.truncate(path, limits.JSON_BYTES + 1)
    with within_bounds(), pytest.raises(ValueError, match=f"more than {limits.JSON_BYTES:,} bytes of JSON"):
        read_json(path)


def test_a_history_ends_at_a_line_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for end in (b"[" * 100_000, b" " * (limits.HISTORY_LINE_BYTES + 5) + b"{}", b"\xff", b'{"half": '):
        path.write_bytes(b'{"kind": "end", "stopped_early": true}\n' + end)
        with within_bounds():
            assert len(list(read_json_lines(path))) == 1
            assert tt.train.History.read(tmp_path).stopped_early


@pytest.mark.parametrize("line", ["[]", "1", "{}", '{"kind": "step", "number": 1}', '{"kind": "step", "number": "x"}'])
def test_a_line_of_a_history_that_is_no_record(tmp_path: Path, line: str) -> None:
    (tmp_path / "history.jsonl").write_text(f"{line}\n")
    with pytest.raises(tt.InvalidArgumentError, match=r"history.jsonl, line 1 is no record: got .*, expected"):
        tt.train.History.read(tmp_path)


def test_all_limits_are_documented() -> None:
    pages = [Path(__file__).parents[2] / "docs" / name for name in ("command.md", "tensorflow.md")]
    text = "".join(page.read_text() for page in pages)
    named = {name: value for name, value in vars(limits).items() if name.isupper() and name != "MIB"}
    assert [name for name, value in named.items() if f"{value:,}" not in text] == []


def test_the_root_of_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "rglob", lambda *_: pytest.fail("it was searched"))
    refused(
        Path("/"),
        "/ is not a folder of sequences: got the root of the file system, expected a folder that has sequences only. "
        "Give the folder that has the sequences.",
    )


def test_a_folder_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("throughtime.cli.tables._readers.FOLDER_ENTRIES", 5)
    for number in range(6):
        (tmp_path / f"{number}.csv").write_text("x\n1\n2\n")
    refused(tmp_path, "has too many files: got more than 5 files and folders, expected at most 5")
