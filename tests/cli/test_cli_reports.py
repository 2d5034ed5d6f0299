"""What the report of a run says of its data: how to run it again, and what the model has not seen."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import throughtime as tt
from cli_files import gestures, pairs, quickly, said
from throughtime.cli._options import Columns
from throughtime.cli.tables import open_table, survey
from throughtime.cli.tables._infer_roles import guess
from throughtime.cli.tasks._defaults import default_shape
from throughtime.cli.tasks._examples import read_examples
from throughtime.cli.tasks._tasks import make_model
from throughtime.cli.tasks._translator import measure_translation, shifted

pytestmark = pytest.mark.covers("cli")


def report_of(file: Path, *flags: object) -> dict[str, Any]:
    result = quickly(file, file.parent / "run", *flags)
    assert result.exit_code == 0, said(result)
    page = (file.parent / "run" / "report.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def settings_of(file: Path, *flags: object) -> dict[str, str]:
    return {name: str(value) for name, value in report_of(file, *flags)["settings"]}


def test_every_column_has_its_place(tmp_path: Path) -> None:
    gestures(tmp_path / "a.csv")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    rows = [f"{line},{'ab'[row % 2]},7,," for row, line in enumerate(lines[1:])]
    (tmp_path / "a.csv").write_text("\n".join([lines[0] + ",hand,version,note,split", *rows]) + "\n")
    settings = settings_of(tmp_path / "a.csv", "--ignore", "version,split", "--target", "kind", "--seed", 3)
    assert {name: settings[name] for name in list(settings)[1:9]} == {
        "hash of the data (BLAKE2b)": json.loads((tmp_path / "run" / "run.json").read_text())["data"]["blake2b"],
        "task": "classify",
        "sequence": "id",
        "order": "step",
        "inputs": "x, y, hand",
        "targets": "kind",
        "categories": "hand",
        "ignored": "version, note, split",
    }
    parts = {name: settings[f"{name} part"].split(": ")[1] for name in ("training", "validation", "test")}
    by_seed = "a tenth of the sequences, by the seed"
    assert parts == {"training": "the rest", "validation": by_seed, "test": by_seed}
    assert (settings["file"], settings["seed"], settings["device"]) == ("a.csv", "3", "cpu")


def test_how_it_was_held_out_and_split(tmp_path: Path) -> None:
    settings = settings_of(gestures(tmp_path / "a.csv", split=True))
    assert settings["split"] == "split"
    assert settings["test part"].endswith("as the column says")


def test_how_texts_were_split(tmp_path: Path) -> None:
    settings = settings_of(pairs(tmp_path / "a.tsv"), "--tokens", "characters,words")
    assert settings["tokens"] == "characters, words"
    assert not {"sequence", "order", "split", "ignored"} & settings.keys()


@pytest.mark.parametrize("horizon", [4, 24])
def test_the_future_that_is_drawn_was_not_learned_from(horizon: int, tmp_path: Path) -> None:
    """Of 220 steps the last 22 are held out, fewer than are forecast."""
    rows = "".join(f"{step},{math.sin(step / 4):.3f}\n" for step in range(220))
    (tmp_path / "a.csv").write_text("step,x\n" + rows)
    (forecast,) = report_of(tmp_path / "a.csv", "--horizon", horizon)["forecasts"]
    shown = min(horizon, 22)
    assert forecast["future"] == list(range(221 - shown, 221))
    assert forecast["past"][-1] == 220 - shown >= 198
    assert forecast["name"] == "x"


def test_a_future_that_was_learned_from_is_called_so(tmp_path: Path) -> None:
    rows = "".join(f"{step // 30},{math.sin(step / 4):.3f},train\n" for step in range(90))
    (tmp_path / "a.csv").write_text("id,x,split\n" + rows)
    data = report_of(tmp_path / "a.csv")
    assert {forecast["name"] for forecast in data["forecasts"]} == {f"sequence {name}" for name in (0, 1, 2)}
    assert data["part"] == "training"


def test_what_is_read_last_is_learned_too(tmp_path: Path) -> None:
    """A translator looks back at every step: there is a gradient at the last as well, and the page says so."""
    layers = [layer for one in report_of(pairs(tmp_path / "a.tsv"))["through"] for layer in one["layers"]]
    assert all(value > 0 for layer in layers for value in layer["gradient"])
    assert all(layer["verdict"].startswith("The loss looks at every step") for layer in layers)


def test_losses_of_a_translator_can_be_compared(tmp_path: Path) -> None:
    """Plain is what is told, smoothed what is learned from."""
    found = survey(open_table(pairs(tmp_path / "a.tsv")))
    examples = read_examples(found.table, guess(found, Columns()).layout, together=True, seed=0)
    model: Any = make_model(examples.layout, default_shape("translate", 36, 100, 1)._replace(units=8, dropout=0.0))
    batch = tt.train.pad(examples.train[:9])
    told = measure_translation(model.train(), batch)["loss"]
    plain = measure_translation(model.eval(), batch)["loss"]
    assert told.value.item() == plain.value.item()
    written, wanted, lengths = shifted(batch.targets, batch.target_lengths, model.begin, model.end)
    scores = model(batch.inputs, batch.lengths, written, lengths)
    smoothed = tt.train.cross_entropy(scores, wanted, lengths, label_smoothing=0.1)
    assert smoothed.value > plain.value
    weights = list(model.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(told.total, weights), torch.autograd.grad(smoothed.total, weights), rtol=0, atol=0
    )
