"""The kernel backend against an interpreter of loop programs, and each of its operations against torch."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from loop_programs import (
    PROGRAMS,
    Arguments,
    arguments,
    batch_major,
    interpret,
    lstm,
    lstm_backward,
    packed,
    random_program,
    shifts,
    softmax,
)
from throughtime.backends._steps import Steps
from throughtime.backends.numba import _shards, compile_loop, refusal
from throughtime.backends.numba._pool import run_jobs
from throughtime.backends.numba._shards import cut_rows
from throughtime.compiler._loop import (
    BINARY,
    COMPARISONS,
    DTYPES,
    REDUCTIONS,
    UNARY,
    Carry,
    LoopProgram,
    Matrix,
    Op,
    Row,
)

pytestmark = pytest.mark.covers("kernels")

FLOATS = (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
INFINITY, NAN = math.inf, math.nan


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THROUGHTIME_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads for the smallest of work."""
    monkeypatch.setattr(_shards, "SHARD_NANOSECONDS", 1)


def check(program: LoopProgram, steps: Steps, rows: int, threads: int = 1) -> None:
    """Fail unless the kernel does what the interpreter does."""
    assert refusal(program) is None
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, len(steps.active))
    compile_loop(program).run(*given.every(), steps, 0, len(steps.active), threads)
    check_same(given.results(), expected.results())


def check_same(got: list[Tensor], expected: list[Tensor]) -> None:
    for result, truth in zip(got, expected, strict=True):
        if not truth.dtype.is_floating_point:
            assert torch.equal(result, truth)
            continue
        assert torch.equal(result.isnan(), truth.isnan())
        scale = 1 + max(truth.nan_to_num().abs().flatten().tolist(), default=0)
        assert bool(((result - truth).nan_to_num().abs() <= TOLERANCE[truth.dtype] * scale).all())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("units", [1, 7, 63, 100])
@pytest.mark.parametrize("make", PROGRAMS)
def test_programs(make: type, units: int, dtype: torch.dtype, many_shards: None) -> None:
    program = make(units, dtype)
    check(program, *packed(9, 9, 5, 3, 1, 0))
    check(program, *packed(9, 9, 5, 3, 1, 0), threads=2)
    check(program, *batch_major(4, 3), threads=3)


@pytest.mark.parametrize("units", [8, 16, 150, 400])
def test_other_widths(units: int) -> None:
    check(lstm(units, torch.float32), *packed(13, 7, 2))
    check(lstm_backward(units, torch.float32), *packed(13, 7, 2))


@pytest.mark.parametrize("rows", range(1, 21))
def test_tiles_of_every_height(rows: int) -> None:
    # More rows of the matrix than are worked off at a time.
    x, out, matrix = Row("x", 401, torch.float32), Row("out", 70, torch.float32), Matrix("m", 401, 70, torch.float32)
    body = (Op("product", out, (x, matrix)),)
    check(LoopProgram("product", False, (x,), (), (), (matrix,), (), body, (out,)), *packed(rows))


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, many_shards: None) -> None:
    dtype = FLOATS[seed % 2]
    program = random_program(seed, dtype)
    check(program, *packed(5, 4, 4, 1, 0), threads=2)
    check(program, *batch_major(3, 2))


def test_nothing_to_do() -> None:
    program = lstm(7, torch.float32)
    check(program, *packed(1))
    check(program, *packed(0, 0))
    steps, rows = packed(2, 1)
    given = arguments(program, steps, rows)
    before = [result.clone() for result in given.results()]
    compile_loop(program).run(*given.every(), steps, 1, 1, 2)
    check_same(given.results(), before)


@pytest.mark.parametrize("make", [lstm, lstm_backward, shifts])
def test_chunks_of_steps(make: type) -> None:
    """The steps in two calls, each with buffers for its own rows alone."""
    program = make(7, torch.float64)
    steps, rows = packed(4, 4, 3, 1, 1)
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, 5)
    cut = int(steps.offset[2])
    kernel = compile_loop(program)
    chunks = [(0, 2, slice(0, cut), 0), (2, 5, slice(cut, None), cut)]
    for first, last, part, origin in reversed(chunks) if program.reverse else chunks:
        streams, stored = ([tensor[part].clone() for tensor in tensors] for tensors in (given.streams, given.stored))
        here = Arguments(streams, given.lagged, given.constants, given.matrices, given.carried, stored)
        kernel.run(*here.every(), steps, first, last, 1, origin)
        for whole, piece in zip(given.stored, stored, strict=True):
            whole[part] = piece
    check_same(given.results(), expected.results())


def test_results_do_not_depend_on_threads_or_on_the_batch(many_shards: None) -> None:
    program = lstm(100, torch.float32)
    steps, rows = packed(11, 9, 2)
    given = arguments(program, steps, rows)
    runs = {threads: given.copy() for threads in (1, 2, 3, 8)}
    for threads, run in runs.items():
        compile_loop(program).run(*run.every(), steps, 0, 3, threads)
    for run in runs.values():
        assert all(torch.equal(*pair) for pair in zip(run.results(), runs[1].results(), strict=True))


def test_unaligned_tensors() -> None:
    program = lstm_backward(63, torch.float32)
    steps, rows = packed(3, 2)
    given = arguments(program, steps, rows)

    def moved(tensor: Tensor) -> Tensor:
        room = torch.full((tensor.numel() + 2,), 7.0, dtype=tensor.dtype)
        room[1:-1] = tensor.flatten()
        return room[1:-1].view(tensor.shape)

    odd = Arguments(
        *([moved(x) for x in tensors] for tensors in [given.streams]),
        [(moved(x), moved(y)) for x, y in given.lagged],
        *([moved(x) for x in tensors] for tensors in (given.constants, given.matrices, given.carried, given.stored)),
    )
    compile_loop(program).run(*given.every(), steps, 0, 2, 1)
    compile_loop(program).run(*odd.every(), steps, 0, 2, 1)
    check_same(odd.results(), given.results())
    for tensor in (*odd.streams, *odd.carried, *odd.stored):
        room = torch.as_strided(tensor, (tensor.numel() + 2,), (1,), tensor.storage_offset() - 1)
        assert room[0] == room[-1] == 7.0


GUARDED = """
import ctypes, sys, torch
sys.path.insert(0, {tests!r})
from loop_programs import *
from throughtime.backends.numba import compile_loop
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
page = 65536
def guarded(tensor):
    turned = not tensor.is_contiguous()
    tensor = tensor.T if turned else tensor
    size = tensor.numel() * tensor.element_size()
    pages = -(-size // page) + 1
    start = libc.mmap(None, pages * page, 3, 0x22, -1, 0)
    libc.mprotect(start + (pages - 1) * page, page, 0)
    memory = (ctypes.c_char * size).from_address(start + (pages - 1) * page - size)
    copy = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)
    return copy.T if turned else copy
for make in (lstm, lstm_backward, layer_norm, softmax, shifts):
    for units in (7, 100):
        program = make(units, torch.float32)
        steps, rows = packed(7, 4, 1)
        given = arguments(program, steps, rows)
        every = [[tuple(map(guarded, x)) if isinstance(x, tuple) else guarded(x) for x in xs] for xs in given.every()]
        compile_loop(program).run(*every, steps, 0, 3, 1)
print("unharmed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is protected with Linux's numbers")
def test_nothing_is_read_past_the_end() -> None:
    script = GUARDED.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "unharmed\n", done.stderr


def special(dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if not dtype.is_floating_point:
        return torch.tensor([0, 1, -1, 2, 5, -7, 100, 2**31 - 1, -(2**31)], dtype=dtype)
    info = torch.finfo(dtype)
    odd = [0.0, -0.0, INFINITY, -INFINITY, NAN, info.max, info.min, info.tiny, info.tiny / 8, info.eps, -info.eps]
    odd += [0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, -7.0, 20.0, -20.0, 88.5, -87.0, 100.0, -100.0, 709.0, -745.0]
    sweep = [torch.linspace(-12, 12, 301, dtype=dtype), torch.logspace(-20, 20, 81, dtype=dtype)]
    return torch.cat([torch.tensor(odd, dtype=dtype), *sweep])


def run_op(kind: str, dtype: torch.dtype, args: list[Tensor | float], rows: list[Row]) -> Tensor | str:
    """One operation on streams; a refusal as text."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    names = iter(rows)
    operands = tuple(next(names) if isinstance(arg, Tensor) else arg for arg in args)
    width = 1 if kind in REDUCTIONS else tensors[0].shape[1]
    op = Op(kind, Row("out", width, dtype), operands)
    program = LoopProgram(kind, False, tuple(rows), (), (), (), (), (op,), (op.result,))
    if (reason := refusal(program)) is not None:
        return reason
    steps, count = packed(len(tensors[0]))
    out = torch.empty(count, width, dtype=dtype)
    compile_loop(program).run(tensors, [], [], [], [], [out], steps, 0, 1, 1)
    return out


def pointwise(kind: str, *args: Tensor | float, dtype: torch.dtype | None = None) -> Tensor | str:
    """An operation on vectors of any length, laid out in rows of eleven."""
    columns = 11
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    length = len(tensors[0])
    folded = [
        torch.cat([arg, arg[:1].expand(-length % columns)]).view(-1, columns) if isinstance(arg, Tensor) else arg
        for arg in args
    ]
    rows = [Row(f"x{n}", columns, tensor.dtype) for n, tensor in enumerate(tensors)]
    result_dtype = torch.bool if kind in COMPARISONS else dtype or tensors[-1].dtype
    result = run_op(kind, result_dtype, folded, rows)
    return result if isinstance(result, str) else result.flatten()[:length]


def ulps(got: Tensor, expected: Tensor) -> float:
    """The largest error in units in the last place; infinite where only one of the two is finite."""
    if not expected.dtype.is_floating_point:
        return 0.0 if torch.equal(got, expected) else INFINITY
    same = (got == expected) | (got.isnan() & expected.isnan())
    info = torch.finfo(expected.dtype)
    error = (got.double() - expected.double()).abs() / expected.double().abs().clamp(min=info.tiny) / info.eps
    return float(torch.where(same, 0.0, error.nan_to_num(nan=INFINITY)).max())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", sorted(UNARY - {"bitwise_not"}))
def test_functions_of_one_number(kind: str, dtype: torch.dtype) -> None:
    values = special(dtype)
    got = pointwise(kind, values)
    assert isinstance(got, Tensor)
    assert ulps(got, getattr(torch, kind)(values)) <= 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", sorted(BINARY - {"bitwise_and", "bitwise_or", "bitwise_xor"}))
def test_functions_of_two_numbers(kind: str, dtype: torch.dtype) -> None:
    values = special(dtype)[:28]
    left, right = (grid.flatten() for grid in torch.meshgrid(values, values, indexing="ij"))
    if kind in {"remainder", "floor_divide"}:
        # torch takes remainders of far larger numbers for NaN.
        fair = ~((left / right).abs() > 1e4) | (right == 0) | ~left.isfinite()
        left, right = left[fair], right[fair]
    got = pointwise(kind, left, right)
    assert isinstance(got, Tensor)
    assert ulps(got, getattr(torch, kind)(left, right)) <= 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_accuracy_of_gates(dtype: torch.dtype) -> None:
    values = torch.linspace(-20, 20, 20011, dtype=dtype)
    limit = 4e-7 if dtype == torch.float32 else 2e-15
    for kind in ("tanh", "sigmoid", "exp"):
        got = pointwise(kind, values)
        assert isinstance(got, Tensor)
        truth = getattr(torch, kind)(values.double())
        assert float(((got.double() - truth) / truth.where(truth != 0, 1.0)).abs().max()) < limit
        assert kind == "exp" or got.abs().max() <= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_powers(dtype: torch.dtype) -> None:
    values = special(dtype)[:27]
    for power in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7, 4.0, -3.0):
        got, turned = pointwise("pow", values, power), pointwise("pow", power, values)
        assert isinstance(got, Tensor)
        assert isinstance(turned, Tensor)
        assert ulps(got, values**power) <= 8
        assert ulps(turned, power**values) <= 8


WHOLE = ["abs", "neg", "relu", "sign", "bitwise_not", "ceil", "floor", "round", "trunc", "isnan", "logical_not"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_whole_numbers(dtype: torch.dtype) -> None:
    values = special(dtype)
    left, right = (grid.flatten() for grid in torch.meshgrid(values, values, indexing="ij"))
    for kind in WHOLE:
        if kind != "round" or dtype != torch.int32:
            assert ulps(pointwise(kind, values), getattr(torch, kind)(values)) == 0, kind  # type: ignore[arg-type]
    kinds = [
        *sorted({"add", "sub", "mul", "maximum", "minimum", *COMPARISONS} & BINARY),
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]
    for kind in kinds:
        assert ulps(pointwise(kind, left, right), getattr(torch, kind)(left, right)) == 0, kind  # type: ignore[arg-type]
    for kind, number in itertools.product(("floor_divide", "remainder"), (3, -3, 7, 1)):
        assert ulps(pointwise(kind, values, number), getattr(torch, kind)(values, number)) == 0  # type: ignore[arg-type]
    for power in (0, 1, 2, 5):
        assert ulps(pointwise("pow", values, power), values**power) == 0  # type: ignore[arg-type]


def test_truth_values() -> None:
    left, right = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for kind in (
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "add",
        "mul",
        "maximum",
        "minimum",
        *sorted(COMPARISONS & BINARY),
    ):
        assert ulps(pointwise(kind, left, right), getattr(torch, kind)(left, right)) == 0, kind  # type: ignore[arg-type]
    for kind in ("bitwise_not", "logical_not", "isnan"):
        assert ulps(pointwise(kind, left), getattr(torch, kind)(left)) == 0, kind  # type: ignore[arg-type]
    for dtype in DTYPES:
        values = special(dtype)[:4]
        condition = torch.tensor([True, False, True, False])[: len(values)]
        got = pointwise("where", condition, values, 1)
        assert ulps(got, torch.where(condition, values, torch.tensor(1, dtype=dtype))) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_casts(source: torch.dtype, target: torch.dtype) -> None:
    values = special(source)
    if source.is_floating_point and not target.is_floating_point and target != torch.bool:
        # What has no whole number is undefined in torch too.
        values = values[values.isfinite() & (values.abs() < 2**31)]
    got = pointwise("cast", values, dtype=target)
    assert isinstance(got, Tensor)
    assert ulps(got, values.to(target)) == 0


@pytest.mark.parametrize("width", [1, 5, 8, 35, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions(dtype: torch.dtype, width: int) -> None:
    values = (2 * torch.randn(9, width)).to(dtype)
    if dtype.is_floating_point and width > 1:
        values[0, 0], values[1, width // 2], values[2, -1], values[3, -1] = NAN, INFINITY, -INFINITY, NAN
    for kind in sorted(REDUCTIONS):
        result_dtype = dtype if dtype.is_floating_point or kind.startswith("a") else torch.int64
        got = run_op(kind, result_dtype, [values], [Row("x", width, dtype)])
        assert isinstance(got, Tensor)
        assert ulps(got, getattr(torch, kind)(values, 1, keepdim=True)) <= 400, kind


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Op("sin", Row("y", 3, torch.int64), (Row("i", 3, torch.int64),)), "sin is not defined for torch.int64"),
        (Op("floor_divide", Row("y", 3, torch.int64), (Row("i", 3, torch.int64), 0)), "division by 0"),
        (Op("remainder", Row("y", 3, torch.int64), (Row("i", 3, torch.int64),) * 2), "only by a number"),
        (Op("lt", Row("y", 3, torch.bool), (Row("i", 3, torch.int64), 0.5)), "0.5 is no torch.int64"),
        (Op("lt", Row("y", 3, torch.bool), (Row("i", 3, torch.int64), Row("x", 3, torch.float32))), "different dtypes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(op: Op, reason: str) -> None:
    inputs = (Row("i", 3, torch.int64), Row("x", 3, torch.float32))
    said = refusal(LoopProgram("refused", False, inputs, (), (), (), (), (op,), (op.result,)))
    assert said is not None
    assert reason in said


def test_the_listing_shows_what_is_fused() -> None:
    listing = compile_loop(lstm(64, torch.float32)).source.splitlines()
    assert any(line.startswith("    t1[t] = x[t] + h @ kernel  # [rows, 64] @ [64, 256]") for line in listing)
    assert sum("columns, " in line for line in listing) == 1
    assert "            carry c = t12" in listing
    assert [line.split()[1] for line in listing if line.startswith("#   ")] == [
        "stream",
        *["carried"] * 2,
        *["stored"] * 3,
        "matrix",
    ]
    assert "keep t3" in compile_loop(softmax(64, torch.float32)).source


def test_states_change_places_without_a_copy() -> None:
    x, y = Row("x", 5, torch.float32), Row("y", 5, torch.float32)
    program = LoopProgram("swap", False, (), (), (), (), (Carry(x, y), Carry(y, x)), (), ())
    assert "keep" not in compile_loop(program).source
    check(program, *packed(2, 2, 1))


def test_programs_are_told_apart_by_their_numbers() -> None:
    x, y = Row("x", 1, torch.float64), Row("y", 1, torch.float64)
    signs = []
    for zero in (0.0, -0.0):
        program = LoopProgram("zeros", False, (x,), (), (), (), (), (Op("mul", y, (x, zero)),), (y,))
        out, (steps, _) = torch.empty(1, 1, dtype=torch.float64), packed(1)
        compile_loop(program).run([torch.ones(1, 1, dtype=torch.float64)], [], [], [], [], [out], steps, 0, 1, 1)
        signs.append(math.copysign(1, float(out)))
    assert signs == [1, -1]


def test_shards_are_balanced() -> None:
    lengths = np.sort(np.random.randint(1, 101, 64))[::-1]
    active = (lengths[None] > np.arange(100)[:, None]).sum(1)
    for count in (1, 2, 3, 8):
        shards = cut_rows(active, count)
        assert [start for start, _ in shards] == [0, *(stop for _, stop in shards[:-1])]
        assert shards[-1][1] == active[0]
        costs = [lengths[start:stop].sum() + lengths[start] for start, stop in shards]
        assert max(costs) <= 1.2 * sum(costs) / len(costs)
    assert cut_rows(np.array([1, 0]), 4) == [(0, 1)]
    assert cut_rows(np.array([0, 0]), 4) == []


def test_errors_in_threads_are_raised() -> None:
    def fail() -> None:
        raise KeyError("here")

    ran: list[int] = []
    with pytest.raises(KeyError, match="here"):
        run_jobs([lambda: ran.append(1), fail, lambda: ran.append(2)])
    assert sorted(ran) == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_after_a_fork(many_shards: None) -> None:
    program = lstm(7, torch.float32)
    check(program, *packed(6, 6), threads=2)
    child = os.fork()
    if child == 0:
        try:
            check(program, *packed(6, 6), threads=2)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
