"""LSTMs over pictures: the products are convolutions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime import _pytree
from throughtime._errors import check_flag, check_number, check_positive_int, problem, shape_of, type_name
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.cells._parameters import Initializer, LazyCell, check_parameters_fit, check_state_fits, chosen, zeros

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def _glorot_uniform_of_filters(tensor: Tensor) -> None:
    """Glorot's limits for a kernel [*window, in, out], as TensorFlow has them."""
    *window, ins, outs = tensor.shape
    limit = math.sqrt(6 / max(1, math.prod(window) * (ins + outs)))
    nn.init.uniform_(tensor, -limit, limit)


class ConvLSTMCell(LazyCell):
    """Convolutional LSTM (Shi et al. 2015): rows are pictures, and units see their neighbourhood.

    ```
    i, j, f, o = convolve([x, h], kernel) + biases
    c' = sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(j)
    h' = tanh(c') * sigmoid(o)
    ```

    `input_shape` is that of one row, channels last, as `(height, width, channels)` for `conv_ndims=2`; edges are
    padded with zeros so that the size stays. `kernel` is `[*kernel_shape, in + out, 4 * out]`. With
    `skip_connection`, the output is `[h', x]`; the state is h' alone, where TensorFlow put both and contradicted its
    own state size. `initializers`, which TensorFlow ignored, fills the kernel.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.ConvLSTMCell(2, input_shape=(6, 5, 3), output_channels=4, kernel_shape=(3, 3))
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 6, 5, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 6, 5, 4])
    """

    kernel: Tensor
    biases: Tensor

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Initializer | None = None,
        name: str | None = "conv_lstm_cell",
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(name, dtype, None)
        self.conv_ndims = _check_ndims(conv_ndims)
        self.input_shape = _check_sizes("input_shape", input_shape, self.conv_ndims + 1)
        self.kernel_shape = _check_sizes("kernel_shape", kernel_shape, self.conv_ndims)
        self.output_channels = check_positive_int("output_channels", output_channels)
        self.use_bias = check_flag("use_bias", use_bias)
        self.skip_connection = check_flag("skip_connection", skip_connection)
        self.forget_bias = check_number("forget_bias", forget_bias)
        *size, channels = self.input_shape
        of_state = torch.Size((*size, self.output_channels))
        self.state_size = LSTMStateTuple(of_state, of_state)
        self.output_size = torch.Size((*size, self.output_channels + channels)) if skip_connection else of_state
        self.declare("kernel", chosen("initializers", initializers, _glorot_uniform_of_filters))
        if self.use_bias:
            self.declare("biases", zeros)

    def extra_repr(self) -> str:
        """The shapes, as they were given."""
        return f"{self.input_shape}, {self.output_channels}, {self.kernel_shape}"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        channels = self.input_shape[-1] + self.output_channels
        shapes: dict[str, tuple[int, ...]] = {"kernel": (*self.kernel_shape, channels, 4 * self.output_channels)}
        if self.use_bias:
            shapes["biases"] = (4 * self.output_channels,)
        return shapes

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs are rows of `input_shape`, and the state is of the cell's size and of their dtype."""
        fix = "Channels come last; make a state with `cell.zero_state(batch_size, dtype)`."
        _pytree.check_nested(self.state_size, state, "`state`")
        c, h = _pytree.conform(self.state_size, state, "`state`")
        sizes = {"inputs": self.input_shape, "state.c": tuple(self.state_size.c), "state.h": tuple(self.state_size.h)}
        for (name, size), tensor in zip(sizes.items(), (inputs, c, h), strict=True):
            if not isinstance(tensor, Tensor):
                raise TypeError(problem(f"`{name}` must be a tensor", got=type_name(tensor), expected=size, fix=fix))
            if shape_of(tensor)[1:] != tuple(size):
                expected = f"[B, {', '.join(map(str, size))}]"
                what = f"`{name}` has the wrong shape"
                raise ValueError(problem(what, got=shape_of(tensor), expected=expected, fix=fix))
        check_state_fits(inputs, c)
        check_state_fits(inputs, h)
        check_parameters_fit(inputs, self.kernel)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        """`inputs` [B, *input_shape] and the state -> output and the next state."""
        self.check_step(inputs, state)
        c, h = state
        i, j, f, o = self._convolved(torch.cat([inputs, h], -1)).chunk(4, -1)
        c = torch.sigmoid(f + self.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        h = torch.tanh(c) * torch.sigmoid(o)
        return torch.cat([h, inputs], -1) if self.skip_connection else h, LSTMStateTuple(c, h)

    def _convolved(self, pictures: Tensor) -> Tensor:
        """Pictures [B, ..., in] -> [B, ..., 4 * out]; torch wants channels first, and filters [out, in, *window]."""
        filters = self.kernel.movedim((-1, -2), (0, 1))
        # Where a window has no middle, TensorFlow pads one more at the end.
        edges = [((size - 1) // 2, size // 2) for size in reversed(self.kernel_shape)]
        padded = functional.pad(pictures.movedim(-1, 1), [side for edge in edges for side in edge])
        biases = self.biases if self.use_bias else None
        return _CONVOLUTIONS[self.conv_ndims](padded, filters, biases).movedim(1, -1)


class Conv1DLSTMCell(ConvLSTMCell):
    """`ConvLSTMCell` over rows of shape `(length, channels)`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.Conv1DLSTMCell(input_shape=(6, 3), output_channels=4, kernel_shape=(3,))
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 6, 3), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 6, 4])
    """

    def __init__(
        self,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Initializer | None = None,
        name: str | None = "conv_1d_lstm_cell",
    ) -> None:
        super().__init__(
            1, input_shape, output_channels, kernel_shape, use_bias, skip_connection, forget_bias, initializers, name
        )


class Conv2DLSTMCell(ConvLSTMCell):
    """`ConvLSTMCell` over rows of shape `(height, width, channels)`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.Conv2DLSTMCell(input_shape=(6, 5, 3), output_channels=4, kernel_shape=(3, 3))
    >>> cell.output_size
    torch.Size([6, 5, 4])
    """

    def __init__(
        self,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Initializer | None = None,
        name: str | None = "conv_2d_lstm_cell",
    ) -> None:
        super().__init__(
            2, input_shape, output_channels, kernel_shape, use_bias, skip_connection, forget_bias, initializers, name
        )


class Conv3DLSTMCell(ConvLSTMCell):
    """`ConvLSTMCell` over rows of shape `(depth, height, width, channels)`.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.Conv3DLSTMCell(input_shape=(2, 6, 5, 3), output_channels=4, kernel_shape=(1, 3, 3))
    >>> cell.output_size
    torch.Size([2, 6, 5, 4])
    """

    def __init__(
        self,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Initializer | None = None,
        name: str | None = "conv_3d_lstm_cell",
    ) -> None:
        super().__init__(
            3, input_shape, output_channels, kernel_shape, use_bias, skip_connection, forget_bias, initializers, name
        )


def _check_ndims(conv_ndims: Any) -> int:
    if check_positive_int("conv_ndims", conv_ndims) not in _CONVOLUTIONS:
        fix = "Count the dimensions of a picture without its channels."
        raise ValueError(problem("`conv_ndims` is out of range", got=conv_ndims, expected="1, 2 or 3", fix=fix))
    return int(conv_ndims)


def _check_sizes(name: str, sizes: Any, count: int) -> tuple[int, ...]:
    if not isinstance(sizes, tuple | list) or len(sizes) != count:
        expected, fix = f"{count} sizes", "Channels come last in `input_shape`; `kernel_shape` has none."
        raise ValueError(problem(f"`{name}` does not fit `conv_ndims`", got=repr(sizes), expected=expected, fix=fix))
    return tuple(check_positive_int(name, size) for size in sizes)
