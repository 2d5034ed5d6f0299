"""The limits of every reader, in one place: what a file may make us allocate, whatever it says of itself.

A file may be small and claim, or expand to, any size. Each reader therefore checks counts and sizes before it
allocates, against the size of the file and against these numbers, and names the limit in its error. They are far above
real data; `docs/command.md` and `docs/tensorflow.md` list them.
"""

from typing import Final

MIB: Final = 2**20

# TensorFlow's checkpoints: entries of an index (variables and slices), bytes of all their keys once expanded, bytes of
# one key, bytes of a block once expanded (protocol buffers take no more), axes of a variable (TensorFlow's own limit),
# corners of the slices of a variable (each has two for one axis that is cut, four for two), and bytes of the file
# `checkpoint`.
INDEX_ENTRIES: Final = 200_000
INDEX_KEY_BYTES: Final = 64 * MIB
KEY_BYTES: Final = 65_536
BLOCK_BYTES: Final = 2**31 - 1
AXES: Final = 254
SLICE_CORNERS: Final = 2**20
STATE_BYTES: Final = 16 * MIB

# Tables: columns, characters of a column's name, bytes of a row of CSV, bytes of one text file, which is read whole.
COLUMNS: Final = 50_000
NAME_CHARACTERS: Final = 1_000
ROW_BYTES: Final = 8 * MIB
TEXT_BYTES: Final = 128 * MIB
# Files and folders in a folder of sequences, those that are none included.
FOLDER_ENTRIES: Final = 1_000_000
# Of files that may be compressed: cells and bytes for each byte of the file, and what a small file may have anyway.
CELLS_PER_BYTE: Final = 16
CELLS: Final = 8 * MIB
BYTES_PER_BYTE: Final = 200
EXPANDED_BYTES: Final = 64 * MIB
# Bytes that the decompressor of an .xz file may take: its strongest setting takes 65 MiB.
XZ_MEMORY_BYTES: Final = 128 * MIB
# Of an NPZ file: bytes of the list of its arrays.
ARCHIVE_LIST_BYTES: Final = 4 * MIB

# Bytes of a JSON file, and of a line of a history.
JSON_BYTES: Final = 64 * MIB
HISTORY_LINE_BYTES: Final = 1 * MIB


def most_cells(file_size: int) -> int:
    """How many cells a table may have whose file, perhaps compressed, has `file_size` bytes."""
    return max(CELLS, CELLS_PER_BYTE * file_size)


def most_bytes(file_size: int) -> int:
    """How many bytes a file of `file_size` bytes may expand to."""
    return max(EXPANDED_BYTES, BYTES_PER_BYTE * file_size)
