"""Words or characters: what is guessed, what is said, and what a run knows of it later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_files import call, gestures, is_one_line_of_error, quickly, said, text
from throughtime.cli._options import Columns
from throughtime.cli.tables._infer_schema import look_over

pytestmark = pytest.mark.covers("cli")

ENGLISH = "english,spanish\n" + "".join(f"the {kind} sat,el {kind} sentado\n" for kind in ("cat", "dog", "cow") * 8)
DATES = "written,iso\n" + "".join(f'"May {day}, 19{50 + day}",19{50 + day}-05-{day:02d}\n' for day in range(1, 25))
LABELS = "text,label\n" + "it is good,yes\nit is bad,no\n" * 10
PHONES = "word\tphonemes\n" + "about\tAH0 B AW1 T\nhello\tHH AH0 L OW1\n" * 10


@pytest.mark.parametrize(
    ("content", "flag", "kinds"),
    [
        (ENGLISH, (), ["words", "words"]),
        (ENGLISH, ("characters",), ["characters", "characters"]),
        (ENGLISH, ("words", "characters"), ["words", "characters"]),
        (DATES, (), ["characters", "characters"]),
        (DATES, ("words",), ["words", "words"]),
        (LABELS, (), ["words"]),
        (LABELS, ("characters",), ["characters"]),
        (PHONES, (), ["characters", "words"]),
    ],
    ids=str,
)
def test_guessed_or_said(content: str, flag: tuple[str, ...], kinds: list[str], tmp_path: Path) -> None:
    path = tmp_path / ("a.tsv" if "\t" in content else "a.csv")
    path.write_text(content)
    layout = look_over(path, Columns(tokens=flag)).layout
    texts = [*layout.inputs, *(layout.targets if layout.task == "translate" else [])]
    assert [column.tokens for column in texts] == kinds


def test_a_run_remembers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ENGLISH)
    assert quickly(tmp_path / "a.csv", tmp_path / "run", "--tokens", "characters").exit_code == 0
    values = json.loads((tmp_path / "run" / "run.json").read_text())
    assert values["said"]["tokens"] == ["characters"]
    assert values["layout"]["inputs"][0]["tokens"] == values["layout"]["targets"][0]["tokens"] == "characters"
    assert call("decode", tmp_path / "run", "the cod").exit_code == 0, "its letters are known"
    result = call("train", "--resume", tmp_path / "run")
    assert result.exit_code == 0, said(result)


def test_a_word_that_is_not_known_comes_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ENGLISH)
    assert quickly(tmp_path / "a.csv", tmp_path / "run").exit_code == 0
    is_one_line_of_error(
        call("decode", tmp_path / "run", "the cod"),
        "'the cod' has an unknown word: got 'cod', expected what was met in training: 'cat', 'cow', 'dog', ",
        "or with `--tokens characters`",
    )


@pytest.mark.parametrize(
    ("make", "flag", "message"),
    [
        (gestures, "words", "`--tokens` is for texts in rows: got rows that are steps, to classify"),
        (text, "words", "`--tokens` is for texts in rows: got a task to generate"),
        (lambda path: path.write_text(ENGLISH), "letters", "`--tokens` is unknown: got 'letters', expected words or"),
        (lambda path: path.write_text(ENGLISH), "words,words,words", "`--tokens` has too many kinds: got 3 kinds"),
        (
            lambda path: path.write_text(LABELS),
            "words,words",
            "`--tokens` has too many kinds: got 2 kinds, expected one.",
        ),
    ],
    ids=["steps", "generate", "kind", "three", "one text"],
)
def test_mistakes(make, flag: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.txt" if make is text else "a.csv")
    make(path)
    is_one_line_of_error(quickly(path, tmp_path / "run", "--tokens", flag), message)
    assert not (tmp_path / "run").exists()
