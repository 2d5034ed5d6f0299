"""Checkpoints that are damaged, or none: one clear error, before memory is taken or anything is changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from _recorded import CASES, FOLDER
from hypothesis import given, settings
from hypothesis import strategies as st

import throughtime as tt
from throughtime.interop import TFCheckpoint, save_tf_checkpoint
from throughtime.interop.checkpoints._protobuf import field, fixed
from throughtime.interop.checkpoints._sstable_reader import Table
from throughtime.interop.checkpoints._sstable_writer import table_of

pytestmark = pytest.mark.covers("checkpoints")

DATA = "data-00000-of-00001"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The prefix of a small checkpoint."""
    return Path(save_tf_checkpoint(tt.GRUCell(3, input_size=2), tmp_path / "model.ckpt"))


def file(prefix: Path, ending: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{ending}")


def read_all(path: Path) -> None:
    checkpoint = TFCheckpoint(path)
    for name in checkpoint:
        checkpoint[name]


def refused(path: Any, kind: type[Exception] = ValueError) -> str:
    with pytest.raises(kind) as raised:
        read_all(path)
    assert ": got " in str(raised.value)
    assert ", expected " in str(raised.value)
    return str(raised.value)


def rewrite(prefix: Path, **changed: bytes) -> None:
    """Another index, with entries (`header` for the first) as they are given."""
    index = file(prefix, "index")
    entries = dict(Table(index).items()) | {
        b"" if name == "header" else name.encode(): new for name, new in changed.items()
    }
    index.write_bytes(table_of(sorted(entries.items())))


def test_a_flipped_bit_is_found_and_the_variable_named(saved: Path) -> None:
    data, name = file(saved, DATA), "rnn/gru_cell/gates/kernel"
    whole = bytearray(data.read_bytes())
    whole[-3] ^= 4
    data.write_bytes(whole)
    message = refused(saved)
    assert message.startswith(f"{name!r} in {data} is damaged: got numbers whose checksum is wrong")
    # Others can still be read, and a cell that would have got it gets nothing.
    assert TFCheckpoint(saved)["rnn/gru_cell/gates/bias"].tolist() == [1.0] * 6
    cell = tt.GRUCell(3, input_size=2)
    before = {name: weight.clone() for name, weight in cell.state_dict().items()}
    with pytest.raises(ValueError, match="checksum is wrong"):
        tt.interop.load_tf_checkpoint(cell, saved)
    assert all(torch.equal(weight, before[name]) for name, weight in cell.state_dict().items())


def test_an_index_with_a_flipped_bit(saved: Path) -> None:
    index = file(saved, "index")
    whole = bytearray(index.read_bytes())
    whole[20] ^= 1
    index.write_bytes(whole)
    assert f"{index} cannot be read: got a block at byte 0 whose checksum is wrong" in refused(saved)


def test_files_that_are_too_short(saved: Path) -> None:
    data, index = file(saved, DATA), file(saved, "index")
    numbers = data.read_bytes()
    data.write_bytes(numbers[:-1])
    assert f"got a file of {len(numbers) - 1:,} bytes, without byte {len(numbers):,}" in refused(saved)
    whole = index.read_bytes()
    for size in (0, 10, 47, 48, len(whole) // 2, len(whole) - 1):
        index.write_bytes(whole[:size])
        assert "without the mark at the end of a table" in refused(saved)


def test_files_that_are_not_there(saved: Path, tmp_path: Path) -> None:
    file(saved, DATA).unlink()
    message = refused(saved, FileNotFoundError)
    assert message.startswith(
        f"there is no {file(saved, DATA)}: got no such file, expected the numbers of 'rnn/gru_cell"
    )
    # What is there can be listed.
    assert len(TFCheckpoint(saved)) == 4
    assert "There: model.ckpt." in refused(tmp_path / "modle.ckpt", FileNotFoundError)
    (tmp_path / "empty").mkdir()
    words = "expected the file in which TensorFlow notes the latest checkpoint of a folder"
    assert words in refused(tmp_path / "empty", FileNotFoundError)
    (tmp_path / "empty" / "checkpoint").write_text('model_checkpoint_path: "gone"\n')
    assert "expected what" in refused(tmp_path / "empty", FileNotFoundError)
    shards = tmp_path / "shards"
    shutil.copytree(FOLDER / "sharded_1", shards)
    (shards / "model.ckpt-00001-of-00002").unlink()
    assert "expected one of 2 files" in refused(shards, FileNotFoundError)
    for nothing in (None, 3, "", ["a"], torch.ones(2)):
        assert "`path` names no checkpoint" in refused(nothing, TypeError)
    assert "no such file" in refused("a\0b", FileNotFoundError)


def test_folders_that_were_moved(saved: Path) -> None:
    state = saved.with_name("checkpoint")
    for named in ("/somewhere/else/model.ckpt", str(saved), "model.ckpt", "\\155odel.ckpt"):
        state.write_text(f'all_model_checkpoint_paths: "x"\nmodel_checkpoint_path: "{named}"\n')
        assert TFCheckpoint(saved.parent).prefix.name == "model.ckpt"


def test_big_endian_and_times_to_come_are_refused(saved: Path) -> None:
    rewrite(saved, header=field(1, 1) + field(2, 1))
    assert "was written on a big-endian machine" in refused(saved)
    rewrite(saved, header=field(1, 1) + field(3, field(1, 9) + field(2, 2)))
    assert "needs a newer reader: got version 2, expected at most 1" in refused(saved)


def sides(*shape: int) -> bytes:
    return b"".join(field(2, field(1, side)) for side in shape)


def test_what_a_file_says_of_itself_is_not_believed(saved: Path) -> None:
    """None of these takes more memory than the file has bytes."""
    huge = 2**60
    entries = {
        "bytes for float32 of shape": field(1, 1) + field(2, sides(huge)) + field(5, 40),
        "a file of": field(1, 1) + field(2, sides(huge)) + field(5, 4 * huge),
        "without byte": field(1, 1) + field(2, sides(2)) + field(4, huge) + field(5, 8),
        "in file 7 of 1": field(1, 1) + field(2, sides(2)) + field(3, 7) + field(5, 8),
        "of shape (-1,)": field(1, 1) + field(2, field(2, field(1, 2**64 - 1))) + field(5, 8),
        "texts": field(1, 7) + field(2, sides(huge)) + field(5, 40),
        "unknown rank": field(1, 1) + field(2, field(3, 1)),
        "dtype 20": field(1, 20) + field(2, sides(1)) + field(5, 1),
        "a slice that is not there": field(1, 1) + field(2, sides(huge)) + field(7, field(1, b"")),
        "not all of": field(1, 1) + field(2, sides(huge)) + field(7, field(1, field(2, 3))),
        "checksum is wrong": field(1, 1) + field(2, sides(2)) + field(5, 8) + fixed(6, 1),
    }
    for words, entry in entries.items():
        rewrite(saved, name=entry)
        assert words in refused(saved), words


def test_dtypes_that_torch_has_none_of_are_listed(saved: Path) -> None:
    rewrite(saved, name=field(1, 29) + field(2, sides(2)) + field(5, 1))
    checkpoint = TFCheckpoint(saved)
    assert checkpoint.dtypes["name"] == "dtype 29"
    assert checkpoint["rnn/gru_cell/gates/bias"].any()


@settings(max_examples=300)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, junk: bytes, marked: bool) -> None:
    index = tmp_path_factory.getbasetemp() / "junk.index"
    index.write_bytes(junk + (bytes.fromhex("57fb808b247547db") if marked else b""))
    refused(index)


@settings(max_examples=300)
@given(st.sampled_from(["name", "header"]), st.binary(max_size=60))
def test_random_entries_with_the_right_checksum(
    tmp_path_factory: pytest.TempPathFactory, place: str, junk: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "entries"
    saved = Path(save_tf_checkpoint(tt.BasicRNNCell(2, input_size=2), folder / "model.ckpt"))
    rewrite(saved, **{place: junk})
    try:
        read_all(saved)
    except (ValueError, FileNotFoundError) as error:
        assert ": got " in str(error)  # noqa: PT017 - there may be none


@settings(max_examples=400)
@given(st.sampled_from(CASES), st.integers(0, 10**6), st.integers(1, 255), st.booleans(), st.randoms())
def test_damage_to_what_tensorflow_wrote(
    tmp_path_factory: pytest.TempPathFactory, case: str, at: int, change: int, cut: bool, random: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FOLDER / case, folder)
    path = random.choice(sorted(folder.iterdir()))
    whole = bytearray(path.read_bytes())
    at %= len(whole)
    if cut:
        del whole[at:]
    else:
        whole[at] ^= change
    path.write_bytes(whole)
    for place in (folder, folder / "model.ckpt"):
        try:
            read_all(place)
        except (ValueError, FileNotFoundError) as error:
            assert ": got " in str(error)  # noqa: PT017 - a state may be damaged and still be one
