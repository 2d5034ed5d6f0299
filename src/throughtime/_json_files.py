"""JSON from files that may be damaged, edited, or made to do harm: one kind of error, and bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from throughtime._file_limits import HISTORY_LINE_BYTES, JSON_BYTES

Pairs = list[tuple[str, Any]]


def read_json(path: Path, make_object: Callable[[Pairs], Any] | None = None) -> Any:
    """What a JSON file holds; `make_object` makes the objects in it, if it is given.

    Raises:
        ValueError: It is no JSON, is nested too deep, or has more than `JSON_BYTES` bytes; the message says which.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(JSON_BYTES + 1)
    if len(content) > JSON_BYTES:
        raise ValueError(f"more than {JSON_BYTES:,} bytes of JSON")
    return parsed(content, make_object)


def read_json_lines(path: Path) -> Iterator[Any]:
    """What each line of a file holds, up to the first that is no JSON or has more than `HISTORY_LINE_BYTES` bytes."""
    with path.open("rb") as file:
        while line := file.readline(HISTORY_LINE_BYTES + 1):
            try:
                record = parsed(line)
            except ValueError:
                return
            yield record


def parsed(content: bytes, make_object: Callable[[Pairs], Any] | None = None) -> Any:
    """JSON in UTF-8; whatever else it is, is a `ValueError`."""
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=make_object)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
