"""What a notebook shows of plans, histories and reports."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import throughtime as tt
from throughtime.runtime.explanation import Explanation

pytestmark = pytest.mark.covers("report")

EVIL = "<script>alert('x')</script>&\"'"
VOID = {"br", "hr", "img", "input", "meta", "link"}


class Read(HTMLParser):
    """The tags, attributes and text of a fragment; every tag must be closed in its turn."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def history(epochs: int, name: str = "loss") -> tt.train.History:
    made = tt.train.History()
    for number in range(1, epochs + 1):
        metrics = {name: 1 / number}
        made.epochs.append(tt.train.Epoch(number, 10 * number, metrics, metrics, 1e-3, 2.5, number == 2))
    return made


def report(title: str = "Who?") -> tt.train.Report:
    made = tt.train.Report(title)
    made.add_facts({EVIL: EVIL})
    return made


def plan() -> Explanation:
    return tt.explain(tt.LSTMCell(4), torch.ones(2, 3, 5))


SHOWN = {
    "a plan": plan,
    "an evil plan": lambda: Explanation("reference", {EVIL: EVIL}, None, EVIL, EVIL, None, EVIL),
    "a history": lambda: history(3, EVIL),
    "an empty history": lambda: history(0),
    "a report": lambda: report(EVIL),
}


@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN)
def test_fragments_are_whole_safe_and_alone(make: Any) -> None:
    """Text is escaped, nothing is fetched, and colours are those of the page."""
    fragment = make()._repr_html_()
    read = Read(fragment)
    assert not {"script", "link", "img", "style"} & {*read.tags}
    assert not any(name.startswith("on") or name in ("src", "href") for name, _ in read.attributes)
    styles = " ".join(value or "" for name, value in read.attributes if name == "style")
    assert "url(" not in styles
    assert not any(part.strip().startswith(("color: #", "background: #")) for part in styles.split(";"))


def test_a_plan_in_a_notebook() -> None:
    shown = Read(plan()._repr_html_())
    assert "LSTMCell over 2 sequences of 3 steps" in shown.text
    assert "in the loop, at every step" in shown.text
    assert shown.tags.count("details") == 2
    assert plan().source.splitlines()[0] in shown.text


def test_the_reasons_of_a_plan_in_a_notebook() -> None:
    with tt.backend("reference"):
        made = plan()
    text = Read(made._repr_html_()).text
    assert "runs on reference" in text
    assert all(reason in text for reason in made.reasons.values())


def test_a_history_in_a_notebook() -> None:
    fragment = history(3)._repr_html_()
    read = Read(fragment)
    assert read.text.startswith("History of 3 epochs, 0 steps")
    assert "train lossvalid loss" in read.text
    assert read.tags.count("tr") == 4
    second = fragment.split("<tr>")[3]
    assert ">2</td>" in second
    assert second.count("font-weight: 600") == second.count("<td")
    assert fragment.count("font-weight: 600") == second.count("<td") + 1


def test_of_many_epochs_the_last_are_shown() -> None:
    read = Read(history(500)._repr_html_())
    assert "the last 30 epochs" in read.text
    assert read.tags.count("tr") == 31


def test_a_report_in_a_notebook_is_the_page_in_a_frame() -> None:
    made = report()
    read = Read(made._repr_html_())
    assert read.tags == ["iframe"]
    attributes = dict(read.attributes)
    assert attributes["srcdoc"] == made.html()
    assert attributes["sandbox"] == "allow-scripts"
