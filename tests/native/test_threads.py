"""Which threads run kernels: those of the runtime that torch is bound to, whatever other runtimes are loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

import throughtime as tt
from kernel_checks import Recording, thread_count
from throughtime.native.threads import openmp
from throughtime.native.threads.calls import Threads
from throughtime.native.threads.pool import Pool
from throughtime.native.threads.team import team, use_threads
from throughtime.runtime.threads import Threads as Report
from throughtime.runtime.threads import describe

pytestmark = pytest.mark.covers("kernels")

ROOT = Path(__file__).parents[2]
COMPANY = ROOT / ".venv-peers" / "company" / "bin" / "python"
HAS_TEAM = not isinstance(openmp.torch_runtime(), str)
on_linux = pytest.mark.skipif(
    not (HAS_TEAM and sys.platform == "linux" and tt.threads().runtime == "libgomp"),
    reason="torch is not bound to a libgomp on Linux here",
)

# Imports come first. A sum by torch and a region by the team run on the same two threads: the process starts no third.
SCRIPT = """
import os, torch
import throughtime as tt
torch.set_num_threads(2)
torch.ones(1 << 20).exp().sum()
before = len(os.listdir("/proc/self/task"))
cell, inputs = tt.LSTMCell(64, input_size=64), torch.randn(32, 50, 64)
outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
outputs.sum().backward()
print(tt.threads().file, len(os.listdir("/proc/self/task")) - before, tt.threads().runtime, sep="|")
"""


def run(first: str, last: str = "", python: Path | str = sys.executable, **environment: str) -> tuple[str, int, str]:
    """The file of the team's runtime, how many threads it started beside torch's, and its kind, in a fresh process.

    `first` is run before torch is imported, `last` after it and before the team is looked for.
    """
    code = f"{first}\nimport torch\n{last}\n{SCRIPT}"
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    result = subprocess.run([python, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    file, started, kind = result.stdout.splitlines()[-1].split("|")
    return file, int(started), kind


@pytest.fixture
def another_runtime(tmp_path: Path) -> Path:
    """A copy of torch's runtime under other names: as other packages bring it, it is another runtime to the linker."""
    code = Path(tt.threads().file).read_bytes()
    assert b"libgomp.so.1\0" in code
    path = tmp_path / "libgomp-0a1b2c3d.so.1.0.0"
    path.write_bytes(code.replace(b"libgomp.so.1\0", b"libgomq.so.1\0"))
    return path


def same_file(one: str, other: str | Path) -> bool:
    return Path(one).resolve() == Path(other).resolve()


@on_linux
@pytest.mark.parametrize("order", ["before torch", "after torch"])
def test_another_runtime_is_left_alone(order: str, another_runtime: Path) -> None:
    loading = f"import ctypes; ctypes.CDLL({str(another_runtime)!r})"
    file, started, _ = run(loading) if order == "before torch" else run("", loading)
    assert same_file(file, tt.threads().file)
    assert started == 0


@on_linux
def test_a_runtime_that_takes_the_place_of_torchs(tmp_path: Path) -> None:
    """The linker takes a library of the same name that is loaded already, as the system's is by LightGBM."""
    path = shutil.copy(tt.threads().file, tmp_path / "libgomp.so.1")
    file, started, _ = run(f"import ctypes; ctypes.CDLL({str(path)!r})")
    assert same_file(file, path)
    assert started == 0


@on_linux
def test_a_preloaded_runtime(another_runtime: Path) -> None:
    """Torch is bound to it, though the runtime that torch depends on is loaded as well."""
    file, started, _ = run("", LD_PRELOAD=str(another_runtime))
    assert same_file(file, another_runtime)
    assert started == 0


def company() -> str:
    """An interpreter that has scikit-learn."""
    if not COMPANY.exists() and find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed: `make company` does it")
    return str(COMPANY) if COMPANY.exists() else sys.executable


@on_linux
@pytest.mark.parametrize("order", ["before torch", "after torch"])
@pytest.mark.parametrize("package", ["sklearn.ensemble", "lightgbm", "numba"])
def test_packages_with_a_runtime_of_their_own(package: str, order: str) -> None:
    python = company()
    if package != "sklearn.ensemble" and not COMPANY.exists():
        pytest.skip(f"{package} is not installed: `make company` does it")
    loading = f"import {package}"
    file, started, kind = run(loading, python=python) if order == "before torch" else run("", loading, python)
    assert (Path(file).name, started, kind) == ("libgomp.so.1", 0, "libgomp")
    if package != "lightgbm":
        assert same_file(file, tt.threads().file)


BY_LLVM = """
from throughtime.native.threads import openmp as _openmp
_openmp._gomp_parallel = lambda library: None
"""


@on_linux
@pytest.mark.parametrize("entry", ["GNU's entry point", "LLVM's entry point"])
def test_the_runtime_of_intel_and_llvm(entry: str) -> None:
    library = COMPANY.parents[1] / "lib" / "libiomp5.so"
    if not library.exists():
        pytest.skip("Intel's OpenMP runtime is not installed: `make company` does it")
    file, started, kind = run("", BY_LLVM if entry.startswith("LLVM") else "", LD_PRELOAD=str(library))
    assert same_file(file, library)
    assert (started, kind) == (0, "libiomp5")


@pytest.mark.skipif(not HAS_TEAM, reason="torch's runtime cannot be used here")
def test_looking_for_the_runtime_leaves_the_number_of_threads() -> None:
    for count in (1, 2, 3):
        with thread_count(count):
            openmp.find_runtime(torch.__config__.parallel_info())
            assert torch.get_num_threads() == count


def test_a_torch_without_openmp() -> None:
    reason = "this build of torch does not use OpenMP"
    assert openmp.find_runtime("ATen parallel backend: native thread pool") == reason


def test_a_runtime_that_torch_does_not_see() -> None:
    reason = "the OpenMP runtime of torch was not found among the loaded libraries"
    assert openmp.find_runtime(torch.__config__.parallel_info(), is_torchs=lambda _: False) == reason


def train(threads: Threads) -> tuple[list[int], list[Tensor]]:
    """The calls of some threads in a step of training, and its results."""
    recording = Recording(threads)
    with use_threads(recording), thread_count(2):
        return recording.useful, train_step()


def train_step() -> list[Tensor]:
    torch.manual_seed(0)
    rnn, inputs = tt.nn.LSTM(64, 96, 2, batch_first=True), torch.randn(32, 60, 64, requires_grad=True)
    lengths = torch.arange(60, 28, -1)
    outputs, _ = rnn(torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths, batch_first=True))
    outputs, _ = rnn(torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)[0][..., :64])
    return [outputs, *torch.autograd.grad(outputs.square().mean(), [inputs, *rnn.parameters()])]


@pytest.mark.skipif(not HAS_TEAM, reason="torch's runtime cannot be used here")
def test_a_pool_is_called_for_all_that_torchs_threads_are() -> None:
    calls, expected = train(team())
    calls_of_pool, results = train(Pool())
    # Loops, packed matrices, gradients of matrices and of inputs.
    assert len(calls_of_pool) == len(calls) >= 12
    assert all(map(torch.equal, results, expected))


FORKED = """
import os, threading, torch
import throughtime as tt
from throughtime.native.threads.team import use_threads
torch.set_num_threads(2)
rnn, inputs = tt.nn.LSTM(64, 64, batch_first=True), torch.randn(32, 60, 64)
@torch.no_grad()
def run():
    # As bytes: torch would compare by threads of its own, which are gone in the child, and wait for them.
    return rnn(inputs)[0].numpy().tobytes()
expected = run()
{before}
child = os.fork()
if not child:
    same = run() == expected
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("throughtime")]
    os._exit(0 if same and len(workers) == 1 and tt.threads().runtime == "own" else 1)
assert os.waitpid(child, 0)[1] == 0
print("as before")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "before", ["", "pool = use_threads(); pool.__enter__(); run()"], ids=["torch's threads", "a pool"]
)
def test_a_forked_child_has_a_pool_of_its_own(before: str) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", FORKED.format(before=before)]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert result.stdout == "as before\n", result.stderr


def test_what_threads_says() -> None:
    assert (tt.threads().count, str(tt.threads())) == (1, "1, the caller's")
    runtime = openmp.Runtime("/lib/libgomp-1a.so.1", print, 0, 0)
    several = describe(2, runtime, is_usable=True)
    assert several == Report(2, "libgomp", "/lib/libgomp-1a.so.1")
    assert str(several) == "2, of the OpenMP runtime of torch (/lib/libgomp-1a.so.1)"
    forked = describe(2, runtime, is_usable=False)
    assert forked.reason == "the process was forked, and OpenMP's threads stayed with its parent"
    without = describe(2, "no reason", is_usable=True)
    assert (without.runtime, str(without)) == ("own", "2, of a pool beside torch's threads: no reason")


def test_what_explain_says_of_threads() -> None:
    cell, inputs = tt.LSTMCell(4), torch.zeros(2, 3, 4)
    assert "threads:" not in str(tt.explain(cell, inputs))
    with thread_count(2):
        plan = tt.explain(cell, inputs)
        assert plan.threads == str(tt.threads())
        assert str(plan).splitlines()[2] == f"threads: {tt.threads()}"
        with tt.backend("reference"):
            assert "threads:" not in str(tt.explain(cell, inputs))
