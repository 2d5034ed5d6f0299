"""`throughtime predict` and `decode`: answers for every task, files of any size, nothing half written."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import throughtime as tt
from cli_files import KINDS, call, gestures, is_one_line_of_error, pairs, quickly, said, series, tags, text
from throughtime.cli.predict._run import most_steps
from throughtime.cli.tables._table import piece_cells

pytestmark = pytest.mark.covers("cli")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of each kind and the file it learned from."""
    root = tmp_path_factory.mktemp("runs")
    for name, make, file in (
        ("classify", gestures, "g.csv"),
        ("tag", tags, "t.csv"),
        ("forecast", series, "s.csv"),
        ("generate", text, "x.txt"),
        ("translate", pairs, "p.tsv"),
    ):
        assert quickly(make(root / file), root / name, "--seed", 1).exit_code == 0
    return root


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def test_a_class_for_each_sequence(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    result = call("predict", folder / "classify", folder / "g.csv", "--out", out, "--probabilities")
    assert result.exit_code == 0
    rows = table(out)
    assert [row["id"] for row in rows] == [f"g{place}" for place in range(24)]
    for row in rows:
        shares = {kind: float(row[f"probability {kind}"]) for kind in KINDS}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert row["kind"] == max(shares, key=shares.__getitem__)
        assert float(row["probability"]) == max(shares.values())
    right = sum(row["kind"] == KINDS[place % 3] for place, row in enumerate(rows))
    assert f"{right / 24:.1%} of 24 known answers are right" in said(result)


def test_batches_and_pieces_change_nothing(folder: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    assert call("predict", folder / "classify", folder / "g.csv", "--out", one).exit_code == 0
    with piece_cells.use(11), most_steps.use(13):
        assert call("predict", folder / "classify", folder / "g.csv", "--out", other, "--batch-size", 5).exit_code == 0
    for first, second in zip(table(one), table(other), strict=True):
        assert (first["id"], first["kind"]) == (second["id"], second["kind"])
        assert float(first["probability"]) == pytest.approx(float(second["probability"]), abs=1e-5)


def test_a_tag_for_each_step(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.tsv"
    assert call("predict", folder / "tag", folder / "t.csv", "--out", out).exit_code == 0
    rows, lines = table(out), (folder / "t.csv").read_text().splitlines()[1:]
    assert len(rows) == len(lines)
    assert [row["sentence"] for row in rows] == [line.split(";")[0] for line in lines]
    assert {row["tag"] for row in rows} <= set("ABC")


def test_the_steps_to_come(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    assert call("predict", folder / "forecast", folder / "s.csv", "--out", out).exit_code == 0
    rows = table(out)
    assert [row["date"] for row in rows] == [f"2024-01-06T{hour:02d}" for hour in range(24)]
    # Both in their own units: before much was learned, near their last values.
    assert abs(float(rows[0]["level"])) < 3
    assert 40 < float(rows[0]["load"]) < 60


def test_a_text_for_each_text(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    result = call("predict", folder / "translate", folder / "p.tsv", "--out", out)
    assert result.exit_code == 0
    assert [row["word"] for row in table(out)] == [
        line.split("\t")[0] for line in (folder / "p.tsv").read_text().splitlines()[1:]
    ]
    assert re.search(r"40 texts, [\d.]+ s \([\d,]+ texts/s\)\.", said(result))


def test_parquet_out(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow here")
    out = tmp_path / "p.parquet"
    assert call("predict", folder / "classify", folder / "g.csv", "--out", out, "--batch-size", 7).exit_code == 0
    found = parquet.read_table(out)
    assert found.num_rows == 24
    assert found.column_names == ["id", "kind", "probability"]
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


def test_to_the_screen(folder: Path) -> None:
    result = call("predict", folder / "classify", folder / "g.csv", "--out", "-")
    assert result.stdout.splitlines()[0] == "id,kind,probability"
    assert len(result.stdout.splitlines()) == 25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [line.replace("g23,0,", "g23,zero,", 1) for line in lines], None),
        (lambda lines: [*lines, "g99,0,what,0,tap"], "column `x` is not a number: got 'what'"),
        (lambda lines: [*lines, "g0,9,1,0,tap"], "the rows of a sequence are not together"),
        (lambda lines: [*lines, "g99,0"], "is not like the header: got 2 cells"),
        (lambda lines: [lines[0].replace("x", "z"), *lines[1:]], "lacks the column `x`: got id, step, z, y, kind"),
        (lambda lines: lines[:1], "is empty: got no rows"),
    ],
    ids=["unused", "value", "apart", "short", "column", "empty"],
)
def test_mistakes_late_in_a_file_leave_the_earlier_result(change, message, folder: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "new.csv", tmp_path / "p.csv"
    file.write_text("\n".join(change((folder / "g.csv").read_text().splitlines())) + "\n")
    out.write_text("an earlier result\n")
    result = call("predict", folder / "classify", file, "--out", out, "--batch-size", 2)
    if message is None:
        assert result.exit_code == 0
        return
    is_one_line_of_error(result, message)
    assert out.read_text() == "an earlier result\n"
    assert {path.name for path in tmp_path.iterdir()} == {"new.csv", "p.csv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["classify", "none.csv"], "none.csv: got no such file"),
        (["none", "g.csv"], "none is not a run: got no such folder"),
        (["g.csv", "g.csv"], "g.csv is not a run: got a file"),
        (["forecast", "s.csv", "--probabilities"], "`--probabilities` is for models that choose among classes: got"),
        (["classify", "g.csv", "--out", "p.xlsx"], "`--out` has an unknown format: got 'p.xlsx'"),
        (
            ["classify", "g.csv", "--out", "/no/such/p.csv"],
            "cannot write `--out` /no/such/p.csv: got no folder /no/such",
        ),
        (["classify", "g.csv", "--out", "g.csv"], "`--out` is the file itself"),
        (["classify", "g.csv", "--batch-size", "0"], "`--batch-size` is too small"),
        (["generate", "x.txt"], "writes text"),
    ],
)
def test_mistakes_of_predict(arguments: list[str], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    is_one_line_of_error(call("predict", *arguments), message)


def test_weights_of_something_else(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((folder / "classify" / "run.json").read_text())
    is_one_line_of_error(call("predict", tmp_path, folder / "g.csv", "--out", "-"), "has no weights yet")
    (tmp_path / "model.safetensors").write_bytes((folder / "tag" / "model.safetensors").read_bytes())
    is_one_line_of_error(call("predict", tmp_path, folder / "g.csv", "--out", "-"), "the weights do not fit")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    is_one_line_of_error(call("predict", tmp_path, folder / "g.csv", "--out", "-"), "the weights cannot be read")
    (tmp_path / "run.json").write_text("{}")
    is_one_line_of_error(
        call("predict", tmp_path, folder / "g.csv", "--out", "-"), "run.json: `throughtime` is missing"
    )


def write_large(path: Path, megabytes: float) -> None:
    block = "".join(f"NAME-{row // 50},{row % 50},0.1234,-0.5678,tap\n" for row in range(5000))
    with path.open("w") as file:
        file.write("id,step,x,y,kind\n")
        for copy in range(max(1, int(megabytes * 1e6 / len(block)))):
            file.write(block.replace("NAME", f"c{copy}"))


def test_memory_does_not_grow_with_the_file(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="no way to measure memory here")
    peaks = {}
    program = "import resource, sys; from throughtime.cli import app; app(sys.argv[1:], standalone_mode=False)"
    peak = "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
    report = f"import atexit, resource; atexit.register(lambda: print('peak', {peak}))"
    for megabytes in (2, 14):
        write_large(tmp_path / f"{megabytes}.csv", megabytes)
        arguments = [
            "predict",
            str(folder / "classify"),
            str(tmp_path / f"{megabytes}.csv"),
            "--out",
            str(tmp_path / "p.csv"),
        ]
        run = subprocess.run(
            [sys.executable, "-c", f"{report}; {program}", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        peaks[megabytes] = int(run.stdout.split("peak")[1]) / 1024
    # Twelve megabytes more to read; as text in memory they would be a hundred.
    assert peaks[14] - peaks[2] < 20, peaks
    assert len(table(tmp_path / "p.csv")) > 5000


def test_generated_text(folder: Path) -> None:
    cold = call("decode", folder / "generate", "the ", "--length", 20, "--temperature", 0, "--samples", 2)
    assert cold.exit_code == 0
    lines = cold.stdout.split("\n\n")
    assert lines[0].startswith("the ")
    assert lines[0] == lines[1]
    assert len(lines[0]) <= 24
    one, two = (call("decode", folder / "generate", "--length", 30, "--seed", seed).stdout for seed in (1, 1))
    assert one == two
    assert set(one.strip()) <= set("the cat sat on the mat. ")


def test_translated_texts(folder: Path) -> None:
    result = call("decode", folder / "translate", "abc", "d", "--beam", 3, "--best", 2)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["abc", "abc", "d", "d"]
    assert {token for line in lines for token in line.split("\t")[1].split()} <= {"AA", "BB", "CC", "DD"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["generate", "T"],
            "'T' has an unknown character: got 'T', expected what was met in training: ' ', '.', 'a', 'c', 'e', 'h'",
        ),
        (
            ["translate", "ax"],
            "'ax' has an unknown character: got 'x', expected what was met in training: 'a', 'b', 'c', 'd'.",
        ),
        (["generate", "--length", "0"], "`--length` is too small"),
        (["generate", "--temperature", "-1"], "`--temperature` is out of range"),
        (["generate", "--top-p", "1.5"], "`--top-p` is not a probability"),
        (["translate"], "nothing to translate: got no TEXT"),
        (["translate", ""], "nothing to translate: got an empty text"),
        (["translate", "ab", "--beam", "2", "--best", "3"], "`--best` is larger than `--beam`"),
        (["classify", "ab"], "does not write: got a model to classify"),
        (["classify", "ab", "--beam", "2"], "does not write: got a model to classify"),
        (["generate", "--beam", "5"], "`--beam` is for models that translate: got one that was trained to generate"),
        (["translate", "ab", "--top-k", "2"], "`--top-k` is for models that generate: got one that was trained to"),
        (["translate", "ab", "--temperature", "0.8"], "`--temperature` is for models that generate"),
    ],
)
def test_mistakes_of_decode(arguments: list[str], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    is_one_line_of_error(call("decode", *arguments), message)


def test_inspect_shows_data_runs_and_weights(folder: Path) -> None:
    assert "24 sequences of 4 to 9 steps" in said(call("inspect", folder / "g.csv"))
    assert "Task: classify" in said(call("inspect", folder / "g.csv"))
    run = said(call("inspect", folder / "classify"))
    assert "2 of 2 epochs, finished" in run
    assert "answer.weight F32 3 × 16" in said(call("inspect", folder / "classify" / "model.safetensors"))
    checkpoint = next((folder / "classify").glob("checkpoint-*"))
    assert "answer.weight F32 3 × 16" in said(call("inspect", checkpoint))


def test_inspect_refuses_what_it_does_not_know(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"x" * 40)
    is_one_line_of_error(call("inspect", tmp_path / "a.safetensors"), "a.safetensors cannot be read")
    is_one_line_of_error(call("inspect", tmp_path / "none"), "got no such file")
    (tmp_path / "notes.doc").write_text("hello")
    is_one_line_of_error(call("inspect", tmp_path / "notes.doc"), "notes.doc has an unknown format: got suffix '.doc'")
    (tmp_path / "empty").mkdir()
    is_one_line_of_error(
        call("inspect", tmp_path / "empty"), "has no sequences: got a folder without a table or a text"
    )
    np.savez(tmp_path / "words.npz", lengths=np.array([1, 1]), x=np.array(["a", "b"]))
    assert call("inspect", tmp_path / "words.npz").exit_code in (0, 2)


def test_inspect_knows_the_weights_of_others(tmp_path: Path) -> None:
    (tmp_path / "tf").mkdir()
    # A table of variables ends with this number, and is all that tells such a folder from one of data.
    (tmp_path / "tf" / "model.ckpt-7.index").write_bytes(b"..." + bytes.fromhex("57fb808b247547db"))
    (tmp_path / "tf" / "model.ckpt-7.data-00000-of-00001").write_bytes(b"...")
    (tmp_path / "tf" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"')
    before = sorted(tmp_path.rglob("*"))
    index, data = "tf/model.ckpt-7.index", "tf/model.ckpt-7.data-00000-of-00001"
    for name in ("tf", "tf/checkpoint", "tf/model.ckpt-7", index, data):
        words = ["model.ckpt-7.index cannot be read: got", "expected a whole checkpoint of TensorFlow's"]
        is_one_line_of_error(call("inspect", tmp_path / name), *words)
    is_one_line_of_error(call("inspect", tmp_path / "tf" / "other.meta"), "There: model.ckpt-7.")
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "graph.pb").write_bytes(b"...")
    is_one_line_of_error(call("inspect", tmp_path / "graph.pb"), "got a graph of TensorFlow's, without variables")
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    torch.save({"weight": torch.ones(2)}, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    for name in ("model.pt", "old.bin"):
        words = ["got a pickle, as torch.save writes it", "tt.train.save_weights"]
        is_one_line_of_error(call("inspect", tmp_path / name), *words)
    (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n...")
    is_one_line_of_error(call("inspect", tmp_path / "model.h5"), "got an HDF5 file, as Keras writes it")


def test_inspect_shows_the_checkpoints_of_tensorflow(tmp_path: Path) -> None:
    goldens = Path(__file__).parents[1] / "goldens" / "checkpoints"
    names = ["", "checkpoint", "model.ckpt", "model.ckpt.index", "model.ckpt.data-00000-of-00001"]
    for name in names:
        shown = said(call("inspect", goldens / "trained_lstm" / name))
        assert "model.ckpt: 21 variables, 1,408 bytes" in shown
        assert "rnn/lstm_cell/kernel float32 5 × 16 320" in shown
        assert "global_step int64 one number 8" in shown
    # The old format is one file, of any name.
    (tmp_path / "weights.old").write_bytes((goldens / "names_of_1_1" / "model.ckpt").read_bytes())
    for path in (goldens / "names_of_1_1", goldens / "sharded_1", tmp_path / "weights.old"):
        assert " float32 " in said(call("inspect", path))
    # A SavedModel has its variables inside.
    tt.interop.save_tf_checkpoint(tt.GRUCell(2, input_size=3), tmp_path / "saved" / "variables" / "variables")
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    assert "rnn/gru_cell/gates/kernel float32 5 × 4 80" in said(call("inspect", tmp_path / "saved"))


def test_explain_and_bench(folder: Path) -> None:
    assert "GRUCell over 32 sequences of 50 steps" in call("explain", "gru", "--units", 4).stdout
    assert "runs on: cpu" in call("explain", folder / "classify").stdout
    assert "runs on: cpu" in call("explain", folder / "translate").stdout
    assert call("explain", "lstm", "--units", 4, "--source").stdout.strip()
    is_one_line_of_error(call("explain", "nothing"), "the cell 'nothing' cannot be used")
    is_one_line_of_error(call("explain", "runs/nope"), "runs/nope is not a run: got no such folder")
    assert "over 3 sequences of 9 steps" in call("explain", folder / "classify", "--batch", 3, "--steps", 9).stdout
    for flag in ("--units", "--inputs"):
        message = f"`{flag}` is for cells: got the run {folder / 'classify'}, expected a cell such as lstm."
        is_one_line_of_error(call("explain", folder / "classify", flag, 3), message)
    is_one_line_of_error(call("explain", "--units", 0), "`--units` is too small")
    is_one_line_of_error(call("explain", "--device", "tpu"), "`--device` is unknown: got 'tpu', expected cpu, cuda or")
    table = said(call("bench", "rnn", "--units", 4, "--inputs", 3, "--steps", 5, "--batch", 4, "--repeat", 1))
    assert "training, many lengths" in table
    assert "torch.nn.RNN" in table
    own = said(
        call("bench", "MinimalGatedUnitCell", "--units", 4, "--inputs", 3, "--steps", 5, "--batch", 4, "--repeat", 1)
    )
    assert "the plain loop" in own


@pytest.mark.parametrize("command", [["train"], ["predict", "classify", "g.csv"], ["decode", "generate"], ["bench"]])
def test_a_gpu_that_is_not_there(command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = sorted(folder.rglob("*"))
    words = "`--device` cuda is not there: got no GPU that torch can use, expected a GPU. Say `--device cpu`."
    is_one_line_of_error(call(*command, "--device", "cuda"), words)
    monkeypatch.setenv("LOCAL_RANK", "0")
    is_one_line_of_error(call(*command, "--device", "cuda:1"), "`--device` names one GPU for several workers")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["demo", "train", "predict", "decode", "explain", "inspect", "bench"])
def test_every_help_page_teaches(command: str) -> None:
    text = call(command, "--help").stdout
    assert call("--help").stdout.count(command)
    assert "Exit codes" in text
    assert command == "demo" or f"throughtime {command} " in text
