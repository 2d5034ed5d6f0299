"""Wrappers around what goes in and what comes out: a highway, and the one that TensorFlow had for its compiler."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import check_flag, check_number, problem
from throughtime.cells._base import RNNCell
from throughtime.cells._cell_types import Cell, State, Wrapped_co
from throughtime.cells._copies import call_on_copies
from throughtime.cells._parameters import check_inputs, glorot_uniform
from throughtime.cells._projections import _LazyWrapper
from throughtime.cells._wrappers import CellWrapper


class HighwayWrapper(_LazyWrapper[Wrapped_co]):
    """A highway around a cell (Srivastava et al. 2015): a gate lets inputs pass it by.

    ```
    carry = sigmoid(x @ carry_w + carry_b)
    transform = 1 - carry, or sigmoid(x @ transform_w + transform_b)
    output' = x * carry + output * transform
    ```

    `carry_b` starts at `carry_bias_init`. The second form of the transform gate comes with
    `couple_carry_transform_gates=False`; `transform_b` starts at `-carry_bias_init`. Inputs are as wide as outputs.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.HighwayWrapper(tt.GRUCell(3))
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 3])
    """

    carry_w: Tensor
    carry_b: Tensor
    transform_w: Tensor
    transform_b: Tensor

    def __init__(
        self,
        cell: Wrapped_co,
        couple_carry_transform_gates: bool = True,
        carry_bias_init: float = 1.0,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(cell, None)
        self.couple_carry_transform_gates = check_flag("couple_carry_transform_gates", couple_carry_transform_gates)
        bias = float(check_number("carry_bias_init", carry_bias_init))
        for gate, first in (("carry", bias), ("transform", -bias)):
            if gate == "carry" or not self.couple_carry_transform_gates:
                self.declare(f"{gate}_w", glorot_uniform)
                self.declare(f"{gate}_b", partial(nn.init.constant_, val=first))
        if input_size is not None:
            self.build(input_size)

    def extra_repr(self) -> str:
        """The size of the inputs, once it is known."""
        return self.shown_input_size()

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        gates = ["carry"] if self.couple_carry_transform_gates else ["carry", "transform"]
        shapes: dict[str, tuple[int, ...]] = {}
        for gate in gates:
            shapes |= {f"{gate}_w": (input_size, input_size), f"{gate}_b": (input_size,)}
        return shapes

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs fit the gates and the cell inside, and are as wide as its outputs."""
        check_inputs(inputs, self.carry_w)
        if inputs.shape[1] != self.cell.output_size:
            what, fix = "a HighwayWrapper needs inputs of the width of the outputs", "Make the widths equal."
            raise ValueError(problem(what, got=inputs.shape[1], expected=self.cell.output_size, fix=fix))
        if isinstance(self.cell, RNNCell):
            self.cell.check_step(inputs, state)

    def forward(self: HighwayWrapper[Cell[State]], inputs: Tensor, state: Any) -> tuple[Tensor, State]:
        """One step of the cell inside, and what passes it by."""
        self.check_step(inputs, state)
        output, state = call_on_copies(self.cell, inputs, state)
        carry = torch.sigmoid(torch.addmm(self.carry_b, inputs, self.carry_w))
        if self.couple_carry_transform_gates:
            return inputs * carry + output * (1 - carry), state
        transform = torch.sigmoid(torch.addmm(self.transform_b, inputs, self.transform_w))
        return inputs * carry + output * transform, state


class CompiledWrapper(CellWrapper[Wrapped_co]):
    """TensorFlow's way to ask for compilation; here every cell is compiled, so this changes nothing.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.CompiledWrapper(tt.GRUCell(3))
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 3])
    """

    def __init__(self, cell: Wrapped_co, compile_stateful: bool = False) -> None:
        super().__init__(cell)
        self.compile_stateful = check_flag("compile_stateful", compile_stateful)

    def forward(self: CompiledWrapper[Cell[State]], inputs: Any, state: Any) -> tuple[Any, State]:
        """One step of the cell inside."""
        output, state = call_on_copies(self.cell, inputs, state)
        return output, state
