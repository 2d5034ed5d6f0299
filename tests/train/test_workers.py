"""More than one process: the same run, shared; and the same again with another number of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from _task import examples
from _workers_job import EPOCHS, computed_again, few_rows, few_rows_truncated, run, sparing, truncated

import throughtime as tt

pytestmark = pytest.mark.covers("training")

JOB = Path(__file__).with_name("_workers_job.py")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """How every run ended: those of this process, and those of two that torchrun started."""
    folder = tmp_path_factory.mktemp("workers")
    alone = {
        "one": run(folder / "one", EPOCHS),
        "truncated by one": truncated(folder / "truncated by one"),
        "few rows": few_rows(folder / "few rows"),
        "few rows, truncated": few_rows_truncated(folder / "few rows, truncated"),
        "sparing": sparing(folder / "sparing"),
        "computed again": computed_again(folder / "computed again"),
    }
    run(folder / "begun by one", 1)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(JOB), str(folder)]
    # They meet by gloo: where there is a GPU it may be one for two.
    paths = os.pathsep.join([str(JOB.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True, env=environment, timeout=180)
    workers = [json.loads((folder / f"worker-{rank}.json").read_text()) for rank in (0, 1)]
    return {**alone, "workers": workers, "begun by two": run(folder / "begun by two", EPOCHS)}


def check_alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["train"] == pytest.approx(expected["train"], abs=1e-4)
    assert found["valid"] == pytest.approx(expected["valid"], abs=1e-4)
    torch.testing.assert_close(torch.tensor(found["weights"]), torch.tensor(expected["weights"]), rtol=0, atol=1e-3)


def test_two_processes_learn_what_one_does(ended: dict[str, Any]) -> None:
    for worker in ended["workers"]:
        check_alike(worker["whole"], ended["one"])
        assert [tuple(step) for step in worker["whole"]["steps"]] == ended["one"]["steps"]


def test_both_processes_end_with_the_same_bits(ended: dict[str, Any]) -> None:
    first, second = ended["workers"]
    for name in ("whole", "begun by one", "truncated", "few rows", "few rows, truncated", "sparing"):
        assert first[name]["weights"] == second[name]["weights"]


def test_a_run_of_one_goes_on_with_two(ended: dict[str, Any]) -> None:
    check_alike(ended["workers"][0]["begun by one"], ended["one"])


def test_a_run_of_two_goes_on_with_one(ended: dict[str, Any]) -> None:
    check_alike(ended["begun by two"], ended["one"])


def test_windows_are_shared_too(ended: dict[str, Any]) -> None:
    check_alike(ended["workers"][0]["truncated"], ended["truncated by one"])


@pytest.mark.parametrize("name", ["few rows", "few rows, truncated"])
def test_a_worker_without_a_row_takes_part(name: str, ended: dict[str, Any]) -> None:
    for worker in ended["workers"]:
        check_alike(worker[name], ended[name])
        assert [tuple(step) for step in worker[name]["steps"]] == ended[name]["steps"], "each row counts once"


def test_a_parameter_may_go_unused(ended: dict[str, Any]) -> None:
    """Everywhere or on one worker, always or now and then; and `measure` is given the model itself."""
    check_alike(ended["workers"][0]["sparing"], ended["sparing"])


def test_what_is_computed_again_is_not_unused(ended: dict[str, Any]) -> None:
    check_alike(ended["workers"][0]["computed again"], ended["computed again"])


def test_a_loss_without_a_gradient_is_found_by_all(ended: dict[str, Any]) -> None:
    for worker in ended["workers"]:
        assert worker["without a gradient"].startswith("the loss has no gradient: got a loss of numbers alone")


def test_a_loop_of_ones_own_would_count_rows_twice(ended: dict[str, Any]) -> None:
    for worker in ended["workers"]:
        assert worker["a loop of one's own"] == (
            "a batch has fewer rows than there are workers: got 1 row, expected at least 2. "
            "Raise `batch_size`, or use fewer workers."
        )


def test_the_work_is_shared_fairly(ended: dict[str, Any]) -> None:
    (first,), (second,) = (worker["steps"] for worker in ended["workers"])
    assert first + second == sum(len(inputs) for inputs, _ in examples())
    assert abs(first - second) < 0.1 * (first + second)


def test_alone_there_is_one_worker() -> None:
    with tt.train.workers() as worker:
        assert (worker.rank, worker.size, worker.is_first) == (0, 1, True)
