"""Which checkpoint a path means: what its files have in common, one of them, or a folder with a latest one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from throughtime._errors import problem, type_name
from throughtime._file_limits import STATE_BYTES
from throughtime.interop.checkpoints._corruption import missing_file

STATE = "checkpoint"
_LATEST = re.compile(rb'^[ \t]*(all_)?model_checkpoint_paths?\s*:\s*"((?:[^"\\\n]|\\.)*)"', re.MULTILINE)
_ESCAPED = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
# What the names of its files add to a checkpoint's; a state has question marks for the numbers of several.
_ENDING = re.compile(r"(\.index|\.meta|\.data-\d{5}-of-\d{5}|-(\d{5}|\?{5})-of-\d{5})$")
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})")
_EXPECTED = "a checkpoint: the name its files have in common, as `model.ckpt-1000`, or a folder"


class ResolvedPath(NamedTuple):
    """A checkpoint's prefix, and the files of one of version 1; one of version 2 has an index instead."""

    prefix: Path
    tables: list[Path]


def locate(path: Any) -> ResolvedPath:
    """Find a checkpoint as TensorFlow does; it may also be named by one of its files."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        fix = "Pass the path that `Saver.save` returned."
        raise TypeError(problem("`path` names no checkpoint", got=_said(path), expected=_EXPECTED, fix=fix))
    place = Path(path)
    found = _of_prefix(place)
    if found is not None:
        return found
    if _is(place.is_dir):
        return latest(place)
    if place.name == STATE and _is(place.is_file):
        return latest(place.parent)
    raise missing_file(place, _EXPECTED, f"Check the path.{_others(place.parent)}")


def latest(folder: Path) -> ResolvedPath:
    """The checkpoint that a folder's state names last, or the one inside of a SavedModel."""
    inside = _of_prefix(folder / "variables" / "variables")
    if inside is not None:
        return inside
    names = [path for every, path in read_state(folder / STATE) if not every]
    if not names:
        why = "the file in which TensorFlow notes the latest checkpoint of a folder"
        raise missing_file(folder / STATE, why, f"Name a checkpoint in the folder.{_others(folder)}")
    # Folders move, and with them what a path inside says.
    for place in (folder / names[0], folder / Path(names[0]).name):
        found = _of_prefix(place)
        if found is not None:
            return found
    raise missing_file(folder / names[0], f"what {folder / STATE} names", f"Name another one.{_others(folder)}")


def read_state(path: Path) -> list[tuple[bool, str]]:
    """The checkpoints that a state names, each with whether it is in the list of all of them."""
    if not _is(path.is_file):
        return []
    with path.open("rb") as file:
        state = file.read(STATE_BYTES + 1)
    if len(state) > STATE_BYTES:
        got, expected = f"more than {STATE_BYTES:,} bytes", f"a list of checkpoints of at most {STATE_BYTES:,} bytes"
        raise ValueError(problem(f"{path} is too large", got=got, expected=expected, fix="Name a checkpoint itself."))
    return [(bool(every), _unescaped(name)) for every, name in _LATEST.findall(state)]


def _unescaped(name: bytes) -> str:
    """A path as it was before quotes, and bytes that are no plain text, were escaped as in C."""
    return _ESCAPED.sub(_unescape, name).decode(errors="replace")


def _unescape(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = found.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)])
    return _LETTERS.get(letter, letter)


def _of_prefix(prefix: Path) -> ResolvedPath | None:
    """The checkpoint of this prefix, if there is one; as in TensorFlow, version 2 is looked for first."""
    if not prefix.name:
        return None
    if not _is(prefix.is_dir):
        prefix = prefix.with_name(_ENDING.sub("", prefix.name))
    if _is(prefix.with_name(f"{prefix.name}.index").is_file):
        return ResolvedPath(prefix, [])
    if _is(prefix.is_file) and prefix.name != STATE:
        return ResolvedPath(prefix, [prefix])
    shards = _shards(prefix)
    return ResolvedPath(prefix, shards) if shards else None


def _shards(prefix: Path) -> list[Path]:
    """The tables of a checkpoint of version 1 that has several."""
    found = [_SHARD.fullmatch(path.name) for path in _siblings(prefix)]
    counts = {int(each[3]) for each in found if each and each[1] == prefix.name}
    if not counts:
        return []
    # Several sets of one name were written one after the other; which is the last is unknown.
    paths = [prefix.with_name(f"{prefix.name}-{number:05}-of-{max(counts):05}") for number in range(max(counts))]
    for path in paths:
        if not _is(path.is_file):
            fix = "Copy all files that begin with the name of the checkpoint."
            raise missing_file(path, f"one of {len(paths)} files of {prefix}", fix)
    return paths


def _siblings(path: Path) -> list[Path]:
    return list(path.parent.iterdir()) if _is(path.parent.is_dir) else []


def _others(folder: Path) -> str:
    """The checkpoints of a folder, to list where another was named."""
    names = sorted(path.name[: -len(".index")] for path in _siblings(folder / STATE) if path.name.endswith(".index"))
    return f" There: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}." if names else ""


def _is(question: Any) -> bool:
    """A question about a path; of one that cannot be, with a zero in it or too long, the answer is no."""
    try:
        return bool(question())
    except (ValueError, OSError):
        return False


def _said(value: Any) -> str:
    return repr(value) if isinstance(value, str | bytes | int | float | None) else type_name(value)
