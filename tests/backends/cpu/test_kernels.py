"""The kernel backend against an interpreter of loop programs, and each of its operations against torch."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import kernel_checks
from kernel_checks import KINDS_OF_THREADS, check_same, threads_of
from loop_programs import (
    PROGRAMS,
    Arguments,
    arguments,
    batch_major,
    interpret,
    layer_norm,
    lstm,
    lstm_backward,
    packed,
    random_program,
    shifts,
    softmax,
)
from throughtime.backends.cpu import LoopKernel, compile_loop, unsupported_reason
from throughtime.backends.cpu.threads.partition import cut_steps, with_halves
from throughtime.backends.cpu.threads.policy import ThreadPolicy
from throughtime.compiler.ir.loop_ir import Carry, LoopProgram, Matrix, Op, Row
from throughtime.layout.step_layout import StepLayout
from throughtime.native.threads.split_rows import cut_rows
from throughtime.native.toolchain import llvm

pytestmark = pytest.mark.covers("kernels")

FLOATS = (torch.float32, torch.float64)


@pytest.fixture(params=KINDS_OF_THREADS)
def many_shards(request: pytest.FixtureRequest) -> Iterator[ThreadPolicy]:
    """Threads of either kind for the smallest of work."""
    with threads_of(request.param):
        yield kernel_checks.many_shards()


@pytest.fixture
def many_pieces(many_shards: ThreadPolicy) -> ThreadPolicy:
    """Work stealing between threads of either kind for the smallest of work."""
    return kernel_checks.many_pieces()


def check(
    program: LoopProgram, steps: StepLayout, rows: int, threads: int = 1, policy: ThreadPolicy | None = None
) -> None:
    """Fail unless the kernel does what the interpreter does."""
    assert unsupported_reason(program) is None
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, len(steps.active))
    compile_loop(program).run(*given.every(), steps, 0, len(steps.active), threads, policy=policy)
    check_same(given.results(), expected.results())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("units", [1, 7, 63, 100])
@pytest.mark.parametrize("make", PROGRAMS)
def test_programs(make: type, units: int, dtype: torch.dtype, many_shards: ThreadPolicy) -> None:
    program = make(units, dtype)
    check(program, *packed(9, 9, 5, 3, 1, 0))
    check(program, *packed(9, 9, 5, 3, 1, 0), threads=2, policy=many_shards)
    check(program, *batch_major(4, 3), threads=3, policy=many_shards)


@pytest.mark.parametrize("units", [8, 16, 150, 400])
def test_other_widths(units: int) -> None:
    check(lstm(units, torch.float32), *packed(13, 7, 2))
    check(lstm_backward(units, torch.float32), *packed(13, 7, 2))


def product(depth: int, columns: int = 150) -> LoopProgram:
    """A program that multiplies, with a matrix of some panels and a bit."""
    x, out = Row("x", depth, torch.float32), Row("out", columns, torch.float32)
    matrix = Matrix("m", depth, columns, torch.float32)
    return LoopProgram("product", False, (x,), (), (), (matrix,), (), (Op("product", out, (x, matrix)),), (out,))


@pytest.mark.parametrize("rows", range(1, 21))
def test_tiles_of_every_height(rows: int) -> None:
    # Fewer rows of the matrix than one turn of the innermost loop takes, and many turns with one row left over.
    for depth in (3, 401):
        check(product(depth), *packed(rows, rows))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("rows", [1, 3, 4, 13])
def test_last_panels_of_every_width(rows: int, vector_bytes: int) -> None:
    # Half of a panel is left out where it has nothing but zeros.
    host = dataclasses.replace(llvm.host(), vector_bytes=vector_bytes, tile_rows=12 if vector_bytes == 64 else 6)
    half = vector_bytes // 4
    for columns in (1, half - 1, half, half + 1, 2 * half - 1, 2 * half, 2 * half + 1, 3 * half, 3 * half + 1):
        x, matrix = torch.randn(rows, 21), torch.randn(21, columns)
        out = torch.full((rows, columns), torch.nan)
        kernel = LoopKernel(product(21, columns), host)
        kernel.run([x], [], [], [matrix], [], [out], packed(rows)[0], 0, 1, 1)
        torch.testing.assert_close(out, x @ matrix, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 5, 64, 150, 333])
def test_matrices_packed_by_several_threads(columns: int, many_shards: ThreadPolicy) -> None:
    policy = dataclasses.replace(many_shards, packing_bytes=0)
    x, steps = torch.randn(16, 37), packed(16)[0]
    kernel, wide = compile_loop(product(37, columns)), torch.randn(74, 2 * columns)
    # Rows side by side, columns side by side, and neither.
    for matrix in (torch.randn(37, columns), torch.randn(columns, 37).T, wide[::2, ::2]):
        for threads in (1, 2, 5):
            out = torch.full((16, columns), torch.nan)
            kernel.run([x], [], [], [matrix], [], [out], steps, 0, 1, threads, policy=policy)
            torch.testing.assert_close(out, x @ matrix, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", range(1, 5))
def test_to_and_fro_is_the_same(rows: int) -> None:
    # Every other step takes the panels from the last to the first.
    x, matrix = torch.randn(rows, 37).repeat(2, 1), torch.randn(37, 150)
    out = torch.empty(2 * rows, 150)
    compile_loop(product(37)).run([x], [], [], [matrix], [], [out], packed(rows, rows)[0], 0, 2, 1)
    assert torch.equal(out[:rows], out[rows:])


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, many_shards: ThreadPolicy) -> None:
    dtype = FLOATS[seed % 2]
    program = random_program(seed, dtype)
    check(program, *packed(5, 4, 4, 1, 0), threads=2, policy=many_shards)
    check(program, *batch_major(3, 2))


@pytest.mark.parametrize(("vector_bytes", "tile_rows"), [(16, 6), (64, 12)])
@pytest.mark.parametrize("make", [lstm, lstm_backward, layer_norm])
def test_other_processors(make: type, vector_bytes: int, tile_rows: int) -> None:
    """Code for shorter and longer registers than this processor may have; LLVM makes do with those it has."""
    host = dataclasses.replace(llvm.host(), vector_bytes=vector_bytes, tile_rows=tile_rows)
    for units, dtype in ((7, torch.float32), (100, torch.float32), (63, torch.float64)):
        program = make(units, dtype)
        kernel = LoopKernel(program, host)
        for height in (1, 2, 3, 13, 20):
            steps, rows = packed(height, 1)
            given = arguments(program, steps, rows)
            expected = given.copy()
            interpret(program, expected, steps, 0, 2)
            kernel.run(*given.every(), steps, 0, 2, 1)
            check_same(given.results(), expected.results())


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


def test_results_do_not_depend_on_threads_or_on_the_batch(many_shards: ThreadPolicy) -> None:
    program = lstm(100, torch.float32)
    steps, rows = packed(11, 9, 2)
    given = arguments(program, steps, rows)
    runs = {threads: given.copy() for threads in (1, 2, 3, 8)}
    for threads, run in runs.items():
        compile_loop(program).run(*run.every(), steps, 0, 3, threads, policy=many_shards)
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
from throughtime.backends.cpu import compile_loop
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
    script = GUARDED.format(tests=str(Path(__file__).parents[2] / "support"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "unharmed\n", done.stderr


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
        shards = cut_rows(lengths.tolist(), count)
        assert [start for start, _ in shards] == [0, *(stop for _, stop in shards[:-1])]
        assert shards[-1][1] == active[0]
        costs = [lengths[start:stop].sum() + lengths[start] for start, stop in shards]
        assert max(costs) <= 1.2 * sum(costs) / len(costs)
    assert cut_rows([1, 0], 4) == [(0, 1)]
    assert cut_rows([0, 0], 4) == []


def test_pieces_are_balanced_and_leave_nothing_out() -> None:
    lengths = np.sort(np.random.randint(1, 101, 64))[::-1]
    ragged = (lengths[None] > np.arange(100)[:, None]).sum(1)
    for active, (start, stop) in itertools.product((ragged, np.full(100, 64)), ((0, 9), (9, 40), (40, 64))):
        rows = np.minimum(active, stop) - start
        pieces = cut_steps(active, start, stop, reverse=False)
        pairs = list(zip(pieces[::2], pieces[1::2], strict=True))
        walked = [step for first, last in pairs for step in range(first, last)]
        assert walked == list(range(np.count_nonzero(rows > 0)))
        costs = [(rows[first:last] + 1).sum() for first, last in pairs]
        # A piece has whole steps, so it may be a step's worth too large.
        assert max(costs) <= sum(costs) / len(costs) + 2 * (rows.max() + 1)
        back = cut_steps(active, start, stop, reverse=True)
        assert list(zip(back[::2], back[1::2], strict=True)) == pairs[::-1]


@pytest.mark.parametrize("make", [lstm, lstm_backward])
def test_pieces_give_the_same_results(make: Callable[..., LoopProgram], many_pieces: ThreadPolicy) -> None:
    program = make(20, torch.float32)
    for counts in ([8] * 30, sorted(torch.randint(1, 9, (40,)).tolist(), reverse=True), [5], [6, 1]):
        steps, rows = packed(*counts)
        given = arguments(program, steps, rows)
        expected, kernel = given.copy(), compile_loop(program)
        kernel.run(*expected.every(), steps, 0, len(counts), 1)
        assert kernel.divide(steps, 0, len(counts), 3, many_pieces).pieces
        kernel.run(*given.every(), steps, 0, len(counts), 3, policy=many_pieces)
        assert all(torch.equal(*pair) for pair in zip(given.results(), expected.results(), strict=True))


def test_pieces_are_for_much_work_alone() -> None:
    policy = ThreadPolicy()
    assert policy.steals(1e7, is_ragged=False)
    assert not policy.steals(1e6, is_ragged=False)
    assert policy.steals(1e9, is_ragged=True)
    assert not policy.steals(1e7, is_ragged=True)


def test_halves_have_all_rows_of_the_whole_and_come_after_it() -> None:
    ranges, firsts = with_halves([(0, 16), (16, 25), (25, 29)], half_rows=4)
    assert ranges[:3] == [(0, 16), (16, 25), (25, 29)]
    assert firsts[2] == 0, "four rows are not divided"
    for number, first in enumerate(firsts):
        assert first == 0 or first > number
        start, stop = ranges[number]
        if first:
            (one, middle), (again, other) = ranges[first : first + 2]
            assert (one, middle, other) == (start, again, stop)
    assert len(set(filter(None, firsts))) == sum(map(bool, firsts))
    assert len(ranges) == len(firsts) == 3 + 2 * sum(map(bool, firsts))


@pytest.mark.parametrize("make_policy", [kernel_checks.many_shards, kernel_checks.many_pieces])
@pytest.mark.usefixtures("many_shards")
def test_many_callers_at_once(make_policy: Callable[[], ThreadPolicy]) -> None:
    policy = make_policy()
    program = lstm(16, torch.float32)
    steps, rows = packed(*[8] * 20)
    given = arguments(program, steps, rows)
    expected = given.copy()
    kernel = compile_loop(program)
    kernel.run(*expected.every(), steps, 0, 20, 1)

    def call(_: int) -> bool:
        own = given.copy()
        kernel.run(*own.every(), steps, 0, 20, 3, policy=policy)
        return all(torch.equal(*pair) for pair in zip(own.results(), expected.results(), strict=True))

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(call, range(200)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("make_policy", [kernel_checks.many_shards, kernel_checks.many_pieces])
@pytest.mark.usefixtures("many_shards")
def test_threads_after_a_fork(make_policy: Callable[[], ThreadPolicy]) -> None:
    policy = make_policy()
    program, (steps, rows) = lstm(7, torch.float32), packed(*[6] * 20)
    # The same steps before and after: what the child finds is what its parent left.
    for _ in range(2):
        check(program, steps, rows, threads=2, policy=policy)
    child = os.fork()
    if child == 0:
        try:
            check(program, steps, rows, threads=2, policy=policy)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
