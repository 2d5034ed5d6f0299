"""A thread that prepares blocks for another that walks: the same bits, in any interleaving."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from test_kernels import check_same
from torch import Tensor

import throughtime as tt
from loop_programs import arguments, batch_major, fed_lstm, fed_lstm_backward, interpret, packed
from throughtime.backends.cpu import compile as cpu_compile
from throughtime.backends.cpu import compile_loop
from throughtime.backends.cpu import launch as cpu_launch
from throughtime.backends.cpu.threads import partition
from throughtime.backends.cpu.threads.cost_model import StepCost, ThreadLayout
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout
from throughtime.native.threads import pool as thread_pool
from throughtime.native.threads import team as thread_team
from throughtime.native.threads.calls import Threads
from throughtime.native.threads.mailbox import ASLEEP
from throughtime.native.threads.pool import Pool
from throughtime.native.threads.team import team

pytestmark = pytest.mark.covers("kernels")

STEPS = (1, 2, 3, 4, 5, 12, 15, 16, 17, 40, 41, 52, 53, 101)


@pytest.fixture(autouse=True, params=["the team", "our own"])
def _always_worth_it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Help for the smallest of work, by a thread of torch's or, where there is none, by one of our own."""
    for name in ("SHARD_NANOSECONDS", "HELP_NANOSECONDS"):
        monkeypatch.setattr(partition, name, 1)
    monkeypatch.setattr(cpu_launch, "_help", cpu_launch._Help())
    # No shard is shared, however fast the barrier is, and no kernel remembers that one was.
    monkeypatch.setattr(StepCost, "crew", lambda _, rows, shards, *__, **___: ThreadLayout(shards, 1))
    monkeypatch.setattr(cpu_compile, "_kernels", type(cpu_compile._kernels)())
    if request.param == "our own":
        monkeypatch.setattr(thread_team, "_team", Pool())


def check(program: LoopProgram, steps: StepLayout, rows: int) -> None:
    """Fail unless it is right, and to the bit what one thread leaves."""
    given = arguments(program, steps, rows)
    alone, expected = given.copy(), given.copy()
    interpret(program, expected, steps, 0, len(steps.active))
    kernel = compile_loop(program)
    kernel.run(*alone.every(), steps, 0, len(steps.active), 1)
    assert kernel.divide(steps, 0, len(steps.active), 2).is_assisted
    kernel.run(*given.every(), steps, 0, len(steps.active), 2)
    check_same(given.results(), expected.results())
    assert all(map(torch.equal, given.results(), alone.results()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", [fed_lstm, fed_lstm_backward])
def test_one_row_and_two(make: Callable[..., LoopProgram], dtype: torch.dtype) -> None:
    program = make(19, dtype)
    for count in STEPS:
        check(program, *packed(*[1] * count))
    check(program, *packed(*[2] * 13, *[1] * 40))
    check(program, *batch_major(2, 31))


def test_some_of_the_steps() -> None:
    program, (steps, rows) = fed_lstm(7, torch.float64), packed(*[1] * 70)
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, 70)
    kernel = compile_loop(program)
    for first, last in ((0, 1), (1, 33), (33, 70)):
        kernel.run(*given.every(), steps, first, last, 2)
    check_same(given.results(), expected.results())


@pytest.mark.parametrize("order", ["walk first", "assistant far ahead"])
def test_whoever_is_late(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk whose assistant comes when all is done, and an assistant that fills all rooms before the walk begins."""

    class Late(Pool):
        def call_all(self, work: array[int], useful: int) -> None:
            call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(work[0])
            walk, assist = ((work.buffer_info()[0], number, useful) for number in range(2))
            if order == "walk first":
                call(*walk)
                call(*assist)
            else:
                helper = threading.Thread(target=call, args=assist)
                helper.start()
                helper.join(0.02)
                assert helper.is_alive()
                call(*walk)
                helper.join()

    monkeypatch.setattr(thread_team, "_team", Late())
    check(fed_lstm(19, torch.float32), *packed(*[1] * 101))


def test_while_everybody_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    program, pool = fed_lstm(19, torch.float32), Pool()
    monkeypatch.setattr(thread_team, "_team", pool)
    with pool.lock:
        check(program, *packed(*[1] * 101))
    check(program, *packed(*[1] * 101))


def test_an_assistant_that_never_wakes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # What was posted is taken back: no thread waits for it or finds it later, and the next call rings again.
    pool = Pool()
    monkeypatch.setattr(thread_team, "_team", pool)
    monkeypatch.setattr(thread_pool._Worker, "_work", lambda _: None)
    for _ in range(3):
        check(fed_lstm(19, torch.float32), *packed(*[1] * 101))
    (worker,) = pool.workers
    assert worker._box[0] == ASLEEP


def test_help_that_comes_late_is_not_asked_for_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The team meets at the end, and where processors are few, others keep a thread from arriving."""
    kind = type(team())
    program, (steps, rows) = fed_lstm(19, torch.float32), packed(*[1] * 101)
    given, kernel = arguments(program, steps, rows), compile_loop(program)
    expected = given.copy()
    kernel.run(*expected.every(), steps, 0, 101, 1)
    asked: list[float] = []
    clock, in_time = [0.0], kind.run_calls
    monkeypatch.setattr(cpu_launch, "perf_counter", lambda: clock[0])

    def run(seconds: float) -> bool:
        """Whether help was asked for, in a run that takes so long."""

        def late(together: Threads, calls: array[int]) -> None:
            asked.append(clock[0])
            in_time(together, calls)
            clock[0] += seconds

        monkeypatch.setattr(kind, "run_calls", late)
        before, here = len(asked), given.copy()
        kernel.run(*here.every(), steps, 0, 101, 2)
        assert all(map(torch.equal, here.results(), expected.results()))
        return len(asked) > before

    assert run(1e-4)
    assert run(8e-3)
    pause = cpu_launch._SHORTEST_PAUSE
    for _ in range(12):
        clock[0] += 0.9 * pause
        assert not run(1e-4)
        clock[0] += 0.2 * pause
        assert run(8e-3)
        pause = min(2 * pause, cpu_launch._LONGEST_PAUSE)
    clock[0] += 1.1 * pause
    assert run(1e-4)
    # In time again: the next that is late counts as the first.
    assert run(8e-3)
    clock[0] += 1.1 * cpu_launch._SHORTEST_PAUSE
    assert run(1e-4)


INTERRUPTED = """
import random, signal, sys, time, torch
sys.path.insert(0, {tests!r})
from loop_programs import *
from throughtime.backends.cpu.threads import partition as _shards
from throughtime.native.threads import team as _team
from throughtime.backends.cpu import compile_loop
_shards.SHARD_NANOSECONDS = _shards.HELP_NANOSECONDS = 1
pool = _team._team = _team._pool
class Stop(BaseException): pass
# A signal that another thread was given may be noticed late.
armed = False
def stop(*_):
    if armed:
        raise Stop
signal.signal(signal.SIGALRM, stop)
cases = []
for program, counts in ((fed_lstm(19, torch.float32), [1] * 101), (lstm(16, torch.float32), [8] * 40)):
    steps, rows = packed(*counts)
    given = arguments(program, steps, rows)
    expected = given.copy()
    kernel = compile_loop(program)
    kernel.run(*expected.every(), steps, 0, len(counts), 1)
    # What is compiled for it: to interrupt that is no matter of ours.
    kernel.run(*given.copy().every(), steps, 0, len(counts), 2)
    cases.append((kernel, steps, given, expected))
start, stopped, done = time.monotonic(), 0, 0
while time.monotonic() - start < 3 or min(stopped, done) < 200:
    for kernel, steps, given, expected in cases:
        here = given.copy()
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 3e-4 * 4 ** random.randrange(4)))
            kernel.run(*here.every(), steps, 0, len(steps.active), 2)
            signal.setitimer(signal.ITIMER_REAL, 0)
            armed = False
        except Stop:
            armed = False
            stopped += 1
            assert not pool.lock.locked()
            continue
        assert all(map(torch.equal, here.results(), expected.results()))
        done += 1
print("unharmed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a timer that interrupts")
def test_interruptions() -> None:
    """Whenever a signal comes, no thread works on memory that has been reused by then, and none waits for ever."""
    script = INTERRUPTED.format(tests=str(Path(__file__).parents[1] / "support"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "unharmed\n", done.stderr


HELD_UP = """
import ctypes, torch
import throughtime as tt
from throughtime.native.threads import team as _team, mailbox as _waiting
_team._team = _team._pool
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
before = "  %taking = cmpxchg"
assert _waiting._ASSEMBLY.count(before) == 1
pause = f"  %pause = call i32 inttoptr (i64 {usleep} to ptr)(i32 1000)"
_waiting._ASSEMBLY = _waiting._ASSEMBLY.replace(before, pause + chr(10) + before)
torch.set_num_threads(2)
cells = [tt.LSTMCell(32, input_size=64), tt.GRUCell(48, input_size=64)]
calls = [(cell, torch.randn(1 + index, 200, 64)) for index, cell in enumerate(cells)]
with torch.no_grad():
    expected = [tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0] for cell, inputs in calls]
    for _ in range(300):
        for (cell, inputs), outputs in zip(calls, expected):
            assert torch.equal(tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0], outputs)
print("the same")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pauses as Linux does")
def test_a_worker_that_is_held_up_when_it_takes_a_job() -> None:
    # By then the job may have been taken back, and another one posted.
    done = subprocess.run([sys.executable, "-c", HELD_UP], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "the same\n", done.stderr


def test_threads_at_once() -> None:
    program, (steps, rows) = fed_lstm(19, torch.float32), packed(*[1] * 101)
    kernel, given = compile_loop(program), arguments(program, steps, rows)
    expected = given.copy()
    kernel.run(*expected.every(), steps, 0, 101, 1)

    def work(_: int) -> bool:
        here = given.copy()
        kernel.run(*here.every(), steps, 0, 101, 2)
        return all(map(torch.equal, here.results(), expected.results()))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))


def test_many_times() -> None:
    program, (steps, rows) = fed_lstm(16, torch.float32), packed(*[1] * 64)
    given = arguments(program, steps, rows)
    kernel, expected = compile_loop(program), None
    for _ in range(300):
        here = given.copy()
        kernel.run(*here.every(), steps, 0, 64, 2)
        expected = expected or here.results()
        assert all(map(torch.equal, here.results(), expected))


def test_many_rows_are_shared_as_they_are() -> None:
    kernel, (steps, _) = compile_loop(fed_lstm(19, torch.float32)), packed(*[8] * 40)
    division = kernel.divide(steps, 0, 40, 2)
    assert len(division.shards) > 1
    assert not division.is_assisted
    assert not kernel.divide(steps, 0, 40, 1).is_assisted


@pytest.mark.parametrize("make", [tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell, tt.cells.LayerNormBasicLSTMCell])
def test_cells(make: Callable[[int], tt.RNNCell]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(1, 75, 23, requires_grad=True)
    cell = make(37)
    results = []
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
            both = tt.bidirectional_dynamic_rnn(cell, cell, inputs, [60], dtype=torch.float32)[0]
            total = outputs.square().sum() + both[1].square().sum()
            gradients = torch.autograd.grad(total, [inputs, *cell.parameters()])
        finally:
            torch.set_num_threads(threads)
        results.append([outputs, *both, *gradients])
    one, two = results
    assert all(map(torch.equal, one[:3], two[:3]))
    # What torch multiplies and sums up beside kernels may be rounded otherwise by two threads.
    for got, expected in zip(two, one, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def check_forked(cell: tt.RNNCell, inputs: Tensor) -> None:
    """Fail unless a forked process has the same outputs from a cell that was run before."""
    with torch.no_grad():
        for _ in range(3):
            expected, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
        child = os.fork()
        if child == 0:
            outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
            os._exit(0 if torch.equal(outputs, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_after_a_fork() -> None:
    cell, inputs = tt.LSTMCell(32, input_size=32), torch.randn(1, 100, 32)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        check_forked(cell, inputs)
    finally:
        torch.set_num_threads(threads)
