"""What the tests of this folder share: cells whose answers are known, and the recorded cases as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from _decode_cases import LENGTHS, UNITS
from torch import Tensor

import throughtime as tt
from throughtime import decode

FILE = Path(__file__).with_name("literals.npz")


def recorded_names() -> list[str]:
    """Every recorded case."""
    with np.load(FILE) as arrays:
        return sorted({"/".join(key.split("/")[:2]) for key in arrays.files})


class Recorded:
    """One recorded case: what it was given, and what TensorFlow answered."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32) -> None:
        with np.load(FILE) as arrays:
            own = {key: arrays[key] for key in arrays.files if key.startswith(f"{name}/")}
        assert own, f"{name} was never recorded"
        self.given = {key.split("/")[3]: torch.tensor(value) for key, value in own.items() if "/given/" in key}
        self.given = {key: value.to(dtype) if value.is_floating_point() else value for key, value in self.given.items()}
        self.answer = {key.split("/")[3]: torch.tensor(value) for key, value in own.items() if "/answer/" in key}


def simple_cell(given: dict[str, Tensor]) -> tt.BasicRNNCell:
    """Keras's SimpleRNNCell: its two kernels are ours, one below the other."""
    kernel = torch.cat([given["cell.kernel"], given["cell.recurrent"]])
    cell = tt.BasicRNNCell(UNITS, input_size=len(given["cell.kernel"]), dtype=kernel.dtype)
    cell.load_state_dict({"kernel": kernel, "bias": given["cell.bias"]})
    return cell


def mechanism(kind: str, options: dict[str, Any], given: dict[str, Tensor], index: int) -> decode.AttentionMechanism:
    """A mechanism with the recorded weights."""
    dtype = given["memory"].dtype
    made = getattr(decode, kind)(UNITS, dtype=dtype, memory_size=given["memory"].shape[2], **options)
    made.build(UNITS)
    for name, parameter in made.named_parameters():
        value = given[f"{index}.{name.removesuffix('.kernel')}"]
        parameter.data.copy_(value)
    return made


def wrapper(options: dict[str, Any], given: dict[str, Tensor]) -> decode.AttentionWrapper:
    """An attention wrapper with the recorded weights, and the recorded memory."""
    kinds = options["mechanisms"]
    mechanisms = [mechanism(kind, arguments, given, index) for index, (kind, arguments) in enumerate(kinds)]
    cell = decode.AttentionWrapper(
        simple_cell(given),
        mechanisms if options["is_list"] else mechanisms[0],
        options["layer"],
        output_attention=options["output_attention"],
        dtype=given["memory"].dtype,
    )
    for one in mechanisms:
        one.setup_memory(given["memory"], LENGTHS)
    for index, layer in enumerate(cell.attention_layers):
        if layer is not None:
            layer.build(given[f"attention_layer.{index}"].shape[0])
            layer.kernel.data.copy_(given[f"attention_layer.{index}"])
    return cell


class Table(tt.RNNCell):
    """A language without memory of more than one token: row i of `logits` [V, V] are the logits after token i.

    Inputs are tokens as one-hot rows; the state counts the steps of each row.
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.register_buffer("logits", logits)
        self.output_size, self.state_size = len(logits), 1

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return inputs @ self.logits, state + 1
