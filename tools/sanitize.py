"""Small kernels under the tools of compute-sanitizer, which watch every access to memory on a GPU.

`python tools/sanitize.py` runs every case of `sanitized_kernels.py` forward and backward, on few rows and steps, once
under `memcheck` (addresses outside of what was allocated, misaligned ones) and once under `racecheck` (threads of a
block that use shared memory without waiting for each other). It prints which kernels were watched and what the tools
said; `--save FILE` keeps that. A kernel that is refused, one that should run and does not, a case that does not end:
each is a failure. Both tools slow kernels down a hundred times, so cases run side by side.

No tool watches how blocks of threads race in global memory, where they exchange rows. The thousand launches of
`tests/gpu/test_launches.py` do what can be done: everything twice, and all bits must agree.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from sanitized_kernels import CASES

TOOLS = ("memcheck", "racecheck")
KERNELS = Path(__file__).with_name("sanitized_kernels.py")
FAILED = 99
"""What compute-sanitizer returns where it has found something."""
PATIENCE = 120
"""Seconds until a case counts as hanging."""
LAST_LINES = 12


class Seen(NamedTuple):
    """What came of a case: whether all is well, the kernels that ran, and what there is to say about them."""

    is_well: bool
    kernels: list[str]
    said: list[str]


def watch(case: str, sanitizer: str | None = None, tool: str | None = None) -> Seen:
    """Run the kernels of a case, watched by a tool if one is given."""
    command = [sys.executable, str(KERNELS), case]
    if sanitizer is not None and tool is not None:
        command = [sanitizer, "--tool", tool, "--error-exitcode", str(FAILED), *command]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return Seen(False, [], [f"{tool}: not done after {PATIENCE} s"])
    lines = done.stdout.splitlines()
    told = [line.strip("= ") for line in lines if line.startswith("=")]
    kernels = [line for line in lines if line and not line.startswith("=") and line != "all kernels ran"]
    ended = f"{tool or 'unwatched'}: {told[-1] if told else 'exit ' + str(done.returncode)}"
    ended += f", {time.perf_counter() - start:.0f} s"
    if done.returncode == 0 and "all kernels ran" in lines and not (tool and _found(told)):
        return Seen(True, kernels, [ended])
    return Seen(False, kernels, [ended, *told[:LAST_LINES], *done.stderr.splitlines()[-LAST_LINES:]])


def _found(told: list[str]) -> bool:
    """Whether a tool has found anything: its last line is a summary, with a number for each kind of error."""
    summary = told[-1] if told else ""
    return "SUMMARY" not in summary or any(int(number) for number in re.findall(r"\d+", summary))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--save", type=Path, help="a file for what the tools said")
    parser.add_argument("--only", nargs="*", choices=CASES, default=[*CASES], help="some cases", metavar="CASE")
    parser.add_argument("--jobs", type=int, default=8, help="how many cases run at a time")
    parser.add_argument("--unwatched", action="store_true", help="only run the kernels")
    arguments = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None and not arguments.unwatched:
        parser.error("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
    tools = [] if arguments.unwatched else TOOLS
    with ThreadPoolExecutor(arguments.jobs) as pool:
        # Kernels are compiled once, and kept by Triton for those who watch them.
        first = dict(zip(arguments.only, pool.map(watch, arguments.only), strict=True))
        futures = {
            case: [pool.submit(watch, case, sanitizer, tool) for tool in tools]
            for case, seen in first.items()
            if seen.is_well
        }
        said, is_well = [], True
        for case, seen in first.items():
            found = [future.result() for future in futures.get(case, [])] or [seen]
            kernels = dict.fromkeys(kernel for one in found for kernel in one.kernels)
            lines = [case, *(f"  {line}" for line in (*kernels, *(line for one in found for line in one.said)))]
            print(*lines, sep="\n", flush=True)
            said += lines
            is_well = is_well and all(one.is_well for one in found)
    said.append(f"{len(first)} cases, {'nothing was found' if is_well else 'NOT ALL IS WELL'}")
    print(said[-1])
    if arguments.save is not None:
        arguments.save.write_text("\n".join(said) + "\n")
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
