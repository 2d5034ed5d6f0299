"""Prefetch: a thread computes ahead of another one's loop; the same bits, whichever thread does what and when."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import throughtime as tt
from kernel_checks import KINDS_OF_THREADS, check_forked, check_same, many_shards, thread_count, threads_of
from loop_programs import arguments, batch_major, fed_lstm, fed_lstm_backward, interpret, packed
from throughtime.backends.cpu import compile_loop
from throughtime.backends.cpu.threads.policy import Backoff, ThreadPolicy, thread_policy
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout
from throughtime.native.threads.calls import Threads
from throughtime.native.threads.pool import Pool, Worker
from throughtime.native.threads.team import team, use_threads

pytestmark = pytest.mark.covers("kernels")

STEPS = (1, 2, 3, 4, 5, 12, 15, 16, 17, 40, 41, 52, 53, 101)


@pytest.fixture(autouse=True, params=KINDS_OF_THREADS)
def policy(request: pytest.FixtureRequest) -> Iterator[ThreadPolicy]:
    """Prefetch for the smallest of work, by a thread of torch's or of a pool; for kernels and for whole calls."""
    with threads_of(request.param), thread_policy.use(many_shards(prefetch_nanoseconds=1, members=1)) as chosen:
        yield chosen


def check(program: LoopProgram, steps: StepLayout, rows: int, policy: ThreadPolicy) -> None:
    """Fail unless it is right, and to the bit what one thread leaves."""
    given = arguments(program, steps, rows)
    alone, expected = given.copy(), given.copy()
    interpret(program, expected, steps, 0, len(steps.active))
    kernel = compile_loop(program)
    kernel.run(*alone.every(), steps, 0, len(steps.active), 1, policy=policy)
    assert kernel.divide(steps, 0, len(steps.active), 2, policy).is_prefetched
    kernel.run(*given.every(), steps, 0, len(steps.active), 2, policy=policy)
    check_same(given.results(), expected.results())
    assert all(map(torch.equal, given.results(), alone.results()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", [fed_lstm, fed_lstm_backward])
def test_one_row_and_two(make: Callable[..., LoopProgram], dtype: torch.dtype, policy: ThreadPolicy) -> None:
    program = make(19, dtype)
    for count in STEPS:
        check(program, *packed(*[1] * count), policy)
    check(program, *packed(*[2] * 13, *[1] * 40), policy)
    check(program, *batch_major(2, 31), policy)


def test_some_of_the_steps(policy: ThreadPolicy) -> None:
    program, (steps, rows) = fed_lstm(7, torch.float64), packed(*[1] * 70)
    given = arguments(program, steps, rows)
    expected = given.copy()
    interpret(program, expected, steps, 0, 70)
    kernel = compile_loop(program)
    for first, last in ((0, 1), (1, 33), (33, 70)):
        kernel.run(*given.every(), steps, first, last, 2, policy=policy)
    check_same(given.results(), expected.results())


@pytest.mark.parametrize("order", ["consumer first", "producer far ahead"])
def test_a_late_thread(order: str, policy: ThreadPolicy) -> None:
    """A producer that comes when the loop is over, and one that fills all slots before the loop begins."""

    class Late(Pool):
        def call_all(self, work: array[int], useful: int) -> None:
            call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(work[0])
            consume, produce = ((work.buffer_info()[0], number, useful) for number in range(2))
            if order == "consumer first":
                call(*consume)
                call(*produce)
            else:
                producer = threading.Thread(target=call, args=produce)
                producer.start()
                producer.join(0.02)
                assert producer.is_alive()
                call(*consume)
                producer.join()

    with use_threads(Late()):
        check(fed_lstm(19, torch.float32), *packed(*[1] * 101), policy)


def test_while_all_workers_are_busy(policy: ThreadPolicy) -> None:
    program, pool = fed_lstm(19, torch.float32), Pool()
    with use_threads(pool):
        with pool.lock:
            check(program, *packed(*[1] * 101), policy)
        check(program, *packed(*[1] * 101), policy)


def test_a_worker_that_never_wakes_up(policy: ThreadPolicy) -> None:
    class Asleep(Worker):
        def serve(self) -> None:
            """End at once."""

    # Posted work is taken back: no thread waits for it or finds it later, and the next call wakes the worker again.
    pool = Pool(Asleep)
    with use_threads(pool):
        for _ in range(3):
            check(fed_lstm(19, torch.float32), *packed(*[1] * 101), policy)
    (worker,) = pool.workers
    assert worker.is_parked


class Slow(Threads):
    """Threads that take a number of seconds longer, by a clock of their own."""

    def __init__(self, threads: Threads) -> None:
        self._threads, self.now, self.seconds, self.calls = threads, 0.0, 0.0, 0

    def call_all(self, work: array[int], useful: int) -> None:
        self.calls += 1
        self._threads.call_all(work, useful)
        self.now += self.seconds

    def run_concurrently(self, calls: array[int]) -> bool:
        raise NotImplementedError


def test_a_pause_after_a_late_thread() -> None:
    """A parallel region ends when all threads have arrived, and where processors are few, one of them comes late."""
    threads = Slow(team())
    backoff = Backoff(lambda: threads.now)
    policy = many_shards(prefetch_nanoseconds=1, members=1, backoff=backoff)
    program, (steps, rows) = fed_lstm(19, torch.float32), packed(*[1] * 101)
    given, kernel = arguments(program, steps, rows), compile_loop(program)
    expected = given.copy()
    kernel.run(*expected.every(), steps, 0, 101, 1)

    def run(seconds: float) -> bool:
        """Whether another thread was used, in a run that takes this time."""
        before, here, threads.seconds = threads.calls, given.copy(), seconds
        with use_threads(threads):
            kernel.run(*here.every(), steps, 0, 101, 2, policy=policy)
        assert all(map(torch.equal, here.results(), expected.results()))
        return threads.calls > before

    assert run(1e-4)
    assert run(8e-3)
    pause = backoff.SHORTEST_PAUSE
    for _ in range(12):
        threads.now += 0.9 * pause
        assert not run(1e-4)
        threads.now += 0.2 * pause
        assert run(8e-3)
        pause = min(2 * pause, backoff.LONGEST_PAUSE)
    threads.now += 1.1 * pause
    assert run(1e-4)
    # In time again: the next late one counts as the first.
    assert run(8e-3)
    threads.now += 1.1 * backoff.SHORTEST_PAUSE
    assert run(1e-4)


def test_threads_at_once(policy: ThreadPolicy) -> None:
    program, (steps, rows) = fed_lstm(19, torch.float32), packed(*[1] * 101)
    kernel, given = compile_loop(program), arguments(program, steps, rows)
    expected = given.copy()
    kernel.run(*expected.every(), steps, 0, 101, 1)

    def work(_: int) -> bool:
        here = given.copy()
        kernel.run(*here.every(), steps, 0, 101, 2, policy=policy)
        return all(map(torch.equal, here.results(), expected.results()))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))


def test_many_times(policy: ThreadPolicy) -> None:
    program, (steps, rows) = fed_lstm(16, torch.float32), packed(*[1] * 64)
    given = arguments(program, steps, rows)
    kernel, expected = compile_loop(program), None
    for _ in range(300):
        here = given.copy()
        kernel.run(*here.every(), steps, 0, 64, 2, policy=policy)
        expected = expected or here.results()
        assert all(map(torch.equal, here.results(), expected))


def test_many_rows_are_shared_as_they_are(policy: ThreadPolicy) -> None:
    kernel, (steps, _) = compile_loop(fed_lstm(19, torch.float32)), packed(*[8] * 40)
    division = kernel.divide(steps, 0, 40, 2, policy)
    assert len(division.shards) > 1
    assert not division.is_prefetched
    assert not kernel.divide(steps, 0, 40, 1, policy).is_prefetched


@pytest.mark.parametrize("make", [tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell, tt.cells.LayerNormBasicLSTMCell])
def test_cells(make: Callable[[int], tt.RNNCell]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(1, 75, 23, requires_grad=True)
    cell = make(37)
    results = []
    for count in (1, 2):
        with thread_count(count):
            outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
            both = tt.bidirectional_dynamic_rnn(cell, cell, inputs, [60], dtype=torch.float32)[0]
            total = outputs.square().sum() + both[1].square().sum()
            gradients = torch.autograd.grad(total, [inputs, *cell.parameters()])
        results.append([outputs, *both, *gradients])
    one, two = results
    assert all(map(torch.equal, one[:3], two[:3]))
    # What torch multiplies and sums up beside kernels may be rounded otherwise by two threads.
    for got, expected in zip(two, one, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_after_a_fork() -> None:
    cell, inputs = tt.LSTMCell(32, input_size=32), torch.randn(1, 100, 32)
    with thread_count(2):
        check_forked(cell, inputs)
