"""`Report`: a page in parts, each added by name, written in one go."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from throughtime._errors import problem
from throughtime.train._files import whole
from throughtime.train._records import History
from throughtime.train.report._numbers import POINTS, histogram, packed, rounded, thinned

# A gradient that falls or grows by more than this from end to end of a sequence deserves its name.
FAR = 1e3
NOTHING = 1e-30
# By less than this it has not changed to speak of.
NEARLY_ONE = 1.05


class Report:
    """A self-contained HTML page about a training run: no network, no other file.

    Every `add_...` is one part of the page, and parts that were never added are not there. Arrays and tensors are
    taken alike. `outcome` is the sentence below the title; **two stars** make words stand out.

    >>> import tempfile, pathlib, throughtime as tt
    >>> report = tt.train.Report("Who is speaking?", "**97.8 %** of 370 utterances recognised.")
    >>> report.add_confusion([[30, 1], [0, 31]], ["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report.write(pathlib.Path(folder) / "report.html")
    ...     "http" in path.read_text().replace("http://www.w3.org/2000/svg", "")
    False
    """

    def __init__(self, title: str, outcome: str = "") -> None:
        self._title, self._outcome = title, outcome
        self._data: dict[str, Any] = {"facts": [], "settings": [], "forecasts": [], "through": [], "attention": []}

    def add_facts(self, facts: Mapping[str, str]) -> None:
        """A few figures below the title, in large type."""
        self._data["facts"] += [[name, str(value)] for name, value in facts.items()]

    def add_settings(self, settings: Mapping[str, object]) -> None:
        """What the run was asked to do, as a table at the end."""
        self._data["settings"] += [[name, str(value)] for name, value in settings.items()]

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
        shares = np.array([step.number for step in steps]) / max(1, len(steps)) * (len(epochs) or 1)
        self._data["history"] = {
            "steps": {
                "number": thinned([step.number for step in steps]),
                # A step's place among the epochs: its loss and theirs are one picture.
                "epoch": thinned(shares.tolist()),
                "loss": thinned([step.metrics.get("loss", np.nan) for step in steps]),
                "gradient": thinned([step.gradient_norm for step in steps]),
                "seconds": thinned([step.seconds for step in steps]),
                "memory": thinned([step.memory for step in steps]),
                "learning_rate": thinned([step.learning_rate for step in steps]),
            },
            "epochs": {
                "number": [epoch.number for epoch in epochs],
                "names": [name for name in names if name not in compared.values()],
                "baselines": {name: other for name, other in compared.items() if other in names},
                "rates": [name for name in names if name in rates],
                "train": _by_name([epoch.train for epoch in epochs], names),
                "valid": _by_name([epoch.valid for epoch in epochs], names),
            },
        }
        seconds = sum(step.seconds for step in steps)
        self._data["rate"] = sum(step.steps for step in steps) / seconds if seconds else None

    def add_confusion(self, matrix: Any, names: Sequence[str], *, unit: str = "sequences") -> None:
        """Counts [C, C]: row, what it is; column, what the model says. `unit` says what is counted."""
        counts = np.asarray(matrix)
        if counts.ndim != 2 or counts.shape != (len(names), len(names)):
            expected, fix = f"[{len(names)}, {len(names)}], by the names", "Pass one name for each class."
            raise ValueError(problem("`matrix` and `names` do not fit", got=counts.shape, expected=expected, fix=fix))
        self._data["confusion"] = {"names": list(map(str, names)), "matrix": counts.astype(int).tolist()}
        self._data["unit"] = unit

    def add_forecast(self, name: str, columns: Mapping[str, tuple[Any, Any, Any]]) -> None:
        """One sequence: for each column the values known [T], those that came [H], and those forecast [H]."""
        known, came, _ = next(iter(columns.values()))
        start, until, shown = max(0, len(known) - POINTS), len(known), len(came)
        self._data["forecasts"].append(
            {
                "name": name,
                "past": list(range(start + 1, until + 1)),
                "future": list(range(until + 1, until + shown + 1)),
                "columns": [
                    {
                        "name": column,
                        "past": rounded(past[start:]),
                        "truth": rounded(truth),
                        "forecast": rounded(forecast),
                    }
                    for column, (past, truth, forecast) in columns.items()
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
    ) -> None:
        """One sequence from inside: for each layer its states [T, H] and gradient norms [T] (or None).

        `labels` are the steps' own names, such as letters; `reverse` names the layers that read from the end.
        """
        parts = [_layer(layer, *given, backwards=layer in reverse) for layer, given in layers.items()]
        self._data["through"].append(
            {"name": name, "layers": parts, "labels": None if labels is None else list(labels)}
        )

    def add_attention(self, name: str, weights: Any, source: Sequence[str], target: Sequence[str]) -> None:
        """Attention weights [U, T]: how much each of `target` looked at each of `source`."""
        shape = np.asarray(weights).shape
        if shape != (len(target), len(source)):
            expected, fix = f"({len(target)}, {len(source)}), target by source", "Transpose or cut the weights."
            raise ValueError(problem("`weights` do not fit the tokens", got=shape, expected=expected, fix=fix))
        tokens = {"source": list(source), "target": list(target)}
        self._data["attention"].append({"name": name, "weights": rounded(weights), **tokens})

    def add_lengths(
        self, lengths: Any, *, padding: float | None = None, padding_at_random: float | None = None
    ) -> None:
        """How long the sequences are; the share of padding in the batches, and in batches drawn at random."""
        edges, counts = histogram(lengths)
        self._data["lengths"] = {
            "edges": edges,
            "counts": counts,
            "total": int(np.sum(np.asarray(lengths))),
            "longest": int(np.max(np.asarray(lengths))),
            "padding": padding,
            "padding_at_random": padding_at_random,
        }

    def add_plan(self, plan: object) -> None:
        """What `tt.explain` says of the cell."""
        self._data["plan"] = str(plan)

    def html(self) -> str:
        """The page as text."""
        part = files(__package__).joinpath
        data = json.dumps(self._data, ensure_ascii=False, separators=(",", ":"))
        outcome = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(self._outcome))
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


def _layer(name: str, states: Any, gradient: Any, *, backwards: bool) -> dict[str, Any]:
    """A layer's map, its units ordered by where they end, and what becomes of the gradient."""
    values = np.asarray(states, np.float64)
    stride = -(-len(values) // POINTS)
    order = np.argsort(values[0 if backwards else -1], kind="stable")[::-1]
    norms = None if gradient is None else np.asarray(gradient, np.float64)[::stride]
    return {
        "name": name,
        "states": packed(values[::stride, order].T),
        "order": order.tolist(),
        "gradient": None if norms is None else rounded(norms),
        "verdict": None if norms is None else gradient_verdict(norms, backwards=backwards),
    }


def gradient_verdict(norms: Any, *, backwards: bool = False) -> str:
    """What became of the gradient between the step it starts from and the step it ends at, in one sentence.

    >>> from throughtime.train.report._report import gradient_verdict
    >>> gradient_verdict([1e-9, 1e-5, 0.1])
    'It vanishes: 100,000,000 times smaller at the first step than at the last. What is far away is hardly learned.'
    """
    way = np.asarray(norms, np.float64)
    way = way if backwards else way[::-1]
    first, last = ("last", "first") if backwards else ("first", "last")
    if len(way) and way[0] == 0:
        # A loss of outputs alone asks nothing of the state that is left at the end.
        way, last = np.trim_zeros(way, "f"), f"{last} that sends any back"
    if len(way) < 2:
        return "Nothing flows back: the loss does not depend on earlier states."
    start, end = way[0], way[-1]
    if end * FAR < start:
        gone = end < start * NOTHING
        times = "" if gone else f"{start / end:,.0f} times smaller at the {first} step than at the {last}"
        left = times or f"nothing is left of it at the {first} step"
        return f"It vanishes: {left}. What is far away is hardly learned."
    if end > start * FAR:
        return (
            f"It explodes: {end / start:,.0f} times larger at the {first} step than at the {last}. Clip the gradient."
        )
    factor = end / start
    if max(factor, 1 / factor) < NEARLY_ONE:
        return f"It arrives: about as large at the {first} step as at the {last}."
    said = f"{factor:,.1f} times larger" if factor >= 1 else f"{1 / factor:,.1f} times smaller"
    return f"It arrives: {said} at the {first} step than at the {last}."
