"""What the report of a run says of its data: how to run it again, and what the model has not seen."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from cli_files import gestures, pairs, quickly, said

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
    assert {name: settings[name] for name in list(settings)[1:10]} == {
        "hash of the data (BLAKE2b)": json.loads((tmp_path / "run" / "run.json").read_text())["data"]["blake2b"],
        "task": "classify",
        "sequence": "id",
        "order": "step",
        "inputs": "x, y, hand",
        "targets": "kind",
        "categories": "hand",
        "ignored": "version, note, split",
        "held out": "10% of the sequences, by the seed",
    }
    assert (settings["file"], settings["seed"], settings["device"]) == ("a.csv", "3", "cpu")


def test_how_it_was_held_out_and_split(tmp_path: Path) -> None:
    settings = settings_of(gestures(tmp_path / "a.csv", split=True))
    assert (settings["split"], settings["held out"]) == ("split", "what `split` says")


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
    forecasts = report_of(tmp_path / "a.csv")["forecasts"]
    assert {forecast["name"] for forecast in forecasts} == {f"sequence {name} (learned from)" for name in (1, 2, 3)}
