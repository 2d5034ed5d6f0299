"""Small kernels under the tools of compute-sanitizer, which watch every access to memory on a GPU.

`python tools/sanitize.py` runs small kernels forward and backward, on few rows and steps, once under `memcheck`
(addresses outside of what was allocated, misaligned ones) and once under `racecheck` (threads of a block that use
shared memory without waiting for each other). What the tools say at the end is printed, and saved with `--save FILE`.
Both slow a kernel down a hundred times.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = ("memcheck", "racecheck")
FAILED = 1
"""What compute-sanitizer returns where something is wrong, if the program itself is well."""


def launch() -> None:
    """Kernels with one product a step and with two, reductions over features, lengths, all dtypes, fused steps.

    Cells are so small that a tile has one block: nobody meets.
    """
    import torch  # noqa: PLC0415

    import throughtime as tt  # noqa: PLC0415

    def run(cell: tt.RNNCell, dtype: torch.dtype, backend: str) -> None:
        cell = cell.to("cuda", dtype)
        x = torch.randn(5, 4, 8, device="cuda", dtype=dtype, requires_grad=True)
        with tt.backend(backend):
            outputs, _ = tt.dynamic_rnn(cell, x, [4, 0, 1, 3, 2], dtype=dtype)
            outputs.sum().backward()
        torch.cuda.synchronize()

    kinds = (tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell, tt.cells.LayerNormLSTMCell)
    for kind in kinds:
        run(kind(40, input_size=8), torch.float32, "triton")
    for dtype in (torch.bfloat16, torch.float16):
        run(tt.LSTMCell(40, input_size=8), dtype, "triton")
    for dtype in (torch.float32, torch.float64):
        cell = tt.LSTMCell(40, input_size=8)
        # A block of steps runs, is recorded, and runs again as a graph.
        for _ in range(3):
            run(cell, dtype, "aten")
    print("all kernels ran")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--save", type=Path, help="a file for what the tools said")
    parser.add_argument("--launch", action="store_true", help="only run the kernels, watched by nobody")
    arguments = parser.parse_args()
    if arguments.launch:
        launch()
        return
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        parser.error("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
    said, failed = [], False
    for tool in TOOLS:
        command = [sanitizer, "--tool", tool, "--error-exitcode", str(FAILED), sys.executable, __file__, "--launch"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("=") or "ran" in line]
        said += [f"{tool}: exit {done.returncode}", *lines[-20:], *done.stderr.splitlines()[-5:], ""]
        failed = failed or done.returncode != 0
        print("\n".join(said[-30:]), flush=True)
    if arguments.save is not None:
        arguments.save.write_text("\n".join(said))
    sys.exit(failed)


if __name__ == "__main__":
    main()
