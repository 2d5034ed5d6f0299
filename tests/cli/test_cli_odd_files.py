"""Files as people have them: what is plainly meant is understood, and what would be learned wrongly is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import throughtime as tt
from cli_files import call, gestures, is_one_line_of_error, pairs, quickly, said, text
from throughtime.cli._options import Columns
from throughtime.cli.predict._run import most_steps, some_at_a_time
from throughtime.cli.tables import open_table, survey
from throughtime.cli.tables._infer_roles import guess
from throughtime.cli.tables._table import piece_cells
from throughtime.cli.tasks._defaults import LEAST_STEPS, default_recipe, default_shape
from throughtime.cli.tasks._examples import answers, last_known, read_examples
from throughtime.cli.train._batches import WIDTHS, batches_of

pytestmark = pytest.mark.covers("cli")


def rows(*cells: str, kinds: str = "ab", end: str = "") -> str:
    """Ten sequences of three steps; the cells stand for the numbers of the first steps."""
    numbers = [*cells, *(f"{step % 7}.5" for step in range(len(cells), 30))]
    lines = (f"s{step // 3},{number},{kinds[step // 3 % len(kinds)]}\n" for step, number in enumerate(numbers))
    return "id,x,kind\n" + "".join(lines) + end


def columns_of(path: Path) -> tuple[Any, dict[str, str]]:
    layout, reasons = guess(survey(open_table(path), "id"), Columns())
    return layout, reasons


@pytest.mark.parametrize("mark", ["", "NA", "n/a", "#N/A", "null", "None", "nan", "?"])
@pytest.mark.parametrize("count", [1, 9], ids=["few", "many"])
def test_what_is_not_known_may_be_said_in_many_ways(mark: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(rows(*[mark] * count))
    layout, reasons = columns_of(path)
    assert (layout.task, layout.inputs[0].kind) == ("classify", "number")
    assert reasons["x"].endswith(f"{count} missing, read as the mean")
    assert np.isnan(next(open_table(path).pieces()).numbers("x", open_table(path))[:count]).all()


def test_a_single_word_among_few_numbers_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x,kind\na,1.0,p\na,oops,p\nb,2.0,q\nb,3.0,q\n")
    result = call("train", path, "--out", tmp_path / "run")
    is_one_line_of_error(result, "a.csv, line 3, column `x` is not a number: got 'oops'", "`--categories x`")
    assert not (tmp_path / "run").exists()


def test_an_empty_column_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x,notes\n" + "".join(f"{step // 5},{step % 4},\n" for step in range(60)))
    layout, reasons = columns_of(path)
    assert (layout.task, [column.name for column in layout.inputs]) == ("forecast", ["x"])
    assert reasons["notes"] == "left out: empty"


def test_names_of_columns_may_have_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,"x\n(metres)",kind\na,1,p\nb,2,q\n')
    assert open_table(path).columns == ["id", "x\n(metres)", "kind"]
    assert next(open_table(path).pieces()).lines.tolist() == [3, 4]


def test_hidden_files_in_a_folder_are_not_looked_at(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n")
    (tmp_path / "._1.csv").write_bytes(b"\0\5\x16")
    assert [file.name for file in open_table(tmp_path).files] == ["1.csv", "2.csv"]


FILES = {
    "decimal commas": (rows().replace(",", ";").replace(".", ","), [], "line 2, column `x` has a comma in a number"),
    "a quote that never ends": (rows(end='s9,1,"a\n'), [], "line 32 is not CSV: got unexpected end of data"),
    "a class that changes": (rows(end="s9,1,a\n"), ["--task", "classify"], "line 32: `kind` changes within a sequence"),
    "a row of no sequence": (rows(end=",1,a\n"), [], "line 32, column `id` is empty: got a row of no sequence"),
    "an empty target": ("id,x,y\n" + "a,1,\n" * 9, ["--target", "y"], "column `y` is empty: got nothing in 9 rows"),
    "nothing to forecast": ("series,load\n" + "a,NA\n" * 60, [], "column `load` is empty: got nothing in 60 rows"),
    "a class among forecasts": (rows(), ["--target", "x,kind"], "got text; several targets mean a forecast, expected"),
    "a class to forecast": (rows(), ["--task", "forecast", "--target", "kind"], "`kind` is no target to forecast: got"),
    "nothing but gaps": (rows(*["NA"] * 30), [], "a.csv has nothing to learn from"),
    "two roles": (rows(), ["--ignore", "x", "--inputs", "x"], "`--ignore` leaves x out: got `--inputs x` too"),
    "a horizon": (rows(), ["--horizon", 3], "`--horizon` is for forecasts: got a task to classify"),
    "too many epochs": (rows(), ["--epochs", 10**9], "`--epochs` is too large: got 1000000000, expected at most"),
}


@pytest.mark.parametrize("case", FILES)
def test_what_would_be_learned_wrongly_is_refused(case: str, tmp_path: Path) -> None:
    content, flags, message = FILES[case]
    (tmp_path / "a.csv").write_text(content)
    is_one_line_of_error(quickly(tmp_path / "a.csv", tmp_path / "run", *flags), message)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files, typed by a path from where one is."""
    monkeypatch.chdir(tmp_path)
    for kind in ("tap", "wave"):
        Path("lab", kind).mkdir(parents=True)
        for number in range(1, 7):
            Path("lab", kind, f"{number}.csv").write_text("x,y\n" + "0.5,1.5\n" * number)
    return Path("lab")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,2\n3,4\n1,oops\n", "lab/tap/3.csv, line 4, column `y` is not a number: got 'oops'"),
        ("x,y\n1,2\n3,1e200\n", "lab/tap/3.csv, line 3, column `y` is too large a number"),
        ("x,y\n1,2\n3\n", "lab/tap/3.csv, line 3 is not like the header"),
        ("", "lab/tap/3.csv has no columns"),
        ("x,z\n1,2\n", "lab/tap/3.csv is not like lab/tap/1.csv"),
    ],
    ids=["word", "size", "short", "empty", "columns"],
)
def test_a_mistake_in_a_folder_names_the_file(content: str, message: str, lab: Path) -> None:
    (lab / "tap" / "3.csv").write_text(content)
    is_one_line_of_error(quickly(lab, Path("run")), f"Error: {message}")


@pytest.mark.parametrize("number", [1, 3, 6])
def test_what_is_predicted_for_names_the_file_too(number: int, lab: Path) -> None:
    assert quickly(lab, Path("run")).exit_code == 0
    file = lab / "wave" / f"{number}.csv"
    file.write_text("x,y\n1,2\n3,oops\n")
    result = call("predict", "run", "lab", "--out", "-", "--batch-size", 5)
    assert f"Error: lab/wave/{number}.csv, line 3, column `y` is not a number: got 'oops'" in result.stderr


def test_a_mistake_in_a_file_names_its_path(lab: Path) -> None:
    (lab / "empty.csv").write_text("")
    is_one_line_of_error(quickly(lab / "empty.csv", Path("run")), "Error: lab/empty.csv has no columns")
    (lab / "one.csv").write_text("id,x,kind\n" + "a,1,p\n" * 30 + "a,oops,p\n")
    is_one_line_of_error(quickly(lab / "one.csv", Path("run")), "Error: lab/one.csv, line 32, column `x` is not")


def test_a_split_by_time_is_not_taken_for_one_by_sequence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,split\n" + "".join(f"{step % 5},{'train' if step < 50 else 'test'}\n" for step in range(60)))
    message = "line 52: `split` changes within a sequence: got 'test' after 'train'"
    is_one_line_of_error(quickly(path, tmp_path / "run"), message)
    assert quickly(path, tmp_path / "run", "--ignore", "split").exit_code == 0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((6, 2), np.complex64), "`x` of complex numbers"),
        (np.asfortranarray(np.ones((6, 2))), "Save `numpy.ascontiguousarray(x)` in its place."),
    ],
)
def test_arrays_that_cannot_be_read_in_pieces(array: np.ndarray, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=array, lengths=np.array([3, 3]))
    is_one_line_of_error(call("inspect", tmp_path / "a.npz"), message)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_files_that_are_broken_inside(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(3000, 2)), lengths=np.array([1500, 1500]))
        start = 3000
    else:
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table({"id": ["a"] * 60, "x": [0.5] * 60}), path)
        start = 4
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + b"\xff" * 60 + whole[start + 60 :])
    is_one_line_of_error(call("inspect", path), f"a{suffix} is not a")


def test_padding_in_an_npz_file_is_read_some_at_a_time(tmp_path: Path) -> None:
    """What lies in memory is bounded by what is read, not by the little of it that is real."""
    lengths = 1 + np.arange(40) % 2
    steps = np.arange(40 * 20.0).reshape(40, 20, 1)
    np.savez(tmp_path / "a.npz", x=steps, lengths=lengths)
    with piece_cells.use(300):
        pieces = list(open_table(tmp_path / "a.npz").pieces())
    assert max(len(set(piece.columns["sequence"].tolist())) for piece in pieces) == 150 // 20
    read = np.concatenate([piece.columns["x_0"] for piece in pieces])
    assert read.tolist() == np.concatenate([x[:n, 0] for x, n in zip(steps, lengths, strict=True)]).tolist()


def test_sequences_of_one_step_each_may_be_padded_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(30.0).reshape(5, 3, 2), lengths=np.ones(5, np.int64))
    assert open_table(tmp_path / "a.npz").columns == ["sequence", "x_0", "x_1"]


def test_a_long_sequence_among_short_ones_is_answered_alone() -> None:
    most = most_steps.value
    lengths = [3, 4, most, 5, 6, most // 2, 7]
    batches = [[len(one) for one in batch] for batch in some_at_a_time(iter([range(n) for n in lengths]), 256)]
    assert batches == [[3, 4], [most], [5, 6], [most // 2, 7]]
    assert [len(batch) for batch in some_at_a_time(iter([range(1)] * 5), 2)] == [2, 2, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert quickly(gestures(folder / "g.csv"), folder / "classify").exit_code == 0
    return folder


def test_numbers_out_of_all_proportion(folder: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "new.csv", tmp_path / "p.csv"
    file.write_text("id,step,x,y\na,0,1e100,-1e140\nb,0,1,1\n")
    assert call("predict", folder / "classify", file, "--out", out).exit_code == 0
    assert "nan" not in out.read_text()
    file.write_text("id,step,x,y\na,0,1,1\nb,0,1e200,1\n")
    is_one_line_of_error(
        call("predict", folder / "classify", file, "--out", out), "line 3, column `x` is not a number: got '1e200'"
    )


@pytest.mark.parametrize("name", ["training.json", "training.safetensors", "model.safetensors"])
def test_a_broken_checkpoint_is_named(name: str, folder: Path, tmp_path: Path) -> None:
    file = gestures(tmp_path / "a.csv")
    assert quickly(file, tmp_path / "run").exit_code == 0
    newest = tt.train.latest_checkpoint(tmp_path / "run")
    (newest / name).write_bytes(b"{")
    fix = f"Remove the folder {newest} to go on from"
    is_one_line_of_error(call("train", "--resume", tmp_path / "run"), "the checkpoint cannot be read", name, fix)


def test_a_run_that_goes_astray_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(model: Any, _: Any) -> dict[str, tt.train.Mean]:
        return {"loss": tt.train.Mean(model.answer.weight.sum() * torch.nan, 1)}

    astray = SimpleNamespace(measure=lost)
    monkeypatch.setattr("throughtime.cli.train._run.TASKS", {"classify": astray})
    result = quickly(gestures(tmp_path / "a.csv"), tmp_path / "run")
    is_one_line_of_error(result, "the loss is not a number any more: got nan", "Lower the learning rate.")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_models_larger_than_memory(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: Any) -> None:
        raise error

    monkeypatch.setattr("throughtime.cli.train._run.make_model", make)
    is_one_line_of_error(quickly(gestures(tmp_path / "a.csv"), tmp_path / "run"), "there is not enough memory")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seed", 2**70], "`--seed` is out of range"),
        (["--beam", 10**6], "`--beam` is too large: got 1000000, expected at most 1,000."),
    ],
)
def test_numbers_that_nobody_means(flags: list[Any], message: str, tmp_path: Path) -> None:
    is_one_line_of_error(call("decode", tmp_path, *flags), message)


def test_what_is_not_known_is_no_answer_to_learn(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x\n" + "".join(f"{row // 4},{'' if row % 4 == 2 else row % 4}\n" for row in range(120)))
    found = survey(open_table(path), "id")
    examples = read_examples(found.table, guess(found, Columns()).layout, together=True, seed=0)
    inputs, targets = examples.train[0]
    assert answers(targets).isnan().flatten().tolist() == [False, False, True, False]
    known = last_known(targets).flatten().tolist()
    assert known[2] == known[1], "the last known value stands for a missing one"
    assert inputs.isfinite().all()
    result = quickly(path, tmp_path / "run", "--horizon", 2)
    assert result.exit_code == 0, said(result)


def test_little_data_is_seen_often_enough() -> None:
    for task in ("classify", "tag", "forecast", "translate"):
        for examples in (1, 10, 100, 1000, 100_000):
            recipe = default_recipe(task, examples, 10 * examples)
            assert recipe.epochs * -(-examples // recipe.batch_size) >= LEAST_STEPS
    # As chosen by cross-validation on Japanese Vowels.
    assert default_recipe("classify", 270, 0)[:3] == (30, 32, 5e-3)
    assert default_shape("classify", 270, 0, 1)[:5] == ("lstm", 96, 1, 0.5, 0.9)


def test_texts_to_translate_come_in_few_widths(tmp_path: Path) -> None:
    """What looks back at them is compiled for each."""
    found = survey(open_table(pairs(tmp_path / "a.tsv")))
    examples = read_examples(found.table, guess(found, Columns()).layout, together=True, seed=0)
    batches = batches_of(examples, examples.train, default_recipe("translate", 36, 100)._replace(batch_size=4), 0)
    assert {batch.inputs.shape[1] % WIDTHS for part in batches[:3] for batch in part} == {0}
    assert {int(batch.lengths.max()) for batch in batches.train} >= {4, 5}


def test_a_text_of_nothing(tmp_path: Path) -> None:
    path = text(tmp_path / "a.txt")
    path.write_text("")
    is_one_line_of_error(quickly(path, tmp_path / "run"), "a.txt is empty")
