"""What a report says of its numbers: true, finite, few enough to be drawn, and refused where they cannot be."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from _reports import by_node, data_of, drawn, full_report, history

import throughtime as tt
from throughtime.train.report._downsample import histogram, packed, rounded, thinned
from throughtime.train.report._gradient_summary import gradient_verdict

pytestmark = pytest.mark.covers("report")


def test_numbers_survive() -> None:
    data = data_of(full_report())
    assert data["confusion"]["matrix"] == [[5, 1], [0, 4]]
    assert data["history"]["epochs"]["valid"]["accuracy"] == [0.25, 0.5, 0.75]
    assert data["history"]["steps"]["number"] == list(range(1, 16))
    assert data["rate"] == pytest.approx(6000)
    assert data["lengths"] == {
        "edges": [3, 4, 5, 6, 7, 8], "counts": [2, 0, 0, 0, 1], "total": 13, "longest": 7,
        "padding": 0.02, "padding_at_random": 0.3, "part": None,
    }  # fmt: skip


def test_a_baseline_is_drawn_with_its_metric() -> None:
    report = tt.train.Report("t")
    report.add_history(history(), baselines={"loss": "accuracy"})
    data = data_of(report)
    assert data["history"]["epochs"]["names"] == ["loss"]
    assert data["history"]["epochs"]["baselines"] == {"loss": "accuracy"}


def test_helpers_of_numbers() -> None:
    assert rounded([1.23456789, float("nan"), float("inf")]) == [1.235, None, None]
    assert thinned(range(1000), 10) == pytest.approx([49.5 + 100 * part for part in range(10)], rel=1e-3)
    assert histogram([5]) == ([5, 6], [1])
    assert sum(histogram(np.arange(1, 1001))[1]) == 1000
    assert packed([[0.5, -1.0]])["limit"] == 1.0
    assert packed(np.zeros((2, 2)))["limit"] == 1.0


@pytest.mark.parametrize(
    ("norms", "words"),
    [
        ([1.0, 1.0, 1.0], "It arrives: about as large at the first step as at the last."),
        ([0.97, 0.7, 1.0], "It arrives: about as large at the first step as at the last."),
        ([1.1, 1.0, 1.0], "It arrives: 1.1 times larger at the first step than at the last."),
        ([0.5, 0.7, 1.0], "It arrives: 2.0 times smaller at the first step than at the last."),
        ([0.005, 0.7, 1.0], "It fades: 200 times smaller at the first step than at the last."),
        ([200.0, 0.7, 1.0], "It grows: 200 times larger at the first step than at the last."),
        ([1e6, 1e3, 1.0], "It explodes: 1,000,000 times larger at the first step"),
        ([0.0, 1e-3, 1.0], "It vanishes: nothing is left of it at the first step."),
        (
            [0.5, 1.0, 0.0],
            "It arrives: 2.0 times smaller at the first step than at step 2. From what is after step 2 nothing flows",
        ),
        ([1.0, 0.0], "Nothing flows back: the loss looks at nothing after step 1."),
        ([0.0, 0.0], "Nothing flows back: the loss does not depend on the states."),
        ([0.5], "There is one step, and it arrives there: nothing has to flow back."),
        ([np.nan, 2.0, 1.0], "It is lost: at 1 of 3 steps it is not a finite number."),
        ([np.inf, np.nan, 1.0], "It is lost: at 2 of 3 steps it is not a finite number."),
        ([1e200, 1.0, 1e-200], "It explodes: more than 1,000,000,000,000 times larger at the first step"),
    ],
)
def test_what_became_of_the_gradient(norms: list[float], words: str) -> None:
    assert gradient_verdict(norms).startswith(words)
    mirrored = gradient_verdict(norms[::-1], backwards=True)
    assert mirrored.split(":")[0] == gradient_verdict(norms).split(":")[0]


@pytest.mark.parametrize(
    ("norms", "words"),
    [
        ([1.0, 1.02, 1.0], "about as large at all of them."),
        ([0.5, 0.2, 0.4], "largest at step 1 and smallest at step 2, 2.5 times smaller."),
        ([1.0, 1e-6, 1.0], "largest at step 1 and smallest at step 2, 1,000,000 times smaller. What is read there is"),
        ([0.1, 0.2, 0.0], "largest at step 2, and nothing is left of it at step 3. What is read there is not"),
    ],
)
def test_of_a_loss_at_every_step_nothing_is_said_of_what_comes_from_the_end(norms: list[float], words: str) -> None:
    report = tt.train.Report("t")
    report.add_through_time("s", {"L": (np.zeros((3, 2)), norms)}, every_step=True)
    (layer,) = data_of(report)["through"][0]["layers"]
    assert layer["verdict"].startswith(f"The loss looks at every step: the gradient is {words}")
    assert gradient_verdict([0.0, 0.0], every_step=True).startswith("Nothing flows back")
    assert gradient_verdict([np.nan, 1.0], every_step=True).startswith("It is lost")


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda report: report.add_confusion([[1, 2]], ["a"]), "`matrix` and `names` do not fit: got (1, 2)"),
        (
            lambda report: report.add_attention("x", [[1.0]], ["a", "b"], ["c"]),
            "`weights` do not fit the tokens: got (1, 1)",
        ),
        (
            lambda report: report.add_confusion([[0.4, 0.6], [0.5, 0.5]], ["a", "b"]),
            "`matrix` has values that are no counts: got 0.4, expected whole numbers of at least 0.",
        ),
        (
            lambda report: report.add_confusion([[np.nan, 1], [0, 1]], ["a", "b"]),
            "`matrix` has values that are no counts: got nan",
        ),
        (lambda report: report.add_confusion(np.zeros((0, 0)), []), "`matrix` and `names` do not fit: got (0, 0)"),
        (lambda report: report.add_confusion([[-1]], ["a"]), "`matrix` has values that are no counts: got -1.0"),
        (lambda report: report.add_lengths([]), "`lengths` are no list of lengths: got (0,)"),
        (lambda report: report.add_lengths([1.5]), "`lengths` has values that are no lengths: got 1.5"),
        (lambda report: report.add_lengths([1], padding=float("nan")), "`padding` is no share: got nan"),
        (lambda report: report.add_lengths([1], padding_at_random=3), "`padding_at_random` is no share: got 3.0"),
        (lambda report: report.add_forecast("a", {}), "the columns of a forecast do not fit: got {}"),
        (
            lambda report: report.add_forecast("a", {"x": ([1.0], [1.0], [1.0]), "y": ([1.0, 2.0], [1.0], [1.0])}),
            "the columns of a forecast do not fit: got {'x': ((1,), (1,), (1,)), 'y': ((2,), (1,), (1,))}",
        ),
        (
            lambda report: report.add_through_time("a", {"x": (np.zeros((0, 3)), np.zeros(0))}),
            "a layer's states are no map: got (0, 3), expected [T, H], with at least one step and one unit.",
        ),
        (
            lambda report: report.add_through_time("a", {"x": (np.zeros((4, 3)), np.zeros(3))}),
            "gradient norms do not fit the states: got (3,)",
        ),
        (
            lambda report: report.add_through_time("a", {"x": (np.zeros((2, 3)), [-1.0, 1.0])}),
            "a gradient norm is negative: got -1.0",
        ),
        (
            lambda report: report.add_through_time("a", {"x": (np.zeros((2, 3)), None)}, labels="abc"),
            "`labels` do not fit the steps: got {'x': 2}, expected 3 steps, by the labels.",
        ),
    ],
)
def test_mistakes_are_named(add, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        add(tt.train.Report("t"))


def test_what_holds_no_numbers_is_named() -> None:
    with pytest.raises(TypeError, match="`weights` holds what are no numbers: got list"):
        tt.train.Report("t").add_attention("x", [["a"]], ["a"], ["b"])


def test_what_is_said_of_a_long_sequence_is_said_of_all_its_steps() -> None:
    report = tt.train.Report("t")
    norms = np.full(402, 1e-9)
    norms[-1] = 1.0
    report.add_through_time("s", {"L": (np.random.randn(402, 2), norms)})
    (layer,) = data_of(report)["through"][0]["layers"]
    assert layer["verdict"].startswith("It vanishes: 1,000,000,000 times smaller")
    assert layer["gradient"][0] == 1e-9
    assert layer["gradient"][-1] == 1.0
    assert (layer["steps"][0], layer["steps"][-1], len(layer["steps"])) == (1, 402, 400)


def test_labels_of_a_long_sequence_are_those_of_the_steps_shown() -> None:
    report = tt.train.Report("t")
    labels = [f"s{step}" for step in range(1, 1001)]
    report.add_through_time("s", {"L": (np.random.randn(1000, 2), None)}, labels=labels)
    sequence = data_of(report)["through"][0]
    (layer,) = sequence["layers"]
    assert sequence["labels"] == [f"s{step}" for step in layer["steps"]]
    assert layer["states"]["columns"] == len(layer["steps"]) == 400
    assert set(np.diff(layer["steps"])) == {2, 3}


@by_node
def test_steps_of_a_long_sequence_have_their_own_numbers(tmp_path: Path) -> None:
    report = tt.train.Report("t")
    labels = [f"s{step}" for step in range(1, 1235)]
    report.add_through_time("s", {"L": (np.zeros((1234, 2)), np.geomspace(1, 2, 1234))}, labels=labels)
    found = drawn(report, tmp_path)
    ((first, last),) = found["maps"]
    assert first.splitlines()[0] == "step 1: s1"
    assert last.splitlines()[0] == "step 1,234: s1234"
    assert found["charts"] == [["step 1\ngradient norm  1", "step 1,234\ngradient norm  2"]]
    assert "400 of 1,234 steps are shown, at nearly equal distances." in found["texts"]


@by_node
def test_every_part_is_drawn_by_the_script(tmp_path: Path) -> None:
    found = drawn(full_report(), tmp_path)
    assert {last.splitlines()[0] for _, last in found["maps"]} == {"step 7", "step 3"}
    assert "Which class is taken for which" in found["texts"]
    assert not [text for text in found["texts"] if re.search(r"NaN|undefined|Infinity", text)]


@by_node
def test_values_that_are_not_finite_are_told(tmp_path: Path) -> None:
    states = np.random.randn(3, 2)
    states[0, 0], states[2, 1] = np.inf, np.nan
    broken = history()
    broken.steps[1] = broken.steps[1]._replace(gradient_norm=float("inf"))
    broken.epochs[0] = broken.epochs[0]._replace(train={"loss": float("nan"), "accuracy": 0.1})
    report = tt.train.Report("t")
    report.add_history(broken)
    report.add_forecast("f", {"level": ([1.0, 2.0], [1.0], [np.nan])})
    report.add_through_time("u", {"x": (states, [1.0, np.nan, 1.0])})
    report.add_attention("a", [[np.nan, 1.0]], list("ab"), ["c"])
    found = drawn(report, tmp_path)
    for text in (
        "Not finite, and so not drawn: 1 value.",
        "Not finite, and so not drawn: 1 step.",
        "Not finite, and so not drawn: 1 forecast value.",
        "Not finite, and grey in the map where they are shown: 2 values of the state.",
        "It is lost: at 1 of 3 steps it is not a finite number. Something overflows.",
        "Not finite, and so left pale: 1 weight.",
    ):
        assert text in found["texts"]
    ((_, last),) = found["maps"]
    assert last == "step 3\nunit 1\nnot finite"


def test_the_largest_numbers_do_not_become_infinite() -> None:
    largest = np.finfo(np.float64).max
    report = tt.train.Report("t")
    report.add_through_time("u", {"x": ([[largest, -largest, np.inf]], [largest])})
    (layer,) = data_of(report)["through"][0]["layers"]
    assert layer["states"]["limit"] == largest
    assert sorted(np.frombuffer(base64.b64decode(layer["states"]["values"]), np.int8)) == [-128, -127, 127]
    assert rounded([largest]) == [largest]


@by_node
@pytest.mark.parametrize("name", ["constructor", "", "__proto__", "toString"])
def test_any_name_of_a_metric_is_drawn(name: str, tmp_path: Path) -> None:
    odd = tt.train.History()
    odd.steps += history(1, 2).steps
    odd.epochs.append(tt.train.Epoch(1, 2, {"loss": 1.0}, {name: 2.0}, 1e-3, 0.1, best=True))
    report = tt.train.Report("t")
    report.add_history(odd)
    assert ["epoch 1\nvalidation  2", "epoch 1\nvalidation  2"] in drawn(report, tmp_path)["charts"]


@by_node
@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ({}, ""),
        ({"padding": 0.02}, " Batches are 2.0% padding, and none of it is computed."),
        ({"padding_at_random": 0.3}, " Batches at random would be 30.0% padding."),
        (
            {"padding": 0.02, "padding_at_random": 0.3},
            " Batches at random would be 30.0% padding; batches of like length are 2.0%, and none of it is computed.",
        ),
    ],
)
def test_padding_is_told_where_it_is_known(shares: dict[str, float], text: str, tmp_path: Path) -> None:
    report = tt.train.Report("t")
    report.add_lengths([3, 5], **shares)
    assert f"8 real steps, at most 5 in a sequence.{text}" in drawn(report, tmp_path)["texts"]


def many_classes(kind: str):
    """3000 classes, each there once and recognised; 7 was also taken for 1999 twice, 5 is there nine times."""
    counts = torch.eye(3000, dtype=torch.int64)
    counts[7, 1999], counts[5, 5] = 2, 9
    return (
        {(row, column): int(counts[row, column]) for row, column in counts.nonzero().tolist()}
        if kind == "pairs"
        else counts
    )


@by_node
@pytest.mark.parametrize("kind", ["dense", "pairs"])
def test_of_many_classes_the_most_confused_are_shown(kind: str, tmp_path: Path) -> None:
    report = tt.train.Report("t")
    report.add_confusion(many_classes(kind), [f"class {place}" for place in range(3000)])
    shown = data_of(report)["confusion"]
    names = shown["names"]
    assert (len(names), np.shape(shown["matrix"])) == (40, (40, 40))
    assert {"class 5", "class 7", "class 1999"} < set(names)
    assert names == sorted(names, key=lambda name: int(name.split()[1]))
    seven, said = names.index("class 7"), names.index("class 1999")
    assert shown["matrix"][seven][said] == 2
    assert shown["totals"][seven] == 3
    assert shown["total"] == 3010
    found = drawn(report, tmp_path)
    assert "3,010 sequences" in found["texts"]
    assert any(text.startswith("40 of 3,000 classes are shown") for text in found["texts"])
    assert found["nodes"] < 5000
    assert (tmp_path / "report.html").stat().st_size < 100_000


def test_shares_are_of_all_also_of_classes_not_shown() -> None:
    matrix = np.zeros((50, 50), int)
    matrix[:41, 0] = 1
    matrix[0, 1:] = 1
    report = tt.train.Report("t")
    report.add_confusion(matrix, list(map(str, range(50))))
    shown = data_of(report)["confusion"]
    assert shown["totals"][0] == 50
    assert sum(shown["matrix"][0]) == 40


def test_tensors_and_arrays_of_any_kind_are_taken() -> None:
    report = tt.train.Report("t")
    learnt = torch.eye(2, dtype=torch.bfloat16, requires_grad=True)
    report.add_attention("a", learnt, np.arange(2), np.array(["x", "y"]))
    report.add_through_time("a", {"x": (learnt, learnt[0])}, labels=np.arange(2))
    report.add_forecast("a", {"x": (learnt[0], learnt[1], list(learnt[1]))})
    report.add_lengths(torch.tensor([1, 2]), padding=np.float32(0.5), padding_at_random=torch.tensor(0.25))
    report.add_confusion(learnt, np.array([3, 4]))
    data = data_of(report)
    assert data["attention"][0]["source"] == ["0", "1"]
    assert data["attention"][0]["weights"] == [[1.0, 0.0], [0.0, 1.0]]
    assert data["through"][0]["labels"] == ["0", "1"]
    assert data["forecasts"][0]["columns"][0]["forecast"] == [0.0, 1.0]
    assert (data["lengths"]["padding"], data["lengths"]["padding_at_random"]) == (0.5, 0.25)
    assert data["confusion"]["names"] == ["3", "4"]


def test_the_last_door_lets_no_number_through_that_json_does_not_have() -> None:
    report = tt.train.Report("t")
    report._data["rate"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        report.html()
