"""Files as they are written: spaces around cells, blank lines first, numbers with marks, a folder of texts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cli_files import call, gestures, is_one_line_of_error, quickly, said
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError
from throughtime.cli.tables import open_table, survey
from throughtime.cli.tables._infer_schema import look_over

pytestmark = pytest.mark.covers("cli")


def with_numbers(path: Path, form: str, delimiter: str = ";") -> Path:
    """Forty sequences of five steps; each number is written in this form."""
    cells = (
        (f"s{row // 5}", form.format(200 + row * 3 % 40), "AB"[row // 5 % 2], "train" if row < 150 else "test")
        for row in range(200)
    )
    path.write_text("\n".join(delimiter.join(row) for row in [("id", "x", "label", "split"), *cells]) + "\n")
    return path


@pytest.mark.parametrize(
    "form", ["1,{}", "1,{}.50", "1.{},5", "12,345,{}", "1'{}", "1\u202f{},5", "{}%", "{} %", "${}", "{} €", "-1,{}.5"]
)
def test_numbers_with_marks_are_refused(form: str, tmp_path: Path) -> None:
    path = with_numbers(tmp_path / "a.csv", form)
    with pytest.raises(UserError, match=r"line 2, column `x` has (a comma in a number|marks in its numbers): got "):
        survey(open_table(path), "id")
    # Who says that they are names is believed.
    found = survey(open_table(path), "id", frozenset({"x"}))
    assert found.facts["x"].distinct == 40


@pytest.mark.parametrize("form", ["{}", "{}e-3", "-{}.5", "+{}", " {} "])
def test_numbers_as_they_are_read(form: str, tmp_path: Path) -> None:
    assert survey(open_table(with_numbers(tmp_path / "a.csv", form)), "id").facts["x"].is_number


@pytest.mark.parametrize("form", ["{0} {0}", "v{}", "{}-1", "12:{}", "3 1 {}"])
def test_what_only_looks_like_numbers_is_text(form: str, tmp_path: Path) -> None:
    assert not survey(open_table(with_numbers(tmp_path / "a.csv", form)), "id").facts["x"].is_number


def test_spaces_around_a_cell_are_none(tmp_path: Path) -> None:
    plain = gestures(tmp_path / "plain.csv")
    lines = plain.read_text().splitlines()
    spaced = [" , ".join(line.split(",")) + " " * (number % 2) for number, line in enumerate(lines)]
    (tmp_path / "spaced.csv").write_text("\n".join(spaced) + "\n")
    one, other = (look_over(tmp_path / name, Columns()) for name in ("plain.csv", "spaced.csv"))
    assert one.layout == other.layout
    assert one.found.lengths == other.found.lengths
    assert one.found.facts == other.found.facts


def test_blank_lines_before_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n \n\nid;x;label\na;1;p\n\nb;2;q\n")
    table = open_table(tmp_path / "a.csv")
    assert table.columns == ["id", "x", "label"]
    (piece,) = table.pieces()
    assert piece.lines.tolist() == [5, 7]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
def test_lines_are_counted_over_cells_of_several_lines(end: str, tmp_path: Path) -> None:
    rows = ["id,x", "a,1", f'"b{end}c",2', "", "d,3", "e,oops"]
    (tmp_path / "a.csv").write_bytes(end.join(rows).encode())
    (piece,) = open_table(tmp_path / "a.csv").pieces()
    assert piece.lines.tolist() == [2, 4, 6, 7]
    assert piece.columns["id"].tolist() == ["a", f"b{end}c", "d", "e"]


def test_bytes_that_are_no_text_are_told_by_their_line(tmp_path: Path) -> None:
    for name, what in (("a.csv", "a CSV file in UTF-8"), ("a.txt", "plain text in UTF-8")):
        (tmp_path / name).write_bytes(b"id,x\na,1\nb,\xff\n")
        result = call("inspect", tmp_path / name)
        is_one_line_of_error(result, f"got bytes that are not UTF-8 in line 3, expected {what}")


def test_classes_that_cannot_be_learned_are_told(tmp_path: Path) -> None:
    path = with_numbers(tmp_path / "a.csv", "{}")
    path.write_text(path.read_text().replace("A;test", "C;test").replace("B;test", "D;test"))
    assert "C, D are not in the training part: they cannot be learned." in said(quickly(path, tmp_path / "run"))
    whole = quickly(with_numbers(tmp_path / "b.csv", "{}"), tmp_path / "other")
    assert "cannot be learned" not in said(whole)


def test_a_cell_that_is_none_is_told_before_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,x\na,"1\n')
    is_one_line_of_error(
        quickly(tmp_path / "a.csv", tmp_path / "run", "--cell", "foo"), "the cell 'foo' cannot be used"
    )


def test_columns_that_are_shown_as_one_have_the_range_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,x_0,x_1,kind\n" + "".join(f"{n // 3},{n},{-n},{'ab'[n % 2]}\n" for n in range(30))
    )
    assert "whole numbers, -29 to 29" in " ".join(said(call("inspect", tmp_path / "a.csv")).split())


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Twenty texts of each of two kinds, a file each, in folders by kind."""
    draw = random.Random(0)
    for kind, words in (("good", "fine great lovely"), ("poor", "awful grim sad")):
        (tmp_path / "reviews" / kind).mkdir(parents=True)
        for number in range(20):
            text = " ".join(draw.choices(f"{words} the a it".split(), k=draw.randint(4, 9)))
            (tmp_path / "reviews" / kind / f"{number}.txt").write_text(text)
    return tmp_path / "reviews"


def test_a_folder_of_texts_in_folders_is_classified(reviews: Path, tmp_path: Path) -> None:
    result = quickly(reviews, tmp_path / "run")
    assert "reviews: 40 texts" in said(result)
    assert "text: words" in said(result)
    answers = call("predict", tmp_path / "run", reviews, "--out", "-").stdout.splitlines()
    assert answers[0] == "sequence,label,probability"
    assert [line.split(",")[0] for line in answers[1:3]] == ["good/0", "good/1"]
    assert len(answers) == 41


def test_predict_tells_of_files_without_rows(reviews: Path, tmp_path: Path) -> None:
    quickly(reviews, tmp_path / "run")
    (reviews / "good" / "0.txt").write_text("")
    result = call("predict", tmp_path / "run", reviews, "--out", tmp_path / "answers.csv")
    assert "39 sequences" in said(result)
    assert "1 sequence of length 0 left out." in said(result)


def test_a_folder_of_texts_is_learned_to_write(reviews: Path) -> None:
    look = look_over(reviews / "good", Columns())
    assert (look.layout.task, look.layout.inputs[0].name) == ("generate", "text")
    assert look.reasons["sequence"] == "names the file, which is one text"
    classified = look_over(reviews, Columns(task="generate"))
    assert classified.layout.task == "generate"
