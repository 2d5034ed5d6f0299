"""The listings in examples/: each runs as it stands, and does what its text says."""

from __future__ import annotations

import inspect
import re
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import throughtime as tt

pytestmark = pytest.mark.covers("examples")

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


def run(script: str) -> dict[str, Any]:
    """What is defined after running a script."""
    return runpy.run_path(str(FOLDER / f"{script}.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_a_test_and_a_line_in_the_readme(script: str) -> None:
    assert f"test_{script}" in globals()
    assert f"]({script}.py)" in (FOLDER / "README.md").read_text()


def test_signature_is_that_of_the_api_page() -> None:
    parameters = inspect.signature(tt.dynamic_rnn).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == [
        "cell",
        "inputs",
        "sequence_length",
        "initial_state",
        "dtype",
        "parallel_iterations",
        "swap_memory",
        "time_major",
        "scope",
    ]
    assert [p.default for p in positional[2:]] == [None, None, None, None, False, False, None]


def test_static_two_steps() -> None:
    seen = run("static_two_steps")
    torch.testing.assert_close(seen["Y0"], seen["Y0_by_hand"])
    torch.testing.assert_close(seen["Y1"], seen["Y1_by_hand"])
    assert torch.equal(seen["states"], seen["Y1"])


def test_static_unstack() -> None:
    seen = run("static_unstack")
    assert [step.shape for step in seen["X_seqs"]] == [(4, 3)] * 2
    assert seen["outputs"].shape == (4, 2, 5)
    outputs, states = tt.dynamic_rnn(seen["basic_cell"], seen["X_batch"], dtype=torch.float32)
    torch.testing.assert_close(seen["outputs"], outputs)
    torch.testing.assert_close(seen["states"], states)


def test_dynamic() -> None:
    seen = run("dynamic")
    assert seen["outputs"].shape == (4, 2, 5)
    assert torch.equal(seen["states"], seen["outputs"][:, 1])
    torch.testing.assert_close(seen["time_major_outputs"].transpose(0, 1), seen["outputs"])


def test_while_loop() -> None:
    seen = run("while_loop")
    torch.testing.assert_close(seen["looped"], seen["outputs"])
    torch.testing.assert_close(seen["looped_state"], seen["state"])
    torch.testing.assert_close(seen["looped_gradient"], seen["gradient"])
    assert seen["gradient"].any()


def test_variable_length() -> None:
    seen = run("variable_length")
    outputs, states = seen["outputs"], seen["states"]
    assert not outputs[1, 1].any()
    assert outputs[[0, 2, 3]].all()
    assert torch.equal(states[1], outputs[1, 0])
    assert torch.equal(states[[0, 2, 3]], outputs[[0, 2, 3], 1])
    torch.testing.assert_close(torch.stack(seen["output_seqs"], 1), outputs)
    torch.testing.assert_close(seen["static_states"], states)


def test_initial_state() -> None:
    seen = run("initial_state")
    assert seen["outputs"].shape == (2, 6, 8)
    assert not seen["initial_state"].any()
    assert torch.equal(seen["state"], seen["outputs"][:, -1])
    torch.testing.assert_close(seen["state"], seen["state_in_two_halves"])


def test_two_layers() -> None:
    seen = run("two_layers")
    assert seen["outputs"].shape == (3, 5, 256)
    assert [type(layer) for layer in seen["state"]] == [tt.LSTMStateTuple] * 2
    assert [layer.h.shape for layer in seen["state"]] == [(3, 128), (3, 256)]
    assert torch.equal(seen["state"][1].h, seen["outputs"][:, -1])


def test_lstm_lengths() -> None:
    seen = run("lstm_lengths")
    output, lens = seen["output"], seen["lens"]
    assert output.shape == (5, 10, 7)
    for row, full, length in zip(output, seen["full_output"], lens, strict=True):
        torch.testing.assert_close(row[:length], full[:length])
        assert not row[length:].any()
    assert torch.equal(seen["final_state"].h, seen["last_outputs"])
    assert torch.equal(seen["full_state"].h, seen["full_output"][:, -1])


def test_swap_memory() -> None:
    seen = run("swap_memory")
    torch.testing.assert_close(seen["swapped"], seen["kept"])
    torch.testing.assert_close(seen["recomputed"], seen["kept"])
    assert seen["kept"].any()


def test_end_of_sequence() -> None:
    seen = run("end_of_sequence")
    sentences, longest = seen["sentences"], seen["longest"]
    assert sentences.shape[0] == 4
    assert sentences.shape[1] <= longest
    for sentence in sentences.tolist():
        spoken = sentence.index(seen["EOS"]) if seen["EOS"] in sentence else len(sentence)
        assert set(sentence[spoken:]) <= {seen["EOS"]}
    assert len({sum(map(bool, sentence)) for sentence in sentences.tolist()}) > 1


def test_own_cell() -> None:
    seen = run("own_cell")
    for row, length in zip(seen["outputs"], seen["lengths"], strict=True):
        assert not row[length:].any()
        assert row[:length].all()
    assert not seen["state"][2].any()
    assert seen["forwards"].shape == seen["backwards"].shape == (4, 8, 5)
    torch.testing.assert_close(seen["forwards"], seen["outputs"])


def test_train() -> None:
    history = run("train")["history"]
    assert history[-1] > 0.8 > history[0]


def test_grapheme_to_phoneme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = run("grapheme_to_phoneme")["main"]
    small = "--words 90 --epochs 2 --units 8 --batch 32 --beam 3 --say reading".split()
    errors = main([*small, "--folder", str(tmp_path)])
    assert set(errors) == {"greedily", "with a beam of 3"}
    assert all(0 <= wrong <= 1 for wrong, _ in errors.values())
    told = capsys.readouterr().out
    assert "81 words to learn from, 9 held out" in told
    assert "epoch 2/2" in told
    assert "reading: " in told
    # The same command again has nothing left to learn, and says the same.
    assert main([*small, "--folder", str(tmp_path)]) == errors
    assert "epoch" not in capsys.readouterr().out


def run_small(script: str, monkeypatch: pytest.MonkeyPatch, **sizes: int) -> dict[str, Any]:
    """What is defined after running a script with smaller numbers in the place of some of its own."""
    source = (FOLDER / f"{script}.py").read_text()
    for name, size in sizes.items():
        source, found = re.subn(
            rf"^((?:\w+, )*){name}((?:, \w+)*) = (.*)$", partial(_smaller, name, size), source, flags=re.MULTILINE
        )
        assert found == 1, name
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    seen: dict[str, Any] = {"__name__": script}
    exec(compile(source, f"{script}.py", "exec"), seen)
    return seen


def _smaller(name: str, size: int, line: re.Match[str]) -> str:
    names, values = line[0].split(" = ")
    return f"{names} = " + ", ".join(
        str(size) if one == name else value for one, value in zip(names.split(", "), values.split(", "), strict=True)
    )


def test_speaker_classification(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run_small("speaker_classification", monkeypatch, EPOCHS=6)
    assert seen["history"].epochs[-1].valid["accuracy"] > 0.65
    assert seen["padding"] < 0.2 < seen["at_random"]


def test_tagging(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run_small("tagging", monkeypatch, EPOCHS=4, SENTENCES=240)
    assert seen["accuracy"] > 0.85
    assert len(seen["found"]) == len(seen["letters"])


def test_training_with_swap_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_small("training_with_swap_memory", monkeypatch, STEPS=60)["found"]
    assert found["kept"][-1] < found["kept"][0]
    assert found["swapped"] == pytest.approx(found["kept"])
    assert found["recomputed"] == pytest.approx(found["kept"])


def test_character_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run_small("character_language_model", monkeypatch, EPOCHS=4)
    losses = [epoch.train["loss"] for epoch in seen["history"].epochs]
    assert losses[-1] < 0.7 * losses[0]
    assert len(seen["written"]) == 5
    assert all("\n" not in line and len(line) <= 80 for line in seen["written"])


def test_accelerate() -> None:
    seen = run("accelerate")
    assert type(seen["model"].lstm) is tt.nn.LSTM
    torch.testing.assert_close(seen["after"], seen["before"])
    assert not seen["padded"][2].any()
    X, lengths = seen["X"], seen["lengths"]
    torch.testing.assert_close(seen["plain"](X, lengths), seen["model"](X, lengths))


def test_forecasting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run_small("forecasting", monkeypatch, EPOCHS=4, SERIES=60)
    assert seen["error"] < seen["unchanged"]
