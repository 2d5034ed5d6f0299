"""Kernels for GPUs without a GPU: in Triton's interpreter, one block of threads for each tile of the batch.

The same source runs on a card, where many blocks share a row; `tests/gpu` holds that to the same results.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import throughtime as tt
from throughtime.backends.triton._geometry import Card, Load, choose
from throughtime.backends.triton._pieces import Piece
from throughtime.backends.triton._products import Group, chunks, pack

pytestmark = pytest.mark.covers("kernels")
HERE = Path(__file__).parent
H200 = Card(132, 227 * 2**10)


def test_kernels_in_the_interpreter() -> None:
    """In a process of its own: Triton decides at its import whether it interprets."""
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "interpreted.py"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=HERE)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]


def test_tensors_on_the_cpu_are_refused() -> None:
    with pytest.raises(ValueError, match="it is for CUDA devices"), tt.backend("triton"):
        tt.dynamic_rnn(tt.GRUCell(4, input_size=3), torch.zeros(2, 3, 3), dtype=torch.float32)


@pytest.mark.parametrize("depth", [1, 16, 22, 150, 256, 700, 2048])
def test_chunks_cover_all_features(depth: int) -> None:
    sizes = chunks(depth, 128)
    assert sum(sizes) - 16 < depth <= sum(sizes)
    assert all(size in (16, 32, 64, 128) for size in sizes)


def group(results: int, depth: int, width: int, dtype: torch.dtype = torch.float32) -> Group:
    pieces = tuple(Piece(f"gate{index}", width, dtype) for index in range(results))
    whole = (Piece("h", depth, dtype),)
    return Group(whole, pieces, ("w",) * results, tuple(width * index for index in range(results)))


@pytest.mark.parametrize("results", [1, 2, 4])
def test_packed_columns_are_where_a_block_reads_them(results: int) -> None:
    blocks, tile, width, depth = 3, 4, 10, 5
    matrix = torch.randn(depth, results * width)
    packed = pack(group(results, depth, width), {"w": matrix}, 16, blocks, tile)
    assert packed.shape == (blocks, 16, results * tile)
    for block in range(blocks):
        for column in range(results * tile):
            low, high = (column % 2, column // (2 * tile)) if results == 4 else (column % results, 0)
            unit = column % (2 * tile) // 2 if results == 4 else column // results
            place = block * tile + unit
            want = matrix[:, (2 * high + low) * width + place] if place < width else torch.zeros(depth)
            assert torch.equal(packed[block, :depth, column], want)
    assert not packed[:, depth:].any()


@pytest.mark.parametrize("units", [8, 150, 256, 768, 1024, 2048])
@pytest.mark.parametrize("batch", [1, 16, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_geometry_fits_the_card(units: int, batch: int, dtype: torch.dtype) -> None:
    load = Load((group(4, units, units, dtype),), 1, 1, units, 20)
    shape = choose(load, batch, H200)
    assert shape.blocks <= H200.processors
    assert shape.blocks * shape.tile(units) >= units
    columns = 4 * shape.tile(units) * dtype.itemsize
    assert shape.ways * shape.resident[0] * columns <= H200.shared_bytes
