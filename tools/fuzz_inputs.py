"""Inputs for `fuzz_readers.py`: whole files, damaged byte by byte or in their structure, each from its own generator.

A mutation of bytes alone ends at the first checksum. So tables, archives and protocol buffers are taken apart, changed,
and put together again with checksums and lengths that are right.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._partitioned_variables import Slice
from throughtime.interop.checkpoints._protobuf import field, fixed, varint
from throughtime.interop.checkpoints._sstable_reader import FOOTER, MAGIC


class Draw(random.Random):
    """A generator of one input; some inputs are hardly damaged, so that readers are tried beyond their first check."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.level = self.choice((0.0, 0.2, 0.2, 1.0))

    def odd(self, share: float) -> bool:
        """Whether to do something wrong, which is done in this share of the most damaged inputs."""
        return self.random() < share * self.level


NUMBERS = [0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 1000, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32]
NUMBERS += [2**40, 10**12, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
CELLS = [
    "",
    " ",
    "1",
    "-2.5",
    "1e9",
    "1e308",
    "1e999",
    "nan",
    "NaN",
    "inf",
    "?",
    "NA",
    "a",
    "b",
    "ä",
    "😀",
    "0x10",
    "1_000",
]
CELLS += ["2024-01-01", "2024-13-01", "2024-01", "9999-12-31T23:59:59", "0001-01-01", "2024-01-01T00:00:00+14:00"]
CELLS += ['"', '""', '"x"', '"a,b"', '"a\nb"', "\0", "1,5", "$5", "5 %", "a b c", "train", "test", "x" * 300, "9" * 400]
NAMES = [
    "id",
    "step",
    "time",
    "date",
    "x",
    "y",
    "label",
    "split",
    "text",
    "source",
    "target",
    "t",
    "value",
    "1",
    "",
    "é",
]
NODES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\0",
    [],
    {},
    [[]],
    {"": 0},
]


def damaged(data: bytes, draw: Draw) -> bytes:
    """A few mutations of bytes: flipped, replaced, left out, repeated, moved, cut off."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            return draw.randbytes(draw.randrange(64))
        at, length = draw.randrange(len(changed)), draw.choice((1, 2, 4, 8, 16, 64))
        kind = draw.randrange(8)
        if kind == 0:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            changed[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length] * draw.choice((1, 2, 50))
        elif kind == 4:
            size = draw.choice((2, 4, 8))
            changed[at : at + size] = (draw.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
        elif kind == 5:
            changed[at:at] = draw.randbytes(length)
        elif kind == 6:
            del changed[at:]
        else:
            other = draw.randrange(len(changed))
            changed[at : at + length] = changed[other : other + length]
    return bytes(changed)


def maybe(data: bytes, draw: Draw, share: float = 0.3) -> bytes:
    """Damaged bytes, or the same."""
    return damaged(data, draw) if draw.odd(share) else data


# TensorFlow's checkpoints


def message(draw: Draw, depth: int = 2) -> bytes:
    """Some protocol buffer."""
    found = b""
    for _ in range(draw.randrange(4)):
        number = draw.choice((1, 2, 3, 4, 5, 6, 7, 8, 13))
        inner = message(draw, depth - 1) if depth and draw.random() < 0.6 else draw.randbytes(draw.randrange(6))
        found += field(number, draw.choice((draw.choice(NUMBERS), inner)))
    return found


def shape(draw: Draw) -> bytes:
    """The message of a shape, of any rank."""
    sides = [draw.choice((0, 1, 2, 3, 4, draw.choice(NUMBERS))) for _ in range(draw.choice((0, 1, 1, 2, 3, 300)))]
    return b"".join(field(2, field(1, side)) for side in sides)


def extent(start: int, length: int) -> bytes:
    """The message of a slice along one axis."""
    return field(1, field(1, start) + (field(2, length) if length >= 0 else b""))


def entry(draw: Draw, size: int, slices: Sequence[Slice] = ()) -> bytes:
    """What an index says of a variable of `size` float32 numbers: mostly the truth."""
    said = shape(draw) if draw.odd(0.2) else field(2, field(1, size))
    kind = draw.choice((2, 3, 7, 9, 99)) if draw.odd(0.3) else 1
    found = field(1, kind) + field(2, said) + field(3, int(draw.odd(0.1)))
    found += field(4, draw.choice((4, *NUMBERS)) if draw.odd(0.2) else 0) + field(5, 4 * size)
    # The file of the numbers holds zeros.
    found += fixed(6, draw.getrandbits(32) if draw.odd(0.2) else masked(crc32c(bytes(4 * size))))
    for each in slices:
        pairs = zip(each.starts, each.lengths, strict=True)
        found += field(7, b"".join(extent(start, length) for start, length in pairs))
    return maybe(found, draw, 0.1) + (message(draw) if draw.odd(0.2) else b"")


def block(entries: Sequence[tuple[bytes, bytes]], draw: Draw) -> bytes:
    """Keys and values; what keys are said to share is now and then untrue."""
    found, before = bytearray(), b""
    for key, value in entries:
        shared = len(os.path.commonprefix([before, key]))  # noqa: RUF071 - of bytes
        if draw.odd(0.05):
            shared = draw.randrange(shared + 1)
        sizes = [shared, len(key) - shared, len(value)]
        if draw.odd(0.02):
            sizes[draw.randrange(3)] = draw.choice(NUMBERS)
        found += b"".join(map(varint, sizes)) + key[shared:] + value
        before = key
    return bytes(found) + struct.pack("<II", 0, 1)


def compressed(data: bytes, draw: Draw) -> bytes:
    """Snappy, with pieces as they are and copies, not all of them right."""
    found, at = bytearray(varint(len(data))), 0
    while at < len(data):
        length = min(draw.choice((1, 5, 60)), len(data) - at)
        if at and draw.random() < 0.4:
            offset = draw.choice((1, at, draw.randrange(1, at + 1)))
            piece = (data[at - offset : at] * length)[:length]
            if piece == data[at : at + length] or draw.odd(0.05):
                found += bytes([(length - 1) << 2 | 3]) + offset.to_bytes(4, "little")
                at += length
                continue
        found += bytes([(length - 1) << 2]) + data[at : at + length]
        at += length
    return maybe(bytes(found), draw, 0.2)


def table(blocks: Sequence[tuple[bytes, bytes]], draw: Draw) -> bytes:
    """A table of blocks by their last keys, with checksums that are right."""
    found, index = bytearray(), []

    def put(content: bytes) -> bytes:
        kind = draw.choice((0, 0, 0, 1))
        stored = maybe(compressed(content, draw) if kind else content, draw, 0.15) + bytes([kind])
        handle = varint(len(found)) + varint(len(stored) - 1)
        found.extend(stored + masked(crc32c(stored)).to_bytes(4, "little"))
        return handle

    for last, content in blocks:
        index.append((last, put(content)))
    if index and draw.odd(0.05):
        index *= draw.choice((2, 200))
    handles = put(block([], draw)) + put(block(index, draw))
    return maybe(bytes(found) + handles.ljust(FOOTER - len(MAGIC), b"\0")[: FOOTER - len(MAGIC)] + MAGIC, draw, 0.1)


def index_file(draw: Draw) -> bytes:
    """The index of a checkpoint of version 2."""
    header = (
        field(1, draw.choice((0, 2, 10**6)) if draw.odd(0.2) else 1)
        + field(2, int(draw.odd(0.1)))
        + field(3, field(1, 1))
    )
    entries = {b"": maybe(header, draw, 0.1)}
    for number in range(draw.randrange(1, 6)):
        odd = draw.choice(("", "\x7f", "_CHECKPOINTABLE_OBJECT_GRAPH"))
        name = odd if draw.odd(0.1) else f"rnn/layer_{number}/kernel"
        cuts = [Slice((2 * part,), (2,)) for part in range(draw.choice((0, 0, 0, 1, 3)))]
        entries[name.encode()] = entry(draw, 2 * len(cuts) or 4, cuts)
        entries |= {each.key(name): entry(draw, 2) for each in cuts}
    if draw.odd(0.05):
        entries |= {b"k" * 2000 + bytes([number >> 8, number & 255]): b"" for number in range(draw.choice((10, 300)))}
    ordered = sorted(entries.items())
    return table([(ordered[-1][0] + b"\xff", block(ordered, draw))], draw)


def version1_file(draw: Draw) -> bytes:
    """The table of a checkpoint of version 1."""
    described, values = b"", {}
    for number in range(draw.randrange(1, 5)):
        name, count = f"v{number}", draw.choice((1, 1, 2, 3))
        cuts = [Slice((2 * part,), (2,)) for part in range(count)] if count > 1 else [Slice((0,), (-1,))]
        said = field(2, field(1, 2 * count)) if not draw.odd(0.2) else shape(draw)
        variable = (
            field(1, name.encode()) + field(2, said) + field(3, draw.choice((3, 7, 9, 10, 14)) if draw.odd(0.5) else 1)
        )
        for each in () if draw.odd(0.1) else cuts:
            variable += field(4, extent(each.starts[0], each.lengths[0]))
            numbers = maybe(np.arange(2, dtype=np.float32).tobytes(), draw, 0.1)
            held = field(1, 1) + field(draw.choice((4, 7, 8, 10, 13)) if draw.odd(0.4) else 5, numbers)
            values[each.key(name)] = field(2, field(1, name.encode()) + field(3, held))
        described += field(1, maybe(variable, draw, 0.1))
    entries = [(b"", field(1, maybe(described, draw, 0.1))), *sorted(values.items())]
    return table([(b"\xff", block(entries, draw))], draw)


def state_file(draw: Draw) -> bytes:
    """The file that names the latest checkpoint."""
    lines = [
        b'model_checkpoint_path: "model.ckpt"\n',
        b'all_model_checkpoint_paths: "model.ckpt"\n',
        b"\n",
        b" ",
        b"\\",
    ]
    return maybe(b"".join(draw.choices(lines, k=draw.choice((1, 3, 200)))), draw)


# Tables


def csv_file(draw: Draw) -> bytes:
    """Rows of odd cells under odd names."""
    comma, end = draw.choice(",,,;\t|"), draw.choice(("\n", "\n", "\r\n", "\r"))
    width = draw.choice((1, 2, 3, 3, 4, 6, 60))
    names = (
        draw.sample(NAMES, min(width, len(NAMES))) if draw.random() < 0.7 else [f"c{place}" for place in range(width)]
    )
    pools = [draw.sample(CELLS, draw.choice((1, 2, 5))) for _ in names]
    if not draw.odd(0.7):
        pools = [[str(draw.randrange(4)), str(draw.random())] if draw.random() < 0.6 else pool for pool in pools]
    rows = [[draw.choice(pool) for pool in pools] for _ in range(draw.choice((0, 1, 4, 12, 40)))]
    if rows and draw.odd(0.1):
        rows[-1] = rows[-1][:-1]
    text = end.join(comma.join(row) for row in [names, *rows]) + draw.choice(("", end))
    return maybe(draw.choice((b"", b"", b"\xef\xbb\xbf")) + text.encode("utf-8"), draw)


def packed_file(compress: Callable[[bytes], bytes]) -> Maker:
    """A compressed table; sometimes the container is damaged, too."""
    return lambda draw: maybe(compress(csv_file(draw)), draw)


def text_file(draw: Draw) -> bytes:
    """Plain text, or bytes that are none."""
    words = "".join(draw.choices(["a", "b ", "\n", "é", "😀", "\0", "1", "\r", "."], k=draw.choice((0, 1, 30, 2000))))
    return maybe(words.encode(), draw)


def array_file(draw: Draw, sides: tuple[int, ...]) -> bytes:
    """An array as numpy stores it; its header may claim anything."""
    dtype = draw.choice(("<f4", "<f8", "<i8", "|i1", "<U3", "|S2", "<M8[D]", "|b1", "<f2", ">i4"))
    if draw.odd(0.2):
        dtype = draw.choice(("|O", "<c8", "<U0", "|V4", "<m8[s]"))
    claimed, stored = sides, np.zeros(sides, dtype if dtype not in ("|O", "<U0", "|V4") else "<f4").tobytes()
    if draw.odd(0.3):
        claimed = tuple(draw.choice((side, draw.choice(NUMBERS), -1)) for side in sides) + draw.choice(
            ((), (5,), (10**7,))
        )
    header = f"{{'descr': {dtype!r}, 'fortran_order': {draw.odd(0.1)}, 'shape': {claimed!r}, }}\n"
    head = maybe(header.encode(), draw, 0.05)
    magic = draw.choice((b"\x02\x00", b"\x03\x00", b"\x09\x00")) if draw.odd(0.2) else b"\x01\x00"
    size = struct.pack("<H" if magic[0] == 1 else "<I", len(head))
    return maybe(b"\x93NUMPY" + magic + size + head + stored, draw, 0.05)


def npz_file(draw: Draw) -> bytes:
    """Arrays in an archive: checksums are right, shapes may be wrong."""
    lengths = [draw.randrange(5) for _ in range(draw.choice((0, 1, 3, 6)))]
    total, longest = sum(lengths), max(lengths, default=0)
    sides = {
        "x": (total, 2),
        "p": (len(lengths), longest, 3),
        "label": (len(lengths),),
        "y": (total,),
        "q": (len(lengths), longest),
    }
    arrays = {name: array_file(draw, sides[name]) for name in draw.sample(sorted(sides), draw.choice((1, 2, 3)))}
    if draw.random() < 0.8:
        numbers = [draw.choice(NUMBERS) % 2**63 for _ in lengths] if draw.odd(0.1) else lengths
        stored = io.BytesIO()
        np.save(stored, np.array(numbers, np.int64))
        arrays["lengths"] = stored.getvalue()
    archive = io.BytesIO()
    kind = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(archive, "w", kind) as file:
        for name, content in arrays.items():
            file.writestr(f"{name}.npy", content)
    return maybe(archive.getvalue(), draw)


@cache
def parquet_seeds() -> list[bytes]:
    """Parquet files of all kinds of columns."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    rows = 12
    columns = {
        "id": pa.array([place // 4 for place in range(rows)]),
        "x": pa.array(np.arange(rows, dtype=np.float32)),
        "kind": pa.array([["a", "b", None][place % 3] for place in range(rows)]),
        "when": pa.array([place * 86_400_000_000 for place in range(rows)], pa.timestamp("us")),
        "day": pa.array(range(rows), pa.date32()),
        "far": pa.array([10**14 + place for place in range(rows)], pa.timestamp("s")),
        "flag": pa.array([place % 2 == 0 for place in range(rows)]),
        "price": pa.array([None, *range(rows - 1)], pa.decimal128(10, 2)),
        "raw": pa.array([bytes([place]) for place in range(rows)]),
        "list": pa.array([[place] for place in range(rows)]),
        "span": pa.array(range(rows), pa.duration("s")),
        "clock": pa.array(range(rows), pa.time64("us")),
        "none": pa.nulls(rows),
        "half": pa.array(np.arange(rows, dtype=np.float16)),
    }
    plain = ["id", "x", "kind"]
    kinds: list[tuple[list[str], dict[str, Any]]] = [
        (plain, {"compression": kind}) for kind in ("none", "snappy", "zstd", "gzip")
    ]
    kinds += [(plain, {"use_dictionary": False}), (plain, {"version": "1.0"}), (plain, {"row_group_size": 5})]
    kinds += [(["id", "x", name], {}) for name in list(columns)[3:]]
    seeds = []
    for names, options in kinds:
        stored = io.BytesIO()
        parquet.write_table(pa.table({name: columns[name] for name in names}), stored, **options)
        seeds.append(stored.getvalue())
    return seeds


def parquet_file(draw: Draw) -> bytes:
    """A Parquet file, damaged, most of all in its footer."""
    seed = draw.choice(parquet_seeds())
    if not draw.odd(3.0):
        return seed
    footer = 8 + int.from_bytes(seed[-8:-4], "little")
    if draw.random() < 0.6:
        return seed[:-footer] + damaged(seed[-footer:-8], draw) + seed[-8:]
    return damaged(seed, draw)


# JSON and safetensors


def changed_node(value: Any, draw: Draw) -> Any:
    """JSON with one value replaced, left out, or put where another was."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        name = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return {key: part for key, part in value.items() if key != name}
        return {**value, name: changed_node(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        place = draw.randrange(len(value))
        return [*value[:place], changed_node(value[place], draw), *value[place + 1 :]]
    return draw.choice(NODES)


def json_file(value: Any, draw: Draw) -> bytes:
    """A JSON file, changed in its structure or in its bytes."""
    if draw.odd(0.01):
        return b"[" * 100_000
    for _ in range(draw.choice((1, 1, 2)) if draw.odd(3.0) else 0):
        value = changed_node(value, draw)
    return maybe(json.dumps(value).encode(), draw, 0.2)


def safetensors_file(draw: Draw) -> bytes:
    """Tensors behind a JSON header, whose length is right or wrong."""
    kinds, names = (
        ("F32", "F32", "F64", "I64", "BF16", "F8_E4M3", "F4", "C64", "BOOL", "X"),
        ("kernel", "bias", "other"),
    )
    header: dict[str, Any] = {}
    at = 0
    for name in draw.sample(names, draw.randrange(4)):
        sides = [
            draw.choice((0, 1, 2, 3, draw.choice(NUMBERS) if draw.odd(0.2) else 4)) for _ in range(draw.randrange(4))
        ]
        size = min(4 * int(np.prod([float(side) for side in sides])), 4000)
        header[name] = {"dtype": draw.choice(kinds), "shape": sides, "data_offsets": [at, at + size]}
        at += size
    head = json_file(header, draw)
    length = draw.choice(NUMBERS) if draw.odd(0.1) else len(head)
    return maybe(length.to_bytes(8, "little") + head + bytes(at), draw, 0.1)


def history_file(draw: Draw) -> bytes:
    """Records of steps and epochs, a line each."""
    step = {"number": 1, "epoch": 1, "metrics": {"loss": 1.0}, "gradient_norm": 1.0, "learning_rate": 0.1, "rows": 2}
    step |= {"steps": 3, "padded_steps": 4, "seconds": 0.1, "memory": 5, "kind": "step"}
    epoch = {
        "number": 1,
        "step": 1,
        "train": {"loss": 1.0},
        "valid": {},
        "learning_rate": 0.1,
        "seconds": 1.0,
        "best": True,
    }
    lines = [step, epoch | {"kind": "epoch"}, {"kind": "end", "stopped_early": False}]
    chosen = draw.choices(lines, k=draw.randrange(5))
    return b"\n".join(json_file(line, draw) if draw.random() < 0.4 else json.dumps(line).encode() for line in chosen)


Maker = Callable[[Draw], bytes]
