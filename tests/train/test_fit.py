"""The training loop: it learns, and every option does what it says."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from _task import Counter, examples, measure, measure_from, parts, weights
from rich.console import Console
from torch import nn
from torch.optim import lr_scheduler

import throughtime as tt
from throughtime.train import Callback, History, Progress, TensorBoard, evaluate, fit, pad
from throughtime.train._distributed import this_worker
from throughtime.train._optimizer_step import OptimizerStep

pytestmark = pytest.mark.covers("training")


def test_it_learns_and_says_so() -> None:
    setup = parts()
    history = fit(**setup, epochs=40)
    first, last = history.epochs[0], history.epochs[-1]
    assert first.valid["accuracy"] < 0.6
    assert last.valid["accuracy"] > 0.95
    assert len(history.steps) == 40 * len(setup["train"])
    step = history.steps[-1]
    assert (step.number, step.epoch, step.rows) == (200, 40, 12)
    assert 0 < step.steps <= step.padded_steps
    assert step.seconds > 0
    assert step.memory > 1e6
    assert step.gradient_norm > 0
    assert last.step == 200
    assert last.valid == evaluate(setup["model"], measure, setup["valid"])


def test_one_step_is_one_step_of_torch() -> None:
    """The same as the loop that people write by hand: bit by bit."""
    setup = parts()
    fit(**setup, epochs=2, clip_norm=0.5)
    twin = parts()
    model, optimizer = twin["model"], twin["optimizer"]
    for epoch in (1, 2):
        twin["train"].batch_sampler.set_epoch(epoch)
        for batch in twin["train"]:
            loss = measure(model, batch)["loss"]
            (loss.total * (1 / loss.count)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    assert torch.equal(weights(model), weights(setup["model"]))


def test_clipping_bounds_the_step_and_the_record_is_of_before() -> None:
    setup = parts(lr=1.0)
    setup["optimizer"] = torch.optim.SGD(setup["model"].parameters(), 1.0)
    before = weights(setup["model"])
    history = fit(**setup | {"train": [next(iter(setup["train"]))]}, epochs=1, clip_norm=1e-3)
    torch.testing.assert_close((weights(setup["model"]) - before).norm(), torch.tensor(1e-3), rtol=1e-3, atol=0)
    assert history.steps[0].gradient_norm > 0.01


@pytest.mark.parametrize("length", [0.5, 0.9985, 0.9995, 1.0 - 4e-7, 1.0, 1.5, math.inf, math.nan], ids=str)
@pytest.mark.parametrize("bound", [1.0, 1e-5])
def test_clipping_is_that_of_torch_to_the_bit(length: float, bound: float) -> None:
    """Also where the norm is all but the bound, where the bound is tiny, and where the norm is no number."""
    twins = [nn.Linear(5, 3, bias=False) for _ in range(2)]
    norm = twins[0].weight.detach().norm()
    for twin in twins:
        twin.load_state_dict(twins[0].state_dict())
        twin.weight.grad = twin.weight.detach() * (length * bound / norm)
    optimizer = torch.optim.SGD(twins[0].parameters())
    stepper = OptimizerStep(twins[0], measure, optimizer, this_worker(), bound, None, carry=False)
    found, expected = stepper._clip(), float(nn.utils.clip_grad_norm_(twins[1].parameters(), bound))
    assert found == expected or (math.isnan(found) and math.isnan(expected))
    torch.testing.assert_close(twins[0].weight.grad, twins[1].weight.grad, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_gradients_of_a_gpu_are_made_in_this_thread_and_torch_is_left_as_it_was(device: str) -> None:
    """Also when the step goes wrong; torch's setting is one of the thread, so nothing of it needs a GPU."""
    setup, seen = parts(), []
    model, batch = setup["model"], next(iter(setup["train"]))
    stepper = OptimizerStep(model, measure, setup["optimizer"], this_worker(), None, None, carry=False)
    stepper.device = torch.device(device)
    model.out.bias.register_hook(lambda _: seen.append(torch._C._is_multithreading_enabled()))
    stepper.step(batch, None)
    assert seen == [device == "cpu"]
    assert torch._C._is_multithreading_enabled()
    model.out.bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stepper.step(batch, None)
    assert torch._C._is_multithreading_enabled()


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_schedules_advance(every: str) -> None:
    setup = parts(lr=1.0)
    schedule = lr_scheduler.ExponentialLR(setup["optimizer"], 0.5)
    history = fit(**setup, epochs=2, schedule=schedule, schedule_every=every)
    found = [step.learning_rate for step in history.steps]
    assert found == ([0.5**n for n in range(10)] if every == "step" else [1.0] * 5 + [0.5] * 5)


def test_plateaus_are_those_of_the_monitored_metric() -> None:
    """Steps of next to nothing: no epoch is better than the first."""
    setup = parts()
    setup["optimizer"] = torch.optim.SGD(setup["model"].parameters(), 1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(setup["optimizer"], factor=0.1, patience=0)
    history = fit(**setup, epochs=3, schedule=schedule, clip_norm=1e-12)
    assert [epoch.learning_rate for epoch in history.epochs] == pytest.approx([1.0, 1.0, 0.1])


@pytest.mark.parametrize("higher", [False, True])
def test_early_stopping_and_the_best_weights(higher: bool) -> None:
    """A learning rate that ruins everything after the second epoch."""
    setup = parts(lr=0.02)
    schedule = lr_scheduler.LambdaLR(setup["optimizer"], lambda epoch: 1.0 if epoch < 2 else 500.0)
    history = fit(
        **setup,
        epochs=50,
        schedule=schedule,
        schedule_every="epoch",
        monitor="accuracy" if higher else "loss",
        higher_is_better=higher,
        patience=3,
        keep_best=True,
    )
    assert history.stopped_early
    assert len(history.epochs) == history.best.number + 3 < 50
    assert evaluate(setup["model"], measure, setup["valid"]) == pytest.approx(history.best.valid)


def test_without_validation_training_decides() -> None:
    history = fit(**parts() | {"valid": None}, epochs=3)
    assert history.best.valid == {}
    assert history.best.train["loss"] == min(epoch.train["loss"] for epoch in history.epochs)


def test_truncation_carries_the_state_but_no_gradient() -> None:
    """The metrics are those of whole sequences; one window sees the state at the end of the one before."""
    setup = parts() | {"measure": measure_from}
    whole = evaluate(setup["model"], measure, setup["valid"])
    assert evaluate(setup["model"], measure_from, setup["valid"], truncate=5) == pytest.approx(whole)
    seen: list[Any] = []

    def watched(model: nn.Module, batch: Any, state: Any) -> Any:
        seen.append(state)
        return measure_from(model, batch, state)

    history = fit(**setup | {"measure": watched, "valid": None}, epochs=1, truncate=5)
    assert any(state is None for state in seen)
    assert all(state is None or not state.requires_grad for state in seen)
    assert len(history.steps) == len(seen) > len(setup["train"])
    assert sum(step.steps for step in history.steps) == sum(len(x) for x, _ in examples())


def test_a_language_model_learns_along_its_streams() -> None:
    text = torch.tensor([0, 1, 2, 3] * 50)
    model = nn.ModuleDict({"cell": tt.EmbeddingWrapper(tt.GRUCell(8), 4, 4), "out": nn.Linear(8, 4)})

    def measure_next(model: Any, batch: Any, state: Any) -> Any:
        outputs, state = tt.dynamic_rnn(model["cell"], batch.inputs.unsqueeze(2), batch.lengths, state, torch.float32)
        return {"loss": tt.train.cross_entropy(model["out"](outputs), batch.targets, batch.lengths)}, state

    batch = tt.train.streams(text, 4)
    measure_next(model, next(batch.windows(2)), None)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    history = fit(model, measure_next, [batch], optimizer=optimizer, epochs=4, truncate=10)
    assert history.epochs[-1].train["loss"] < 0.5 < history.epochs[0].train["loss"]


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_mixed_precision(precision: torch.dtype) -> None:
    """Weights stay in single precision, and it learns about as well."""
    setup = parts()
    history = fit(**setup, epochs=12, precision=precision)
    assert weights(setup["model"]).dtype == torch.float32
    assert history.epochs[-1].valid["accuracy"] > 0.7


def test_watchers_see_everything_in_order() -> None:
    seen: list[Any] = []

    class Notes(Callback):
        def begin(self, epochs: int, steps: int, history: History) -> None:
            seen.append(("begin", epochs, steps, len(history.steps)))

        def step(self, step: Any) -> None:
            seen.append(("step", step.number))

        def epoch(self, epoch: Any) -> None:
            seen.append(("epoch", epoch.number))

        def end(self, history: History) -> None:
            seen.append(("end", len(history.steps)))

    fit(**parts(batch_size=30), epochs=2, callbacks=[Notes(), Callback()])
    steps = [("step", 1), ("step", 2), ("epoch", 1), ("step", 3), ("step", 4), ("epoch", 2)]
    assert seen == [("begin", 2, 2, 0), *steps, ("end", 4)]


def test_progress_without_a_mark() -> None:
    text = io.StringIO()
    fit(**parts(), epochs=3, callbacks=[Progress(Console(file=text, width=150), mark_best=False)])
    assert "valid loss" in text.getvalue()
    assert "best" not in text.getvalue()


@pytest.mark.parametrize("interactive", [False, True])
def test_progress(interactive: bool) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=interactive, force_interactive=interactive, width=150)
    fit(**parts(), epochs=3, callbacks=[Progress(console)], patience=1, monitor="accuracy", higher_is_better=False)
    said = text.getvalue()
    assert "epoch 1/3" in said
    assert "valid accuracy" in said
    assert "best" in said
    assert ("steps/s" in said) == interactive


def test_progress_of_many_epochs_can_be_read() -> None:
    text = io.StringIO()
    progress = Progress(Console(file=text, width=150))
    progress.begin(450, 1, History())
    for number in range(1, 451):
        progress.epoch(tt.train.Epoch(number, number, {"loss": 0.5}, {}, 0.1, 0.0, best=True))
    progress.end(History())
    numbers = [int(line.split()[1].split("/")[0]) for line in text.getvalue().splitlines()]
    assert numbers == [1, *range(5, 451, 5)]


def test_progress_counts_windows() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, force_interactive=True, width=150)
    batches = [pad(examples(6)), pad(examples(6, seed=1))]
    windows = sum(-(-batch.inputs.shape[1] // 4) for batch in batches)
    options = {"measure": measure_from, "truncate": 4, "valid": None}
    fit(**parts() | options | {"train": batches}, epochs=2, callbacks=[Progress(console)])
    assert re.search(rf"\b0/{2 * windows}\b", text.getvalue())
    assert f"{2 * windows}/{2 * windows}" in text.getvalue()


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = fit(**parts(), epochs=2, callbacks=[TensorBoard(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    losses = events.Scalars("step/loss")
    assert [event.step for event in losses] == [step.number for step in history.steps]
    assert losses[-1].value == pytest.approx(history.steps[-1].metrics["loss"])
    assert {"valid/accuracy", "train/loss", "step/gradient_norm", "step/learning_rate"} <= set(events.Tags()["scalars"])


def test_tensorboard_is_asked_for_kindly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"TensorBoard is not installed.*pip install 'throughtime\[tensorboard\]'"):
        TensorBoard(tmp_path)


def bad_measure(answer: Any) -> Any:
    return lambda model, batch: answer


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": 1}, TypeError, "`model` is no module: got int"),
        ({"measure": 1}, TypeError, "`measure` must be callable"),
        ({"optimizer": None}, TypeError, "`optimizer` is none: got NoneType, expected a torch.optim Optimizer"),
        ({"schedule": 1}, TypeError, "`schedule` is none: got int, expected a torch.optim LRScheduler"),
        ({"schedule_every": "day"}, ValueError, "`schedule_every` is unknown: got 'day'"),
        ({"epochs": 0}, ValueError, "`epochs` is too small"),
        ({"train": []}, ValueError, "`train` is empty: got 0 batches"),
        ({"train": iter([])}, TypeError, "`train` are no batches: got list_iterator"),
        ({"valid": 3}, TypeError, "`valid` are no batches: got int"),
        ({"clip_norm": 0}, ValueError, "`clip_norm` is out of range: got 0, expected a number above 0"),
        ({"truncate": 0}, ValueError, "`truncate` is too small"),
        ({"precision": torch.float64}, ValueError, "`precision` is unknown: got torch.float64"),
        ({"precision": []}, ValueError, "`precision` is unknown: got []"),
        ({"keep_best": "yes"}, TypeError, "`keep_best` must be True or False: got 'yes'"),
        ({"callbacks": Callback()}, TypeError, "`callbacks` must be callbacks: got Callback, expected a list"),
        (
            {"callbacks": [Callback]},
            TypeError,
            "`callbacks` must be callbacks: got the class Callback, expected a list",
        ),
        ({"patience": 0}, ValueError, "`patience` is too small"),
        ({"resume": True}, ValueError, "checkpoints need a folder: got folder=None"),
        ({"checkpoint_every": 3}, ValueError, "checkpoints need a folder"),
        (
            {"monitor": "f1"},
            ValueError,
            "`monitor` is none of the metrics: got f1, expected one of ['accuracy', 'loss']",
        ),
        ({"measure": bad_measure(3)}, TypeError, "`measure` gave no metrics: got int"),
        ({"measure": bad_measure({"loss": torch.ones(())})}, TypeError, "the metric 'loss' is no mean: got a tensor"),
        (
            {"measure": bad_measure({"loss": tt.train.Mean(torch.ones(()), 1), "accuracy": tt.train.Mean(1.0, 1)})},
            ValueError,
            "the loss has no gradient: got",
        ),
        (
            {"train": [(torch.ones(2, 3, 1), torch.ones(2))]},
            TypeError,
            "there is no batch among the batches: got tuple",
        ),
        (
            {"valid": [(torch.ones(2, 3, 1), torch.ones(2))]},
            TypeError,
            "there is no batch among the batches: got tuple",
        ),
        (
            {"optimizer": torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)},
            ValueError,
            "`optimizer` has none of the model's parameters",
        ),
        ({"measure": bad_measure({})}, ValueError, "`measure` gave no loss: got [], expected"),
        ({"measure": lambda *_: {}, "truncate": 3}, TypeError, "`measure` gave no state to carry on: got dict"),
    ],
)
def test_mistakes(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        fit(**parts() | {"epochs": 1} | change)


@pytest.mark.parametrize(
    "change", [{"keep_best": "yes"}, {"callbacks": 1}, {"keep": 0}, {"precision": "half"}, {"higher_is_better": 1}]
)
def test_mistakes_are_found_before_anything_is_done(change: dict[str, Any], tmp_path: Path) -> None:
    setup = parts()
    before = weights(setup["model"])
    with pytest.raises((TypeError, ValueError)):
        fit(**setup | change, epochs=1, folder=tmp_path / "run")
    assert torch.equal(weights(setup["model"]), before)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "x"}, TypeError, "`model` is no module: got str"),
        ({"measure": 1}, TypeError, "`measure` must be callable"),
        ({"batches": 3}, TypeError, "`batches` are no batches: got int"),
        ({"batches": []}, ValueError, "`batches` is empty: got 0 batches, expected at least one."),
        ({"batches": iter(())}, ValueError, "`batches` is empty: got 0 batches, expected at least one."),
        ({"precision": "half"}, ValueError, "`precision` is unknown: got 'half'"),
        ({"truncate": 0}, ValueError, "`truncate` is too small"),
    ],
)
def test_mistakes_of_an_evaluation(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        evaluate(**{"model": Counter(), "measure": measure, "batches": [pad(examples(5))]} | change)


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    setup = parts()
    with torch.no_grad():
        setup["model"].out.bias.fill_(torch.nan)
    with pytest.raises(tt.InvalidArgumentError, match="the loss is not a number any more: got nan"):
        fit(**setup, epochs=1)


def test_any_iterable_of_batches_will_do() -> None:
    model = Counter()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    history = fit(model, measure, [pad(examples(5))], optimizer=optimizer, epochs=2)
    assert [step.rows for step in history.steps] == [5, 5]


def test_history_is_read_back(tmp_path: Path) -> None:
    history = fit(**parts(), epochs=2, folder=tmp_path)
    assert History.read(tmp_path).steps == history.steps
    assert History.read(tmp_path).epochs == history.epochs
    assert len(History.read(tmp_path, before=(6, 1)).steps) == 5
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert json.loads(lines[-1]) == {"kind": "end", "stopped_early": False}
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"kind": "st')
    assert History.read(tmp_path).steps == history.steps


def test_evaluation_leaves_modes_as_they_were() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    model[1].eval()
    batch = tt.train.pad([(torch.ones(2, 1), 1.0)])
    tt.train.evaluate(model, lambda _, batch: {"loss": tt.train.squared_error(batch.targets, batch.targets)}, [batch])
    assert model.training
    assert model[0].training
    assert not model[1].training


def test_patience_ends_where_there_is_no_number() -> None:
    def measure(model: Any, batch: Any) -> Any:
        loss = next(model.parameters()).square().sum()
        return {"loss": tt.train.Mean(loss, 1), "odd": tt.train.Mean(torch.tensor(torch.nan), 1)}

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [tt.train.pad([(torch.ones(2, 1), 1.0)])]
    history = fit(model, measure, batches, optimizer=optimizer, epochs=8, patience=2, monitor="odd")
    assert len(history.epochs) == 2


def test_what_lies_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    (tmp_path / ".checkpoint-notes").write_text("mine")
    (tmp_path / ".checkpoint-mine").mkdir()

    def measure(model: Any, batch: Any) -> Any:
        return {"loss": tt.train.squared_error(model(batch.inputs)[:, 0, 0], batch.targets)}

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, measure, [tt.train.pad([(torch.ones(2, 1), 1.0)])], optimizer=optimizer, epochs=1, folder=tmp_path)
    assert (tmp_path / ".checkpoint-notes").read_text() == "mine"
    assert (tmp_path / ".checkpoint-mine").is_dir()
