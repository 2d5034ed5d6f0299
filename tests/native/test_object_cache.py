"""Compiled kernels on disk: found again, never trusted blindly, never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from loop_programs import arguments, interpret, lstm, packed
from throughtime.backends.cpu import LoopKernel
from throughtime.native.toolchain import llvm, module_loader, object_cache

pytestmark = pytest.mark.covers("kernels")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, not there yet."""
    monkeypatch.setenv("THROUGHTIME_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def never() -> bytes:
    raise AssertionError("made again")


def test_an_entry_is_made_once(folder: Path) -> None:
    assert object_cache.cached(("code", "host"), lambda: b"first") == b"first"
    assert object_cache.cached(("code", "host"), never) == b"first"
    assert object_cache.cached(("code", "other host"), lambda: b"second") == b"second"
    assert len(list(folder.iterdir())) == 2
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: data[:5], lambda _: b"", lambda data: data[:-1] + b"?"]
)
def test_a_damaged_entry_is_made_again(folder: Path, damage: type) -> None:
    object_cache.cached(("code",), lambda: b"content")
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert object_cache.cached(("code",), lambda: b"content") == b"content"
    assert file.read_bytes() == whole


def test_no_folder_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("THROUGHTIME_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert object_cache.cached(("code",), lambda: b"content") == b"content"
    monkeypatch.delenv("THROUGHTIME_CACHE_DIR")
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert object_cache.cache_directory() is None
    assert object_cache.cached(("code",), lambda: b"content") == b"content"


@pytest.mark.skipif(os.name == "nt", reason="where Windows keeps caches is not said by XDG")
def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("THROUGHTIME_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert object_cache.cache_directory() == tmp_path / "throughtime"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert object_cache.cache_directory() == tmp_path / ".cache" / "throughtime"


@pytest.mark.parametrize(("bound", "value"), [("MAX_FILES", 3), ("MAX_BYTES", 3 * 151)])
def test_the_folder_stays_small(folder: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(object_cache, bound, value)
    for number in range(6):
        object_cache.cached((str(number),), lambda: bytes(100))
        for file in folder.iterdir():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 10))
        # The first is used again and again, so it stays.
        object_cache.cached(("0",), never)
    assert len(list(folder.iterdir())) == 3
    assert object_cache.cached(("0",), never) == object_cache.cached(("5",), never) == bytes(100)


def test_what_dead_writers_left_is_removed(folder: Path) -> None:
    folder.mkdir()
    old, new = folder / "new-old.tmp", folder / "new-new.tmp"
    for file in (old, new):
        file.write_bytes(b"half of it")
    os.utime(old, (0, time.time() - 7200))
    object_cache.cached(("code",), lambda: b"content")
    assert not old.exists()
    assert new.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_share_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "MAX_FILES", 4)
    contents = [bytes([number]) * 10_000 for number in range(6)]
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                for turn in range(200):
                    content = contents[turn % 6]
                    assert object_cache.cached((str(turn % 6),), lambda content=content: content) == content
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert not list(folder.glob("*.tmp"))
    assert len(list(folder.iterdir())) <= 7


def test_kernels_come_from_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = lstm(9, torch.float32)
    steps, rows = packed(3, 1)
    given = arguments(program, steps, rows)
    # A run too: the first one in a process loads what all kernels share.
    LoopKernel(program).run(*given.copy().every(), steps, 0, 2, 1)
    assert any(folder.iterdir())

    def refuse(_: str) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(llvm, "compile_assembly", refuse)
    start = time.perf_counter()
    kernel = LoopKernel(program)
    # A few milliseconds; this much is a sign that something was compiled after all.
    assert time.perf_counter() - start < 1
    expected = given.copy()
    interpret(program, expected, steps, 0, 2)
    kernel.run(*given.every(), steps, 0, 2, 1)
    for got, truth in zip(given.results(), expected.results(), strict=True):
        torch.testing.assert_close(got, truth)


def test_names_do_not_matter_to_the_machine(folder: Path) -> None:
    assembly = {LoopKernel(lstm(9, torch.float32)).llvm}
    files = len(list(folder.iterdir()))
    program = lstm(9, torch.float32)
    renamed = type(program)(**{**vars(program), "name": "another"})
    assert {LoopKernel(renamed).llvm} == assembly
    assert len(list(folder.iterdir())) == files
    assert module_loader.load(assembly.pop()).address("loop") != 0
