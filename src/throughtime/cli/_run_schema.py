"""What `run.json` may say: the type and the range of every field, checked at the one place where it is read.

The fields are those of the classes that are written (`Shape`, `Recipe`, `Layout`, ...), with the types of their
annotations: a field that is added to one of them is checked already. A line in `BOUNDS` says more than its type.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

import throughtime as tt
from throughtime.cli._bounds import LARGEST_SEED, MOST, MOST_LAYERS
from throughtime.cli._options import Columns
from throughtime.cli.tables._fingerprint import DIGEST_BYTES, Fingerprint
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TASKS, TRANSLATE
from throughtime.cli.tables._schema import CATEGORY, CHARACTERS, NUMBER, TEXT, WORDS, Column, Layout
from throughtime.cli.tables._table import LARGEST
from throughtime.cli.tasks._defaults import Recipe
from throughtime.cli.tasks._models import Shape
from throughtime.cli.tasks._parts import PARTS

# Raises `WrongValueError` unless a value, found under a name, is right.
Check = Callable[[Any, str], None]
# Characters of a value that go into a message.
SHOWN = 60
LARGEST_INT, LARGEST_FLOAT = 2**63 - 1, sys.float_info.max
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?\b.*")
_HASH = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


class WrongValueError(Exception):
    """A field that is not what it should be; missing and unknown ones included."""

    def __init__(self, what: str, got: str, expected: str) -> None:
        super().__init__(what)
        self.what, self.got, self.expected = what, got, expected


def _wrong(name: str, value: Any, expected: str) -> NoReturn:
    raise WrongValueError(f"`{name}` is wrong", _shown(value), expected)


def _shown(value: Any) -> str:
    """A value in the words of JSON, and no more of it than a line can hold."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else ascii(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def whole(least: int, most: int) -> Check:
    """A whole number within bounds."""

    def check(value: Any, name: str) -> None:
        if type(value) is not int or not least <= value <= most:
            _wrong(name, value, f"a whole number from {least:,} to {most:,}")

    return check


def number(least: float, most: float, *, above: bool = False) -> Check:
    """A finite number within bounds; `above`: larger than the least."""

    def check(value: Any, name: str) -> None:
        finite(value, name)
        if not least <= value <= most or (above and value == least):
            _wrong(
                name,
                value,
                f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}",
            )

    return check


def finite(value: Any, name: str) -> None:
    """A finite number."""
    # Compared, not converted: an int may be too large for a float.
    if type(value) not in (int, float) or not -LARGEST_FLOAT <= value <= LARGEST_FLOAT:
        _wrong(name, value, "a finite number")


def any_number(value: Any, name: str) -> None:
    """A number that a float holds; one that could not be measured is NaN."""
    if type(value) is not float:
        finite(value, name)


def truth(value: Any, name: str) -> None:
    """True or false."""
    if type(value) is not bool:
        _wrong(name, value, "true or false")


def text(value: Any, name: str) -> None:
    """Text that is not empty and can be printed and used as a path."""
    try:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError
        value.encode("utf-8")
    except ValueError:
        # A UnicodeError is one too: JSON can spell half of a surrogate pair.
        _wrong(name, value, "text")


def matching(form: re.Pattern[str], expected: str) -> Check:
    """Text of a form."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or form.fullmatch(value) is None:
            _wrong(name, value, expected)

    return check


def one_of(*names: str) -> Check:
    """One of some words."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or value not in names:
            _wrong(name, value, f"one of {', '.join(names)}")

    return check


def nothing_or(known: Check) -> Check:
    """`null`, or what another check takes."""

    def check(value: Any, name: str) -> None:
        if value is not None:
            known(value, name)

    return check


def many(each: Check) -> Check:
    """A list of such values."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, list):
            _wrong(name, value, "a list")
        for place, part in enumerate(value):
            each(part, f"{name}[{place}]")

    return check


def different(each: Check) -> Check:
    """A list of such values, no two of them alike."""

    def check(value: Any, name: str) -> None:
        many(each)(value, name)
        if len(set(value)) < len(value):
            _wrong(name, value, "a list without repetitions")

    return check


def by_name(each: Check) -> Check:
    """An object of any keys."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            _wrong(name, value, "an object")
        for key, part in value.items():
            text(key, f"a key of {name}")
            each(part, f"{name}.{key[:SHOWN]}")

    return check


def record(fields: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    """An object of these keys and no others."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            _wrong(name or "the file", value, "an object")
        before = f"{name}." if name else ""
        for key in value:
            if key not in fields:
                expected = f"only {', '.join(fields)}"
                raise WrongValueError(f"`{before}{key[:SHOWN]}` is unknown", _shown(value[key]), expected)
        for key, known in fields.items():
            if key in value:
                known(value[key], f"{before}{key}")
            elif key not in optional:
                raise WrongValueError(f"`{before}{key}` is missing", "nothing", "what `throughtime train` wrote")

    return check


# What is known of a field besides its type. An older run may lack a field that is `optional` in `fields_of`.
BOUNDS: dict[type, dict[str, Check]] = {
    Column: {
        "kind": one_of(NUMBER, CATEGORY, TEXT),
        "mean": number(-LARGEST, LARGEST),
        "deviation": number(0, LARGEST, above=True),
        "categories": different(text),
        "tokens": one_of(CHARACTERS, WORDS),
    },
    Layout: {"task": one_of(*TASKS)},
    Shape: {
        "units": whole(1, MOST),
        "layers": whole(1, MOST_LAYERS),
        "dropout": number(0, 1),
        "noise": number(0, 1e6),
        "horizon": whole(1, MOST),
    },
    Recipe: {
        "epochs": whole(1, MOST),
        "batch_size": whole(1, MOST),
        "learning_rate": number(0, 10, above=True),
        "weight_decay": number(0, 1e6),
        "clip_norm": number(0, 1e30, above=True),
        "truncate": nothing_or(whole(1, MOST)),
        "patience": nothing_or(whole(1, MOST)),
    },
    Columns: {"task": nothing_or(one_of(*TASKS))},
    Fingerprint: {
        "files": whole(1, LARGEST_INT),
        "bytes": whole(0, LARGEST_INT),
        "blake2b": matching(_HASH, f"a hash of {2 * DIGEST_BYTES} hexadecimal digits"),
    },
}
# By annotation.
TYPES: dict[Any, Check] = {
    str: text,
    bool: truth,
    int: whole(-LARGEST_INT, LARGEST_INT),
    float: finite,
}


def fields_of(kind: type, optional: Collection[str] = ()) -> Check:
    """An object with the fields of a named tuple or a dataclass."""
    bounds = BOUNDS.get(kind, {})
    hints = typing.get_type_hints(kind)
    return record({name: bounds.get(name) or _of_type(hint) for name, hint in hints.items()}, optional)


def _of_type(hint: Any) -> Check:
    """The check of an annotation."""
    if hint in TYPES:
        return TYPES[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and parts[1:] == (...,):
        return many(_of_type(parts[0]))
    if origin in (types.UnionType, typing.Union) and type(None) in parts and len(parts) == 2:
        return nothing_or(_of_type(next(part for part in parts if part is not type(None))))
    return fields_of(hint)


_MEASURED = by_name(any_number)
_COUNT = whole(0, LARGEST_INT)
_PART = record({"sequences": _COUNT, "steps": _COUNT, "chosen": text})
_OUTCOME = record(
    {
        "part": one_of(*PARTS),
        "sequences": _COUNT,
        "steps": _COUNT,
        "metric": text,
        "value": any_number,
        "baseline": record({"name": text, "value": any_number}),
        "better_than_baseline": truth,
        "headline": text,
        "only_class": nothing_or(text),
        "caveat": nothing_or(text),
    },
    # Runs of earlier versions do not have them.
    optional=("only_class", "caveat"),
)
# Runs of earlier versions have `train` and `held_out`.
_METRICS = record(
    {"epoch": whole(1, MOST), **dict.fromkeys((*PARTS, "train", "held_out"), _MEASURED)},
    optional=("epoch", *PARTS, "train", "held_out"),
)

RUN = record(
    {
        "throughtime": matching(_VERSION, "a version such as 0.1.0"),
        "file": text,
        "data": nothing_or(fields_of(Fingerprint)),
        "said": fields_of(Columns),
        "seed": whole(0, LARGEST_SEED),
        "layout": fields_of(Layout),
        "shape": fields_of(Shape),
        "recipe": fields_of(Recipe, optional=("patience",)),
        "parts": record(dict.fromkeys(PARTS, _PART)),
        "missing": by_name(whole(1, LARGEST_INT)),
        # Those of a run that has ended.
        "metrics": _METRICS,
        "outcome": _OUTCOME,
    },
    optional=("data", "parts", "missing", "metrics", "outcome"),
)

# The kinds of columns that a model of each task takes: inputs, and targets.
ROLES: dict[str, tuple[set[str], set[str]]] = {
    CLASSIFY: ({NUMBER, CATEGORY, TEXT}, {CATEGORY}),
    TAG: ({NUMBER, CATEGORY}, {CATEGORY}),
    FORECAST: ({NUMBER, CATEGORY}, {NUMBER}),
    GENERATE: ({TEXT}, set()),
    TRANSLATE: ({TEXT}, {TEXT}),
}


def check_run(values: Any) -> None:
    """Raise a `WrongValueError` unless `values` are what a run writes, field by field and then as a whole."""
    _check_version(values)
    RUN(values, "")
    _check_roles(values["layout"])
    _check_truncate(values["layout"]["task"], values["recipe"]["truncate"])


def _check_version(values: Any) -> None:
    """A newer version may mean something else by the same words."""
    said = values.get("throughtime") if isinstance(values, dict) else None
    written, ours = (
        _VERSION.fullmatch(version) if isinstance(version, str) else None for version in (said, tt.__version__)
    )
    if written and ours and _numbers(written) > _numbers(ours):
        raise WrongValueError("it was written by a newer version", str(said)[:SHOWN], f"at most {tt.__version__}")


def _numbers(version: re.Match[str]) -> list[int]:
    return [int(part or 0) for part in version.groups()]


def _check_roles(layout: dict[str, Any]) -> None:
    """The columns are those of a model of the task."""
    task, inputs, targets = layout["task"], layout["inputs"], layout["targets"]
    kinds = ROLES[task]
    for role, columns, known in zip(("inputs", "targets"), (inputs, targets), kinds, strict=True):
        if bool(columns) != bool(known):
            _wrong(f"layout.{role}", columns, "one column or more" if known else f"none, for a task to {task}")
        for place, column in enumerate(columns):
            if column["kind"] not in known:
                expected = f"{' or '.join(sorted(known))}, for a task to {task}"
                _wrong(f"layout.{role}[{place}].kind", column["kind"], expected)
        names = [column["name"] for column in columns]
        if len({*names}) < len(names):
            _wrong(f"layout.{role}", columns, "columns of different names")
    if len(inputs) > 1 and any(column["kind"] == TEXT for column in inputs):
        _wrong("layout.inputs", inputs, "one column, where it is a text")
    if task != FORECAST and len(targets) > 1:
        _wrong("layout.targets", targets, f"one column, for a task to {task}")
    _check_targets(task, inputs, targets)


def _check_truncate(task: str, truncate: int | None) -> None:
    """A language model carries its state from window to window; the other tasks have whole sequences."""
    if (task == GENERATE) != (truncate is not None):
        _wrong(
            "recipe.truncate", truncate, f"{'a number of steps' if task == GENERATE else 'null'}, for a task to {task}"
        )


def _check_targets(task: str, inputs: list[dict[str, Any]], targets: list[dict[str, Any]]) -> None:
    """A forecast goes on with numbers that are read; a class is one of some."""
    read = {column["name"] for column in inputs if column["kind"] == NUMBER}
    for place, column in enumerate(targets):
        if task == FORECAST and column["name"] not in read:
            _wrong(f"layout.targets[{place}].name", column["name"], "the name of an input that is a number")
        if task in (CLASSIFY, TAG) and not column["categories"]:
            _wrong(f"layout.targets[{place}].categories", column["categories"], "one class or more")
