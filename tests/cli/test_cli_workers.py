"""`throughtime train` under torchrun: two processes learn what one does, and runs go on with another number of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _command_job import run
from safetensors.numpy import load_file

from cli_files import call, is_one_line_of_error, many_series, pairs, series, text
from throughtime.cli._exit_codes import A_MOMENT

pytestmark = pytest.mark.covers("cli")

JOB = Path(__file__).with_name("_command_job.py")
EPOCHS, BATCHES = 16, 3
# A forecast has no dropout, and little noise: two runs of other random numbers differ by less than a percent.
FLAGS = ["--units", "16", "--epochs", str(EPOCHS), "--batch-size", "16", "--horizon", "3"]


# A single series has a single sequence to test on, a short text a single stream; and words are written after others.
SMALL = {"series": (series, "a.csv"), "text": (text, "a.txt"), "pairs": (pairs, "a.tsv")}


def by_two(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A job of two processes."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=180,
        check=False,
    )


def torchrun(commands: list[list[str]]) -> None:
    """The commands, one after the other, by two processes."""
    done = by_two(str(JOB), json.dumps(commands))
    assert done.returncode == 0, done.stdout + done.stderr


def small(root: Path, workers: str) -> list[list[str]]:
    """Runs on data of which a worker may get nothing."""
    lines = []
    for name, (make, file) in SMALL.items():
        (root / name).mkdir(exist_ok=True)
        flags = ["--units", "16", "--epochs", "4", "--batch-size", "8"]
        lines.append(["train", str(make(root / name / file)), "--out", str(root / f"{name} by {workers}"), *flags])
    return lines


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by one process, by two, and by each after the other had begun."""
    root = tmp_path_factory.mktemp("workers")
    file = many_series(root / "a.csv", 48)
    run(["train", str(file), "--out", str(root / "one"), *FLAGS])
    (root / "one, begun").rename(root / "two after one")
    for line in small(root, "one"):
        run(line)
    torchrun(
        [
            ["train", str(file), "--out", str(root / "two"), *FLAGS],
            ["train", "--resume", str(root / "two after one")],
            *small(root, "two"),
        ]
    )
    (root / "two, begun").rename(root / "one after two")
    run(["train", "--resume", str(root / "one after two")])
    return root


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())["metrics"]["test"]
    return found


@pytest.mark.parametrize("name", ["two", "two after one", "one after two"])
def test_the_same_metrics_but_for_noise(name: str, root: Path) -> None:
    expected, found = metrics(root / "one"), metrics(root / name)
    assert expected["error"] < 0.6 * expected["persistence"], "it learns something"
    assert found["error"] == pytest.approx(expected["error"], rel=0.01)
    assert found["loss"] == pytest.approx(expected["loss"], rel=0.01)


@pytest.mark.parametrize("name", ["two", "two after one", "one after two"])
def test_one_of_them_writes_and_all_of_it(name: str, root: Path) -> None:
    one, other = ({path.name for path in (root / run).iterdir()} for run in ("one", name))
    assert one == other
    weights = load_file(root / name / "model.safetensors")
    assert {key: value.shape for key, value in weights.items()} == {
        key: value.shape for key, value in load_file(root / "one" / "model.safetensors").items()
    }
    steps = [json.loads(line) for line in (root / name / "history.jsonl").read_text().splitlines()]
    assert [step["number"] for step in steps if step["kind"] == "step"] == list(range(1, EPOCHS * BATCHES + 1))


@pytest.mark.parametrize("name", SMALL)
def test_a_worker_may_get_nothing(name: str, root: Path) -> None:
    """Dropout is drawn by each worker for itself; a forecast has none, and comes to the same numbers."""
    expected, found = metrics(root / f"{name} by one"), metrics(root / f"{name} by two")
    assert found == pytest.approx(expected, rel=1e-3 if name == "series" else 0.1)


def test_the_first_of_them_reports_a_mistake(root: Path) -> None:
    done = by_two("-m", "throughtime", "train", str(root / "a.csv"), "--target", "nothing")
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    assert "`--target` names no column of a.csv: got 'nothing'" in line


def test_a_mistake_that_another_finds_alone_is_not_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("throughtime.cli._exit_codes.time.sleep", waited.append)
    for name, value in (("LOCAL_RANK", "1"), ("RANK", "1")):
        monkeypatch.setenv(name, value)
    is_one_line_of_error(call("train", root / "nothing.csv"), "got no such file")
    assert waited == [A_MOMENT]
