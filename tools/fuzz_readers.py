"""Does any reader answer a file with a traceback, a hang, or more memory than it should take?

`python tools/fuzz_readers.py --inputs 1000000` makes inputs (`fuzz_inputs.py`) for every reader (`fuzz_targets.py`) and
reads them in child processes, with a limit of time for each and of memory for all. Input number n of a reader is the
same for the same seed, so what is found is made again by `--reader NAME --only N`. A find is an error that the reader
does not document, one without `got` and `expected`, one of several lines, a hang, a crash, or too much memory.
With `--guided READER` coverage guides the mutations (needs `atheris`, outside of the requirements).
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 5.0
# Beyond these a child is killed, since it does not answer the alarm.
GRACE_SECONDS = 30.0
MEMORY = 2**30
# Inputs of one child.
CHUNK = 2000


class HangError(BaseException):
    """An input took too long. No reader catches it."""


def _ring(_: int, __: FrameType | None) -> None:
    raise HangError


def limit_memory() -> None:
    """No more than `MEMORY` beyond what the libraries take."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def try_one(name: str, data: bytes, folder: Path, draw: Any) -> str | None:
    """Read one input: what was found, or None; an error in the right form is as good as none."""
    from fuzz_targets import TARGETS, is_clear  # noqa: PLC0415

    target = TARGETS[name]
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.read(data, folder, draw)
    except HangError as error:
        return f"hang at {_place(error)}"
    except (Exception, SystemExit) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not is_clear(error, target):
            return f"{type(error).__name__}: {str(error)[:200]!r} at {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _place(error: BaseException) -> str:
    """The innermost line of the package that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "throughtime" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def work(name: str, start: int, end: int, seed: int, folder: Path, progress: mmap.mmap) -> dict[str, Any]:
    """Try some inputs of a reader; what was found, by its description, and the slowest of all."""
    import fuzz_targets  # noqa: PLC0415

    finds: dict[str, list[int]] = {}
    slowest = (0.0, start)
    for number in range(start, end):
        progress[:16] = struct.pack("<qd", number, time.monotonic())
        draw = fuzz_targets.draw_of(seed, name, number)
        data = fuzz_targets.TARGETS[name].make(draw)
        began = time.perf_counter()
        found = try_one(name, data, folder, draw)
        slowest = max(slowest, (time.perf_counter() - began, number))
        if found:
            finds.setdefault(found, []).append(number)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"finds": finds, "slowest": slowest, "memory": memory, "inputs": end - start}


def in_a_child(name: str, start: int, end: int, seed: int, folder: Path) -> dict[str, Any]:
    """`work` in a child process; a crash, or a hang that no alarm ends, is a find, and the rest is tried after it."""
    progress = mmap.mmap(-1, 16)
    answer = folder / "answer.json"
    child = os.fork()
    if child == 0:
        _answer(answer, name, start, end, seed, folder, progress)
    status = _wait(child, progress)
    if status == 0:
        return dict(json.loads(answer.read_text()))
    number = struct.unpack("<qd", progress[:16])[0]
    total: dict[str, Any] = {"finds": {f"crash, status {status}": [number]}, "inputs": 1, "memory": 0}
    total["slowest"] = (0.0, number)
    # What the child had found before is lost with it, and found again.
    for first, last in ((start, number), (number + 1, end)):
        if first < last:
            _join(total, in_a_child(name, first, last, seed, folder))
    return total


def _join(total: dict[str, Any], part: dict[str, Any]) -> None:
    total["inputs"] += part["inputs"]
    total["memory"] = max(total["memory"], part["memory"])
    total["slowest"] = max(tuple(total["slowest"]), tuple(part["slowest"]))
    for find, numbers in part["finds"].items():
        total["finds"].setdefault(find, []).extend(numbers)


def _answer(answer: Path, name: str, start: int, end: int, seed: int, folder: Path, progress: mmap.mmap) -> None:
    """Work, write down what was found, and end the process."""
    try:
        import fuzz_targets  # noqa: PLC0415

        gc.freeze()
        signal.signal(signal.SIGALRM, _ring)
        fuzz_targets.quiet()
        limit_memory()
        place = Path(tempfile.mkdtemp(dir=folder))
        answer.write_text(json.dumps(work(name, start, end, seed, place, progress)))
        shutil.rmtree(place)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _wait(child: int, progress: mmap.mmap) -> int:
    """How a child ended."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        _, since = struct.unpack("<qd", progress[:16])
        if since and time.monotonic() - since > GRACE_SECONDS:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)


def run(readers: list[str], count: int, seed: int, save: Path | None, skip: int) -> dict[str, Any]:
    """All readers, a chunk each in turn, until every one has its share; figures are saved after each chunk."""
    from fuzz_targets import TARGETS  # noqa: PLC0415

    shares = sum(TARGETS[name].share for name in readers)
    wanted = {name: round(count * TARGETS[name].share / shares) for name in readers}
    total: dict[str, Any] = {
        name: {"inputs": 0, "finds": {}, "slowest_seconds": 0.0, "slowest_input": 0, "peak_bytes": 0}
        for name in readers
    }
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shared if shared.is_dir() else None))
    try:
        while any(total[name]["inputs"] < wanted[name] for name in readers):
            for name in readers:
                start = skip + total[name]["inputs"]
                end = min(start + CHUNK, skip + wanted[name])
                if start < end:
                    _add(total[name], in_a_child(name, start, end, seed, folder))
                    _report(name, total[name], wanted[name])
                    if save is not None:
                        save.write_text(json.dumps({"seed": seed, "readers": total}, indent=1) + "\n")
    finally:
        shutil.rmtree(folder)
    return total


def _add(total: dict[str, Any], part: dict[str, Any]) -> None:
    total["inputs"] += part["inputs"]
    total["peak_bytes"] = max(total["peak_bytes"], part["memory"])
    if part["slowest"][0] > total["slowest_seconds"]:
        total["slowest_seconds"], total["slowest_input"] = part["slowest"]
    for find, numbers in part["finds"].items():
        kept = total["finds"].setdefault(find, {"count": 0, "first": numbers[0]})
        kept["count"] += len(numbers)


def _report(name: str, total: dict[str, Any], wanted: int) -> None:
    slowest, peak = total["slowest_seconds"], total["peak_bytes"] / 2**20
    finds = len(total["finds"])
    print(f"{name}: {total['inputs']:,} of {wanted:,}, {finds} finds, {slowest:.2f} s, {peak:.0f} MiB", flush=True)


def again(name: str, number: int, seed: int, save: Path | None) -> None:
    """Read one input without catching anything; with `save`, keep it."""
    from fuzz_targets import TARGETS, draw_of  # noqa: PLC0415

    draw = draw_of(seed, name, number)
    data = TARGETS[name].make(draw)
    if save is not None:
        save.write_bytes(data)
    with tempfile.TemporaryDirectory() as folder:
        TARGETS[name].read(data, Path(folder), draw)


def guided(name: str, runs: int) -> None:
    """Let coverage of the package guide the mutations of bytes; ends the process."""
    atheris: Any = import_module("atheris")

    with atheris.instrument_imports(include=["throughtime.interop.checkpoints", "throughtime.cli.tables", "zipfile"]):
        import fuzz_targets  # noqa: PLC0415
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-corpus-"))
    for number, data in enumerate(fuzz_targets.first(name, 200, 0)):
        (corpus / str(number)).write_bytes(data)
    target = fuzz_targets.TARGETS[name]
    fuzz_targets.quiet()

    def one(data: bytes) -> None:
        try:
            target.read(data, folder, fuzz_targets.draw_of(0, name, len(data)))
        except Exception as error:
            if not fuzz_targets.is_clear(error, target):
                raise

    def change(data: bytes, most: int, seed: int) -> bytes:
        draw = fuzz_targets.draw_of(seed, name, 0)
        # Of the right structure now and then; the rest is libFuzzer's.
        return (target.make(draw) if draw.random() < 0.3 else atheris.Mutate(data, most))[:most]

    limits = [f"-runs={runs}", f"-timeout={SECONDS:.0f}", "-rss_limit_mb=1024", "-max_len=4096", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], one, custom_mutator=change)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--reader", action="append", help="one of the readers; all of them if none is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="read this input alone, and show its traceback")
    parser.add_argument("--guided", metavar="READER")
    parser.add_argument("--save", type=Path, help="a JSON file for the figures, or for the input of `--only`")
    asked = parser.parse_args()
    if asked.guided:
        guided(asked.guided, asked.inputs)
        return
    import torch  # noqa: PLC0415

    import fuzz_targets  # noqa: PLC0415

    torch.set_num_threads(1)
    readers = asked.reader or list(fuzz_targets.TARGETS)
    if asked.only is not None:
        again(readers[0], asked.only, asked.seed, asked.save)
        return
    total = run(readers, asked.inputs, asked.seed, asked.save, asked.skip)
    for name, found in total.items():
        for find, kept in found["finds"].items():
            print(f"{name}, input {kept['first']} and {kept['count'] - 1} others: {find}")
    sys.exit(any(found["finds"] for found in total.values()))


if __name__ == "__main__":
    main()
