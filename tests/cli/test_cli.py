"""The `throughtime` command: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import throughtime as tt
from throughtime.cli import app
from throughtime.cli.demo import _command, _progress, _sections, _speakers, _static_vs_dynamic
from throughtime.data import japanese_vowels

pytestmark = pytest.mark.covers("cli")

NEVER = rb"(?!)"
COMMAND = [sys.executable, "-c", "from throughtime.cli import main; main()"]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_version() -> None:
    result = call("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"throughtime {tt.__version__} (torch ")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=["none", "long", "short"])
def test_help_lists_the_commands(arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == 0
    assert "demo" in result.stdout
    assert "--version" in result.stdout


def test_help_of_the_demo_explains_every_option() -> None:
    text = call("demo", "--help").stdout
    assert all(option in text for option in ("--out", "--seed", "--epochs", "--quick", "Exit codes"))


def test_help_does_not_wait_for_matplotlib() -> None:
    program = "import sys; from throughtime.cli import app; app(['demo', '-h'], standalone_mode=False)"
    report = "import atexit; atexit.register(lambda: print('matplotlib' in sys.modules))"
    run = subprocess.run([sys.executable, "-c", f"{report}; {program}"], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("\nFalse\n")


@pytest.fixture
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sections, "run_parts", lambda *_: pytest.fail("a mistake must be reported before any work"))


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "`--epochs` is too small: got 0, expected 1 or more."),
        (["--epochs", "-3"], "`--epochs` is too small: got -3, expected 1 or more."),
        (["--epochs", "many"], "--epochs"),
        (["--seed", "-1"], "`--seed` is out of range: got -1"),
        (["--seed", str(2**63)], "expected 0 or more, and below 2**63."),
        (
            ["--quick", "--epochs", "5"],
            "`--quick` and `--epochs` both set the number of epochs: got both, expected one.",
        ),
        (["--fast"], "No such option: --fast"),
        (["--model", "LSTM"], "No such option: --model"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = call("demo", "--out", str(tmp_path / "new"), *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--lr", "there is no `--lr`: got --lr, expected one of --"),
        ("--lr", "Write `--learning-rate`."),
        ("--hidden_size", "Write `--units`."),
        ("--num-layers", "Write `--layers`."),
        ("--model", "Write `--cell`."),
        ("--gpu", "Write `--device`."),
        ("--nonsense", "No such option: --nonsense"),
    ],
)
def test_flags_of_other_programs(flag: str, message: str) -> None:
    result = call("train", "table.csv", flag, "1")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_unknown_command() -> None:
    result = call("deom")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "deom" in result.stderr


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("inside", ["", "folder"], ids=["is a file", "below a file"])
def test_folder_that_cannot_be_written(inside: str, tmp_path: Path) -> None:
    # A name that rich would read as markup, and a line longer than any terminal.
    file = tmp_path / ("[bold]" + 90 * "x")
    file.write_text("")
    folder = file / inside
    result = call("demo", "--out", str(folder))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: cannot write to --out {folder}: ")
    assert result.stderr.endswith("Choose another folder.\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["--quick"], 0), (["--epochs", "3"], 0)])
def test_missing_the_goal_fails_only_a_full_run(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sections, "run_parts", lambda *_: False)
    result = call("demo", "--out", str(tmp_path), *arguments)
    assert result.exit_code == code
    assert ("missed its accuracy goal" in result.stderr) == bool(code)


def test_reaching_the_goal_is_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(_sections, "run_parts", lambda *given: seen.append(given) or True)
    assert call("demo", "--out", str(tmp_path), "--seed", "7").exit_code == 0
    assert seen == [(tmp_path, 7, _command.FULL_EPOCHS)]


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    out = tmp_path_factory.mktemp("demo") / "deep" / "folder"
    return call("demo", "--epochs", "1", "--out", str(out)), out


def test_demo_runs(quick_run: tuple[Result, Path]) -> None:
    result, out = quick_run
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "Picture:" in result.stdout
    assert str(out / "speakers.png") in result.stdout


def test_demo_shows_zeros_and_the_copied_state(quick_run: tuple[Result, Path]) -> None:
    text = quick_run[0].stdout
    without, with_lengths = text.split("sequence_length = [2, 1, 2, 2]")
    assert "sequence_length = None" in without
    zeros = r"step 1: 0 0 0 (\s+0){10}\s*\n"
    assert not re.search(zeros, without)
    assert re.search(zeros + r"\s+state = step 0", with_lengths)
    assert (without.count("state = step 1"), with_lengths.count("state = step 1")) == (4, 3)
    assert "static_rnn = dynamic_rnn: the largest difference anywhere is 0." in text


def test_demo_in_a_log_is_plain_and_fits_80_columns(quick_run: tuple[Result, Path]) -> None:
    text = quick_run[0].stdout
    assert "\x1b" not in text
    assert "\r" not in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines() if "speakers.png" not in line) <= 80
    assert re.search(r"^epoch 1/1  loss \d\.\d{3}  test +\d+\.\d%$", text, re.MULTILINE)


def test_demo_saves_a_picture(quick_run: tuple[Result, Path]) -> None:
    picture = quick_run[1] / "speakers.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
    assert [path.name for path in quick_run[1].iterdir()] == ["speakers.png"]


def test_verdict_is_computed() -> None:
    static, dynamic = _static_vs_dynamic.unroll_both(_static_vs_dynamic.make_cell(), _static_vs_dynamic.LENGTHS)
    changed = dynamic._replace(state=dynamic.state + 0.25)
    assert _static_vs_dynamic.largest_difference(static, changed) == pytest.approx(0.25)
    assert "≠" in str(_static_vs_dynamic.verdict(0.25))
    assert _static_vs_dynamic.source_step(dynamic, 1) == 0
    assert _static_vs_dynamic.source_step(dynamic, 0) == 1


def epochs(seed: int, count: int) -> list[_speakers.Epoch]:
    torch.manual_seed(seed)
    data = japanese_vowels()
    return list(_speakers.fit(_speakers.SpeakerClassifier(data.train), data, count))


def test_training_is_reproducible() -> None:
    assert epochs(3, 1) == epochs(3, 1)
    assert epochs(3, 1) != epochs(4, 1)


def test_training_reaches_the_goal_early() -> None:
    assert epochs(0, 12)[-1].test_accuracy >= _speakers.GOAL


def test_classifier_hears_no_padding() -> None:
    data = japanese_vowels()
    model = _speakers.SpeakerClassifier(data.train).eval()
    inputs, lengths, _ = data.test.padded()
    past_the_end = torch.arange(inputs.shape[1]) >= lengths[:, None]
    poisoned = inputs.masked_fill(past_the_end[:, :, None], torch.nan)
    torch.testing.assert_close(model(poisoned, lengths), model(inputs, lengths))


def test_log_lines_are_few_and_include_the_last() -> None:
    for total in (1, 3, 30, 100):
        lines = [epoch for epoch in range(1, total + 1) if _progress._worth_a_line(epoch, total)]
        assert lines[-1] == total
        assert len(lines) <= 2 * _progress.LOG_LINES


def read_until(terminal: int, pattern: bytes, seconds: float = 60) -> bytes:
    """What a terminal shows until the pattern appears, or until the program is gone."""
    seen, deadline = b"", time.monotonic() + seconds
    while not re.search(pattern, seen) and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
    return seen


# A test run in the background may have been told to ignore Ctrl-C, and its children inherit that.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from throughtime.cli import main; main()"
)


def test_ctrl_c_leaves_a_clean_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="no Unix terminals here")
    terminal, program_side = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"}
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "demo", "--epochs", "5000", "--out", str(tmp_path)],
        stdin=program_side,
        stdout=program_side,
        stderr=program_side,
        env=environment,
        start_new_session=True,
    )
    os.close(program_side)
    try:
        before = read_until(terminal, rb"[1-9]/5000")
        program.send_signal(signal.SIGINT)
        after = read_until(terminal, NEVER)
        code = program.wait(timeout=30)
    finally:
        program.kill()
        program.wait()
        os.close(terminal)
    assert code == 130
    everything = before + after
    assert b"Traceback" not in everything
    # On a terminal zeros are dim, the copied state stands out, and the bar says how long it will take.
    assert b"\x1b[2m  0  \x1b[0m" in before
    assert b"\x1b[1;32mstate = step 0" in before
    assert re.search(rb"loss \d\.\d{3}.*test.*%.*\d\.\d/s", before)
    assert everything.rfind(b"\x1b[?25h") > everything.rfind(b"\x1b[?25l") > 0
    assert re.search(rb"\n[^\n]*Interrupted[^\n]*\n$", after)
    assert list(tmp_path.iterdir()) == []
