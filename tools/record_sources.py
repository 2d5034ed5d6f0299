"""Write down what the engine generates for a few cells, so that a change of the compiler shows as a diff.

    .venv/bin/python tools/record_sources.py            # record tests/goldens/sources again, then look at the diff
    .venv/bin/python tools/record_sources.py --check    # say what has changed, and change nothing

For each cell: the plan that `tt.explain` prints, the loops as torch operations, and the loops as kernels for a
processor with registers of 32 bytes, whatever the processor here has.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from throughtime.backends.aten.loop import AtenLoop
from throughtime.backends.cpu.codegen.listing import write_source
from throughtime.backends.cpu.loop import lower
from throughtime.backends.cpu.plan.kernel_plan import make_plan
from throughtime.native.toolchain.llvm import Host

FOLDER = Path(__file__).parents[1] / "tests" / "goldens" / "sources"
HOST = Host(cpu="", features="", vector_bytes=32, tile_rows=6)
INPUTS = torch.zeros(2, 5, 3)


class LayerNormLSTM(tt.RNNCell):
    """A cell that the package does not have: an LSTM with its gates and its memory normalised."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = tt.LSTMStateTuple(units, units), units
        self.kernel = nn.Parameter(torch.zeros(3 + units, 4 * units))
        self.scale, self.shift = nn.Parameter(torch.zeros(4 * units)), nn.Parameter(torch.zeros(4 * units))

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        gates = torch.cat([inputs, state.h], 1) @ self.kernel
        gates = functional.layer_norm(gates, gates.shape[1:], self.scale, self.shift)
        entering, candidate, forget, leaving = gates.chunk(4, 1)
        c = torch.sigmoid(forget + 1) * state.c + torch.sigmoid(entering) * torch.tanh(candidate)
        h = torch.sigmoid(leaving) * torch.tanh(functional.layer_norm(c, c.shape[1:]))
        return h, tt.LSTMStateTuple(c, h)


CELLS: dict[str, Any] = {
    "lstm": tt.LSTMCell(20, input_size=3),
    "gru": tt.GRUCell(20, input_size=3),
    "layer_norm_lstm": LayerNormLSTM(20),
}


def sources() -> Iterator[tuple[str, str]]:
    """The name and the text of every file."""
    version = ".".join(torch.__version__.split(".")[:2])
    for name, cell in CELLS.items():
        plan = tt.explain(cell, INPUTS)
        assert plan.program is not None
        with tt.backend("aten"):
            program = tt.explain(cell, INPUTS).program
        assert program is not None
        assert program.adjoint is not None
        loops = [program.loop, program.adjoint.loop]
        texts = {
            "plan": str(plan),
            "aten": "\n\n".join(AtenLoop(loop).source.strip() for loop in loops),
            "kernels": "\n\n".join(map(_kernel, lower(plan.program))),
        }
        for kind, text in texts.items():
            yield f"{name}.{kind}.txt", f"recorded with torch {version} by tools/record_sources.py\n\n{text.strip()}\n"


def _kernel(lowered: Any) -> str:
    assert not isinstance(lowered, str), lowered
    return write_source(make_plan(lowered.program), HOST).strip()


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with what is there, and change nothing")
    check = parser.parse_args().check
    # With several threads a plan names the thread library, by its path on this machine.
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    changed = 0
    for name, text in sources():
        path = FOLDER / name
        before = path.read_text() if path.exists() else ""
        changed += before != text
        if check:
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True), name, "now"))
        else:
            path.write_text(text)
    print(f"{changed} files {'differ' if check else 'changed'}")
    return int(check and changed > 0)


if __name__ == "__main__":
    sys.exit(main())
