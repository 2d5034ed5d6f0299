"""LLVM IR written by hand: every file parses, its names are read by Python, and its text decides what is compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import throughtime as tt
from throughtime.native.toolchain import llvm, module_loader
from throughtime.native.toolchain.ir_files import IrFile, read_ir
from throughtime.native.toolchain.object_cache import ObjectCache

pytestmark = pytest.mark.covers("kernels")

SOURCES = Path(tt.__file__).parent
FILES = sorted(SOURCES.rglob("*.ll"))
RECORD = """
%pair = type {
  i64,        ; first: a number
  ptr,        ; second
  [3 x i64],  ; unused
  [0 x %pair] ; rest: of any length
}

@limit = private unnamed_addr constant i64 -7
declare void @elsewhere(ptr)
define internal void @here(ptr %pair) {
  call void @elsewhere(ptr %pair)
  ret void
}
"""


def test_there_are_files() -> None:
    assert {path.stem for path in FILES} >= {"barrier", "mailbox", "prefetch_ring", "work_stealing", "shared_calls"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_valid_and_has_machine_code(path: Path) -> None:
    assert llvm.compile_assembly(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_fields_of_every_record_have_names(path: Path) -> None:
    ir = IrFile(path.read_text())
    for record in re.findall(r"^%(\w+) = type \{$", ir.text, re.MULTILINE):
        assert ir.fields(record)["end"] >= 2


def test_no_module_has_ir_in_a_string() -> None:
    """Generated code is written by the builder; functions that are written by hand are in files."""
    written = re.compile(r"^define (internal )?\w+ @\w+\(", re.MULTILINE)
    assert [path.name for path in SOURCES.rglob("*.py") if written.search(path.read_text())] == []


def test_fields_constants_and_definitions() -> None:
    ir = IrFile(RECORD)
    assert ir.fields("pair") == {"first": 0, "second": 1, "unused": 2, "rest": 5, "end": 5}
    assert ir.constants == {"limit": -7}
    assert "declare" in ir.text
    assert "declare" not in ir.definitions
    with pytest.raises(KeyError, match="another"):
        ir.fields("another")


def test_a_field_without_a_name() -> None:
    with pytest.raises(ValueError, match="a field of %pair needs a 64-bit type and a name in its comment, got:   i32"):
        IrFile("\n%pair = type {\n  i32, ; narrow\n}\n").fields("pair")


def test_a_team_reads_the_beginning_of_shared_calls() -> None:
    package = "throughtime.native.threads"
    shared, team = (read_ir(package, f"{name}.ll") for name in ("shared_calls", "openmp_team"))
    fields = team.fields("team_calls")
    assert fields.pop("end") == len(fields)
    assert fields.items() <= shared.fields("shared_calls").items()
    stealing = read_ir(package, "work_stealing.ll").fields("work_stealing")
    assert all(stealing[name] == shared.fields("shared_calls")[name] for name in ("entry", "thread_number", "function"))
    barrier = read_ir(package, "barrier.ll").fields("barrier")
    assert f"i64 {barrier['members']}  ; members of %barrier" in read_ir(package, "barrier_benchmark.ll").text


def test_the_cache_notices_another_text(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    text = read_ir("throughtime.native.threads", "barrier_benchmark.ll").text.replace("declare", "; declare")
    text += "define internal void @barrier_wait(ptr %barrier) {\n  ret void\n}\n"
    for _ in range(2):
        module_loader.load(text, cache)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    module_loader.load(text.replace("icmp sgt i64 %members, 1", "icmp sgt i64 %members, 2"), cache)
    assert len(list((tmp_path / "cache").iterdir())) == 2
