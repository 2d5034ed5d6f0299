"""Cooperative threads, which run one shard together: the same bits as one thread."""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

import throughtime as tt
from kernel_checks import (
    KINDS_OF_THREADS,
    Recording,
    check_forked,
    check_same,
    many_shards,
    thread_count,
    threads_of,
)
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
from throughtime.backends.cpu import compile_loop
from throughtime.backends.cpu.threads.cost_model import Machine, StepCost, ThreadLayout
from throughtime.backends.cpu.threads.policy import ThreadPolicy, thread_policy
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout
from throughtime.native.threads.barrier import Barrier, barrier_nanoseconds, benchmark_code
from throughtime.native.threads.calls import Threads, calls_of
from throughtime.native.threads.team import team, use_threads

pytestmark = pytest.mark.covers("kernels")

BATCHES = [packed(*[1] * 30), packed(5, 5, 5, 3, 2, 2, 1, 1, 0), packed(*[9] * 4, *[4] * 9), batch_major(7, 5)]


PATIENT = functools.partial(Barrier, late_nanoseconds=10**15)


@pytest.fixture(autouse=True, params=KINDS_OF_THREADS)
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    with threads_of(request.param) as chosen:
        yield chosen


def cooperation(members: int, make_barrier: Callable[[float], Barrier] = PATIENT) -> ThreadPolicy:
    """Several threads for every shard, however small; by default no thread is late."""
    return many_shards(members=members, make_barrier=make_barrier)


class Alone:
    """A program with arguments, and what one thread leaves of them."""

    def __init__(self, program: LoopProgram, steps: StepLayout, rows: int) -> None:
        self.kernel, self.steps = compile_loop(program), steps
        self._given = arguments(program, steps, rows)
        self.expected = self.run(1, ThreadPolicy())

    def run(self, threads: int, policy: ThreadPolicy) -> list[Tensor]:
        here = self._given.copy()
        self.kernel.run(*here.every(), self.steps, 0, len(self.steps.active), threads, policy=policy)
        return here.results()

    def interpreted(self, program: LoopProgram) -> list[Tensor]:
        here = self._given.copy()
        interpret(program, here, self.steps, 0, len(self.steps.active))
        return here.results()

    def is_equalled_by(self, threads: int, policy: ThreadPolicy) -> bool:
        """Whether cooperative threads leave the same bits."""
        assert self.kernel.divide(self.steps, 0, len(self.steps.active), threads, policy).is_cooperative
        with thread_count(threads):
            return all(map(torch.equal, self.run(threads, policy), self.expected))


def check(program: LoopProgram, steps: StepLayout, rows: int, threads: int, policy: ThreadPolicy) -> None:
    """Fail unless it is right, and to the bit what one thread leaves."""
    alone = Alone(program, steps, rows)
    check_same(alone.expected, alone.interpreted(program))
    assert all(alone.is_equalled_by(threads, policy) for _ in range(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", PROGRAMS)
def test_programs(make: Callable[..., LoopProgram], dtype: torch.dtype) -> None:
    for units in (1, 19, 64):
        for batch in BATCHES:
            check(make(units, dtype), *batch, 2, cooperation(2))


@pytest.mark.parametrize(("threads", "members"), [(3, 3), (4, 2), (8, 8)])
def test_other_numbers_of_threads(threads: int, members: int) -> None:
    for make in (fed_lstm, lstm_backward, layer_norm):
        # More members than panels, and more than rows.
        for batch in BATCHES:
            check(make(40, torch.float32), *batch, threads, cooperation(members))


def test_products_that_replace_what_others_read() -> None:
    """Large enough for one member to be at the second product while another is at the first."""
    alone, policy = Alone(swap(256, torch.float32), *packed(*[3] * 12)), cooperation(2)
    assert all(alone.is_equalled_by(2, policy) for _ in range(100))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    check(random_program(seed, torch.float64), *packed(7, 7, 6, 4, 4, 1), 2, cooperation(2))


def test_some_of_the_steps() -> None:
    program, (steps, rows) = fed_lstm(19, torch.float64), packed(*[3] * 30, *[2] * 20, *[1] * 20)
    policy = cooperation(2)
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, 70)
    kernel = compile_loop(program)
    for first, last in ((0, 1), (1, 33), (33, 70)):
        assert kernel.divide(steps, first, last, 2, policy).is_cooperative
        with thread_count(2):
            kernel.run(*given.every(), steps, first, last, 2, policy=policy)
    check_same(given.results(), expected.results())


def test_with_fewer_threads_than_calls_none_begins() -> None:
    calls = calls_of(0, [0] * (torch.get_num_threads() + 1))
    before = calls[:]
    # A call of the function at 0 would be the end of this process.
    assert not team().run_concurrently(calls)
    assert calls == before


@pytest.mark.parametrize("why", ["too few threads", "late"])
def test_one_thread_a_shard(why: str, threads: Threads) -> None:
    policy, recording = cooperation(2), Recording(threads, refuses=True)
    if why == "late":
        policy.backoff.pause_end = float("inf")
    alone = Alone(fed_lstm(19, torch.float32), *packed(*[3] * 20, *[1] * 20))
    with use_threads(recording):
        assert all(alone.is_equalled_by(4, policy) for _ in range(2))
    assert len(recording.answers) == (2 if why == "too few threads" else 0)
    # And together again.
    policy.backoff.pause_end, recording = 0.0, Recording(threads)
    with use_threads(recording):
        assert alone.is_equalled_by(4, policy)
    assert recording.answers == [True]


class Late(Barrier):
    """A barrier where threads are late too often, from the beginning."""

    def begin(self, members: int) -> None:
        super().begin(members)
        self.drop_others()


@pytest.mark.parametrize("make", [lstm, fed_lstm, lstm_backward, fed_lstm_backward])
def test_a_thread_that_is_late_too_often_is_dropped(make: Callable[..., LoopProgram]) -> None:
    """The first thread goes on alone, and the next loop does not wait for others."""
    for batch in BATCHES:
        policy = cooperation(2, Late)
        check(make(19, torch.float32), *batch, 4, policy)
        assert policy.backoff.pause_end > 0


def test_a_thread_is_dropped_in_the_middle() -> None:
    alone, began = Alone(fed_lstm(19, torch.float32), *packed(*[2] * 3000)), set()
    barriers: list[Barrier] = []

    class Noted(Barrier):
        def begin(self, members: int) -> None:
            super().begin(members)
            barriers.append(self)

    def disturb(after: float) -> None:
        time.sleep(after)
        for barrier in barriers:
            began.add(barrier["generation"] > 0)
            barrier.drop_others()

    for turn in range(30):
        barriers.clear()
        disturber = threading.Thread(target=disturb, args=(turn * 1e-4,))
        disturber.start()
        policy = cooperation(2, lambda nanoseconds: Noted(nanoseconds, late_nanoseconds=10**15))
        assert alone.is_equalled_by(2, policy)
        disturber.join()
    assert True in began


def test_several_threads_that_wait_for_one_are_one_delay() -> None:
    barrier, often = Barrier(0.0), benchmark_code().function("reach_barrier_often", ctypes.c_void_p)
    benchmark = array("q", (barrier.address, 1))
    for delays in (0, 1):
        barrier.begin(4)
        others = [threading.Thread(target=often, args=(benchmark.buffer_info()[0],)) for _ in range(3)]
        for other in others:
            other.start()
        while barrier["arrived"] < 3:
            time.sleep(1e-4)
        # Until they have noticed that one is late.
        while delays and not barrier["late_now"]:
            time.sleep(1e-4)
        often(benchmark.buffer_info()[0])
        for other in others:
            other.join()
        assert barrier["generation"] == 1
        assert delays <= barrier["late_count"] <= 1


def test_threads_at_once() -> None:
    alone, policy = Alone(fed_lstm(19, torch.float32), *packed(*[2] * 40)), cooperation(2)

    def work(_: int) -> bool:
        return alone.is_equalled_by(2, policy)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(60)))


@pytest.mark.parametrize("make", [tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell, tt.cells.LayerNormBasicLSTMCell])
def test_cells(make: Callable[[int], tt.RNNCell], threads: Threads) -> None:
    torch.manual_seed(0)
    inputs, cell, results = torch.randn(3, 25, 23, requires_grad=True), make(37), []
    recording = Recording(threads)
    with thread_policy.use(cooperation(2)), use_threads(recording):
        for count in (1, 2):
            with thread_count(count):
                outputs, _ = tt.dynamic_rnn(cell, inputs, [25, 4, 17], dtype=torch.float32)
                results.append([outputs, *torch.autograd.grad(outputs.square().sum(), [inputs, *cell.parameters()])])
    # Forwards and backwards.
    assert len(recording.answers) == 2
    one, two = results
    assert torch.equal(one[0], two[0])
    # What torch multiplies and sums up beside kernels may be rounded otherwise by two threads.
    for got, expected in zip(two, one, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_after_a_fork() -> None:
    cell, inputs = tt.LSTMCell(32, input_size=32), torch.randn(1, 100, 32)
    with thread_policy.use(cooperation(2)), thread_count(2):
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
def test_thread_layout(rows: int, units: int, threads: int, members: int) -> None:
    """Few rows, and matrices that are too large for one thread: several cooperate; many rows: each has its own."""
    machine = Machine(lambda: 3 << 19, lambda members: 80.0 if threads == 2 else 120.0 * members)
    independent = ThreadLayout(min(threads, -(-rows // 2)), 1)
    layout = work_of_lstm(units, units).thread_layout(
        independent, rows, threads, prefetched=independent.shards == 1, machine=machine
    )
    assert layout.members == members
    assert layout.shards * layout.members <= threads
    assert layout.shards <= rows


def test_without_products_no_threads_cooperate() -> None:
    alone = ThreadLayout(1, 1)
    assert StepCost(0, 0, 0, 1000, 1).thread_layout(alone, 1, 16, prefetched=False) == alone


def test_with_slow_barriers_no_threads_cooperate() -> None:
    alone, machine = ThreadLayout(1, 1), Machine(barrier_nanoseconds=lambda _: 1e6)
    assert work_of_lstm(512, 512).thread_layout(alone, 1, 2, prefetched=True, machine=machine) == alone


def test_the_time_of_a_barrier() -> None:
    measured: dict[int, float] = {}
    with thread_count(2):
        # Another program may keep two threads from running at the same time, but not for ever.
        tries = (barrier_nanoseconds(2, measured) for _ in range(100))
        found = next(nanoseconds for nanoseconds in tries if nanoseconds < float("inf"))
        assert 10 < found < 1e8
        assert measured == {2: found}
        # With too few threads it has no time, for now.
        assert barrier_nanoseconds(3, measured) == float("inf")
        assert measured == {2: found}


def test_a_measurement_with_a_late_thread_does_not_count() -> None:
    with thread_count(2):
        for _ in range(200):
            assert barrier_nanoseconds(2, {}, Late) == float("inf")
