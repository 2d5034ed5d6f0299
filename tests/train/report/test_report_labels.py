"""What a reader is told beside the pictures: names, units, whole steps, signs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from _reports import by_node, drawn, history

import throughtime as tt

pytestmark = [pytest.mark.covers("report"), by_node]


def test_all_classes_are_named_on_both_sides(tmp_path: Path) -> None:
    names = ["bearing", "ok", "overheat"]
    report = tt.train.Report("t")
    report.add_confusion(np.diag([4, 2, 3]), names)
    texts = drawn(report, tmp_path)["texts"]
    assert all(texts.count(name) == 2 for name in names)


@pytest.mark.parametrize("classes", [9, 30, 40])
def test_many_classes_with_long_names_are_named_in_short(classes: int, tmp_path: Path) -> None:
    names = [f"{place} is the number of a class" for place in range(classes)]
    report = tt.train.Report("t")
    report.add_confusion(np.eye(classes, dtype=int), names)
    texts = drawn(report, tmp_path)["texts"]
    for name in names:
        # Its row and its column say what there is room for, and all of it when they are pointed at.
        assert texts.count(name) == 2
        assert f"{name[:19]}…{name}" in texts
        assert f"{name[:13]}…{name}" in texts


def found_in(tmp_path: Path, add: Callable[[tt.train.Report], None]) -> dict:
    report = tt.train.Report("t")
    add(report)
    return drawn(report, tmp_path)


@pytest.mark.parametrize(("bytes_used", "said"), [(300 * 2**20, "300 MiB"), (40 * 2**30, "40 GiB")])
def test_time_and_memory_have_units(bytes_used: int, said: str, tmp_path: Path) -> None:
    run = history()
    run.steps[:] = [step._replace(memory=bytes_used) for step in run.steps]
    found = found_in(tmp_path, lambda report: report.add_history(run))
    tips = {tip for edges in found["charts"] for tip in edges}
    assert {"training step 1\ntime  10 ms", f"training step 15\nmemory  {said}"} <= tips
    # On the axes, too.
    assert {"ms", said.split()[1]} <= set(found["texts"])


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_there_is_no_half_a_step(batches: int, tmp_path: Path) -> None:
    def add(report: tt.train.Report) -> None:
        report.add_history(history(1, batches))
        report.add_through_time("s", {"L": (np.zeros((3, 2)), [0.5, 0.5, 0.5])})

    # What stands below an axis is in the middle of its place.
    ticks = [place["text"] for place in found_in(tmp_path, add)["places"] if place.get("text-anchor") == "middle"]
    assert set(ticks) == {"1", "2", "3"}


def test_steps_of_many_have_whole_numbers(tmp_path: Path) -> None:
    found = found_in(tmp_path, lambda report: report.add_history(history(2, 301)))
    assert ["training step 2\nlearning rate  0.001", "training step 602\nlearning rate  0.001"] in found["charts"]


def test_every_step_of_a_gradient_is_there(tmp_path: Path) -> None:
    norms = [0.06, 0.05, 0.0]
    found = found_in(tmp_path, lambda report: report.add_through_time("s", {"L": (np.zeros((3, 2)), norms)}))
    assert found["charts"] == [["step 1\ngradient norm  0.06", "step 3\ngradient norm  0"]]
    assert found["circles"] == 3
    assert "The gradient is 0 at 1 step: a ring at the lower edge." in found["texts"]
    said = (
        "It arrives: 1.2 times larger at the first step than at step 2. From what is after step 2 nothing flows back."
    )
    assert said in found["texts"]


def test_signs_and_words_of_attention(tmp_path: Path) -> None:
    source, target = ["January", "30,", " ", "a word too long to be shown"], ["2", "?", "■"]
    found = found_in(tmp_path, lambda report: report.add_attention("a", np.full((3, 4), 0.25), source, target))
    assert {"January", "30,", "a word too lo…a word too long to be shown"} <= set(found["texts"])
    signs = "■ is the end of what is written; ␣ is a space; ? stands for what the model has never seen."
    assert signs in found["texts"]
    plain = found_in(tmp_path, lambda report: report.add_attention("a", [[1.0]], ["a"], ["b"]))
    assert not [text for text in plain["texts"] if "is the end" in text]


@pytest.mark.parametrize("count", [3, 40])
def test_headings_of_attention_do_not_meet(count: int, tmp_path: Path) -> None:
    words = [f"word{place:02}" for place in range(count)]
    found = found_in(tmp_path, lambda report: report.add_attention("a", np.ones((1, count)), words, ["x"]))
    headings = [place for place in found["places"] if place["text"] in words]
    assert len(headings) == count
    gaps = np.diff([float(place["x"]) for place in headings])
    aslant = all("transform" in place for place in headings)
    assert gaps.min() > (15 if aslant else 6 * len(words[0]))
    assert aslant == (count == 40)


def test_a_forecast_has_room(tmp_path: Path) -> None:
    def add(report: tt.train.Report) -> None:
        report.add_forecast("s", {"level": (np.arange(390.0), np.arange(10.0), np.arange(10.0))})

    found = found_in(tmp_path, add)
    # The end of the past at first and by the first button, all of it by the second.
    assert [first.splitlines()[0] for first, _ in found["charts"]] == ["step 361", "step 361", "step 1"]
    assert {"the last 30 steps", "all 390 steps"} <= set(found["texts"])
    assert found["dashed"] == ["what came"] * 3


@pytest.mark.parametrize(
    ("lengths", "said"),
    [([7], "There is one sequence, of 7 steps."), ([4, 4, 4], "All 3 sequences have 4 steps.")],
)
def test_sequences_of_one_length_are_told(lengths: list[int], said: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, lambda report: report.add_lengths(lengths))
    assert said in found["texts"]
    assert f"{sum(lengths)} real steps." in found["texts"]


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ({0: 0.43}, " The first took 430 ms, and compiled the kernels."),
        ({0: 0.43, 7: 0.5}, " Not drawn: 2 steps of up to 500 ms, the first among them: there kernels are compiled."),
        ({7: 0.5}, " Not drawn: 1 step of up to 500 ms."),
        ({}, ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [100, 2000])
def test_steps_that_compile_are_told(steps: int, slow: dict[int, float], said: str, tmp_path: Path) -> None:
    """However many there are: each of many that are shown is the mean of neighbours."""
    run = history(1, steps)
    for place, seconds in slow.items():
        run.steps[place] = run.steps[place]._replace(seconds=seconds)
    found = found_in(tmp_path, lambda report: report.add_history(run))
    assert [text for text in found["texts"] if text.endswith(f"sequence steps a second, on average.{said}")]
    times = [tip for edges in found["charts"] for tip in edges if "\ntime" in tip]
    assert {tip.split("time")[1] for tip in times} == {"  10 ms"}


def test_what_is_said_of_colours_is_true_in_the_dark(tmp_path: Path) -> None:
    found = found_in(tmp_path, lambda report: report.add_attention("a", [[1.0]], ["a"], ["b"]))
    assert not [text for text in found["texts"] if "darker" in text or "brighter" in text]
    assert [text for text in found["texts"] if "the fuller its colour, the more the model looked" in text]


def test_what_is_too_small_for_the_scale_is_not_drawn_at_its_edge(tmp_path: Path) -> None:
    norms = [1e-40, 1e-20, 1e-6, 1.0]
    found = found_in(tmp_path, lambda report: report.add_through_time("s", {"L": (np.zeros((4, 2)), norms)}))
    assert found["circles"] == 2
    assert "Less than 1e-12, and so not drawn: at 2 steps." in found["texts"]
    assert found["charts"] == [["step 1\ngradient norm  1e-40", "step 4\ngradient norm  1"]]


def test_bars_stand_above_their_lengths(tmp_path: Path) -> None:
    found = found_in(tmp_path, lambda report: report.add_lengths([3, 3, 4, 5, 9]))
    ticks = {int(place["text"]): float(place["x"]) for place in found["places"] if place.get("text-anchor") == "middle"}
    middles = {length: float(bar["x"]) + float(bar["width"]) / 2 for length, bar in enumerate(found["bars"], 3)}
    assert set(ticks) == {4, 6, 8}
    assert all(middles[length] == pytest.approx(place, abs=1) for length, place in ticks.items())


@pytest.mark.parametrize(
    ("padding", "at_random", "said"),
    [
        (0.02, 0.3, " Batches at random would be 30.0% padding; batches of like length are 2.0%, and none of it"),
        (0.02, 0.02, " Batches are 2.0% padding, and none of it is computed."),
        (0.02, None, " Batches are 2.0% padding, and none of it is computed."),
        (None, 0.3, " Batches at random would be 30.0% padding."),
    ],
)
def test_padding_is_compared_where_it_differs(
    padding: float | None, at_random: float | None, said: str, tmp_path: Path
) -> None:
    def add(report: tt.train.Report) -> None:
        report.add_lengths([3, 4], padding=padding, padding_at_random=at_random)

    assert [text for text in found_in(tmp_path, add)["texts"] if said in text]


def test_counts_of_a_long_sequence_are_those_of_what_is_shown(tmp_path: Path) -> None:
    norms = np.concatenate([np.zeros(600), np.full(600, 1e-20), np.ones(800)])
    found = found_in(tmp_path, lambda report: report.add_through_time("s", {"L": (np.zeros((2000, 2)), norms)}))
    assert "The gradient is 0 at 120 steps of those shown, where nothing is drawn." in found["texts"]
    assert "Less than 1e-12, and so not drawn: at 120 steps of those shown." in found["texts"]


@pytest.mark.parametrize(("steps", "named"), [(30, True), (60, True), (61, False)])
def test_letters_are_there_where_there_is_room(steps: int, named: bool, tmp_path: Path) -> None:
    def add(report: tt.train.Report) -> None:
        report.add_through_time("s", {"L": (np.zeros((steps, 2)), None)}, labels=["ß"] * steps)

    assert found_in(tmp_path, add)["texts"].count("ß") == (steps if named else 0)


def test_a_part_that_is_none_is_refused() -> None:
    message = r"`part` is no part of the data: got 'held out', expected one of \('training', 'validation', 'test'\)"
    with pytest.raises(ValueError, match=message):
        tt.train.Report("t", part="held out")


@by_node
@pytest.mark.parametrize("part", ["test", None])
def test_the_part_of_the_matrix_is_told_if_it_is_known(part: str | None, tmp_path: Path) -> None:
    report = tt.train.Report("t", part=part)
    report.add_confusion([[5, 1], [0, 4]], ["a", "b"])
    assert ("10 test sequences" if part else "10 sequences") in drawn(report, tmp_path)["texts"]
