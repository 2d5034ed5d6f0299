"""A cell that looks back at its own last outputs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import check_flag, check_positive_int, problem
from throughtime.cells._base import RNNCell, check_rows, dims
from throughtime.cells._copies import call_on_copies
from throughtime.cells._parameters import check_inputs, glorot_uniform, input_width, zeros
from throughtime.cells._projections import _LazyWrapper


class AttentionCellWrapper(_LazyWrapper):
    """Attention over the last `attn_length` outputs of a cell (Cheng et al. 2016).

    ```
    output~, state' = cell([x, attns] @ kernel + bias, state)
    a = softmax(attn_v . tanh(attn_states @ attn_w + [state'] @ attention.kernel + attention.bias))
    attns' = sum of a * attn_states
    output = [output~, attns'] @ attn_output_projection.kernel + attn_output_projection.bias
    attn_states' = attn_states without the oldest, and output
    ```

    The state is `(state, attns [B, A], attn_states [B, attn_length * A])` with A = `attn_size`, by default the cell's
    output size; with `state_is_tuple=False` it is one tensor. `attn_vec_size` is the width of the attention's hidden
    layer, by default A; `input_size` that of what the cell sees, by default the width of the inputs.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.AttentionCellWrapper(tt.LSTMCell(5), attn_length=3)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 5])
    """

    kernel: Tensor
    bias: Tensor
    attention: Any
    attn_output_projection: Any

    def __init__(
        self,
        cell: Any,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        self.state_is_tuple = check_flag("state_is_tuple", state_is_tuple)
        if _pytree.is_nest(cell.state_size) and not self.state_is_tuple:
            what = "Cell returns tuple of states, but the flag state_is_tuple is not set. State size is: "
            fix = "Leave `state_is_tuple` out, or use a cell whose state is one tensor."
            raise ValueError(problem(f"{what}{cell.state_size}", got="a tuple", expected="one tensor", fix=fix))
        self.attn_length = _check_length(attn_length)
        self.attn_size = check_positive_int("attn_size", cell.output_size if attn_size is None else attn_size)
        self.attn_vec_size = self.attn_size
        if attn_vec_size is not None:
            self.attn_vec_size = check_positive_int("attn_vec_size", attn_vec_size)
        self.hidden_size = None if input_size is None else check_positive_int("input_size", input_size)
        self._state_width = sum(math.prod(dims(size)) for size in _pytree.flatten(cell.state_size))
        for path, initial in (
            ("kernel", glorot_uniform),
            ("bias", zeros),
            ("attention.attn_w", _glorot_uniform_of_pixels),
            ("attention.attn_v", glorot_uniform),
            ("attention.kernel", glorot_uniform),
            ("attention.bias", zeros),
            ("attn_output_projection.kernel", glorot_uniform),
            ("attn_output_projection.bias", zeros),
        ):
            self.declare(path, initial)

    @property
    def state_size(self) -> Any:
        """The cell's state, what it last attended to, and its last outputs."""
        sizes = (self.cell.state_size, self.attn_size, self.attn_size * self.attn_length)
        return sizes if self.state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        """The width of the attention."""
        return self.attn_size

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        """Zeros: nothing has been seen yet."""
        if not self.state_is_tuple:
            return RNNCell.zero_state(self, batch_size, dtype, device)
        inner = super().zero_state(batch_size, dtype, device)
        device = next((leaf.device for leaf in _pytree.flatten(inner)), device)
        widths = (self.attn_size, self.attn_size * self.attn_length)
        return (inner, *(torch.zeros(batch_size, width, dtype=dtype, device=device) for width in widths))

    def extra_repr(self) -> str:
        """How far it looks back, and how wide; how wide the inputs of the cell are, if that was said."""
        size = "" if self.hidden_size is None else f", input_size={self.hidden_size}"
        return f"attn_length={self.attn_length}, attn_size={self.attn_size}, attn_vec_size={self.attn_vec_size}{size}"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        hidden, size, vector = self.hidden_size or input_size, self.attn_size, self.attn_vec_size
        return {
            "kernel": (input_size + size, hidden),
            "bias": (hidden,),
            "attention.attn_w": (1, 1, size, vector),
            "attention.attn_v": (vector,),
            "attention.kernel": (self._state_width, vector),
            "attention.bias": (vector,),
            "attn_output_projection.kernel": (self.cell.output_size + size, size),
            "attn_output_projection.bias": (size,),
        }

    def inner_inputs_shape(self, inputs_shape: Any) -> Any:
        """The cell inside sees the inputs and the attention, joined."""
        return (None, self.hidden_size or input_width(inputs_shape))

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs fit the first layer, and the state has its three parts."""
        check_inputs(inputs, self.kernel, self.attn_size)
        _, attns, memory = self._open_state(state)
        check_rows("attns", attns, self.attn_size, inputs.shape[0])
        check_rows("attn_states", memory, self.attn_size * self.attn_length, inputs.shape[0])

    def _open_state(self, state: Any) -> Any:
        if self.state_is_tuple:
            return _pytree.conform(self.state_size, state, "`state`")
        check_rows("state", state, self.state_size)
        return state.split([self._state_width, self.attn_size, self.attn_size * self.attn_length], 1)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """`inputs` [B, I] and the state -> output [B, A] and the next state."""
        self.check_step(inputs, state)
        inner, attns, memory = self._open_state(state)
        joined = torch.addmm(self.bias, torch.cat([inputs, attns], 1), self.kernel)
        output, inner = call_on_copies(self.cell, joined, inner)
        attns = self._attend(torch.cat([leaf.flatten(1) for leaf in _pytree.flatten(inner)], 1), memory)
        last = self.attn_output_projection
        output = torch.addmm(last.bias, torch.cat([output, attns], 1), last.kernel)
        memory = torch.cat([memory[:, self.attn_size :], output], 1)
        parts = (inner, attns, memory)
        return output, parts if self.state_is_tuple else torch.cat(parts, 1)

    def _attend(self, query: Tensor, memory: Tensor) -> Tensor:
        """The outputs in `memory`, weighted by how well they answer `query` [B, S]."""
        attention = self.attention
        asked = torch.addmm(attention.bias, query, attention.kernel)
        # One output at a time: rows of vectors all the way, for which there are kernels.
        past = memory.split(self.attn_size, 1)
        scores = [torch.tanh(one @ attention.attn_w[0, 0] + asked) @ attention.attn_v.unsqueeze(1) for one in past]
        weights = torch.softmax(torch.cat(scores, 1), 1).split(1, 1)
        attended: Tensor = weights[0] * past[0]
        for weight, one in zip(weights[1:], past[1:], strict=True):
            attended = attended + weight * one
        return attended


def _check_length(length: Any) -> int:
    if check_positive_int("attn_length", length, minimum=-(2**31)) <= 0:
        fix = "It is the number of outputs to look back at."
        what = f"attn_length should be greater than zero, got {length}"
        raise ValueError(problem(what, got=length, expected="at least 1", fix=fix))
    return int(length)


def _glorot_uniform_of_pixels(tensor: Tensor) -> None:
    """A convolution with a window of one has the fans of its last two dimensions."""
    limit = math.sqrt(6 / max(1, sum(tensor.shape[-2:])))
    nn.init.uniform_(tensor, -limit, limit)
