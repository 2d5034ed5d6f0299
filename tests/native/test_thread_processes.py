"""Threads of kernels in processes of their own: interrupted, held up, limited by OpenMP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.covers("kernels")
SUPPORT = str(Path(__file__).parents[1] / "support")

INTERRUPTED = """
import random, signal, sys, time, torch
sys.path.insert(0, {tests!r})
from loop_programs import *
from kernel_checks import many_shards
from throughtime.native.threads.team import use_threads
from throughtime.backends.cpu import compile_loop
policy = many_shards(prefetch_nanoseconds=1, members=1)
threads = use_threads()
pool = threads.__enter__()
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
    kernel.run(*given.copy().every(), steps, 0, len(counts), 2, policy=policy)
    cases.append((kernel, steps, given, expected))
start, stopped, done = time.monotonic(), 0, 0
while time.monotonic() - start < 3 or min(stopped, done) < 200:
    for kernel, steps, given, expected in cases:
        here = given.copy()
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 3e-4 * 4 ** random.randrange(4)))
            kernel.run(*here.every(), steps, 0, len(steps.active), 2, policy=policy)
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
    """Whenever a signal comes, no thread uses memory that was freed, and none waits for ever."""
    script = INTERRUPTED.format(tests=SUPPORT)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "unharmed\n", done.stderr


HELD_UP = """
import ctypes, torch
import throughtime as tt
from throughtime.native.threads.mailbox import IR, compile_mailbox
from throughtime.native.threads.pool import Pool
from throughtime.native.threads.team import use_threads
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
before = "  %taking = cmpxchg"
assert IR.text.count(before) == 1
pause = f"  %pause = call i32 inttoptr (i64 {usleep} to ptr)(i32 1000)"
threads = use_threads(Pool(code=compile_mailbox(IR.text.replace(before, pause + chr(10) + before))))
pool = threads.__enter__()
torch.set_num_threads(2)
cells = [tt.LSTMCell(32, input_size=64), tt.GRUCell(48, input_size=64)]
calls = [(cell, torch.randn(1 + index, 200, 64)) for index, cell in enumerate(cells)]
with torch.no_grad():
    expected = [tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0] for cell, inputs in calls]
    for _ in range(300):
        for (cell, inputs), outputs in zip(calls, expected):
            assert torch.equal(tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0], outputs)
assert pool.workers
print("the same")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pauses as Linux does")
def test_a_worker_that_is_held_up_when_it_takes_a_job() -> None:
    # By then the job may have been taken back, and another one posted.
    done = subprocess.run([sys.executable, "-c", HELD_UP], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "the same\n", done.stderr


LIMITED = """
import sys, torch, throughtime as tt
sys.path.insert(0, {support!r})
from kernel_checks import Recording, many_shards
from throughtime.backends.cpu.threads.policy import thread_policy
from throughtime.native.threads.team import Team, team, use_threads
assert isinstance(team(), Team)
cell, inputs, results = tt.LSTMCell(32, input_size=16), torch.randn(1, 40, 16), []
with thread_policy.use(many_shards(members=2)), use_threads(Recording(team())) as threads:
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0])
assert torch.equal(*results)
print(threads.answers)
"""


@pytest.mark.parametrize(("limit", "answers"), [("1", "[False]"), ("2", "[True]")])
def test_a_limit_for_threads(limit: str, answers: str) -> None:
    """OpenMP may give fewer threads than were asked for."""
    environment = {**os.environ, "OMP_THREAD_LIMIT": limit}
    script = LIMITED.format(support=SUPPORT)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100, env=environment
    )
    assert done.stdout == f"{answers}\n", done.stderr
