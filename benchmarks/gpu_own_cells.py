"""Training of a user's own cells on a GPU, against their eager loops and against our own LSTM of equal size.

python benchmarks/gpu_own_cells.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch

from gpu_clock import check, is_mine, on_card
from own_cells import QUICK, measure
from shapes import Shape
from suite import read_options, run_suite
from user_cells import OWN_CELLS

CASES = [(name, shape) for name in OWN_CELLS for shape in (Shape(32, 128, 256, 256), Shape(64, 128, 512, 512))]


def main() -> None:
    options = read_options(__doc__ or "", seconds=0.0, rounds=5)
    torch.set_float32_matmul_precision("high")
    cases = [case for index, case in enumerate(QUICK if options.quick else CASES) if is_mine(index)]
    on_the_card = partial(measure, options, device="cuda", clock=on_card, check=check)
    run_suite("gpu-own-cells", cases, on_the_card, options)


if __name__ == "__main__":
    main()
