"""Files of sequences: every format says the same, in pieces, and every mistake in one is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli_files import gestures, many_series, pairs, series, tags, text
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError
from throughtime.cli.tables import _table, open_table, rows_of, survey
from throughtime.cli.tables._group_rows import sorted_rows
from throughtime.cli.tables._infer_roles import check_said, guess, sequence_column
from throughtime.cli.tables._table import piece_cells

pytestmark = pytest.mark.covers("cli")


def guessed(path: Path, **said: object):
    wishes = Columns(**said)
    table = open_table(path)
    check_said(table, wishes)
    return guess(survey(table, sequence_column(table, wishes), frozenset(wishes.categories)), wishes)


def sequences_in(path: Path, sequence: str) -> dict[str, np.ndarray]:
    table = open_table(path)
    return {rows.name: rows.piece.numbers("x", table) for rows in rows_of(table, sequence)}


def to_parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow", reason="no pyarrow here")
    csv = pytest.importorskip("pyarrow.csv")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert pa
    parquet.write_table(csv.read_csv(path), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def to_npz(path: Path, *, padded: bool = False, packed: bool = True) -> Path:
    inside = sequences_in(path, "id")
    lengths = np.array([len(x) for x in inside.values()], np.int32)
    steps = np.concatenate(list(inside.values()))
    if padded:
        steps = np.stack([np.pad(x, (0, lengths.max() - len(x)), constant_values=np.nan) for x in inside.values()])
    kinds = np.array([place % 3 for place in range(len(lengths))])
    save = np.savez_compressed if packed else np.savez
    save(path.with_suffix(".npz"), x=steps, lengths=lengths, kind=kinds)
    return path.with_suffix(".npz")


def to_folder(path: Path) -> Path:
    table = open_table(path)
    folder = path.parent / "folder"
    for rows in rows_of(table, "id"):
        kind = rows.piece.texts("kind")[0]
        (folder / kind).mkdir(parents=True, exist_ok=True)
        lines = ["x,y", *(f"{x},{y}" for x, y in zip(rows.piece.texts("x"), rows.piece.texts("y"), strict=True))]
        (folder / kind / f"{rows.name}.csv").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("cells", [7, 40, 250_000], ids=["tiny pieces", "small pieces", "one piece"])
def test_every_format_holds_the_same_sequences(tmp_path: Path, cells: int) -> None:
    csv = gestures(tmp_path / "g.csv")
    wanted = sequences_in(csv, "id")
    assert len(wanted) == 24
    for path, sequence in (
        (csv, "id"),
        (to_parquet(csv), "id"),
        (to_npz(csv), "sequence"),
        (to_folder(csv), "sequence"),
    ):
        with piece_cells.use(cells):
            found = sequences_in(path, sequence)
        by_name = {name.split("/")[-1]: values for name, values in found.items()}
        for place, (name, values) in enumerate(wanted.items()):
            np.testing.assert_array_equal(by_name[str(place) if path.suffix == ".npz" else name], values)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_npz_in_every_layout(tmp_path: Path, padded: bool, packed: bool) -> None:
    csv = gestures(tmp_path / "g.csv")
    wanted = list(sequences_in(csv, "id").values())
    found = list(sequences_in(to_npz(csv, padded=padded, packed=packed), "sequence").values())
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "name", "task", "inputs", "targets"),
    [
        (gestures, "a.csv", "classify", ["x", "y"], ["kind"]),
        (tags, "a.csv", "tag", ["word", "weight"], ["tag"]),
        (series, "a.csv", "forecast", ["level", "load"], ["level", "load"]),
        (many_series, "a.csv", "forecast", ["value"], ["value"]),
        (text, "a.txt", "generate", ["text"], []),
        (pairs, "a.tsv", "translate", ["word"], ["phonemes"]),
    ],
)
def test_what_is_guessed(make, name: str, task: str, inputs: list[str], targets: list[str], tmp_path: Path) -> None:
    layout, reasons = guessed(make(tmp_path / name))
    assert layout.task == task
    assert [column.name for column in layout.inputs] == inputs
    assert [column.name for column in layout.targets] == targets
    assert set(inputs) | set(targets) <= set(reasons)


@pytest.mark.parametrize(
    ("content", "task", "source", "tokens"),
    [
        ("text,label\nit is good,yes\nit is bad,no\n", "classify", "text", "words"),
        ("sentence,label\nit is good,yes\nit is bad,no\n", "classify", "sentence", "words"),
        ("id,name,class\n1,anna,f\n2,otto,m\n", "classify", "name", "characters"),
        ("name\nanna\notto\n", "generate", "name", "characters"),
        ("english,spanish\nthe cat,el gato\nthe dog,el perro\n", "translate", "english", "words"),
        ("id,source,target\n1,ab,ba\n2,abc,cba\n", "translate", "source", "characters"),
    ],
)
def test_rows_of_text(content: str, task: str, source: str, tokens: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    layout, _ = guessed(tmp_path / "a.csv")
    assert (layout.task, layout.inputs[0].name, layout.sequence) == (task, source, None)
    assert layout.inputs[0].tokens == tokens


@pytest.mark.parametrize(
    ("content", "task", "target"),
    [
        ("id,x,y,kind\na,1.5,0,p\na,2.5,1,q\nb,1.5,0,p\n", "tag", "y"),
        ("id,x,y,kind\na,1.5,0.5,p\na,2.5,1.5,p\nb,1.5,2.5,q\n", "classify", "kind"),
        ("id,x,y\na,1.5,0.5\na,2.5,1.5\nb,1.5,2.5\n", "forecast", "y"),
        ("id,tag,label,x\na,p,0.5,1\na,q,1.5,1\nb,p,2.5,1\n", "forecast", "label"),
    ],
    ids=["its classes", "the last text", "its numbers", "the first name"],
)
def test_what_to_learn_is_guessed_as_the_page_says(content: str, task: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    layout, _ = guessed(tmp_path / "a.csv")
    assert (layout.task, [column.name for column in layout.targets]) == (task, [target])


def test_what_is_said_overrules_what_is_guessed(tmp_path: Path) -> None:
    path = gestures(tmp_path / "a.csv")
    assert guessed(path, task="forecast", target=("x",)).layout.targets[0].name == "x"
    assert [c.name for c in guessed(path, inputs=("y",)).layout.inputs] == ["y"]
    assert [c.name for c in guessed(path, ignore=("x",)).layout.inputs] == ["y"]
    assert guessed(path, sequence="kind", target=("y",), task="forecast").layout.sequence == "kind"
    assert guessed(path, categories=("x",)).layout.inputs[0].kind == "category"


def test_a_folder_is_labelled_by_its_folders(tmp_path: Path) -> None:
    layout, _ = guessed(to_folder(gestures(tmp_path / "g.csv")))
    assert (layout.task, layout.sequence, layout.targets[0].name) == ("classify", "sequence", "label")


def test_npz_says_what_each_sequence_is(tmp_path: Path) -> None:
    layout, _ = guessed(to_npz(gestures(tmp_path / "g.csv")))
    assert (layout.task, layout.targets[0].name) == ("classify", "kind")


def test_mixed_rows_are_put_together_for_training_and_refused_in_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_text("id,x,kind\na,1,p\nb,2,q\na,3,p\nb,4,q\n")
    table = open_table(path)
    assert not survey(table, "id").together
    assert [rows.piece.numbers("x", table).tolist() for rows in sorted_rows(table, "id")] == [[1, 3], [2, 4]]
    with pytest.raises(
        UserError, match=r"mixed.csv, line 4: the rows of a sequence are not together: got `id` 'a' again"
    ):
        list(rows_of(table, "id"))


MISTAKES = {
    "no header": ("1,2,3\n4,5,6\n", "has no header: got the first line '1,2,3'"),
    "empty": ("", "has no columns"),
    "no rows": ("id,x\n", "is empty: got no rows"),
    "short line": ("id,x\na,1\nb\n", "line 3 is not like the header: got 1 cell, expected 2"),
    "long line": ("id,x\na,1\nb,2,3\n", "line 3 is not like the header: got 3 cells, expected 2"),
    "twice": ("id,x,x\na,1,2\n", "has two columns of one name: got 'x'"),
    "nameless": ("id,,x\na,1,2\n", "column 2 has no name"),
    "a word among numbers": (
        "id,x,kind\n" + "a,1,p\n" * 30 + "a,oops,p\n",
        "line 32, column `x` is not a number: got 'oops'",
    ),
    "time goes back": ("id,time,x,kind\na,2,1,p\na,1,2,p\n", "line 3: `time` goes back: got 1 after 2"),
    "dates go back": ("id,date,x,kind\na,2024-05-02,1,p\na,2024-05-01,2,p\n", "`date` goes back"),
}


def read_whole(path: Path) -> None:
    layout = guessed(path).layout
    list(rows_of(open_table(path), layout.sequence, layout.order))


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_in_a_file(case: str, tmp_path: Path) -> None:
    content, message = MISTAKES[case]
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(UserError) as mistake:
        read_whole(path)
    assert message in str(mistake.value)
    assert "bad.csv" in str(mistake.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"id,x\n\xff\xfe,1\n", "is not a text file"),
        ("a.csv", b"PK\x03\x04\x00\x00", "is not a text file"),
        ("a.txt", b"\xff\xfe\x00", "is not a text file"),
        ("a.npz", b"not a zip", "is not an NPZ file"),
        ("a.parquet", b"not parquet", "is not a Parquet file"),
        ("a.xlsx", b"", "has an unknown format: got suffix '.xlsx'"),
        ("a.xlsx", b"", "Save the sheet as CSV (UTF-8), or convert it: `pandas.read_excel(path)"),
        ("a.csv.zst", b"", "got suffix '.zst', expected .csv,"),
        ("a.parquet.gz", b"", "Unpack it first: of compressed files, .csv, .tsv and .txt are read with .gz,"),
        ("a.pkl", b"", "`frame.to_parquet('table.parquet')`"),
        ("a.doc", b"", "Save it as CSV (UTF-8), or in another of these formats."),
    ],
)
def test_files_that_are_something_else(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as mistake:
        list(open_table(path).pieces())
    assert message in str(mistake.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((5, 2)), "lengths": np.array([2, 2])}, "`x` of shape (5, 2) with 2 sequences of 4 steps"),
        ({"x": np.zeros((4, 2)), "lengths": np.array([-2, 6])}, "`lengths` of shape (2,)"),
        ({"x": np.zeros((2, 3, 1)), "lengths": np.array([2, 9])}, "`x` of shape (2, 3, 1) and a length of 9"),
        ({"x": np.array([{}], object)}, "`x` of Python objects"),
        ({"lengths": np.array([2, 2])}, "no array by step"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError) as mistake:
        open_table(path)
    assert message in str(mistake.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"target": ("kindd",)}, "`--target` names no column of a.csv: got 'kindd', expected id, step, x, y, kind."),
        ({"sequence": "absent"}, "`--sequence` names no column"),
        ({"task": "guess"}, "`--task` is unknown: got 'guess'"),
        ({"task": "classify", "ignore": ("kind",)}, "has no target"),
        ({"task": "generate"}, "a.csv has no text to generate: got columns id, step, x, y, kind"),
        ({"task": "tag", "target": ("y",)}, "`y` is no target to tag: got numbers from -1."),
        ({"inputs": ("kind",)}, "has nothing to learn from"),
    ],
)
def test_mistakes_about_columns(said: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as mistake:
        guessed(gestures(tmp_path / "a.csv"), **said)
    assert message in str(mistake.value)


def test_missing_numbers_are_the_mean_and_said(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("id,x,kind\na,1,p\na,,p\nb,3,q\n")
    layout, reasons = guessed(path)
    assert reasons["x"].endswith("1 missing, read as the mean")
    assert survey(open_table(path), "id").facts["x"].missing == 1
    assert layout.inputs[0].standardised(next(open_table(path).pieces()), open_table(path)).tolist() == [1, 0, 3]


def test_numbers_and_categories_of_one_name_are_one_category() -> None:
    assert [_table.text_of(value) for value in (3, 3.0, 2.5, float("nan"), "a")] == ["3", "3", "2.5", "", "a"]
