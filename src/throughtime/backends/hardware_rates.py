"""Measured rates of hardware, for all cost models: `compiler/ir/costs.py` counts, and these say how long it takes.

Every constant was measured on the machine that its section names. Cost models compare alternatives with each other, so
ratios decide, and those differ little between machines of one kind. `docs/design/gpu.md` and `docs/design/kernels.md`
have the measurements.
"""

from __future__ import annotations

import torch

# ---------------------------------------------------------------------------------------------------------------------
# CPU kernels (`backends/cpu`), measured on two processors of one kind and 16 of another. Nanoseconds.

MULTIPLY_ADD_NANOSECONDS = 0.02
"""A multiply-add of one row with a matrix in cache."""
ELEMENT_NANOSECONDS = 0.2
"""Any other element that an operation computes."""
NEAR_MATRIX_NANOSECONDS = 0.036
"""A multiply-add of however few rows if it waits for the matrix, which is in the thread's own cache."""
FAR_MATRIX_NANOSECONDS = 0.07
"""The same from a shared cache or memory."""
CONTENTION_NANOSECONDS = 0.004
"""What every further thread adds to that."""
BARRIER_FACTOR, SHARED_BARRIER_FACTOR = 2.0, 3.0
"""Times the measured barrier, in the only shard and in one of several: caches miss what other threads wrote."""

# ---------------------------------------------------------------------------------------------------------------------
# GPU, a step as separate kernels (`backends/aten`): matmuls of torch and fused pointwise kernels in CUDA graphs. H200.

LAUNCH_SECONDS = 2.0e-6
"""A kernel that does little, after another one."""
SMALL_MATMUL_SECONDS = 3.0e-6
"""A small matmul."""
MATRIX_BYTES = 3.2e12
"""Bytes of a matrix that a matmul reads, a second."""
ROW_BYTES = 4.0e12
"""Bytes of rows that pointwise kernels read and write, a second."""
STEP_FLOPS = {"tf32": 250e12, 2: 500e12, 4: 45e12, 8: 45e12}
"""Of the matmuls of one step, a second: as TF32, else by the bytes of a number."""
DEEP_MATMUL = 1.3
"""Factor for matmuls with fewer columns than features: they keep fewer multiprocessors busy."""

# ---------------------------------------------------------------------------------------------------------------------
# GPU, matmuls over all steps at once and transfers to the host (`runtime/offload`). H200.

BATCHED_FLOPS = {torch.float32: 3.4e14, torch.bfloat16: 7e14, torch.float16: 7e14}
"""Of large matmuls, a second; float32 as TF32."""
EXACT_FLOPS = 5e13
"""The same in exact float32, and in other dtypes."""
BUS_BYTES = 55e9
"""Bytes that the bus carries each way, a second."""

# ---------------------------------------------------------------------------------------------------------------------
# GPU, all steps as one persistent kernel (`backends/triton`). H200.

READ_BYTES = 38e9
"""What one multiprocessor reads of the rows of others for matmuls with columns on chip, bytes a second."""
STREAM_BYTES = {1: 55e9, 2: 47e9, 4: 80e9}
"""What one multiprocessor fetches of rows and columns where columns are streamed, by the ways of matmuls."""
STREAMING_SECONDS = 0.3e-6
"""Until the first columns arrive."""
TRANSPOSED = 0.4
"""The share of that rate that is left for float32 in one way: the matrix units want it transposed first."""
TILE_SECONDS = {2: 9e-9, 4: 18e-9}
"""One product of a tile of 16 rows and 8 columns by a warp, 16 features deep, by the bytes of a number."""
ELEMENT_SECONDS = 0.05e-9
"""One unit of one row through one pointwise operation, on one multiprocessor."""
BARRIER_SECONDS = 1.0e-6
ARRIVAL_SECONDS = 8e-9
"""A grid barrier, and what each block adds to it."""

# The same kernel where rows are read directly as operands of the matrix units.
DIRECT_BARRIER_SECONDS = {4: 1.05e-6, 8: 1.3e-6}
"""By the warps of a block: each polls for the others."""
DIRECT_ARRIVAL_SECONDS = 5e-9
DIRECT_READ_BYTES, ALL_READ_BYTES = 120e9, 7.5e12
"""What one multiprocessor reads of the rows of others, and all of them together."""
DIRECT_STAGE_SECONDS = 0.12e-6
"""From sums to results, for each row that is multiplied."""
DIRECT_TILE_SECONDS = {2: 7e-9, 4: 14e-9}
"""One product of 16 columns and 8 rows by a warp, 16 features deep; going deeper takes half as long."""
DIRECT_SHARED_BYTES = {2: 800e9, 4: 40e9}
"""What one multiprocessor reads of columns that are not in registers; those of float32 not without conflicts."""
DIRECT_OVERLAP = 0.7
"""The share of all this that is left beyond a barrier: reading, multiplying and pointwise work overlap."""
DIRECT_DOUBT = 1.05
"""Shapes of many rows and blocks took somewhat longer than this model says: in doubt, rows pass shared memory."""
