"""`throughtime train`: every task from file to report, what it refuses, how it goes on."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import kill_and_resume
from cli_files import call, gestures, is_one_line_of_error, many_series, pairs, quickly, said, series, tags, text
from throughtime.cli.train import _report

pytestmark = pytest.mark.covers("cli")

MAKERS = {
    "classify": (gestures, "a.csv", "2 test sequences"),
    "tag": (tags, "a.csv", "steps of 2 test sequences"),
    "forecast": (series, "a.csv", "over the 12 steps of the test part (the last tenth of the sequence)"),
    "generate": (text, "a.txt", "a character of 216 characters of test text"),
    "translate": (pairs, "a.tsv", "tokens of 4 test texts"),
}


def test_more_classes_than_a_table_can_hold_are_counted() -> None:
    classes = 1_000_000

    def model(inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor([7, 999_999, 7]), classes)

    target = SimpleNamespace(categories=range(classes))
    examples = [(torch.zeros(length, 1), torch.tensor(kind)) for length, kind in ((1, 7), (2, 7), (3, 7))]
    counts, names = _report._confusion(
        model,
        SimpleNamespace(layout=SimpleNamespace(targets=[target]), parts={"test": examples}, measured_on="test"),
    )
    assert len(names) == classes
    assert counts[7, 7] == 2
    assert counts[7, 999_999] == 1
    assert counts.total() == 3


@pytest.mark.parametrize("task", MAKERS)
def test_every_task_from_file_to_report(task: str, tmp_path: Path) -> None:
    make, name, outcome = MAKERS[task]
    result = quickly(make(tmp_path / name), tmp_path / "run")
    assert result.exit_code == 0, result.stdout + repr(result.exception)
    assert f"Task: {task}" in said(result)
    assert outcome in said(result)
    assert re.search(r"^epoch 1/2 .* best$", result.stdout, re.MULTILINE), "the best weights are kept"
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"model.safetensors", "run.json", "report.html", "history.jsonl"} <= files
    assert not [name for name in files if name.startswith(".")]
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["layout"]["task"] == task
    assert run["metrics"]["validation"]["loss"] > 0
    assert run["metrics"]["test"]["loss"] > 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<title>" in page
    assert "{{" not in page
    # Every task shows how the gradient flows back through time.
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert data["through"]
    assert all(layer["gradient"] and layer["verdict"] for one in data["through"] for layer in one["layers"])
    assert ("horizon" in dict(data["settings"])) == (task == "forecast")
    assert ("horizon" in said(call("inspect", tmp_path / "run"))) == (task == "forecast")
    assert "tag tag" not in page
    assert ("decode" if task in ("generate", "translate") else "predict") in said(result).split("Next:")[1]


def test_a_series_held_out_by_time_is_counted_once(tmp_path: Path) -> None:
    result = quickly(series(tmp_path / "a.csv", 120), tmp_path / "run")
    assert "1 sequence: 96 steps to learn from, 12 steps for validation, 12 steps to test" in said(result)
    page = (tmp_path / "run" / "report.html").read_text()
    assert '["steps","120"],["sequences","1"]' in page
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert data["lengths"]["total"] == data["lengths"]["longest"], "one sequence has its length told, too"


def test_no_flags_is_the_embedded_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("train", "--epochs", 6)
    assert result.exit_code == 0
    assert "243 sequences to learn from, 27 for validation, 370 to test" in said(result)
    accuracy = float(re.search(r"([\d.]+)% of 370 test sequences recognised", said(result))[1])
    # A fifth of the usual epochs; the full run reaches 97 % and more.
    assert accuracy > 93
    assert (tmp_path / "runs" / "japanese_vowels" / "report.html").exists()
    assert call("train", "--epochs", 1).exit_code == 0
    assert (tmp_path / "runs" / "japanese_vowels-2" / "report.html").exists()


def test_the_split_column_is_obeyed(tmp_path: Path) -> None:
    result = quickly(gestures(tmp_path / "a.csv", split=True), tmp_path / "run")
    assert "16 sequences to learn from, 2 for validation, 6 to test" in said(result)


def test_standardisation_sees_no_held_out_sequence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [
        f"{place},{1 if place < 10 else 1000},{'ab'[place % 2]},{'train' if place < 10 else 'test'}"
        for place in range(12)
    ]
    path.write_text("id,x,kind,split\n" + "\n".join(rows))
    assert quickly(path, tmp_path / "run").exit_code == 0
    column = json.loads((tmp_path / "run" / "run.json").read_text())["layout"]["inputs"][0]
    assert (column["name"], column["mean"]) == ("x", 1.0)


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert quickly(file, tmp_path / name, "--seed", seed).exit_code == 0
    one, two, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two", "other"))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["answer.weight"], other["answer.weight"])


@pytest.mark.parametrize("flags", [["--cell", "gru"], ["--cell", "LayerNormLSTMCell"], ["--layers", 2]], ids=str)
def test_cells_and_layers(flags: list, tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    assert quickly(file, tmp_path / "run", *flags).exit_code == 0
    assert call("predict", tmp_path / "run", file, "--out", tmp_path / "p.csv").exit_code == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epochs", 0], ["`--epochs` is too small: got 0, expected 1 or more."]),
        (["--units", -4], ["`--units` is too small: got -4"]),
        (["--learning-rate", 0], ["`--learning-rate` is out of range: got 0.0"]),
        (["--seed", -1], ["`--seed` is out of range: got -1"]),
        (["--target", "nothing"], ["`--target` names no column of a.csv: got 'nothing'"]),
        (["--task", "dance"], ["`--task` is unknown: got 'dance'"]),
        (["--cell", "quantum"], ["the cell 'quantum' cannot be used: got no such cell"]),
        (["--cell", "ConvLSTMCell"], ["the cell 'ConvLSTMCell' cannot be used"]),
        (["--epochs", "many"], ["`--epochs` is no whole number: got 'many', expected one such as 10. Leave it out"]),
        (["--learning-rate=fast"], ["`--learning-rate` is no number: got 'fast', expected one such as 0.01."]),
        (["--epochs"], ["Error: Option '--epochs' requires an argument."]),
        (["--resume", "runs/x"], ["`--resume` goes on as before: got other flags too"]),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(flags: list, words: list[str], tmp_path: Path) -> None:
    is_one_line_of_error(call("train", gestures(tmp_path / "a.csv"), "--out", tmp_path / "run", *flags), *words)
    assert not (tmp_path / "run").exists()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    is_one_line_of_error(call("train", tmp_path / "none.csv"), "none.csv: got no such file")
    is_one_line_of_error(call("train", "--resume", tmp_path / "none"), "none is not a run: got no such folder")
    is_one_line_of_error(call("train", tmp_path), "has no sequences: got a folder without a table or a text")


def test_an_earlier_run_is_left_alone(tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    assert quickly(file, tmp_path / "run").exit_code == 0
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    is_one_line_of_error(quickly(file, tmp_path / "run"), "is not empty: got an earlier run", "--resume")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_bad_values_late_in_a_file_leave_nothing(tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv", split=True)
    file.write_text(file.read_text() + "g99,0,1,1,tap,perhaps\n")
    is_one_line_of_error(quickly(file, tmp_path / "run"), "column `split` is not a split: got 'perhaps'")
    file.write_text(file.read_text().replace("perhaps", "test").replace("1,1,tap", "1,1,"))
    is_one_line_of_error(quickly(file, tmp_path / "run"), "column `kind` is empty: got nothing")
    assert not (tmp_path / "run").exists()


def rows(*cells: str) -> str:
    """Ten sequences of three steps, two classes; the cells stand for the numbers of the first steps."""
    numbers = [*cells, *map(str, range(len(cells), 30))]
    return "id,x,kind\n" + "".join(
        f"{step // 3},{number},{'ab'[step // 3 % 2]}\n" for step, number in enumerate(numbers)
    )


@pytest.mark.parametrize(
    ("name", "content", "flags", "message"),
    [
        ("a.txt", "hello", [], "the text is too short to learn from: got 5 characters"),
        ("a.csv", "text,label\nhi,a\n,b\nyo,a\n", [], "a.csv, line 3, column `text` is empty: got nothing"),
        ("a.tsv", "source\ttarget\nab\tcd\n\tcd\n", [], "a.tsv, line 3, column `source` is empty: got nothing"),
        ("a.csv", rows().replace(",b", ",a"), [], "column `kind` has one class only: got 'a' everywhere"),
        ("a.csv", rows("0", "inf"), [], "a.csv, line 3, column `x` is too large a number: got inf"),
        ("a.csv", rows("1e300"), [], "a.csv, line 2, column `x` is too large a number: got 1e+300"),
        ("a.csv", rows("what"), [], "a.csv, line 2, column `x` is not a number: got 'what'"),
        ("a.csv", "id,x\n1,2\n2,3\n", [], "is too short to forecast"),
        ("a.csv", rows(), ["--target", "kind,x"], "there are several targets: got kind, x"),
        ("a.csv", rows("inf"), ["--ignore", "x"], "a.csv has nothing to learn from"),
    ],
)
def test_mistakes_in_a_file_leave_nothing(name: str, content: str, flags: list, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    is_one_line_of_error(quickly(tmp_path / name, tmp_path / "run", *flags), message)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_steps_of_one_row_each_cannot_be_forecast(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{row},{row}\n" for row in range(30)))
    is_one_line_of_error(quickly(tmp_path / "a.csv", tmp_path / "run"), "the sequences are too short to forecast")


def test_forecasts_of_sequences_shorter_than_the_horizon(tmp_path: Path) -> None:
    """Some may be, but not all."""
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{row // 3},{row % 5}\n" for row in range(90)) + "99,1\n99,2\n")
    too_far = quickly(tmp_path / "a.csv", tmp_path / "run", "--horizon", 3)
    is_one_line_of_error(too_far, "`--horizon` is longer than the sequences: got 3, expected less than 3")
    result = quickly(tmp_path / "a.csv", tmp_path / "run", "--horizon", 2)
    assert result.exit_code == 0, said(result)
    (tmp_path / "new.csv").write_text("id,x\na,1\n")
    assert call("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv").exit_code == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 3


def test_no_sequence_at_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", lengths=np.array([0, 0]), x=np.ones((0, 2)))
    is_one_line_of_error(quickly(tmp_path / "a.npz", tmp_path / "run"), "a.npz is empty: got no rows")


def test_many_short_series_are_held_out_one_by_one(tmp_path: Path) -> None:
    result = quickly(many_series(tmp_path / "a.csv"), tmp_path / "run", "--horizon", 3)
    assert result.exit_code == 0
    assert "20 sequences to learn from, 2 for validation, 2 to test" in said(result)


# A test run in the background may have been told to ignore Ctrl-C, and its children inherit that.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from throughtime.cli import main; main()"
)


def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    flags = ["train", str(gestures(tmp_path / "a.csv")), "--units", "8", "--epochs", "100"]
    assert call(*flags, "--out", tmp_path / "whole").exit_code == 0
    cut = tmp_path / "cut"
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *flags, "--out", str(cut)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while len(list(cut.glob("checkpoint-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 130
    assert f"Go on with: throughtime train --resume {cut}" in out
    assert err.strip() == "Interrupted"
    assert not (cut / "model.safetensors").exists(), "it was interrupted on the way"
    assert "go on with" in said(call("inspect", cut))
    result = call("train", "--resume", cut)
    assert result.exit_code == 0, said(result)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_run_interrupted_before_its_first_checkpoint_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("throughtime.cli.train._run.optimiser", interrupt)
        result = quickly(gestures(tmp_path / "a.csv"), tmp_path / "run")
        assert result.exit_code == 130
        assert f"Go on with: throughtime train --resume {tmp_path / 'run'}" in said(result)
        again = call("train", "--resume", tmp_path / "run")
        assert f"Go on with: throughtime train --resume {tmp_path / 'run'}" in said(again)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
    result = call("train", "--resume", tmp_path / "run")
    assert result.exit_code == 0
    assert "finished already" not in said(result)
    result = call("train", "--resume", tmp_path / "run")
    assert result.exit_code == 0
    assert f"{tmp_path / 'run'} is finished already: nothing is left to learn." in said(result)


EPOCHS = 40
"""Enough that a run is still learning when it is killed for the last time."""


def test_killed_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `kill -9`, while it starts, learns and writes; `tools/kill_and_resume.py --command` does so ten times."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert call(*kill_and_resume.command(whole, EPOCHS)[3:]).exit_code == 0
    for kill, moment in kill_and_resume.kills(kill_and_resume.command, 3, random.Random(0)):
        assert kill(kill_and_resume.command(broken, EPOCHS), broken, moment).startswith("killed")
        kill_and_resume.check_whole(broken)
    assert call("train", "--resume", broken).exit_code == 0
    assert kill_and_resume.fingerprint(broken) == kill_and_resume.fingerprint(whole)


def test_resuming_a_changed_file_is_refused(tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    assert quickly(file, tmp_path / "run").exit_code == 0
    file.write_text(file.read_text().replace("tap", "knock"))
    is_one_line_of_error(call("train", "--resume", tmp_path / "run"), "a.csv has changed since the run began")
    file.unlink()
    is_one_line_of_error(call("train", "--resume", tmp_path / "run"), "cannot go on: got no ")
