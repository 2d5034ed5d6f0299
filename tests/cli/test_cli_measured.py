"""Every figure says what it was measured on: each kind of run, its words held against its data."""

from __future__ import annotations

import csv
import json
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import throughtime as tt
from cli_files import call, gestures, is_one_line_of_error, many_series, pairs, quickly, said, series, tags, text

pytestmark = pytest.mark.covers("cli")

NODE, PAGE = shutil.which("node"), Path(__file__).parents[1] / "train" / "report" / "_page.js"
NOTHING_HELD_OUT = "Nothing was held out: the figure is of the data it learned from"
NO_TEST = "The validation part has chosen the epoch"


def with_split(make: Any, *parts: str) -> Any:
    """The same file with a column that gives each sequence, one after another, one of the parts."""

    def changed(path: Path) -> Path:
        header, *lines = make(path).read_text().splitlines()
        mark = ";" if ";" in header else "\t" if "\t" in header else ","
        names = list(dict.fromkeys(line.split(mark)[0] for line in lines))
        # Rows of texts are sequences of their own.
        chosen = (
            [parts[row % len(parts)] for row in range(len(lines))]
            if mark == "\t"
            else [parts[names.index(line.split(mark)[0]) % len(parts)] for line in lines]
        )
        rows = [f"{line}{mark}{part}" for line, part in zip(lines, chosen, strict=True)]
        path.write_text("\n".join([f"{header}{mark}split", *rows]) + "\n")
        return path

    return changed


def one_sequence_of_tags(steps: int) -> Any:
    """No column names a sequence: all rows are one."""

    def make(path: Path) -> Path:
        draw = random.Random(3)
        words = [draw.randrange(6) for _ in range(steps)]
        path.write_text("word,weight,tag\n" + "".join(f"w{w},{draw.random():.3f},{'ABC'[w % 3]}\n" for w in words))
        return path

    return make


def few_series(count: int, steps: int) -> Any:
    def make(path: Path) -> Path:
        rows = (f"s{number},{np.sin(step / 3 + number):.4f}\n" for number in range(count) for step in range(steps))
        path.write_text("series,value\n" + "".join(rows))
        return path

    return make


def several_texts(path: Path) -> Path:
    path.write_text("text\n" + "the cat sat on the mat and slept there\n" * 60)
    return path


# A file, the part that its figure must be of, and what the headline says of it. The end of a text counts as a token.
CASES = {
    "classifier": (lambda path: gestures(path, 24), "a.csv", "test", "of 2 test sequences"),
    "classifier, as a column says": (
        with_split(lambda path: gestures(path, 24), "train", "train", "validation", "test"),
        "a.csv",
        "test",
        "of 6 test sequences",
    ),
    "classifier, no test": (
        with_split(lambda path: gestures(path, 24), "train", "train", "val"),
        "a.csv",
        "validation",
        "of 8 validation sequences",
    ),
    "classifier, nothing held out": (
        with_split(lambda path: gestures(path, 6), "train"),
        "a.csv",
        "training",
        "of 6 training sequences",
    ),
    "tagger": (tags, "a.csv", "test", "of the {steps} steps of 2 test sequences"),
    "tagger, one sequence": (
        one_sequence_of_tags(200),
        "a.csv",
        "test",
        "of the 20 steps of the test part (the last tenth of the sequence)",
    ),
    "tagger, one short sequence": (
        one_sequence_of_tags(12),
        "a.csv",
        "training",
        "the 12 steps of 1 training sequence",
    ),
    "forecaster": (series, "a.csv", "test", "over the 12 steps of the test part (the last tenth of the sequence)"),
    "forecaster, three series": (
        few_series(3, 60),
        "a.csv",
        "test",
        "over the 18 steps of the test part (the last tenth of each sequence)",
    ),
    "forecaster, short series": (
        few_series(2, 12),
        "a.csv",
        "test",
        "over the 4 steps of the test part (the last tenth of each sequence)",
    ),
    "forecaster, many series": (many_series, "a.csv", "test", "over the {steps} steps of 2 test sequences"),
    "forecaster, nothing held out": (
        with_split(few_series(3, 30), "train"),
        "a.csv",
        "training",
        "over the 90 steps of 3 training sequences",
    ),
    "writer": (text, "a.txt", "test", "of 216 characters of test text"),
    "writer, many texts": (several_texts, "a.csv", "test", "of {steps} characters of test text"),
    "translator": (pairs, "a.tsv", "test", "of the {steps} tokens of 4 test texts"),
    "translator, nothing held out": (
        with_split(lambda path: pairs(path, 8), "train"),
        "a.tsv",
        "training",
        "of the {steps} tokens of 8 training texts",
    ),
}


class Done(NamedTuple):
    """A finished run, from all sides."""

    file: Path
    folder: Path
    terminal: str
    run: dict[str, Any]
    report: dict[str, Any]
    page: str
    history: list[dict[str, Any]]


def finished(file: Path, *flags: object) -> Done:
    folder = file.parent / "run"
    result = quickly(file, folder, *flags)
    assert result.exit_code == 0, said(result)
    html = (folder / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])
    shown = re.sub(r"</?code>", "`", re.search(r'<p class="outcome">(.*?)</p>', html)[1])
    outcome = re.sub(r"<[^>]+>", "", shown).replace("&#x27;", "'")
    records = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    run = json.loads((folder / "run.json").read_text())
    return Done(file, folder, said(result), run, data, outcome, records)


@pytest.fixture(scope="module", params=CASES)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, str, str]:
    make, name, part, words = CASES[request.param]
    found = finished(make(tmp_path_factory.mktemp("measured") / name))
    return found, part, words.format(steps=f"{found.run['parts'][part]['steps']:,}")


def test_the_headline_says_what_it_is_of(done: tuple[Done, str, str]) -> None:
    found, part, words = done
    outcome = found.run["outcome"]
    assert outcome["part"] == part
    for told in (found.terminal, found.page, outcome["headline"]):
        assert words in told, told
    assert (NOTHING_HELD_OUT in found.terminal) == (NOTHING_HELD_OUT in found.page) == (part == "training")
    assert (NO_TEST in found.terminal) == (NO_TEST in found.page) == (part == "validation")
    assert "held-out" not in found.terminal + found.page


def test_sizes_are_those_of_the_parts(done: tuple[Done, str, str]) -> None:
    found, part, _ = done
    parts, outcome = found.run["parts"], found.run["outcome"]
    assert (outcome["sequences"], outcome["steps"]) == (parts[part]["sequences"], parts[part]["steps"])
    assert [name for name in ("training", "validation", "test") if parts[name]["chosen"].startswith("none")] == [
        name for name in ("training", "validation", "test") if not parts[name]["steps"]
    ]
    validated = bool(parts["validation"]["steps"])
    epochs = [record for record in found.history if record["kind"] == "epoch"]
    assert all(bool(epoch["valid"]) == validated for epoch in epochs)
    assert ("valid loss" in found.terminal) == validated
    assert ("No validation part" in found.terminal) == (not validated)
    settings = dict(found.report["settings"])
    for name, sizes in parts.items():
        assert settings[f"{name} part"].endswith(sizes["chosen"])
        assert not sizes["steps"] or f"{sizes['steps']:,} " in settings[f"{name} part"]


def test_the_report_is_of_the_same_part(done: tuple[Done, str, str]) -> None:
    found, part, _ = done
    outcome, facts = found.run["outcome"], dict(found.report["facts"])
    assert found.report["part"] == part
    assert found.report["lengths"]["part"] == "training"
    metric = outcome["metric"]
    form = "{:.1%}" if metric == "accuracy" else "{:.3g}"
    assert facts[f"{part} {metric}"] == form.format(outcome["value"])
    assert facts[f"{part} {metric}, {outcome['baseline']['name']}"] == form.format(outcome["baseline"]["value"])
    confusion = found.report.get("confusion")
    if confusion is not None:
        unit = "sequences" if found.run["layout"]["task"] == "classify" else "steps"
        assert confusion["total"] == outcome[unit]
        assert np.trace(confusion["matrix"]) / confusion["total"] == pytest.approx(outcome["value"])


@pytest.mark.skipif(NODE is None, reason="no node here to run the script of the report")
def test_the_page_says_so(done: tuple[Done, str, str]) -> None:
    found, part, _ = done
    ran = subprocess.run(
        [str(NODE), str(PAGE), str(found.folder / "report.html")], capture_output=True, text=True, check=True
    )
    texts = json.loads(ran.stdout)["texts"]
    everything = "\n".join(texts)
    assert "held-out" not in everything.lower()
    assert "Held-out" not in everything
    assert f"is of the {part} part." in everything
    assert ("The validation part is never learned from" in everything) == bool(
        found.run["parts"]["validation"]["steps"]
    )
    if "confusion" in found.report:
        assert f"{found.report['confusion']['total']:,} {part} {found.report['unit']}" in texts
    if found.report["forecasts"]:
        assert ("The model has learned from it." in everything) == (part == "training")


def test_kept_is_the_epoch_of_the_lowest_validation_loss(done: tuple[Done, str, str]) -> None:
    found, part, _ = done
    epochs = [record for record in found.history if record["kind"] == "epoch"]
    metrics = found.run["metrics"]
    if metrics["validation"]:
        losses = [epoch["valid"]["loss"] for epoch in epochs]
        assert metrics["epoch"] == 1 + int(np.argmin(losses))
        assert found.run["recipe"]["patience"] == len(epochs)
        assert "lowest validation loss are kept; all epochs are run." in found.terminal
    else:
        assert metrics["epoch"] == epochs[-1]["number"]
        assert found.run["recipe"]["patience"] is None
    kept = epochs[metrics["epoch"] - 1]
    assert (metrics["training"], metrics["validation"]) == (kept["train"], kept["valid"])
    assert bool(metrics["test"]) == (part == "test")


def rows_of_part(found: Done, word: str, path: Path) -> Path:
    with found.file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    kept = [row for row in rows if row["split"] == word]
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(kept)
    return path


def kinds_in(file: Path) -> Counter[str]:
    """How many sequences there are of each class."""
    rows = csv.DictReader(file.read_text().splitlines())
    return Counter({row["id"]: row["kind"] for row in rows}.values())


@pytest.mark.parametrize(
    ("words", "word", "part"),
    [
        (("train", "train", "dev", "test"), "test", "test"),
        (("train", "valid"), "valid", "validation"),
        (("train",), "train", "training"),
    ],
)
def test_the_figure_is_that_of_the_rows_it_names(words: tuple[str, ...], word: str, part: str, tmp_path: Path) -> None:
    """`predict`, on a file of these rows alone, comes to the same share with the saved weights."""
    found = finished(
        with_split(lambda path: gestures(path, 8 if part == "training" else 48), *words)(tmp_path / "a.csv")
    )
    alone = rows_of_part(found, word, tmp_path / "alone.csv")
    told = said(call("predict", found.folder, alone, "--out", tmp_path / "p.csv"))
    outcome = found.run["outcome"]
    assert f"{outcome['value']:.1%} of {outcome['sequences']} known answers are right." in told
    labels, most = kinds_in(alone), kinds_in(rows_of_part(found, "train", tmp_path / "learned.csv"))
    best = [label for label, count in most.items() if count == max(most.values())]
    assert outcome["baseline"]["value"] in [labels[label] / labels.total() for label in best]
    assert (outcome["part"], outcome["baseline"]["name"]) == (part, "majority")


def test_the_test_part_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weights that are kept, which validation has chosen; epochs measure the validation part."""
    asked: list[int] = []
    evaluate = tt.train.evaluate

    def counting(model: Any, measure: Any, batches: Any, **options: Any) -> dict[str, float]:
        asked.append(sum(len(batch.lengths) for batch in batches))
        return evaluate(model, measure, batches, **options)

    monkeypatch.setattr("throughtime.train.evaluate", counting)
    assert quickly(gestures(tmp_path / "a.csv", split=True), tmp_path / "run").exit_code == 0
    assert asked == [6]


def test_training_stops_where_validation_gets_no_better(tmp_path: Path) -> None:
    draw = random.Random(0)
    kinds = [draw.choice("ab") for _ in range(60)]
    lines = [f"{number},{draw.gauss(0, 1):.3f},{kind}" for number, kind in enumerate(kinds) for _ in range(4)]
    (tmp_path / "a.csv").write_text("id,x,kind\n" + "\n".join(lines) + "\n")
    result = call("train", tmp_path / "a.csv", "--out", tmp_path / "run", "--epochs", 60, "--units", 16)
    assert result.exit_code == 0, said(result)
    assert "stopped: no better epoch than" in said(result)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    records = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert records[-1] == {"kind": "end", "stopped_early": True}
    assert len(epochs) == run["metrics"]["epoch"] + run["recipe"]["patience"] < 60
    assert run["recipe"]["patience"] == 20
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    again = call("train", "--resume", tmp_path / "run")
    assert "finished already" in said(again)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_where_a_baseline_wins_the_headline_says_so(tmp_path: Path) -> None:
    """Classes at random, of which one is frequent."""
    draw = random.Random(1)
    kinds = ["a" if draw.random() < 0.8 else "b" for _ in range(60)]
    rows = [f"{number},{draw.gauss(0, 1):.3f},{kind}" for number, kind in enumerate(kinds) for _ in range(3)]
    (tmp_path / "a.csv").write_text("id,x,kind\n" + "\n".join(rows) + "\n")
    found = finished(tmp_path / "a.csv")
    outcome = found.run["outcome"]
    assert not outcome["better_than_baseline"]
    assert outcome["value"] <= outcome["baseline"]["value"]
    lead = re.compile(r"(Worse|No better) than a plain baseline: always saying `a` is right for")
    for told in (found.terminal, found.page, outcome["headline"]):
        assert lead.search(told), told


def sorted_by_class(path: Path) -> Path:
    """Rows without a time, the classes one after another: the last tenth is all of one."""
    rows = (f"{number % 7},{'ab'[number >= 120]}\n" for number in range(200))
    path.write_text("x,tag\n" + "".join(rows))
    return path


def one_class_to_test(path: Path) -> Path:
    """Sequences of which a column names those to test on, all of one class."""
    rows = (
        f"{number},{step + number % 2},{'ab'[number % 2]},{'test' if number in (1, 3, 5) else 'train'}\n"
        for number in range(24)
        for step in range(4)
    )
    path.write_text("id,x,kind,split\n" + "".join(rows))
    return path


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (sorted_by_class, "say which rows belong together with `--sequence COLUMN`, or bring the rows into the order"),
        (one_class_to_test, "give more sequences, or say in a column `split` which of them to test on."),
    ],
)
def test_a_test_part_of_one_class_means_little(make: Any, fix: str, tmp_path: Path) -> None:
    found = finished(make(tmp_path / "a.csv"))
    outcome = found.run["outcome"]
    assert outcome["only_class"] == "b"
    for told in (found.terminal, found.page, outcome["headline"]):
        assert "Means little, since the test part has one class only: " in told, told
    for told in (found.terminal, found.page, outcome["caveat"]):
        assert f"Every answer of the test part is `b`, so always saying that is right, too: {fix}" in told, told
    assert "The test part has one class only, `b`: what is measured on it means little." in found.terminal
    assert call("inspect", found.folder).exit_code == 0


def test_classes_with_stars_in_their_names(tmp_path: Path) -> None:
    file = sorted_by_class(tmp_path / "a.csv")
    file.write_text(file.read_text().replace(",b", ",**b**").replace(",a", ",*`a"))
    found = finished(file)
    assert "Every answer of the test part is `**b**`" in found.terminal
    assert "% of the 20 steps of the test part" in found.terminal


def test_several_classes_mean_something(tmp_path: Path) -> None:
    found = finished(one_sequence_of_tags(200)(tmp_path / "a.csv"))
    assert found.run["outcome"]["only_class"] is None
    assert found.run["outcome"]["caveat"] is None
    assert "one class" not in found.terminal + found.page


def test_a_season_is_found_and_repeated(tmp_path: Path) -> None:
    """Untrained, the model says that nothing changes: the season before is far better."""
    draw = random.Random(2)
    rows = "".join(f"{step},{[0, 5, 1, 9, 3, 7, 2][step % 7] + draw.gauss(0, 0.1):.3f}\n" for step in range(210))
    (tmp_path / "a.csv").write_text("step,x\n" + rows)
    found = finished(tmp_path / "a.csv", "--horizon", 7)
    assert found.run["outcome"]["baseline"]["name"] == "seasonal naive, period 7"
    assert "as far from what came as repeating the values of 7 steps before" in found.terminal
    assert found.terminal.count("Worse than a plain baseline") == 1


def test_both_errors_of_a_forecast_are_of_the_same_values(tmp_path: Path) -> None:
    """The error of the last value, by hand from the file: also of forecasts that begin before the test part."""
    values = [float(step * step % 17) for step in range(100)]
    rows = "".join(f"{step},{value}\n" for step, value in enumerate(values))
    (tmp_path / "a.csv").write_text("step,x\n" + rows)
    found = finished(tmp_path / "a.csv", "--horizon", 3)
    deviation = np.std(values[:80])
    errors = [
        abs(values[now] - values[now + ahead]) / deviation
        for now in range(100)
        for ahead in (1, 2, 3)
        if 90 <= now + ahead < 100
    ]
    assert found.run["metrics"]["test"]["persistence"] == pytest.approx(np.mean(errors), rel=1e-5)


def test_a_long_series_that_was_learned_from_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is learned from in windows that overlap, but measured as it is: the baseline is of the same values."""
    values = np.cumsum(np.random.default_rng(0).normal(size=700)).round(3)
    (tmp_path / "a.csv").write_text("id,x,split\n" + "".join(f"a,{value},train\n" for value in values))
    asked: list[int] = []
    evaluate = tt.train.evaluate

    def counting(model: Any, measure: Any, batches: Any, **options: Any) -> dict[str, float]:
        asked.extend(int(batch.lengths.sum()) for batch in batches)
        return evaluate(model, measure, batches, **options)

    monkeypatch.setattr("throughtime.train.evaluate", counting)
    found = finished(tmp_path / "a.csv", "--horizon", 2)
    errors = np.concatenate([np.abs(values[ahead:] - values[:-ahead]) for ahead in (1, 2)]) / values.std()
    told = found.run["outcome"]
    assert (told["part"], told["steps"], asked) == ("training", 700, [700])
    assert told["baseline"] == {"name": "last value", "value": pytest.approx(float(np.mean(errors)), rel=1e-5)}


def test_runs_of_earlier_versions_are_told_apart(tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    assert quickly(file, tmp_path / "run").exit_code == 0
    path = tmp_path / "run" / "run.json"
    values = json.loads(path.read_text())
    for name in ("parts", "missing", "outcome"):
        del values[name]
    del values["recipe"]["patience"]
    values["metrics"] = {"train": values["metrics"]["training"], "held_out": values["metrics"]["test"]}
    path.write_text(json.dumps(values))
    is_one_line_of_error(
        call("train", "--resume", tmp_path / "run"),
        f"{tmp_path / 'run'} was begun by an earlier version: got a run without a validation part",
        f"Start a new run with `throughtime train {file}`",
    )
    assert call("predict", tmp_path / "run", file, "--out", tmp_path / "p.csv").exit_code == 0
    inspected = call("inspect", tmp_path / "run")
    assert inspected.exit_code == 0
    assert "validation, last epoch" in said(inspected)


def test_predict_says_where_its_answers_were_learned(tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    assert quickly(file, tmp_path / "run").exit_code == 0
    line = "The file is the one that the run was trained on: only its test part, if any, is new to the model."
    assert line in said(call("predict", tmp_path / "run", file, "--out", tmp_path / "p.csv"))
    file.write_text(file.read_text().replace("g1,", "h1,"))
    told = said(call("predict", tmp_path / "run", file, "--out", tmp_path / "p.csv"))
    assert "known answers are right." in told
    assert line not in told


def test_inspect_says_which_part(tmp_path: Path) -> None:
    found = finished(gestures(tmp_path / "a.csv", split=True))
    told = said(call("inspect", found.folder))
    assert "test (6 sequences," in told
    assert found.run["outcome"]["headline"] in told
