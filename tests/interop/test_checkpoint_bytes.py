"""What checkpoints are made of, against others that know it: checksums, compression, numbers, tables."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from throughtime.interop import TFCheckpoint
from throughtime.interop.checkpoints._corruption import Damaged
from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._partitioned_variables import Slice, check_cover
from throughtime.interop.checkpoints._protobuf import Message, field, fixed, read_varint, read_varints, varint
from throughtime.interop.checkpoints._save import save_tf_checkpoint
from throughtime.interop.checkpoints._snappy import decompress
from throughtime.interop.checkpoints._sstable_reader import FOOTER, MAGIC, Table
from throughtime.interop.checkpoints._sstable_writer import table_of

pytestmark = pytest.mark.covers("checkpoints")


def slow_crc32c(data: bytes) -> int:
    """The definition, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


class TestChecksums:
    def test_known_answers(self) -> None:
        # Those of RFC 3720.
        assert crc32c(b"123456789") == 0xE3069283
        assert crc32c(bytes(32)) == 0x8A9136AA
        assert crc32c(b"\xff" * 32) == 0x62A8AB43
        assert crc32c(bytes(range(32))) == 0x46DD794E
        assert crc32c(b"") == 0

    @pytest.mark.parametrize("size", [1, 3, 1023, 1024, 1027, 16384, 16389, 600_001])
    def test_long_messages(self, size: int) -> None:
        data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
        # However it is cut: the pieces are folded in rows of other widths.
        assert crc32c(data[size // 3 :], crc32c(data[: size // 3])) == crc32c(data)
        if size < 20_000:
            assert crc32c(data) == slow_crc32c(data)

    def test_rows_of_every_width_agree(self) -> None:
        data = np.random.default_rng(0).integers(0, 256, 1_000_003, np.uint8)
        small = 0
        for start in range(0, len(data), 255):
            small = crc32c(data[start : start + 255].tobytes(), small)
        assert crc32c(data) == small

    def test_it_is_fast(self) -> None:
        data = np.zeros(64 << 20, np.uint8)
        start = time.perf_counter()
        crc32c(data)
        # A twentieth of what it takes on a quiet machine; byte by byte it would be a hundredth of this.
        assert len(data) / (time.perf_counter() - start) > 60e6

    def test_masks(self) -> None:
        assert masked(0xE3069283) == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) % 2**32


class TestSnappy:
    @given(st.binary(max_size=300), st.integers(1, 400), st.binary(max_size=20))
    def test_what_others_compress(self, piece: bytes, times: int, end: bytes) -> None:
        data = piece * times + end
        assert decompress(pa.compress(data, codec="snappy", asbytes=True)) == data

    def test_copies_of_every_kind(self) -> None:
        # A literal, then copies of one, two and four bytes of offset; the last reaches into itself.
        data = varint(4 + 4 + 3 + 10) + bytes([3 << 2]) + b"abcd" + bytes([0b00000001, 4])
        data += bytes([2 << 2 | 2, 8, 0]) + bytes([9 << 2 | 3, 1, 0, 0, 0])
        assert decompress(data) == b"abcdabcdabc" + b"c" * 10
        long = bytes(range(256)) * 300
        assert decompress(varint(len(long)) + bytes([62 << 2]) + (len(long) - 1).to_bytes(3, "little") + long) == long

    @given(st.binary(max_size=60))
    def test_junk(self, data: bytes) -> None:
        with contextlib.suppress(Damaged):
            decompress(data)

    def test_what_cannot_be_that_long(self) -> None:
        with pytest.raises(Damaged, match="say they were 1,099,511,627,776"):
            decompress(varint(2**40) + b"\0a")


class TestWire:
    @given(st.lists(st.integers(0, 2**64 - 1)))
    def test_numbers(self, numbers: list[int]) -> None:
        packed = b"".join(map(varint, numbers))
        assert read_varints(packed).tolist() == numbers
        at, found = 0, []
        while at < len(packed):
            number, at = read_varint(packed, at)
            found.append(number)
        assert found == numbers

    def test_messages(self) -> None:
        message = Message(field(1, 300) + field(2, b"text") + fixed(6, 7) + field(2, b"more") + field(3, 2**64 - 1))
        assert (message.number(1), message.number(6), message.number(9), message.signed(3)) == (300, 7, 0, -1)
        assert message.parts(2) == [b"text", b"more"]
        assert message.text(2) == "more"
        assert 1 in message
        assert 9 not in message
        for ask in (
            lambda: message.number(2),
            lambda: message.part(1),
            lambda: Message(b"\x0b"),
            lambda: Message(b"\x0a\x05"),
        ):
            with pytest.raises(Damaged):
                ask()


@given(st.dictionaries(st.binary(max_size=30), st.binary(max_size=3000), max_size=80))
def test_tables(tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "table"
    path.write_bytes(table_of(sorted(entries.items())))
    table = Table(path)
    assert dict(table.items()) == entries
    assert all(table.get(key) == value for key, value in entries.items())
    assert table.get(b"\xff" * 31) is None


def test_compressed_blocks(tmp_path: Path) -> None:
    """An index whose blocks are compressed, as other builds of TensorFlow write it."""
    save_tf_checkpoint({f"layer/{number}": torch.full((2,), float(number)) for number in range(20)}, tmp_path / "a")
    index = tmp_path / "a.index"
    entries = dict(Table(index).items())
    compressed = bytearray()

    def put(block: bytes) -> bytes:
        handle = varint(len(compressed)) + varint(len(block))
        compressed.extend(block + b"\x01" + masked(crc32c(block + b"\x01")).to_bytes(4, "little"))
        return handle

    whole = index.read_bytes()
    # The first block of what was written: all up to the empty one, less its trailer.
    first = read_varint(whole, len(whole) - FOOTER)[0] - 5
    handle = put(pa.compress(whole[:first], codec="snappy", asbytes=True))
    nothing = put(pa.compress((0).to_bytes(4, "little") + (1).to_bytes(4, "little"), codec="snappy", asbytes=True))
    block = varint(0) + varint(1) + varint(len(handle)) + b"m" + handle + bytes(4) + (1).to_bytes(4, "little")
    handles = nothing + put(pa.compress(block, codec="snappy", asbytes=True))
    index.write_bytes(bytes(compressed) + handles.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC)
    assert dict(Table(index).items()) == entries
    assert TFCheckpoint(tmp_path / "a")["layer/7"].tolist() == [7.0, 7.0]


class TestSlices:
    def test_they_must_cover(self) -> None:
        whole, left, right = Slice((0, 0), (-1, -1)), Slice((0, 0), (-1, 2)), Slice((0, 2), (3, 2))
        check_cover((3, 4), [whole])
        check_cover((3, 4), [right, left])
        for wrong, words in (
            ([left], "not all of"),
            ([whole, left], "overlap"),
            ([Slice((0,), (-1,))], "rank 1"),
            ([Slice((2, 0), (2, -1))], "outside"),
            ([Slice((0, 0), (-2, -1))], "outside"),
        ):
            with pytest.raises(Damaged, match=words):
                check_cover((3, 4), wrong)

    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2))
    def test_keys_sort_as_they_count(self, numbers: list[int]) -> None:
        first, second = (Slice((number,), (1,)).key("name") for number in numbers)
        assert (first < second) == (numbers[0] < numbers[1])
