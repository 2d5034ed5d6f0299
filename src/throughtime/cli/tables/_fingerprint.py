"""What identifies data: how much there is, and a hash of all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from throughtime._text import plural
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._readers import FolderTable, open_table

# Enough that two files never agree by chance.
DIGEST_BYTES = 16


class Fingerprint(NamedTuple):
    """Of a file, or of all files of a folder that are read, with their names."""

    files: int
    bytes: int
    blake2b: str

    def difference(self, other: Fingerprint) -> tuple[str, str]:
        """What to say of this one and of another, so that one sees how they differ."""
        if self.files != other.files:
            return plural(self.files, "file"), f"{other.files:,}"
        if self.bytes != other.bytes:
            return plural(self.bytes, "byte"), f"{other.bytes:,}"
        return f"other content in the same {plural(self.bytes, 'byte')}", "the content that it had"


def fingerprint(path: Path) -> Fingerprint:
    """Read everything once."""
    table = open_table(path)
    files = table.files if isinstance(table, FolderTable) else [path]
    whole, size = hashlib.blake2b(digest_size=DIGEST_BYTES), 0
    for file in files:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES))
        size += file.stat().st_size
        # A folder's labels and sequences are the names of what is in it; a single file may be renamed.
        whole.update(bytes(file.relative_to(path)) + b"\0")
        whole.update(content.digest())
    return Fingerprint(len(files), size, whole.hexdigest())


def check_unchanged(path: Path, before: Fingerprint | None) -> None:
    """The data of a run are what they were when it began; a run of an earlier version does not know."""
    if before is None:
        return
    now = fingerprint(path)
    if now == before:
        return
    got, expected = now.difference(before)
    fix = "Bring it back as it was, or start a new run without `--resume`."
    refuse(f"{path.name} has changed since the run began", got=got, expected=expected, fix=fix)
