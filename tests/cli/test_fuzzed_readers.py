"""Damaged files: each that `tools/fuzz_readers.py` found something with, made anew, and 150 more of every kind."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import throughtime as tt
from cli_files import call, is_one_line_of_error
from fuzz_inputs import Draw
from fuzz_targets import TARGETS, Target, draw_of, is_clear, run_values
from throughtime.cli import _run_folder
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError
from throughtime.cli.tables import open_table
from throughtime.cli.tables._infer_schema import look_over
from throughtime.interop import TFCheckpoint
from throughtime.interop.checkpoints._protobuf import field
from throughtime.interop.checkpoints._resolve_path import read_state
from throughtime.interop.checkpoints._sstable_writer import table_of
from throughtime.train._checkpoint import STATE, Checkpoints

pytestmark = pytest.mark.covers("errors")


def outcome(target: Target, data: bytes, folder: Path, draw: Draw) -> str:
    """How a reader answers."""
    try:
        target.read(data, folder, draw)
    except target.errors as error:
        return "refused" if is_clear(error, target) else f"refused with {error}"
    return "read"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    target, outcomes = TARGETS[name], set()
    for number in range(150):
        draw = draw_of(20, name, number)
        data = target.make(draw)
        outcomes.add(outcome(target, data, tmp_path, draw))
    assert outcomes == {"read", "refused"}, "inputs of one kind show little"


def refused(path: Path, words: str) -> None:
    with pytest.raises(UserError, match=words):
        look_over(path, Columns())


@pytest.mark.parametrize("code", [0x110000, 2**32 - 1], ids=["beyond", "far beyond"])
@pytest.mark.parametrize("order", "<>")
def test_text_of_numbers_that_are_no_characters(code: int, order: str, tmp_path: Path) -> None:
    codes = np.array([[65, 66], [65, code]], f"{order}u4")
    np.savez(tmp_path / "a.npz", x=np.arange(2.0), word=codes.view(f"{order}U2")[:, 0])
    refused(tmp_path / "a.npz", "numbers that are no characters")


def test_text_in_the_order_of_another_machine(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(4.0), word=np.array(["a", "é", "😀", "b"], ">U2"))
    assert look_over(tmp_path / "a.npz", Columns()).found.facts["word"].counts == {"a": 1, "é": 1, "😀": 1, "b": 1}


def test_an_encrypted_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3.0))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "is encrypted")


def test_an_archive_whose_list_is_damaged(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3.0))
    data = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(data.replace(b"PK\x01\x02", b"PK\x01\x03"))
    assert zipfile.is_zipfile(tmp_path / "a.npz")
    is_one_line_of_error(call("inspect", tmp_path / "a.npz"), "a.npz is not an NPZ file")


def test_parquet_whose_names_are_no_text(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"value": [1.0, 2.0]}), tmp_path / "a.parquet", store_schema=False)
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data.replace(b"value", b"val\xf7e"))
    refused(tmp_path / "a.parquet", "is not a Parquet file: got 'utf-8' codec")


@pytest.mark.parametrize("kind", ["timestamp", "duration"])
def test_parquet_with_times_beyond_the_calendar(kind: str, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pa.array([1, 10**14], getattr(pa, kind)("s"))
    parquet.write_table(pa.table({"x": [1.0, 2.0], "when": column}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "column `when` cannot be read: got .*, expected numbers, text in UTF-8, or dates")


def test_parquet_reads_text_as_before(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "text": pa.array(["a", None, "", "a"]),
        "large": pa.array(["a", None, "b", "a"], pa.large_string()),
        "bytes": pa.array([b"a", None, b"", b"b"]),
        "kept": pa.array(["a", None, "b", "a"]).dictionary_encode(),
        "a.b": pa.array(["x", "y", "x", None]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=3)

    pieces = list(open_table(tmp_path / "a.parquet").pieces())
    found = {name: [text for piece in pieces for text in piece.columns[name]] for name in columns}
    assert found == {
        "text": ["a", "", "", "a"],
        "large": ["a", "", "b", "a"],
        "bytes": ["a", "", "", "b"],
        "kept": ["a", "", "b", "a"],
        "a.b": ["x", "y", "x", ""],
    }


@pytest.mark.parametrize("index", [-1, 7])
def test_parquet_with_an_index_beyond_its_dictionary(
    index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"word": ["a", "b"]}), tmp_path / "a.parquet")
    table = open_table(tmp_path / "a.parquet")
    damaged = pa.DictionaryArray.from_arrays(pa.array([0, index]), pa.array(["a", "b"]), safe=False)
    monkeypatch.setattr(table, "_batches", lambda: [pa.record_batch([damaged], ["word"])])
    with pytest.raises(UserError, match="column `word` cannot be read: got string"):
        list(table.pieces())


@pytest.mark.parametrize("shape", [[0, 2**63], [2**63, 0]])
def test_weights_of_impossible_shapes(shape: list[int], tmp_path: Path) -> None:
    head = json.dumps({"kernel": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(tt.InvalidArgumentError, match="the weights cannot be read: got ") as raised:
        tt.train.load_weights(tt.BasicRNNCell(2, input_size=1), tmp_path / "a.safetensors")
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("written", "path"),
    [
        (rb"model\143kpt", "modelckpt"),
        (rb"a\"b\\c\'d", "a\"b\\c'd"),
        (rb"\303\244\x41\n", "äA\n"),
        (rb"\m\ ", "m "),
        (b"\xff", "\ufffd"),
        (rb"\777", "\ufffd"),
    ],
)
def test_names_in_a_state(written: bytes, path: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b'model_checkpoint_path: "' + written + b'"\n')
    assert read_state(tmp_path / "checkpoint") == [(False, path)]


def test_a_variable_of_version_1_without_slices(tmp_path: Path) -> None:
    variable = field(1, b"a\nname") + field(2, field(2, b"")) + field(3, 1)
    (tmp_path / "model.ckpt").write_bytes(table_of([(b"", field(1, field(1, variable)))]))
    with pytest.raises(ValueError, match=r"'a\\nname' in .*model.ckpt cannot be read: got a variable without") as error:
        TFCheckpoint(tmp_path / "model.ckpt")["a\nname"]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["[]", "1", '{"$pairs": 1}', '{"$tuple": null}', '{"$pairs": [[[], 1]]}', "[" * 100_000]
)
def test_a_state_of_training_that_is_none(text: str, tmp_path: Path) -> None:
    weights = {"kernel": torch.zeros(2)}
    checkpoints = Checkpoints(tmp_path, 3)
    checkpoints.save("00000001", weights, None, {"a": 1})
    (tmp_path / "checkpoint-00000001" / STATE).write_text(text)
    with pytest.raises(tt.InvalidArgumentError, match=r"the checkpoint cannot be read: got .*training.json: "):
        checkpoints.load()


def test_inspect_says_what_is_wrong_with_a_history(tmp_path: Path) -> None:
    (tmp_path / _run_folder.RUN).write_text(json.dumps(run_values()))
    (tmp_path / "history.jsonl").write_text("[]\n")
    is_one_line_of_error(call("inspect", tmp_path), "history.jsonl, line 1 is no record: got []")


@pytest.mark.filterwarnings("error")
def test_signalling_nans_are_missing_numbers(tmp_path: Path) -> None:
    signalling = np.array([0x7F800001, 0x3F800000, 0x40000000, 0x40800000], np.uint32).view(np.float32)
    np.savez(tmp_path / "a.npz", x=signalling)
    assert look_over(tmp_path / "a.npz", Columns()).found.facts["x"].missing == 1


def test_an_archive_of_python_2_is_no_warning(tmp_path: Path) -> None:
    """Numpy warns of headers that were written by Python 2; a command that prints one line prints no more."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L,), }\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24))
    (tmp_path / "a.npz").write_bytes(content.getvalue())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(map(len, open_table(tmp_path / "a.npz").pieces())) == 3
