"""ZIP archives with a bounded list of members: `zipfile` makes an object of each member before anything else."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from throughtime._file_limits import ARCHIVE_LIST_BYTES


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive to read; a list of its members beyond the limit is a `ValueError`."""
    with _ListBounded(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
        file.most = sys.maxsize
        yield archive


class _ListBounded(io.BufferedReader):
    """The bytes of an archive: while its list of members is read, no more at once than such a list may have."""

    most = ARCHIVE_LIST_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        if size is not None and size > self.most:
            raise ValueError(f"a list of members of {size:,} bytes, which has at most {self.most:,}")
        return super().read(size)
