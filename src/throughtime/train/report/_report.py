"""`Report`: a page in parts, each added by name, written in one go."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from throughtime import _html
from throughtime._atomic_files import whole
from throughtime._errors import problem
from throughtime.train._history import Epoch, History, Step
from throughtime.train.report._downsample import (
    POINTS,
    as_array,
    confusions,
    digits,
    histogram,
    lost,
    packed,
    rounded,
    share,
    shown_steps,
    thinned,
    usual_times,
    whole_lengths,
)
from throughtime.train.report._gradient_summary import gradient_verdict

PARTS = ("training", "validation", "test")


class Report:
    """A self-contained HTML page about a training run: no network, no other file.

    Every `add_...` is one part of the page, and parts that were never added are not there. Arrays and tensors are
    taken alike. `outcome` is the sentence below the title; **two stars** make words stand out, and `backticks` show
    them as code. `part` is the part of the data that the page's matrix, forecasts and sequences are of: "test",
    "validation" or "training". Without it the page does not say.

    >>> import tempfile, pathlib, throughtime as tt
    >>> report = tt.train.Report("Who is speaking?", "**97.8 %** of 370 utterances recognised.")
    >>> report.add_confusion([[30, 1], [0, 31]], ["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report.write(pathlib.Path(folder) / "report.html")
    ...     "http" in path.read_text().replace("http://www.w3.org/2000/svg", "")
    False
    """

    def __init__(self, title: str, outcome: str = "", *, part: str | None = None) -> None:
        if part is not None and part not in PARTS:
            fix = "Leave it out where the page is of something else."
            raise ValueError(
                problem("`part` is no part of the data", got=repr(part), expected=f"one of {PARTS}", fix=fix)
            )
        self._title, self._outcome = title, outcome
        self._data: dict[str, Any] = {"facts": [], "settings": [], "forecasts": [], "through": [], "attention": []}
        self._data["part"] = part

    def add_facts(self, facts: Mapping[str, str]) -> None:
        """A few figures below the title, in large type."""
        self._data["facts"] += [[str(name), str(value)] for name, value in facts.items()]

    def add_settings(self, settings: Mapping[str, object]) -> None:
        """What the run was asked to do, as a table at the end."""
        self._data["settings"] += [[str(name), str(value)] for name, value in settings.items()]

    def add_history(
        self, history: History, *, rates: Sequence[str] = ("accuracy",), baselines: Mapping[str, str] | None = None
    ) -> None:
        """Loss and metrics, epoch by epoch; time, memory, gradient and learning rate, step by step.

        `rates` are metrics between 0 and 1, shown in percent. `baselines` names, for a metric, another that is drawn
        in the same picture to compare with.
        """
        steps, epochs = history.steps, history.epochs
        names = list(dict.fromkeys(name for epoch in epochs for name in (*epoch.train, *epoch.valid)))
        compared = dict(baselines or {})
        shares, times = _places(steps), usual_times([step.seconds for step in steps])
        usual = [step for step, is_usual in zip(steps, times.usual, strict=True) if is_usual]
        self._data["history"] = {
            "steps": {
                "number": thinned([step.number for step in steps]),
                # A step's place among the epochs: its loss and theirs are one picture.
                "epoch": thinned(shares),
                "loss": thinned([step.metrics.get("loss", np.nan) for step in steps]),
                "gradient": thinned([step.gradient_norm for step in steps]),
                "timed": thinned([step.number for step in usual]),
                "seconds": thinned([step.seconds for step in usual]),
                "slow": {"count": times.slow, "longest": digits(times.longest), "first": times.first},
                "memory": thinned([step.memory for step in steps]),
                "learning_rate": thinned([step.learning_rate for step in steps]),
                "lost": lost([step.gradient_norm for step in steps]),
            },
            "epochs": {
                "number": [int(epoch.number) for epoch in epochs],
                "names": [name for name in names if name not in compared.values()],
                "baselines": {name: other for name, other in compared.items() if other in names},
                "rates": [name for name in names if name in rates],
                "train": _by_name([epoch.train for epoch in epochs], names),
                "valid": _by_name([epoch.valid for epoch in epochs], names),
                "lost": {name: lost(_given(epochs, name)) for name in names if lost(_given(epochs, name))},
            },
        }
        seconds = sum(step.seconds for step in steps)
        self._data["rate"] = rounded([sum(step.steps for step in steps) / seconds])[0] if seconds else None

    def add_confusion(self, matrix: Any, names: Sequence[str], *, unit: str = "sequences") -> None:
        """Counts [C, C]: row, what it is; column, what the model says. `unit` says what is counted.

        Of more classes than a screen can show, those most often confused are shown. Counts by `(row, column)` are taken
        too, as a `Counter` has them: of very many classes a table of all would not fit into memory.
        """
        shown = confusions(matrix, names)
        self._data["confusion"] = {
            "names": shown.names,
            "matrix": shown.matrix.tolist(),
            "totals": shown.totals.tolist(),
            "total": shown.total,
            "classes": shown.classes,
        }
        self._data["unit"] = str(unit)

    def add_forecast(self, name: str, columns: Mapping[str, tuple[Any, Any, Any]]) -> None:
        """One sequence: for each column the values known [T], those that came [H], and those forecast [H]."""
        found = checked_forecast(columns)
        known, came, _ = next(iter(found.values()))
        start, until, shown = max(0, len(known) - POINTS), len(known), len(came)
        self._data["forecasts"].append(
            {
                "name": str(name),
                "past": list(range(start + 1, until + 1)),
                "future": list(range(until + 1, until + shown + 1)),
                "columns": [
                    {
                        "name": str(column),
                        "past": rounded(past[start:]),
                        "truth": rounded(truth),
                        "forecast": rounded(forecast),
                        "lost": lost(forecast),
                    }
                    for column, (past, truth, forecast) in found.items()
                ],
            }
        )

    def add_through_time(
        self,
        name: str,
        layers: Mapping[str, tuple[Any, Any]],
        *,
        labels: Sequence[str] | None = None,
        reverse: Sequence[str] = (),
        every_step: bool = False,
    ) -> None:
        """One sequence from inside: for each layer its states [T, H] and gradient norms [T] (or None).

        `labels` are the steps' own names, such as letters; `reverse` names the layers that read from the end. Of a long
        sequence some steps are shown, the first and the last among them; what is said of the gradient is said of all.
        It is said of a loss that looks at the end, unless it looks at every step: then nothing can be said of how much
        comes from far away.
        """
        checked = {layer: checked_layer(states, gradient) for layer, (states, gradient) in layers.items()}
        lengths = {layer: len(states) for layer, (states, _) in checked.items()}
        check_labels(labels, lengths)
        parts = [
            _layer(layer, *given, backwards=layer in reverse, every_step=every_step) for layer, given in checked.items()
        ]
        shown = None if labels is None else [str(labels[step]) for step in shown_steps(len(labels)).tolist()]
        self._data["through"].append({"name": str(name), "layers": parts, "labels": shown})

    def add_attention(self, name: str, weights: Any, source: Sequence[str], target: Sequence[str]) -> None:
        """Attention weights [U, T]: how much each of `target` looked at each of `source`.

        The page explains three signs: a token `■` is the end of what is written, `?` what was never seen, ` ` a space.
        """
        values = attention_weights(weights, source, target)
        tokens = {"source": list(map(str, source)), "target": list(map(str, target))}
        self._data["attention"].append({"name": str(name), "weights": rounded(values), "lost": lost(values), **tokens})

    def add_lengths(
        self,
        lengths: Any,
        *,
        padding: float | None = None,
        padding_at_random: float | None = None,
        part: str | None = None,
    ) -> None:
        """How long the sequences are; the share of padding in the batches, and in batches drawn at random.

        `part` is the part of the data that they are of, if the page is to say so.
        """
        whole = whole_lengths(lengths)
        edges, counts = histogram(whole)
        self._data["lengths"] = {
            "edges": edges,
            "counts": counts,
            "total": int(whole.sum()),
            "longest": int(whole.max()),
            "padding": share("padding", padding),
            "padding_at_random": share("padding_at_random", padding_at_random),
            "part": part,
        }

    def add_plan(self, plan: object) -> None:
        """What `tt.explain` says of the cell."""
        self._data["plan"] = str(plan)

    def html(self) -> str:
        """The page as text."""
        part = files(__package__).joinpath
        # A number that JSON does not have would leave the whole page blank.
        data = json.dumps(self._data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        outcome = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(self._outcome))
        outcome = re.sub(r"`(.+?)`", r"<code>\1</code>", outcome)
        values = {
            "title": html.escape(self._title),
            "outcome": outcome,
            "version": _version(),
            "style": part("page.css").read_text(encoding="utf-8"),
            "script": part("page.js").read_text(encoding="utf-8"),
            # Text of the user's own may hold `</script>`.
            "data": data.replace("<", "\\u003c"),
        }
        page = part("page.html").read_text(encoding="utf-8")
        return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], page)

    def _repr_html_(self) -> str:
        """In a notebook: the page, in a frame."""
        return _html.framed(self.html(), self._title)

    def write(self, path: Path | str) -> Path:
        """Write the page, whole or not at all, and return its path."""
        path = Path(path)
        with whole(path) as new:
            new.write_text(self.html(), encoding="utf-8")
        return path


def _version() -> str:
    """The version that is installed; a checkout may be used without installing it."""
    try:
        return version("throughtime")
    except PackageNotFoundError:
        return "from a checkout"


def _by_name(metrics: list[dict[str, float]], names: list[str]) -> dict[str, Any]:
    found = {name: [values.get(name, np.nan) for values in metrics] for name in names}
    return {name: rounded(values) for name, values in found.items() if not np.isnan(values).all()}


def _given(epochs: Sequence[Epoch], name: str) -> list[float]:
    """All values of a metric, of training and of validation; epochs without one have none."""
    return [float(values[name]) for epoch in epochs for values in (epoch.train, epoch.valid) if name in values]


def checked_forecast(columns: Mapping[str, Any]) -> dict[str, list[np.ndarray[Any, Any]]]:
    """For each column what was known [T], what came [H] and what was forecast [H], of one T and one H."""
    found = {column: [as_array("columns", part) for part in parts] for column, parts in columns.items()}
    shapes = {column: tuple(part.shape for part in parts) for column, parts in found.items()}
    first = next(iter(shapes.values()), ())
    fits = len(first) == 3 and len(first[0]) == len(first[1]) == 1 and first[1] == first[2]
    if not fits or set(shapes.values()) != {first}:
        expected = "for each column [T], [H] and [H], with one T and one H"
        fix = "Pass what was known, what came and what was forecast, of at least one column."
        raise ValueError(problem("the columns of a forecast do not fit", got=shapes, expected=expected, fix=fix))
    return found


def check_labels(labels: Sequence[str] | None, lengths: Mapping[str, int]) -> None:
    """Raise a `ValueError` unless there are no labels, or one for each step."""
    if labels is not None and set(lengths.values()) != {len(labels)}:
        expected, fix = f"{len(labels)} steps, by the labels", "Pass one label for each step, without padding."
        raise ValueError(problem("`labels` do not fit the steps", got=dict(lengths), expected=expected, fix=fix))


def attention_weights(weights: Any, source: Sequence[str], target: Sequence[str]) -> np.ndarray[Any, Any]:
    """Attention weights [U, T] that fit their tokens."""
    values = as_array("weights", weights)
    if values.shape != (len(target), len(source)):
        expected, fix = f"({len(target)}, {len(source)}), target by source", "Transpose or cut the weights."
        raise ValueError(problem("`weights` do not fit the tokens", got=values.shape, expected=expected, fix=fix))
    return values


def checked_layer(states: Any, gradient: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """States [T, H] of at least one step and unit; norms [T] or None."""
    values = as_array("states", states)
    if values.ndim < 2 or not values.size:
        expected, fix = "[T, H], with at least one step and one unit", "Pass one sequence, without its batch axis."
        raise ValueError(problem("a layer's states are no map", got=values.shape, expected=expected, fix=fix))
    # The state of a convolution has more axes than one: each of its numbers is a unit.
    values = values.reshape(len(values), -1)
    if gradient is None:
        return values, None
    norms = as_array("gradient", gradient)
    if norms.shape != values.shape[:1]:
        expected, fix = f"({len(values)},), one for each step", "Pass the norms of the same sequence."
        raise ValueError(problem("gradient norms do not fit the states", got=norms.shape, expected=expected, fix=fix))
    if (norms < 0).any():
        expected, fix = "norms of at least 0", "Pass norms, as `tt.train.through_time` gives them."
        raise ValueError(problem("a gradient norm is negative", got=norms.min(), expected=expected, fix=fix))
    return values, norms


def _layer(
    name: str, values: np.ndarray[Any, Any], norms: np.ndarray[Any, Any] | None, *, backwards: bool, every_step: bool
) -> dict[str, Any]:
    """A layer's map, its units ordered by where they end, and what becomes of the gradient."""
    order = np.argsort(values[0 if backwards else -1], kind="stable")[::-1]
    steps = shown_steps(len(values))
    return {
        "name": str(name),
        "states": packed(values[steps][:, order].T),
        # How many there are, and the numbers of those that are shown if not all are.
        "length": len(values),
        "steps": None if len(steps) == len(values) else (steps + 1).tolist(),
        "order": order.tolist(),
        "gradient": None if norms is None else rounded(norms[steps]),
        "verdict": None if norms is None else gradient_verdict(norms, backwards=backwards, every_step=every_step),
        "lost": lost(values),
    }


def _places(steps: Sequence[Step]) -> list[float]:
    """Where each step lies among the epochs; one that was not finished is as long as the longest."""
    counts = Counter(step.epoch for step in steps)
    most, taken, places = max(counts.values(), default=1), Counter[int](), []
    for step in steps:
        taken[step.epoch] += 1
        places.append(step.epoch - 1 + taken[step.epoch] / most)
    return places
