"""What the command says of numbers of things, and of its options: in one form, and in good English."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_files import call, is_one_line_of_error, said
from throughtime._text import plural
from throughtime.cli.predict._run import work_done

pytestmark = pytest.mark.covers("cli")


def test_one_is_no_plural() -> None:
    assert [plural(count, "step") for count in (0, 1, 2, 1000)] == ["0 steps", "1 step", "2 steps", "1,000 steps"]
    assert work_done("sequence", 1, 1, 0.5) == "1 sequence, 1 step, 0.5 s (2 steps/s)."
    assert work_done("text", 200, 999, 2.0) == "200 texts, 2.0 s (100 texts/s)."


def test_sequences_of_one_length_are_of_that_length(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x\n" + "".join(f"{row // 4},{row % 3}.5\n" for row in range(160)))
    assert "a.csv: 160 rows, 40 sequences of 4 steps" in said(call("inspect", path))
    result = call("train", path, "--out", tmp_path / "run", "--epochs", 1, "--units", 4, "--horizon", 1)
    assert "; 1 epoch of batches of" in said(result)
    assert "1 of 1 epoch, finished" in said(call("inspect", tmp_path / "run"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epochs", 0], "`--epochs` is too small: got 0, expected 1 or more."),
        (["--seed", -1], "`--seed` is out of range: got -1, expected 0 or more, and below 2**63."),
        (["--quick", "--epochs", 5], "`--quick` and `--epochs` both set the number of epochs: got both, expected one."),
    ],
)
def test_mistakes_of_the_demo_have_the_form_of_all_others(flags: list[object], message: str, tmp_path: Path) -> None:
    is_one_line_of_error(call("demo", "--out", tmp_path / "new", *flags), message)
    assert not (tmp_path / "new").exists()
