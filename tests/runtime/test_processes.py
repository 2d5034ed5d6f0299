"""Compiled cells among others: threads, forked workers, several processes, run after run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import nn

import throughtime as tt
from backends import compiled_backends, lengths_for, same_bits
from compare import check_same, measure
from descriptors import BY_NAME, Case
from unrolls import dynamic, on
from user_cells import LayerNormLSTM

pytestmark = pytest.mark.covers("compiler")

TESTS = Path(__file__).parents[1] / "support"


@pytest.fixture
def threads() -> Iterator[Any]:
    """Sets the number of torch's threads, and sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def run(case: Case, lengths: Any, backend: str) -> Any:
    """Values and all gradients."""
    return measure(
        lambda cell, inputs, state: on(backend, dynamic)(cell, inputs, lengths, state, case.dtype),
        case.cell,
        case.inputs,
        case.state,
    )


@pytest.mark.parametrize(("backend", "count"), [("aten", 1), ("cpu", 1), ("cpu", 2)])
@pytest.mark.parametrize("lengths", [None, lengths_for(24, 20)], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", ["LSTM full", "Multi"])
def test_the_same_bits_run_after_run(
    name: str, lengths: list[int] | None, count: int, backend: str, threads: Any
) -> None:
    case = BY_NAME[name].case(24, 20, torch.float32, units=40)
    threads(count)
    first = run(case, lengths, backend)
    assert all(same_bits(first, run(case, lengths, backend)) for _ in range(3))


@pytest.mark.parametrize("lengths", [None, lengths_for(24, 20)], ids=["dense", "ragged"])
def test_any_number_of_threads_gives_the_same(lengths: list[int] | None, threads: Any) -> None:
    """To rounding: torch cuts its own products differently for each number of threads."""
    case = BY_NAME["LSTM full"].case(24, 20, torch.float32, units=40)
    want = run(case, lengths, "cpu")
    for count in (2, 3, 8):
        threads(count)
        check_same(want, run(case, lengths, "cpu"))


@compiled_backends
def test_threads_that_meet_a_new_cell_at_once(backend: str) -> None:
    """They compile it once, or each of them does; no process sees half of it, or the numbers of another."""
    count = 4
    torch.manual_seed(1)
    cell = LayerNormLSTM(5, modules=True)
    nn.init.normal_(cell.kernel)
    inputs = [torch.randn(3 + index, 6, 3) for index in range(count)]
    lengths = [lengths_for(3 + index, 6, seed=index) for index in range(count)]
    meeting = Barrier(count)

    def work(index: int) -> list[Any]:
        meeting.wait(timeout=30)
        return [one_pass(cell, inputs[index], lengths[index], backend) for _ in range(10)]

    for parameter in (cell.scale, cell.shift):
        nn.init.normal_(parameter)
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(work, range(count)))
    for index, passes in enumerate(found):
        want = one_pass(cell, inputs[index], lengths[index], "reference")
        for got in passes:
            torch.testing.assert_close(got, want)


def one_pass(cell: Any, inputs: Any, lengths: Any, backend: str) -> Any:
    """Outputs and the gradients of all weights."""
    outputs, _ = on(backend, dynamic)(cell, inputs, lengths, None, torch.float32)
    return [outputs, *torch.autograd.grad(outputs.square().sum(), list(cell.parameters()))]


def test_a_backend_is_chosen_for_one_thread() -> None:
    """The settings of one thread do not affect another."""
    case = BY_NAME["no state"].case(2, 3)

    def elsewhere() -> Any:
        return tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)

    with tt.backend("cpu"), ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError, match="cpu"):
            elsewhere()
        pool.submit(elsewhere).result()


def test_a_choice_ends_with_its_block() -> None:
    case = BY_NAME["no state"].case(2, 3)
    with pytest.raises(ValueError, match="cpu"), tt.backend("aten"), tt.backend("cpu"):
        tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)
    tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)
    with tt.backend("cpu"), tt.backend("auto"):
        tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)


def in_a_process_of_its_own(script: str, *arguments: str) -> str:
    """The output of a script, whose threads and forks do not disturb this process."""
    command = [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120, cwd=TESTS)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


PREAMBLE = """
import sys
import torch
import throughtime as tt

torch.manual_seed(0)
torch.set_num_threads(2)
cell = tt.LSTMCell(32, input_size=16)
cell.forget_bias = 0.25
x, lengths = torch.randn(32, 40, 16), [1 + (7 * row) % 40 for row in range(32)]


def train():
    outputs, _ = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
    return [outputs.detach(), *torch.autograd.grad(outputs.square().sum(), list(cell.parameters()))]

"""


def test_workers_that_are_forked() -> None:
    """Threads do not survive a fork: a worker must not wait for those of its parent."""
    script = """
    import multiprocessing

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return [part.double().sum() for part in train()]

    want = train()
    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context="fork", timeout=60)
    for batch in loader:
        for got, part in zip(batch, want, strict=True):
            torch.testing.assert_close(got[0], part.double().sum())
    # A worker that meets the cell first.
    cell.forget_bias = 0.75
    found = [[part.item() for part in batch] for batch in loader]
    assert all(torch.equal(torch.tensor(one), torch.tensor(found[0])) for one in found)
    torch.testing.assert_close(torch.tensor(found[0][0]), train()[0].double().sum().float(), rtol=1e-4, atol=1e-4)
    print("done")
    """
    assert in_a_process_of_its_own(script) == "done\n"


def test_several_processes_train_one_model(tmp_path: Path) -> None:
    """DistributedDataParallel: every process has half of the batch; the gradient is that of the whole."""
    script = """
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.nn.parallel import DistributedDataParallel

    def work(rank, store):
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        model = DistributedDataParallel(tt.RNN(cell, dtype=torch.float32))
        for _ in range(2):
            model.zero_grad()
            outputs, _ = model(x[rank::2], lengths[rank::2])
            outputs.square().sum().backward()
        for parameter, gradient in zip(cell.parameters(), train()[1:], strict=True):
            torch.testing.assert_close(2 * parameter.grad, gradient, rtol=1e-4, atol=1e-4)
        dist.destroy_process_group()

    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")
    print("done")
    """
    assert in_a_process_of_its_own(script, str(tmp_path / "store")) == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_training_in_a_forked_child_with_one_thread() -> None:
    """With more, torch's own operators would wait for threads that stayed with the parent."""
    script = """
    import torch.multiprocessing as mp

    def work(rank, expected):
        torch.set_num_threads(1)
        for found, gradient in zip(train(), expected, strict=True):
            torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-4)

    torch.randn(3_000_000).exp()
    mp.start_processes(work, (train(),), nprocs=1, start_method="fork")
    print("done")
    """
    assert in_a_process_of_its_own(script) == "done\n"


def test_the_same_bits_in_every_process() -> None:
    script = """
    import hashlib
    print(hashlib.sha256(b"".join(part.numpy().tobytes() for part in train())).hexdigest())
    """
    assert in_a_process_of_its_own(script) == in_a_process_of_its_own(script)


FORKED = """
import os, signal, threading, time, torch, throughtime as tt
x = torch.randn(2, 5, 8)
cell = tt.MultiRNNCell([tt.LSTMCell(8, input_size=8) for _ in range(12)])
thread = threading.Thread(target=tt.dynamic_rnn, args=(cell, x), kwargs={"dtype": torch.float32})
thread.start()
time.sleep(0.1)
pid = os.fork()
if pid == 0:
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    os._exit(0)
thread.join()
for _ in range(300):
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        raise SystemExit(status)
    time.sleep(0.1)
os.kill(pid, signal.SIGKILL)
raise SystemExit("the child hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_while_another_thread_compiles() -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
