"""The least time that a step could take on a GPU: what it multiplies, what it moves, and that blocks must meet."""

from __future__ import annotations

from typing import Any

# An H200, as its maker states it: operations of its matrix units, and bytes of its memory, a second.
PRODUCTS = {"float32": 495e12, "bfloat16": 989e12, "float16": 989e12}
MEMORY = 4.8e12
MEETING_US = 1.0
"""A barrier of the blocks that share rows, as measured: a write, a count and a read through the L2 cache."""
GATES = {"LSTM": 4, "GRU": 3}
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def floor_us(row: dict[str, Any]) -> float:
    """The floor of a result of `gpu_cudnn.py`, in microseconds a step: a meeting a pass, and the dearer of the others.

    A pass multiplies inputs and state with their weights, the backward pass twice as much. It reads the inputs, writes
    the outputs, and once writes and reads what each gate has; training reads and writes the same again, twice.
    """
    shape, training = row["shape"], row["mode"] != "inference"
    gates = GATES[row["cell"]] * shape["H"]
    # The lengths of packed batches are drawn from 1 to T.
    rows = shape["B"] / (2 if row["mode"] == "packed" else 1)
    products = 2 * rows * (shape["I"] + shape["H"]) * gates * (3 if training else 1)
    moved = BYTES[row["dtype"]] * rows * (shape["I"] + shape["H"] + 2 * gates) * (3 if training else 1)
    return MEETING_US * (2 if training else 1) + 1e6 * max(products / PRODUCTS[row["dtype"]], moved / MEMORY)
