"""Threads that walk through one shard side by side: the same bits as one that walks alone."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_kernels import check_same
from test_prefetch_ring import check_forked
from torch import Tensor

import throughtime as tt
from loop_programs import (
    PROGRAMS,
    arguments,
    batch_major,
    fed_lstm,
    fed_lstm_backward,
    interpret,
    layer_norm,
    lstm,
    lstm_backward,
    packed,
    random_program,
    swap,
)
from throughtime.backends.cpu import compile as cpu_compile
from throughtime.backends.cpu import compile_loop
from throughtime.backends.cpu import launch as cpu_launch
from throughtime.backends.cpu.threads import cost_model, partition
from throughtime.backends.cpu.threads.cost_model import StepCost, ThreadLayout
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout
from throughtime.native.threads import barrier
from throughtime.native.threads import team as thread_team
from throughtime.native.threads.barrier import Barrier, barrier_nanoseconds
from throughtime.native.threads.calls import calls_of
from throughtime.native.threads.pool import Pool
from throughtime.native.threads.team import team
from throughtime.native.toolchain.module_loader import load

pytestmark = pytest.mark.covers("kernels")

BATCHES = [packed(*[1] * 30), packed(5, 5, 5, 3, 2, 2, 1, 1, 0), packed(*[9] * 4, *[4] * 9), batch_major(7, 5)]


@pytest.fixture(autouse=True, params=["torch's threads", "a pool"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "a pool":
        monkeypatch.setattr(thread_team, "_team", Pool())


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """Sets the number of threads, and of those that share a shard, however small; no thread is too late."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(partition, "SHARD_NANOSECONDS", 1)
    monkeypatch.setattr(cpu_launch, "_help", cpu_launch._Help())
    monkeypatch.setattr(barrier, "_LATE_NANOSECONDS", 10**15)
    # Kernels remember who walked.
    monkeypatch.setattr(cpu_compile, "_kernels", type(cpu_compile._kernels)())

    def choose(count: int, members: int) -> None:
        torch.set_num_threads(count)
        chosen = lambda _, rows, *__, **___: ThreadLayout(min(count // members, rows), members)  # noqa: E731
        monkeypatch.setattr(StepCost, "crew", chosen)

    yield choose
    torch.set_num_threads(threads)


class Alone:
    """A program with arguments, and what one thread leaves of them."""

    def __init__(self, program: LoopProgram, steps: StepLayout, rows: int) -> None:
        self.kernel, self.steps = compile_loop(program), steps
        self._given = arguments(program, steps, rows)
        self._expected = self.run(1)

    def run(self, threads: int) -> list[Tensor]:
        here = self._given.copy()
        self.kernel.run(*here.every(), self.steps, 0, len(self.steps.active), threads)
        return here.results()

    def interpreted(self, program: LoopProgram) -> list[Tensor]:
        here = self._given.copy()
        interpret(program, here, self.steps, 0, len(self.steps.active))
        return here.results()

    def is_equalled_by(self, threads: int) -> bool:
        """Whether this number of threads leaves the same bits."""
        assert self.kernel.divide(self.steps, 0, len(self.steps.active), threads).is_joint
        return all(map(torch.equal, self.run(threads), self._expected))


def check(program: LoopProgram, steps: StepLayout, rows: int, threads: int) -> None:
    """Fail unless it is right, and to the bit what one thread leaves."""
    alone = Alone(program, steps, rows)
    check_same(alone.run(1), alone.interpreted(program))
    assert all(alone.is_equalled_by(threads) for _ in range(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", PROGRAMS)
def test_programs(make: Callable[..., LoopProgram], dtype: torch.dtype, crew: Callable[[int, int], None]) -> None:
    crew(2, 2)
    for units in (1, 19, 64):
        for batch in BATCHES:
            check(make(units, dtype), *batch, 2)


@pytest.mark.parametrize(("threads", "members"), [(3, 3), (4, 2), (8, 8)])
def test_crews_of_other_sizes(threads: int, members: int, crew: Callable[[int, int], None]) -> None:
    crew(threads, members)
    for make in (fed_lstm, lstm_backward, layer_norm):
        # More members than panels, and more than rows.
        for batch in BATCHES:
            check(make(40, torch.float32), *batch, threads)


def test_products_that_replace_what_others_read(crew: Callable[[int, int], None]) -> None:
    """Large enough for one member to be at the second product while another is at the first."""
    crew(2, 2)
    alone = Alone(swap(256, torch.float32), *packed(*[3] * 12))
    assert all(alone.is_equalled_by(2) for _ in range(100))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int, crew: Callable[[int, int], None]) -> None:
    crew(2, 2)
    check(random_program(seed, torch.float64), *packed(7, 7, 6, 4, 4, 1), 2)


def test_some_of_the_steps(crew: Callable[[int, int], None]) -> None:
    crew(2, 2)
    program, (steps, rows) = fed_lstm(19, torch.float64), packed(*[3] * 30, *[2] * 20, *[1] * 20)
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, 70)
    kernel = compile_loop(program)
    for first, last in ((0, 1), (1, 33), (33, 70)):
        assert kernel.divide(steps, first, last, 2).is_joint
        kernel.run(*given.every(), steps, first, last, 2)
    check_same(given.results(), expected.results())


def test_with_fewer_threads_than_members_nobody_begins() -> None:
    calls = calls_of(0, [0] * (torch.get_num_threads() + 1))
    before = calls[:]
    # A call of the function at 0 would be the end of this process.
    assert not team().run_at_once(calls)
    assert calls == before


@pytest.mark.parametrize("why", ["too few threads", "late"])
def test_alone(why: str, crew: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    crew(4, 2)
    asked: list[array[int]] = []
    kind = type(team())
    at_once = kind.run_at_once
    monkeypatch.setattr(kind, "run_at_once", lambda _, calls: bool(asked.append(calls)))
    if why == "late":
        cpu_launch._help.wanted_from = float("inf")
    alone = Alone(fed_lstm(19, torch.float32), *packed(*[3] * 20, *[1] * 20))
    assert all(alone.is_equalled_by(4) for _ in range(2))
    assert len(asked) == (2 if why == "too few threads" else 0)
    # And together again.
    cpu_launch._help.wanted_from = 0.0
    together: list[bool] = []
    monkeypatch.setattr(kind, "run_at_once", lambda *given: together.append(at_once(*given)) or together[-1])
    assert alone.is_equalled_by(4)
    assert together == [True]


def everybody_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too often, from the first meeting on."""
    begin = Barrier.begin

    def late(meeting: Barrier, members: int) -> None:
        begin(meeting, members)
        meeting._numbers[barrier._LATE] = barrier._PATIENCE

    monkeypatch.setattr(Barrier, "begin", late)


@pytest.mark.parametrize("make", [lstm, fed_lstm, lstm_backward, fed_lstm_backward])
def test_who_is_late_too_often_is_left_behind(
    make: Callable[..., LoopProgram], crew: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first member goes on alone, and the next walk does not wait for others."""
    crew(4, 2)
    everybody_is_late(monkeypatch)
    for batch in BATCHES:
        monkeypatch.setattr(cpu_launch, "_help", cpu_launch._Help())
        check(make(19, torch.float32), *batch, 4)
        assert cpu_launch._help.wanted_from > 0


def test_somebody_is_left_behind_in_the_middle(
    crew: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew(2, 2)
    alone, where = Alone(fed_lstm(19, torch.float32), *packed(*[2] * 3000)), set()
    meetings: list[Barrier] = []
    begin = Barrier.begin
    monkeypatch.setattr(Barrier, "begin", lambda meeting, members: (begin(meeting, members), meetings.append(meeting)))

    def disturb(after: float) -> None:
        time.sleep(after)
        for meeting in meetings:
            where.add(meeting._numbers[barrier._OVER] > 0)
            meeting._numbers[barrier._LATE] = barrier._PATIENCE

    for turn in range(30):
        monkeypatch.setattr(cpu_launch, "_help", cpu_launch._Help())
        meetings.clear()
        disturber = threading.Thread(target=disturb, args=(turn * 1e-4,))
        disturber.start()
        assert alone.is_equalled_by(2)
        disturber.join()
    assert True in where


def test_many_who_wait_for_one_are_one_delay() -> None:
    meeting, often = Barrier(0.0), load(barrier.MEETING + barrier._OFTEN).function("often", ctypes.c_void_p)
    numbers = array("q", (meeting.address, 1))
    for delays in (0, 1):
        meeting.begin(4)
        others = [threading.Thread(target=often, args=(numbers.buffer_info()[0],)) for _ in range(3)]
        for other in others:
            other.start()
        while meeting._numbers[0] < 3:
            time.sleep(1e-4)
        # Until they have noticed; before that no thread is late.
        while delays and not meeting._numbers[barrier._LATE - 1]:
            time.sleep(1e-4)
        often(numbers.buffer_info()[0])
        for other in others:
            other.join()
        assert meeting._numbers[barrier._OVER] == 1
        assert meeting._numbers[barrier._LATE] >= delays
        assert meeting._numbers[barrier._LATE] <= 1


def test_threads_at_once(crew: Callable[[int, int], None]) -> None:
    crew(2, 2)
    alone = Alone(fed_lstm(19, torch.float32), *packed(*[2] * 40))

    def work(_: int) -> bool:
        torch.set_num_threads(2)
        return alone.is_equalled_by(2)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(60)))


LIMITED = """
import torch, throughtime as tt
from throughtime.backends.cpu.threads import partition as _shards
from throughtime.backends.cpu.threads.cost_model import ThreadLayout as Crew, StepCost as Work
from throughtime.native.threads.team import Team
_shards.SHARD_NANOSECONDS = 1
Work.crew = lambda _, rows, *__, **___: Crew(1, 2)
at_once, answers, results = Team.run_at_once, [], []
def run_at_once(*given):
    answers.append(at_once(*given))
    return answers[-1]
Team.run_at_once = run_at_once
cell, inputs = tt.LSTMCell(32, input_size=16), torch.randn(1, 40, 16)
for threads in (1, 2):
    torch.set_num_threads(threads)
    results.append(tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0])
assert torch.equal(*results)
print(answers)
"""


@pytest.mark.parametrize(("limit", "answers"), [("1", "[False]"), ("2", "[True]")])
def test_a_limit_for_threads(limit: str, answers: str) -> None:
    """OpenMP may give fewer threads than were asked for."""
    environment = {**os.environ, "OMP_THREAD_LIMIT": limit}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False, timeout=100, env=environment
    )
    assert done.stdout == f"{answers}\n", done.stderr


@pytest.mark.parametrize("make", [tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell, tt.cells.LayerNormBasicLSTMCell])
def test_cells(
    make: Callable[[int], tt.RNNCell], crew: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    inputs, cell, results = torch.randn(3, 25, 23, requires_grad=True), make(37), []
    asked, kind = [], type(team())
    at_once = kind.run_at_once
    monkeypatch.setattr(kind, "run_at_once", lambda *given: asked.append(given) or at_once(*given))
    for threads in (1, 2):
        crew(threads, threads)
        outputs, _ = tt.dynamic_rnn(cell, inputs, [25, 4, 17], dtype=torch.float32)
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), [inputs, *cell.parameters()])])
    # Forwards and backwards.
    assert len(asked) == 2
    one, two = results
    assert torch.equal(one[0], two[0])
    # What torch multiplies and sums up beside kernels may be rounded otherwise by two threads.
    for got, expected in zip(two, one, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_after_a_fork(crew: Callable[[int, int], None]) -> None:
    crew(2, 2)
    cell, inputs = tt.LSTMCell(32, input_size=32), torch.randn(1, 100, 32)
    check_forked(cell, inputs)


def work_of_lstm(inputs: int, units: int) -> StepCost:
    return StepCost(4 * units * units, 16 * units * units, 4 * inputs * units, 14 * units, 2)


@pytest.mark.parametrize(
    ("rows", "units", "threads", "members"),
    [
        (1, 64, 2, 1),
        (1, 128, 2, 1),
        (1, 256, 2, 2),
        (1, 512, 16, 8),
        (8, 256, 2, 1),
        (8, 256, 16, 4),
        (32, 128, 16, 1),
        (32, 512, 16, 4),
        (128, 256, 16, 1),
        (1, 512, 1, 1),
    ],
)
def test_who_walks(rows: int, units: int, threads: int, members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, and matrices that are too large for one: by several; many rows: each by one."""
    monkeypatch.setattr(cost_model, "near_bytes", lambda: 3 << 19)
    monkeypatch.setattr(cost_model, "barrier_nanoseconds", lambda members: 80.0 if threads == 2 else 120.0 * members)
    shards = min(threads, -(-rows // 2))
    crew = work_of_lstm(units, units).crew(rows, shards, threads, helped=shards == 1)
    assert crew.members == members
    assert crew.shards * crew.members <= threads
    assert crew.shards <= rows


def test_without_products_nobody_meets() -> None:
    assert StepCost(0, 0, 0, 1000, 1).crew(1, 1, 16, helped=False) == ThreadLayout(1, 1)


def test_where_meetings_take_long_nobody_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_model, "barrier_nanoseconds", lambda _: 1e6)
    assert work_of_lstm(512, 512).crew(1, 1, 2, helped=True) == ThreadLayout(1, 1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("two_threads")
def test_how_long_it_takes_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_MEASURED", {})
    # Another program may keep two from meeting, but not for ever.
    found = next(value for _ in range(100) if (value := barrier_nanoseconds(2)) < float("inf"))
    assert 10 < found < 1e8
    assert {2: found} == barrier._MEASURED
    # With fewer threads than members no thread can, for now.
    assert barrier_nanoseconds(3) == float("inf")
    assert {2: found} == barrier._MEASURED


@pytest.mark.usefixtures("two_threads")
def test_a_measurement_in_which_somebody_is_late_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_MEASURED", {})
    everybody_is_late(monkeypatch)
    for _ in range(200):
        assert barrier_nanoseconds(2) == float("inf")
