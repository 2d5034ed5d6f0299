"""`tf.gfile` and records."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import throughtime.tf1 as tf
from throughtime.tf1.files._tfrecord import framed, read_records

pytestmark = pytest.mark.covers("tf1")


def test_reading_and_writing(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")
    with tf.gfile.GFile(path, "w") as file:
        file.write("one\n")
        file.write("two\n")
    with tf.gfile.Open(path) as file:
        assert file.readline() == "one\n"
        assert file.read() == "two\n"
    assert list(tf.gfile.FastGFile(path)) == ["one\n", "two\n"]
    assert tf.gfile.GFile(path, "rb").read() == b"one\ntwo\n"
    assert tf.gfile.GFile(path).size() == 8


def test_folders(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    tf.gfile.MakeDirs(str(deep))
    tf.gfile.MakeDirs(str(deep))
    (deep / "x.txt").write_text("x")
    assert tf.gfile.Exists(str(deep / "x.txt"))
    assert tf.gfile.IsDirectory(str(deep))
    assert tf.gfile.ListDirectory(str(deep)) == ["x.txt"]
    assert tf.gfile.Glob(str(deep / "*.txt")) == [str(deep / "x.txt")]
    assert list(tf.gfile.Walk(str(tmp_path / "a"))) == [(str(tmp_path / "a"), ["b"], []), (str(deep), [], ["x.txt"])]
    tf.gfile.Copy(str(deep / "x.txt"), str(deep / "y.txt"))
    tf.gfile.Rename(str(deep / "y.txt"), str(deep / "z.txt"))
    assert tf.gfile.Stat(str(deep / "z.txt")).length == 1
    tf.gfile.Remove(str(deep / "z.txt"))
    tf.gfile.DeleteRecursively(str(tmp_path / "a"))
    assert not tf.io.gfile.exists(str(deep))


def test_errors(tmp_path: Path) -> None:
    missing, taken = str(tmp_path / "missing"), tmp_path / "taken"
    taken.write_text("x")
    for call in (
        lambda: tf.gfile.GFile(missing).read(),
        lambda: tf.gfile.Remove(missing),
        lambda: tf.gfile.ListDirectory(missing),
        lambda: tf.gfile.DeleteRecursively(missing),
        lambda: tf.gfile.Stat(missing),
        lambda: tf.gfile.Copy(missing, missing),
    ):
        with pytest.raises(tf.errors.NotFoundError, match="expected an existing path"):
            call()
    with pytest.raises(tf.errors.AlreadyExistsError, match="overwrite=True"):
        tf.gfile.Copy(str(taken), str(taken))
    with pytest.raises(tf.errors.AlreadyExistsError, match=r"gfile\.MakeDirs"):
        tf.gfile.MkDir(str(tmp_path))
    with pytest.raises(tf.errors.FailedPreconditionError, match="a file is where a folder should be"):
        tf.gfile.MakeDirs(str(taken))


def test_records_are_framed_and_checked() -> None:
    # What TensorFlow's writer makes of b"hello".
    assert framed(b"hello").hex() == "0500000000000000eab2043e68656c6c6fbb1f1c19"
    data = framed(b"one") + framed(b"") + framed(b"three")
    assert list(read_records(io.BytesIO(data), "file")) == [b"one", b"", b"three"]
    for place in range(len(framed(b"one"))):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(ValueError, match="file is damaged at byte 0"):
            list(read_records(io.BytesIO(bytes(damaged)), "file"))
    with pytest.raises(ValueError, match=r"cut off|does not match"):
        list(read_records(io.BytesIO(data[:-1]), "file"))
