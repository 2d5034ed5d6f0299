"""Checkpoints: whole or absent, and from each of them a run goes on as if nothing had happened."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _task import Counter, measure_from, parts, weights
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.optim import lr_scheduler

import kill_and_resume
import throughtime as tt
from throughtime.train import Callback, History, fit, latest_checkpoint, load_weights, save_weights
from throughtime.train._checkpoint import Checkpoints
from throughtime.train._serialization import decode, encode

pytestmark = pytest.mark.covers("training")


class Stop(Callback):
    """An interruption after a number of steps."""

    def __init__(self, after: int) -> None:
        self.after = after

    def step(self, step: Any) -> None:
        if step.number == self.after:
            raise KeyboardInterrupt


SCHEDULES: dict[str, Any] = {
    "none": lambda _: None,
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=100),
    "milestones": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [3, 7]),
    "in sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [4]
    ),
    "in another sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.StepLR(optimizer, 2)], [4]
    ),
    "plateau": lr_scheduler.ReduceLROnPlateau,
}


def setting(schedule: str = "none", optimizer: Any = torch.optim.Adam, **options: Any) -> dict[str, Any]:
    """A run with dropout, from torch's generator and from one of its own."""
    setup = parts(dropout=0.2)
    setup["model"].cell = tt.DropoutWrapper(setup["model"].cell, output_keep_prob=0.8, seed=1)
    setup["optimizer"] = optimizer(setup["model"].parameters(), lr=0.02)
    return {**setup, "epochs": 3, "schedule": SCHEDULES[schedule](setup["optimizer"]), **options}


def without_seconds(history: History) -> list[Any]:
    return [record._replace(seconds=0) for record in (*(s._replace(memory=0) for s in history.steps), *history.epochs)]


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ({}, 7),
        ({"checkpoint_every": 1}, 7),
        ({"checkpoint_every": 2}, 9),
        ({"checkpoint_every": 4, "schedule": "one cycle"}, 13),
        ({"checkpoint_every": 4, "schedule": "milestones"}, 6),
        ({"checkpoint_every": 3, "schedule": "in sequence"}, 8),
        ({"schedule": "plateau"}, 11),
        ({"checkpoint_every": 1, "truncate": 4, "measure": measure_from}, 8),
        ({"checkpoint_every": 1, "precision": torch.float16, "optimizer": torch.optim.SGD}, 7),
        ({"checkpoint_every": 2, "optimizer": torch.optim.RMSprop, "patience": 2, "keep_best": True}, 12),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else ", ".join(value),
)
def test_resumed_runs_end_with_the_same_bits(options: dict[str, Any], after: int, tmp_path: Path) -> None:
    whole = setting(**options)
    expected = fit(**whole, folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(**setting(**options), folder=tmp_path / "broken", callbacks=[Stop(after)])
    assert latest_checkpoint(tmp_path / "broken") is not None
    # Whatever happens in between must not matter.
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    resumed = setting(**options)
    history = fit(**resumed, folder=tmp_path / "broken", resume=True)
    assert torch.equal(weights(resumed["model"]), weights(whole["model"]))
    assert without_seconds(history) == without_seconds(expected)
    assert without_seconds(History.read(tmp_path / "broken")) == without_seconds(expected)
    last = [latest_checkpoint(tmp_path / name) / "model.safetensors" for name in ("whole", "broken")]
    assert last[0].read_bytes() == last[1].read_bytes()


def test_data_that_draws_is_drawn_again(tmp_path: Path) -> None:
    """Noise that a data set adds is part of the run."""

    class Noisy(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            inputs, target = super().__getitem__(index)
            return inputs + torch.randn(()) + random.random() + np.random.rand(), target

    def run(folder: str, **options: Any) -> nn.Module:
        random.seed(0)
        np.random.seed(0)
        setup = setting()
        setup["train"] = tt.train.loader(Noisy(setup["train"].dataset), 12)
        fit(**setup, folder=tmp_path / folder, checkpoint_every=2, **options)
        return setup["model"]

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("broken", callbacks=[Stop(8)])
    assert torch.equal(weights(run("broken", resume=True)), weights(whole))


def test_a_run_that_is_over_is_over(tmp_path: Path) -> None:
    first = setting()
    fit(**first, folder=tmp_path)
    again = setting()
    history = fit(**again, folder=tmp_path, resume=True)
    assert torch.equal(weights(again["model"]), weights(first["model"]))
    assert len(history.epochs) == 3
    longer = fit(**{**setting(), "epochs": 5}, folder=tmp_path, resume=True)
    assert len(longer.epochs) == 5


def test_what_lies_in_the_folder(tmp_path: Path) -> None:
    setup = setting(checkpoint_every=2)
    fit(**setup, folder=tmp_path, keep=3)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint-00000012", "checkpoint-00000014", "checkpoint-00000015-epoch", "history.jsonl"]
    last = latest_checkpoint(tmp_path)
    assert last.name == "checkpoint-00000015-epoch"
    assert {path.suffix for path in last.iterdir()} == {".safetensors", ".json"}
    json.loads((last / "training.json").read_text())
    loaded = setting()["model"]
    load_weights(loaded, last / "model.safetensors")
    assert torch.equal(weights(loaded), weights(setup["model"]))


def test_left_overs_of_a_kill_are_no_checkpoints(tmp_path: Path) -> None:
    for name in (".checkpoint-00000009.new", ".checkpoint-00000004.old", "checkpoint-x"):
        (tmp_path / name).mkdir()
    assert latest_checkpoint(tmp_path) is None
    fit(**setting(checkpoint_every=9), folder=tmp_path, resume=True)
    assert latest_checkpoint(tmp_path).name == "checkpoint-00000015-epoch"
    assert not list(tmp_path.glob(".*")), "they are cleared away"


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Real processes, `kill -9`; `tools/kill_and_resume.py` does the same ten times."""
    whole, broken = kill_and_resume.compare(tmp_path, moments=2, seed=0, epochs=3)
    assert whole == broken


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    weights, full = {"w": torch.ones(3)}, False

    def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
        save_file(tensors, path)
        if full and path.name == "training.safetensors":
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("throughtime.train._checkpoint.save_file", save)
    checkpoints.save("00000001", weights, None, {"step": 1})
    full = True
    with pytest.raises(OSError, match="No space left on device") as error:
        checkpoints.save("00000002", weights, None, {"step": 2})
    assert error.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000001"]
    assert checkpoints.load()[2] == {"step": 1}


def test_another_run_is_not_written_over(tmp_path: Path) -> None:
    fit(**setting(), folder=tmp_path)
    with pytest.raises(ValueError, match=r"`folder` holds a run already: got .*, expected a new or an empty folder"):
        fit(**setting(), folder=tmp_path)


def test_other_data_or_another_model_is_noticed(tmp_path: Path) -> None:
    fit(**setting(), folder=tmp_path)
    setup = setting()
    with pytest.raises(ValueError, match="the run was trained on other batches: got 2, expected 5 batches"):
        fit(**setup | {"train": tt.train.loader(setup["train"].dataset, 40)}, folder=tmp_path, resume=True)
    other = setting()
    other["model"].out = nn.Linear(12, 9)
    with pytest.raises(
        ValueError, match=r"the weights do not fit: got a file that has another shape of out.bias \(4,\)"
    ):
        fit(**other, folder=tmp_path, resume=True)


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "optimizer": (
        {"optimizer": torch.optim.SGD},
        {"optimizer": torch.optim.Adam},
        "the run began otherwise: got optimizer Adam, expected optimizer SGD. Go on as it began",
    ),
    "one much like it": (
        {"optimizer": torch.optim.Adam},
        {"optimizer": torch.optim.AdamW},
        "got optimizer AdamW, expected optimizer Adam",
    ),
    "schedule": (
        {"schedule": "milestones"},
        {"schedule": "one cycle"},
        "got schedule OneCycleLR, expected schedule MultiStepLR",
    ),
    "a schedule inside": (
        {"schedule": "in sequence"},
        {"schedule": "in another sequence"},
        r"got schedule SequentialLR(ConstantLR, StepLR), expected schedule SequentialLR(ConstantLR, ExponentialLR)",
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_another_kind_is_noticed_before_anything_changes(case: str, tmp_path: Path) -> None:
    before, now, message = KINDS[case]
    fit(**setting(**before), folder=tmp_path)
    other = setting(**now)
    untouched = weights(other["model"]).clone()
    with pytest.raises(tt.InvalidArgumentError, match=re.escape(message)):
        fit(**other, folder=tmp_path, resume=True)
    assert torch.equal(weights(other["model"]), untouched)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 5}, "got seed 5, expected seed 0"),
        ({"shuffle": False}, "got shuffle False, expected shuffle True"),
        ({"lengths": [3] * 60}, "got steps 180, expected steps"),
        ({"examples": 59}, "got sequences 59, expected sequences 60"),
    ],
)
def test_other_batches_of_the_same_number_are_noticed(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    fit(**setting(), folder=tmp_path)
    setup, how = setting(), dict(options)
    setup["train"] = tt.train.loader(setup["train"].dataset[: how.pop("examples", None)], 12, **how)
    with pytest.raises(tt.InvalidArgumentError, match=f"the run was trained on other batches: {message}"):
        fit(**setup, folder=tmp_path, resume=True)


def test_another_batch_size_with_the_same_batches_goes_on(tmp_path: Path) -> None:
    fit(**setting(), folder=tmp_path)
    setup = setting()
    setup["train"] = tt.train.loader(setup["train"].dataset, 14)
    assert len(fit(**setup | {"epochs": 4}, folder=tmp_path, resume=True).epochs) == 4


def test_other_groups_of_parameters_are_noticed(tmp_path: Path) -> None:
    fit(**setting(), folder=tmp_path)
    setup = setting()
    halves = [{"params": list(setup["model"].cell.parameters())}, {"params": list(setup["model"].out.parameters())}]
    setup["optimizer"] = torch.optim.Adam(halves, lr=0.02)
    with pytest.raises(tt.InvalidArgumentError, match=r"got parameters a group \[4, 2\], expected .* \[6\]"):
        fit(**setup, folder=tmp_path, resume=True)


def test_checkpoints_of_earlier_versions_are_read(tmp_path: Path) -> None:
    whole, resumed = setting(), setting()
    fit(**whole)
    fit(**setting() | {"epochs": 1}, folder=tmp_path)
    path = latest_checkpoint(tmp_path) / "training.json"
    state = json.loads(path.read_text())
    del state["kinds"], state["buckets"]
    path.write_text(json.dumps(state))
    fit(**resumed, folder=tmp_path, resume=True)
    assert torch.equal(weights(resumed["model"]), weights(whole["model"]))


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077], ids=oct)
def test_all_files_are_for_whom_the_umask_says(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        fit(**setting() | {"epochs": 1}, folder=tmp_path / "run")
        save_weights(Counter(), tmp_path / "run" / "w.safetensors")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) == 6
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}


@pytest.mark.parametrize("name", ["training.json", "training.safetensors", "model.safetensors", "best.safetensors"])
def test_a_damaged_checkpoint_says_how_to_go_on(name: str, tmp_path: Path) -> None:
    fit(**setting(), folder=tmp_path)
    newest = latest_checkpoint(tmp_path)
    (newest / name).write_bytes(b"{")
    message = rf"the checkpoint cannot be read: got .*{name}: .*, expected the file as it was written\. "
    with pytest.raises(tt.InvalidArgumentError, match=f"{message}Remove the folder {newest} to go on from") as error:
        fit(**setting(), folder=tmp_path, resume=True)
    assert str(error.value).endswith("to go on from checkpoint-00000010-epoch.")
    shutil.rmtree(newest)
    assert len(fit(**setting(), folder=tmp_path, resume=True).epochs) == 3


def test_a_damaged_first_checkpoint(tmp_path: Path) -> None:
    fit(**setting() | {"epochs": 1}, folder=tmp_path)
    save_file({}, latest_checkpoint(tmp_path) / "training.safetensors")
    with pytest.raises(tt.InvalidArgumentError, match=r"no tensor 'state\..*to go on from the beginning\."):
        fit(**setting(), folder=tmp_path, resume=True)


def test_weights_of_all_kinds(tmp_path: Path) -> None:
    """Shared parameters, buffers, and cells that are not built yet."""
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "norm": nn.BatchNorm1d(3)})
    model["b"].weight = model["a"].weight
    save_weights(model, tmp_path / "w.safetensors")
    twin = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "norm": nn.BatchNorm1d(3)})
    twin["b"].weight = twin["a"].weight
    load_weights(twin, tmp_path / "w.safetensors")
    assert torch.equal(twin["b"].weight, model["a"].weight)
    assert twin["b"].weight is twin["a"].weight
    apart = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "norm": nn.BatchNorm1d(3)})
    with pytest.raises(ValueError, match=r"the weights do not fit: got a file that has no b.weight"):
        load_weights(apart, tmp_path / "w.safetensors")
    save_weights(tt.LSTMCell(4, input_size=3), tmp_path / "lstm.safetensors")
    cell = tt.LSTMCell(4)
    load_weights(cell, tmp_path / "lstm.safetensors")
    assert cell(torch.ones(1, 3), cell.zero_state(1, torch.float32))[0].shape == (1, 4)
    with pytest.raises(ValueError, match=r"the weights do not fit: got a file that has an unknown norm."):
        load_weights(nn.BatchNorm1d(3, affine=False, track_running_stats=False), tmp_path / "w.safetensors")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(
        ValueError, match=r"the weights cannot be read: got .*x.safetensors: .*a safetensors file. Take another file."
    ):
        load_weights(Counter(), tmp_path / "x.safetensors")


def test_codec() -> None:
    """Everything that state dicts are made of comes back as it was; the rest is refused by name."""
    tree = {"a": [1, 2.5, None, True], "b": {0: torch.arange(3), 7: (1, "x")}, "c": {"nan": float("inf")}, "d": ()}
    tensors: dict[str, torch.Tensor] = {}
    found = decode(json.loads(json.dumps(encode(tree, tensors, "state"))), tensors)
    assert list(tensors) == ["state.b.0"]
    assert torch.equal(found["b"].pop(0), tree["b"].pop(0))
    assert found == tree
    with pytest.raises(TypeError, match=r"a checkpoint cannot hold `state.f`: got function"):
        encode({"f": lambda: None}, {}, "state")


class Normed(Counter):
    """It counts on its way: what has been seen is part of what a run comes to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)

    def forward(self, inputs: Any, lengths: Any, state: Any = None) -> Any:
        return super().forward(self.norm(inputs.transpose(1, 2)).transpose(1, 2), lengths, state)


def normed() -> dict[str, Any]:
    setup = parts()
    torch.manual_seed(0)
    model = Normed()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    return {**setup, "model": model, "optimizer": optimizer, "epochs": 2, "truncate": 4, "measure": measure_from}


@pytest.mark.parametrize("after", [2, 3, 5])
def test_what_a_model_counts_is_counted_once(after: int, tmp_path: Path) -> None:
    whole, resumed = normed(), normed()
    fit(**whole)
    with pytest.raises(KeyboardInterrupt):
        fit(**normed(), folder=tmp_path, checkpoint_every=1, callbacks=[Stop(after)])
    fit(**resumed, folder=tmp_path, checkpoint_every=1, resume=True)
    pairs = zip(whole["model"].state_dict().values(), resumed["model"].state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_run_goes_on_as_it_began(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(**setting(), folder=tmp_path, callbacks=[Stop(7)])
    with pytest.raises(tt.InvalidArgumentError, match="the run began without `schedule`"):
        fit(**setting("one cycle"), folder=tmp_path, resume=True)
    with pytest.raises(tt.InvalidArgumentError, match=r"the run began without `precision=torch\.float16`"):
        fit(**setting(precision=torch.float16), folder=tmp_path, resume=True)


def test_a_history_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(tt.InvalidArgumentError, match="there is no such run"):
        History.read(tmp_path / "nowhere")
