"""The golden files: what a case is, and how cases lie on disk. Needs numpy only.

Two files per unroll: `<unroll>.jsonl` has a case a line (its description and the shapes of its arrays), `<unroll>.npz`
has three vectors: `given` (int8), `float32` and `float64` (what TensorFlow answered). A case's arrays are the next
stretch of these vectors, in the order of `layout`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Arrays = dict[str, NDArray[Any]]

# Everything drawn is a small whole number times one of these, hence exact in float32 and float64 and one byte on disk.
_UNITS = {"weights": 1 / 256, "inputs": 1 / 128, "initial_state": 1 / 128, "cotangent": 1 / 128}


@dataclass(frozen=True)
class Case:
    """One call to record.

    A cell is `{"class": name, **arguments}`, where arguments may be cells and lists of cells; `{"repeat": cell,
    "times": n}` is n times the same object. An unroll of two directions has a pair of cells, or a pair of lists.
    `inputs` is a leaf, a list (a tuple of leaves) or a dict of leaves; a leaf is `{"shape": what follows [B, T]}`,
    with `"below": n` for whole numbers in [0, n).
    """

    name: str  # "unroll/cell/call"
    cell: Any
    inputs: Any
    batch: int
    steps: int
    dtype: str
    time_major: bool = False
    lengths: Sequence[int] | None = None
    initial_state: bool = False
    scope: str | None = None
    loop_fn: str | None = None
    # The weights are left as the cell's own initialisers made them, and recorded.
    initialised: bool = False

    @property
    def unroll(self) -> str:
        return _kind(self.name)

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}


@dataclass(frozen=True)
class Golden:
    """A case, what it was given, and what TensorFlow answered, by keys such as `weights/rnn/lstm_cell/kernel`."""

    case: Case
    given: Arrays
    expected: Arrays

    def shapes(self) -> dict[str, Shape]:
        """The shapes from which `layout` derives all others."""
        return {key: array.shape for key, array in (self.given | self.expected).items() if _kind(key) in _LISTED}


_LISTED = ("ids", "inputs", "weights", "initial_state", "outputs", "state")
_ANSWERS = ("outputs", "state")


def layout(case: Case, shapes: Mapping[str, Shape]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The keys and shapes of what is given and what is expected, in the order of the file."""
    answers = {key: shape for key, shape in shapes.items() if _kind(key) in _ANSWERS}
    given = {key: shape for key, shape in shapes.items() if key not in answers}
    gradients = {f"gradient/{key}": shape for key, shape in given.items() if _kind(key) != "ids"}
    own_weights = {key: shape for key, shape in given.items() if case.initialised and _kind(key) == "weights"}
    drawn = {key: shape for key, shape in given.items() if key not in own_weights}
    cotangents = {f"cotangent/{key}": shape for key, shape in answers.items()}
    return drawn | cotangents, own_weights | answers | gradients


def in_units(key: str, drawn: NDArray[np.int8], dtype: str) -> NDArray[Any]:
    """The values that the whole numbers drawn for `key` stand for."""
    kind = _kind(key)
    return drawn.astype(np.int32) if kind == "ids" else np.asarray(drawn.astype(np.float64) * _UNITS[kind], dtype)


def write_goldens(folder: Path, goldens: Iterable[Golden]) -> list[Path]:
    """Write the goldens to `folder`, a pair of files per unroll, and return the paths."""
    groups: dict[str, list[Golden]] = {}
    for golden in goldens:
        groups.setdefault(golden.case.unroll, []).append(golden)
    return [path for unroll, members in groups.items() for path in _write_group(folder, unroll, members)]


def read_goldens(folder: Path) -> list[Golden]:
    """Every golden in `folder`, unroll after unroll."""
    return [golden for path in sorted(folder.glob("*.jsonl")) for golden in _read_group(path)]


def _write_group(folder: Path, unroll: str, goldens: Sequence[Golden]) -> tuple[Path, Path]:
    described, stored = folder / f"{unroll}.jsonl", folder / f"{unroll}.npz"
    lines = [golden.case.to_json() | {"shapes": golden.shapes()} for golden in goldens]
    described.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
    vectors: dict[str, list[NDArray[Any]]] = {"given": [], "float32": [], "float64": []}
    for golden in goldens:
        given, expected = layout(golden.case, golden.shapes())
        vectors["given"] += [golden.given[key].ravel() for key in given]
        vectors[golden.case.dtype] += [golden.expected[key].ravel() for key in expected]
    np.savez_compressed(
        stored,
        given=_joined(vectors["given"], "int8"),
        float32=_joined(vectors["float32"], "float32"),
        float64=_joined(vectors["float64"], "float64"),
    )
    return described, stored


def _read_group(path: Path) -> Iterator[Golden]:
    with np.load(path.with_suffix(".npz")) as stored:
        cursors = {name: _Cursor(stored[name]) for name in stored.files}
    for line in path.read_text(encoding="utf-8").splitlines():
        description = json.loads(line)
        shapes = {key: tuple(shape) for key, shape in description.pop("shapes").items()}
        case = Case(**description)
        given, expected = layout(case, shapes)
        yield Golden(case, cursors["given"].take(given), cursors[case.dtype].take(expected))
    unread = [name for name, cursor in cursors.items() if cursor.left]
    if unread:
        raise ValueError(f"{path.stem}.npz holds more {unread} than {path.name} describes; record again.")


class _Cursor:
    """Hands out a vector's next stretches."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._values) - self._at

    def take(self, shapes: Mapping[str, Shape]) -> Arrays:
        return {key: self._next(shape) for key, shape in shapes.items()}

    def _next(self, shape: Shape) -> NDArray[Any]:
        start, self._at = self._at, self._at + prod(shape)
        return self._values[start : self._at].reshape(shape)


def _kind(key: str) -> str:
    return key.split("/", maxsplit=1)[0]


def _joined(parts: Sequence[NDArray[Any]], dtype: str) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)
