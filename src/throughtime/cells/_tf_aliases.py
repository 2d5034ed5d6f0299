"""TensorFlow's names for hand-fused cells: here every cell is fused, so they are the plain ones with those names."""

from __future__ import annotations

import torch
from torch import Tensor

from throughtime._errors import check_number, problem
from throughtime.cells._basic import GRUCell
from throughtime.cells._lstm import LSTMCell
from throughtime.cells._parameters import glorot_uniform, ones, zeros
from throughtime.cells._vector_cell import VectorsCell


class LSTMBlockCell(LSTMCell):
    """`LSTMCell` by the name of TensorFlow's fused one: `cell_clip` of 0 or None is off.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.LSTMBlockCell(5)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 5])
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: torch.dtype | None = None,
        reuse: bool | None = None,
        name: str | None = "lstm_cell",
        *,
        input_size: int | None = None,
    ) -> None:
        clips = cell_clip is not None and check_number("cell_clip", cell_clip) > 0
        super().__init__(
            num_units,
            use_peepholes=use_peephole,
            cell_clip=cell_clip if clips else None,
            forget_bias=forget_bias,
            reuse=reuse,
            name=name,
            dtype=dtype,
            input_size=input_size,
        )


class GRUBlockCell(VectorsCell):
    """`GRUCell` with the variables of TensorFlow's fused one.

    ```
    r, u = sigmoid([x, h] @ w_ru + b_ru)
    c = tanh([x, r * h] @ w_c + b_c)
    h' = u * h + (1 - u) * c
    ```

    `cell_size` is an older name of `num_units`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.GRUBlockCell(5)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 5])
    """

    input_kernel = "w_ru"
    w_ru: Tensor
    b_ru: Tensor
    w_c: Tensor
    b_c: Tensor

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: bool | None = None,
        name: str | None = "gru_cell",
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(_one_size(num_units, cell_size), name, dtype, reuse)
        self.recurrent_rows = self.num_units
        for path, initial in (("w_ru", glorot_uniform), ("b_ru", ones), ("w_c", glorot_uniform), ("b_c", zeros)):
            self.declare(path, initial)
        self.build_if_known(input_size)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        rows, units = input_size + self.num_units, self.num_units
        return {"w_ru": (rows, 2 * units), "b_ru": (2 * units,), "w_c": (rows, units), "b_c": (units,)}

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I], `state` [B, H] -> output [B, H], and the same as the next state."""
        self.check_step(inputs, state)
        r, u = torch.sigmoid(torch.addmm(self.b_ru, torch.cat([inputs, state], 1), self.w_ru)).chunk(2, 1)
        c = torch.tanh(torch.addmm(self.b_c, torch.cat([inputs, r * state], 1), self.w_c))
        h = u * state + (1 - u) * c
        return h, h


class GRUBlockCellV2(GRUCell):
    """`GRUCell` by the name of TensorFlow's fused one, with the variables of `GRUCell`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.GRUBlockCellV2(5)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 5])
    """

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: bool | None = None,
        name: str | None = "gru_cell",
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(_one_size(num_units, cell_size), reuse=reuse, name=name, dtype=dtype, input_size=input_size)


def _one_size(num_units: int | None, cell_size: int | None) -> int:
    size = num_units if cell_size is None else cell_size
    if size is None or (num_units is not None and cell_size is not None):
        what, fix = "a GRU has one size", "Pass `num_units`."
        got = f"num_units={num_units}, cell_size={cell_size}"
        raise ValueError(problem(what, got=got, expected="one of the two", fix=fix))
    return size
