"""`LSTM`, `GRU` and `RNN` of `torch.nn`, run by our engine."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from throughtime._errors import check_flag, check_positive_int, problem, type_name
from throughtime._tensors import autocast_on
from throughtime._torch_internals import disable_dynamo, is_exporting, is_jit_tracing
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.nn._arguments import closed, data_of, lengths_of, opened, ranks_differ
from throughtime.nn._cells import STEPS, TorchCell
from throughtime.nn._dynamo_patch import let_in
from throughtime.nn._layers import State, through_layers
from throughtime.nn._overrides import argument_of, as_leaf, is_for_torch
from throughtime.runtime.backend_context import wanted_backend

Hidden = TypeVar("Hidden")
"""The state of a module: one tensor, or of an LSTM `(h, c)`."""


class DropIn(nn.RNNBase, Generic[Hidden]):
    """What ours have in common. They hold nothing: weights are lent to the engine for each call."""

    # `sequence_length` is no keyword-only argument: exporters pass all that a signature has by position.
    @overload
    def forward(
        self, input: Tensor, hx: Hidden | None = None, sequence_length: Any = None
    ) -> tuple[Tensor, Hidden]: ...
    @overload
    def forward(self, input: PackedSequence, hx: Hidden | None = None) -> tuple[PackedSequence, Hidden]: ...
    def forward(self, input: Any, hx: Any = None, sequence_length: Any = None) -> Any:  # noqa: A002 (torch's name)
        """Run all layers over `input`, from `hx`; with `sequence_length` [B] over that many steps of each sequence."""
        if isinstance(hx, LSTMStateTuple):
            # The cells' own tuple has the other order, and says so.
            hx = (hx.h, hx.c)
        values = (data_of(input), *(hx if isinstance(hx, tuple) else (hx,)))
        if is_for_torch(values, sequence_length):
            return self._forward_of_torch(input, hx, sequence_length, values)
        if ranks_differ(self, input, hx) or (sequence_length is None and _is_left_to_torch(data_of(input))):
            return super().forward(input, hx)
        lengths = lengths_of(self, input, sequence_length)
        if isinstance(input, PackedSequence) and torch.compiler.is_dynamo_compiling():
            return _forward_uncompiled(self, input, hx)
        weights = self._weights()
        if is_for_torch(tuple(weights), sequence_length):
            return super().forward(input, hx)
        inputs, states = opened(self, input, hx)
        device = data_of(input).device
        if autocast_on(device) and weights[0].dtype is not torch.float64:
            kind = device.type
            lowered = _lowered(torch.get_autocast_dtype(kind), weights, inputs, states)
            with torch.autocast(kind, enabled=False):
                outputs, final = through_layers(self, *lowered, lengths)
        else:
            outputs, final = through_layers(self, weights, inputs, states, lengths)
        return closed(self, outputs, final, batched=inputs is input)

    def _forward_of_torch(self, input: Any, hx: Any, lengths: Any, values: tuple[Any, ...]) -> Any:  # noqa: A002
        """The call for arguments that override what torch's functions do; `torch.fx` has one node for it."""
        proxy = argument_of(values)
        if proxy is not None and getattr(proxy.tracer, "root", None) is not self:
            return as_leaf(self, proxy, input, hx=hx, sequence_length=lengths)
        if proxy is None and lengths is not None:
            what, fix = (
                "`sequence_length` is for tensors",
                "Pass tensors, or leave it out: torch's own operator runs then.",
            )
            raise TypeError(problem(what, got=type_name(data_of(input)), expected="a torch.Tensor", fix=fix))
        return super().forward(input, hx)

    if TYPE_CHECKING:
        # As torch's `Module` declares it, a call returns anything.
        __call__ = forward

    def cell(self, layer: int = 0, *, reverse: bool = False) -> TorchCell:
        """One step of a layer as a cell, for `tt.explain`, `tt.dynamic_rnn` or a loop of your own.

        Its parameters are the module's own. The state is `h` [B, H], of an LSTM `(h, c)`.

        >>> import torch, throughtime as tt
        >>> gru = tt.nn.GRU(3, 4)
        >>> tt.explain(gru.cell(), torch.randn(5, 2, 3), time_major=True).backend
        'cpu'
        """
        layer = check_positive_int("layer", layer, minimum=0)
        directions = 2 if self.bidirectional else 1
        if layer >= self.num_layers or (check_flag("reverse", reverse) and directions == 1):
            got = f"layer {layer}{', reverse' if reverse else ''}"
            expected = f"one of {self.num_layers} layers, in {directions} direction(s)"
            fix = "Layers are counted from 0; the reverse direction is there with `bidirectional=True`."
            raise ValueError(problem("there is no such cell", got=got, expected=expected, fix=fix))
        weights, place = self._weights(), layer * directions + int(reverse)
        size = len(weights) // (self.num_layers * directions)
        return STEPS[self.mode](*weights[place * size : (place + 1) * size])

    def flatten_parameters(self) -> None:
        """Nothing to do: our kernels read weights where they are."""

    def _weights(self) -> list[Tensor]:
        """The weights as they are now, layer by layer; they may be computed, or replaced for this call alone."""
        own = self._parameters
        try:
            weights: list[Any] = [own[name] for name in self._flat_weights_names]
        except KeyError:
            return self._weights_of_torch()
        return weights if all(map(is_, weights, self._flat_weights)) else self._weights_of_torch()

    def _weights_of_torch(self) -> list[Tensor]:
        """The weights that torch's `forward` takes, where one is no parameter, or its list of them has others.

        To read a weight may change it: spectral norm runs an iteration. So each is read as often as torch reads it,
        which torch.compile cannot follow.
        """
        if torch.compiler.is_compiling():
            weights: list[Any] = [getattr(self, name) for name in self._flat_weights_names]
            # By this torch checks the dtype of inputs.
            if getattr(self._flat_weights[0], "dtype", None) is not weights[0].dtype:
                self._update_flat_weights()
            return weights
        self._update_flat_weights()
        return list(self._flat_weights)  # type: ignore[arg-type]

    def __prepare_scriptable__(self) -> Any:
        """Called by `torch.jit.script`, which would fail with a reason of its own."""
        what = "torch.jit.script does not take modules of throughtime.nn"
        name = f"torch.nn.{self.mode.partition('_')[0]}"
        fix = (
            f"Script the model before `tt.accelerate`, or script a {name} with the same `state_dict`; torch.export and "
            "torch.jit.trace take the module as it is."
        )
        raise RuntimeError(problem(what, got=type(self).__name__, expected=name, fix=fix))


let_in(DropIn)


@disable_dynamo
def _forward_uncompiled(module: DropIn[Any], packed: PackedSequence, hx: Any) -> Any:
    """How long packed sequences are torch.compile cannot see."""
    return module.forward(packed, hx)


def _is_left_to_torch(data: Tensor) -> bool:
    """Whether a program is being written down that must run without us, or there is no kernel for a device."""
    if torch.compiler.is_compiling():
        return is_exporting()
    if wanted_backend() != "auto":
        return False
    return is_jit_tracing() or data.device.type not in ("cpu", "cuda")


def _lowered(
    dtype: torch.dtype, weights: list[Tensor], inputs: Any, states: list[State] | None
) -> tuple[list[Tensor], Any, list[State] | None]:
    """Everything in the dtype of autocast: what torch does, on a GPU."""
    inputs = inputs._replace(data=inputs.data.to(dtype)) if isinstance(inputs, PackedSequence) else inputs.to(dtype)
    given = None if states is None else [tuple(leaf.to(dtype) for leaf in state) for state in states]
    return [weight.to(dtype) for weight in weights], inputs, given


class LSTM(DropIn[tuple[Tensor, Tensor]], nn.LSTM):
    """`torch.nn.LSTM` on our engine: the same constructor, parameters, `state_dict`, call and results.

    ```
    i, f, g, o = weight_ih @ x + bias_ih + weight_hh @ h + bias_hh
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h' = sigmoid(o) * tanh(c')            with proj_size: weight_hr @ h'
    ```

    `input` is [T, B, I], with `batch_first` [B, T, I], for one sequence [T, I], or a `PackedSequence`; `hx` is
    `(h_0, c_0)`, zeros if None. The result is `(output, (h_n, c_n))`. A keyword of ours: `sequence_length` [B], on any
    device, with lengths of padded sequences as in `tt.dynamic_rnn`; there outputs are zeros past the end, and the state
    is that of the last real step.

    >>> import torch, throughtime as tt
    >>> lstm = tt.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    >>> output, (h_n, c_n) = lstm(torch.randn(2, 5, 3), sequence_length=[5, 2])
    >>> output.shape, h_n.shape, output[1, 2:].any().item()
    (torch.Size([2, 5, 8]), torch.Size([4, 2, 4]), False)
    """


class GRU(DropIn[Tensor], nn.GRU):
    """`torch.nn.GRU` on our engine: the same constructor, parameters, `state_dict`, call and results.

    ```
    r = sigmoid(weight_ir @ x + bias_ir + weight_hr @ h + bias_hr)
    z = sigmoid(weight_iz @ x + bias_iz + weight_hz @ h + bias_hz)
    n = tanh(weight_in @ x + bias_in + r * (weight_hn @ h + bias_hn))
    h' = (1 - z) * n + z * h
    ```

    The gates lie in `weight_ih`, `weight_hh` and the biases in this order. `input` and `sequence_length` are those of
    `tt.nn.LSTM`; `hx` is `h_0`, zeros if None, and the result `(output, h_n)`.

    >>> import torch, throughtime as tt
    >>> theirs, ours = torch.nn.GRU(3, 4), tt.nn.GRU(3, 4)
    >>> ours.load_state_dict(theirs.state_dict())
    <All keys matched successfully>
    >>> x = torch.randn(5, 2, 3)
    >>> torch.allclose(ours(x)[0], theirs(x)[0], atol=1e-6)
    True
    """


class RNN(DropIn[Tensor], nn.RNN):
    """`torch.nn.RNN` on our engine: the same constructor, parameters, `state_dict`, call and results.

    ```
    h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)          with nonlinearity="relu": relu(...)
    ```

    `input` and `sequence_length` are those of `tt.nn.LSTM`; `hx` is `h_0`, zeros if None, and the result
    `(output, h_n)`. Not to be taken for `tt.RNN`, the module around a cell.

    >>> import torch, throughtime as tt
    >>> rnn = tt.nn.RNN(3, 4, nonlinearity="relu")
    >>> rnn, rnn(torch.randn(5, 3))[0].shape
    (RNN(3, 4), torch.Size([5, 4]))
    """
