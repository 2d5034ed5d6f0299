"""Compiled kernels on disk: found again, never trusted blindly, never in the way."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from loop_programs import arguments, interpret, lstm, packed
from throughtime.backends.cpu import LoopKernel
from throughtime.native.toolchain import llvm, module_loader
from throughtime.native.toolchain.module_loader import cache_key
from throughtime.native.toolchain.object_cache import ObjectCache, cache_directory

pytestmark = pytest.mark.covers("kernels")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the cache, not there yet."""
    return tmp_path / "cache"


@pytest.fixture
def cache(folder: Path) -> ObjectCache:
    return ObjectCache(folder)


def never() -> bytes:
    raise AssertionError("made again")


def test_an_entry_is_made_once(folder: Path, cache: ObjectCache) -> None:
    assert cache.get(("code", "host"), lambda: b"first") == b"first"
    assert cache.get(("code", "host"), never) == b"first"
    assert cache.get(("code", "other host"), lambda: b"second") == b"second"
    assert len(list(folder.iterdir())) == 2
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: data[:5], lambda _: b"", lambda data: data[:-1] + b"?"]
)
def test_a_damaged_entry_is_made_again(folder: Path, cache: ObjectCache, damage: type) -> None:
    cache.get(("code",), lambda: b"content")
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert cache.get(("code",), lambda: b"content") == b"content"
    assert file.read_bytes() == whole


def test_no_folder_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / "file" / "cache")
    assert cache.get(("code",), lambda: b"content") == b"content"

    def homeless() -> Path:
        raise RuntimeError("no home")

    assert cache_directory({}, homeless) is None
    assert ObjectCache(None).get(("code",), lambda: b"content") == b"content"


@pytest.mark.skipif(os.name == "nt", reason="where Windows keeps caches is not said by XDG")
def test_the_folder_is_the_users(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": "/user/caches", "THROUGHTIME_CACHE_DIR": "/chosen"}
    assert cache_directory(environment) == Path("/chosen")
    del environment["THROUGHTIME_CACHE_DIR"]
    assert cache_directory(environment) == Path("/user/caches/throughtime")
    assert cache_directory({}, lambda: tmp_path) == tmp_path / ".cache" / "throughtime"


@pytest.mark.parametrize("bounds", [{"max_files": 3}, {"max_bytes": 3 * 151}], ids=str)
def test_the_folder_stays_small(folder: Path, bounds: dict[str, int]) -> None:
    cache = ObjectCache(folder, **bounds)
    for number in range(6):
        cache.get((str(number),), lambda: bytes(100))
        for file in folder.iterdir():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 10))
        # The first is used again and again, so it stays.
        cache.get(("0",), never)
    assert len(list(folder.iterdir())) == 3
    assert cache.get(("0",), never) == cache.get(("5",), never) == bytes(100)


def test_what_dead_writers_left_is_removed(folder: Path, cache: ObjectCache) -> None:
    folder.mkdir()
    old, new = folder / "new-old.tmp", folder / "new-new.tmp"
    for file in (old, new):
        file.write_bytes(b"half of it")
    os.utime(old, (0, time.time() - 7200))
    cache.get(("code",), lambda: b"content")
    assert not old.exists()
    assert new.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_share_it(folder: Path) -> None:
    cache = ObjectCache(folder, max_files=4)
    contents = [bytes([number]) * 10_000 for number in range(6)]
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                for turn in range(200):
                    content = contents[turn % 6]
                    assert cache.get((str(turn % 6),), lambda content=content: content) == content
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert not list(folder.glob("*.tmp"))
    assert len(list(folder.iterdir())) <= 7


@pytest.fixture
def process_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, for all kernels of this process."""
    monkeypatch.setenv("THROUGHTIME_CACHE_DIR", str(folder))
    return folder


def test_an_upgrade_or_another_processor_finds_no_old_kernel() -> None:
    host = llvm.host()
    keys = [
        cache_key("code", "1", "llvm", host),
        cache_key("other code", "1", "llvm", host),
        cache_key("code", "2", "llvm", host),
        cache_key("code", "1", "newer llvm", host),
        cache_key("code", "1", "llvm", replace(host, cpu=f"not {host.cpu}")),
        cache_key("code", "1", "llvm", replace(host, features=f"{host.features},+more")),
    ]
    assert len(set(keys)) == len(keys)


def test_kernels_come_from_disk(process_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = lstm(9, torch.float32)
    steps, rows = packed(3, 1)
    given = arguments(program, steps, rows)
    # A run too: the first one in a process loads what all kernels share.
    LoopKernel(program).run(*given.copy().every(), steps, 0, 2, 1)
    assert any(process_cache.iterdir())

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


def test_names_do_not_matter_to_the_machine(process_cache: Path) -> None:
    assembly = {LoopKernel(lstm(9, torch.float32)).llvm}
    files = len(list(process_cache.iterdir()))
    program = lstm(9, torch.float32)
    renamed = type(program)(**{**vars(program), "name": "another"})
    assert {LoopKernel(renamed).llvm} == assembly
    assert len(list(process_cache.iterdir())) == files
    assert module_loader.load(assembly.pop()).address("loop") != 0
