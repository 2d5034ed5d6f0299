"""Long short-term memory, with everything TensorFlow's cell can do."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_flag, check_number, check_positive_int, problem
from throughtime._torch_internals import register_namedtuple
from throughtime.cells._activations import Activation, resolve_activation
from throughtime.cells._base import check_rows, shown_options
from throughtime.cells._cell_types import Part
from throughtime.cells._parameters import (
    Initializer,
    LazyCell,
    check_inputs,
    check_state_fits,
    chosen,
    glorot_uniform,
    zeros,
)
from throughtime.cells._scope import ParameterScope

GATE_ORDER = ("i", "j", "f", "o")
"""The order of the gates in `kernel` and `bias`: input, candidate, forget, output."""


class LSTMStateTuple(NamedTuple, Generic[Part]):
    """The state of an LSTM cell: memory `c` [B, H] and output `h` [B, H or num_proj].

    A plain pair is taken for it in this order, memory first; `torch.nn.LSTM` has its states the other way round.

    >>> import torch, throughtime as tt
    >>> tt.LSTMStateTuple(c=torch.zeros(1, 2), h=torch.zeros(1, 2)).dtype
    torch.float32
    """

    c: Part
    h: Part

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of both parts."""
        c: Any
        h: Any
        c, h = self
        if c.dtype != h.dtype:
            raise TypeError(
                problem(
                    "the parts of an LSTMStateTuple differ in dtype",
                    got=f"c {c.dtype}, h {h.dtype}",
                    expected="one dtype",
                    fix="Convert one of them with `.to(dtype)`.",
                )
            )
        dtype: torch.dtype = c.dtype
        return dtype


# Programs that torch.export saves may return one.
register_namedtuple(LSTMStateTuple, serialized_type_name="throughtime.LSTMStateTuple")


class LSTMCell(LazyCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; peepholes and projection as in Sak et al. 2014).

    ```
    i, j, f, o = [x, h] @ kernel + bias
    c' = c * sigmoid(f + forget_bias + w_f_diag * c) + sigmoid(i + w_i_diag * c) * activation(j)
    c' = clip(c', ±cell_clip)
    h' = sigmoid(o + w_o_diag * c') * activation(c')
    h' = clip(h' @ projection.kernel, ±proj_clip)
    ```

    The `w_*_diag` terms are there with `use_peepholes=True`, the clips when given, the last line with `num_proj`
    (`proj_clip` has no effect without it). `kernel` is [I + P, 4H] with P = num_proj or H; `forget_bias` is added at
    run time and is not part of `bias`. `initializer` fills `kernel`, the peepholes and the projection. The state is
    `LSTMStateTuple(c, h)`, as type checkers see it, or with `state_is_tuple=False` one tensor [B, H + P]. The shard
    counts change nothing.

    >>> import torch, throughtime as tt
    >>> cell = tt.LSTMCell(7)
    >>> x, lengths = torch.randn(5, 10, 12), [4, 9, 10, 5, 10]
    >>> outputs, state = tt.dynamic_rnn(cell, x, sequence_length=lengths, dtype=torch.float32)
    >>> outputs.shape, state.c.shape, state.h.shape
    (torch.Size([5, 10, 7]), torch.Size([5, 7]), torch.Size([5, 7]))
    """

    kernel: Tensor
    bias: Tensor
    w_f_diag: Tensor
    w_i_diag: Tensor
    w_o_diag: Tensor
    projection: ParameterScope

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int | None = None,
        num_proj_shards: int | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(name, dtype, reuse)
        for shards_name, shards in (("num_unit_shards", num_unit_shards), ("num_proj_shards", num_proj_shards)):
            if shards is not None:
                check_positive_int(shards_name, shards)
        self.num_units = check_positive_int("num_units", num_units, minimum=0)
        self.num_proj = None if num_proj is None else check_positive_int("num_proj", num_proj)
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.cell_clip = None if cell_clip is None else check_number("cell_clip", cell_clip, minimum=0)
        self.proj_clip = None if proj_clip is None else check_number("proj_clip", proj_clip, minimum=0)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.state_is_tuple = check_flag("state_is_tuple", state_is_tuple)
        self.activation = resolve_activation(activation)
        self.output_size = self.num_units if self.num_proj is None else self.num_proj
        sizes = LSTMStateTuple(self.num_units, self.output_size)
        self.state_size = sizes if state_is_tuple else sum(sizes)
        self._declare_parameters(chosen("initializer", initializer, glorot_uniform))
        if input_size is not None:
            self.build(input_size)

    def extra_repr(self) -> str:
        """The size, the options that are not the default, and the size of the inputs once it is known."""
        usual = {"use_peepholes": False, "cell_clip": None, "num_proj": None, "proj_clip": None, "forget_bias": 1.0}
        options = shown_options(self, {**usual, "state_is_tuple": True})
        return ", ".join(filter(None, [str(self.num_units), options, self.shown_input_size()]))

    def _declare_parameters(self, initializer: Initializer) -> None:
        self.declare("kernel", initializer)
        self.declare("bias", zeros)
        if self.use_peepholes:
            for name in ("w_f_diag", "w_i_diag", "w_o_diag"):
                self.declare(name, initializer)
        if self.num_proj is not None:
            self.declare("projection.kernel", initializer)

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        shapes: dict[str, tuple[int, ...]] = {
            "kernel": (input_size + self.output_size, len(GATE_ORDER) * units),
            "bias": (len(GATE_ORDER) * units,),
        }
        if self.use_peepholes:
            shapes |= {"w_f_diag": (units,), "w_i_diag": (units,), "w_o_diag": (units,)}
        if self.num_proj is not None:
            shapes["projection.kernel"] = (units, self.num_proj)
        return shapes

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs fit the kernel, and the parts of the state fit the inputs."""
        check_inputs(inputs, self.kernel, self.output_size)
        self._open_state(inputs, state)

    def _open_state(self, inputs: Tensor, state: Any) -> tuple[Tensor, Tensor]:
        """The memory and the output in `state`, checked against `inputs`."""
        if isinstance(state, LSTMStateTuple) and self.state_is_tuple:
            c, h = state
        elif self.state_is_tuple:
            _pytree.check_nested(self.state_size, state, "`state`")
            c, h = _pytree.conform(self.state_size, state, "`state`")
        else:
            check_rows("state", state, self.state_size, inputs.shape[0])
            c, h = state.split([self.num_units, self.output_size], 1)
        check_rows("state.c", c, self.num_units, inputs.shape[0])
        check_rows("state.h", h, self.output_size, inputs.shape[0])
        check_state_fits(inputs, c)
        check_state_fits(inputs, h)
        return c, h

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, I] and the state -> output [B, P] and the next state."""
        check_inputs(inputs, self.kernel, self.output_size)
        c, h = self._open_state(inputs, state)
        i, j, f, o = torch.addmm(self.bias, torch.cat([inputs, h], 1), self.kernel).chunk(len(GATE_ORDER), 1)
        f = f + self.forget_bias
        if self.use_peepholes:
            f, i = f + self.w_f_diag * c, i + self.w_i_diag * c
        c = c * torch.sigmoid(f) + torch.sigmoid(i) * self.activation(j)
        if self.cell_clip is not None:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        if self.use_peepholes:
            o = o + self.w_o_diag * c
        h = torch.sigmoid(o) * self.activation(c)
        if self.num_proj is not None:
            h = h @ self.projection.kernel
            if self.proj_clip is not None:
                h = h.clamp(-self.proj_clip, self.proj_clip)
        # Typed as by default: with `state_is_tuple=False` it is one tensor.
        new: Any = LSTMStateTuple(c, h) if self.state_is_tuple else torch.cat([c, h], 1)
        return h, new


class BasicLSTMCell(LSTMCell):
    """The LSTM of Zaremba et al. (2014): `LSTMCell` without peepholes, clipping or projection.

    >>> import torch, throughtime as tt
    >>> output, state = tt.BasicLSTMCell(4)(torch.ones(2, 3), (torch.zeros(2, 4), torch.zeros(2, 4)))
    >>> type(state).__name__
    'LSTMStateTuple'
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | str | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(
            num_units,
            forget_bias=forget_bias,
            state_is_tuple=state_is_tuple,
            activation=activation,
            reuse=reuse,
            name=name,
            dtype=dtype,
            input_size=input_size,
        )
