"""LSTMs that walk along frequencies within each step: time-frequency and grid LSTMs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from throughtime import _pytree
from throughtime._errors import check_flag, check_number, check_positive_int, problem
from throughtime.cells._grid_state import grid_state_type
from throughtime.cells._parameters import (
    Initializer,
    check_parameters_fit,
    chosen,
    glorot_uniform,
    zeros,
)
from throughtime.cells._scope import ParameterScope
from throughtime.cells._vector_cell import VectorsCell


class TimeFreqLSTMCell(VectorsCell):
    """LSTM over time and frequency (Sainath and Li 2016): one LSTM slides over slices of the features.

    For every slice x_k of `feature_size` features, `frequency_skip` apart, from the lowest up:

    ```
    i, j, f, o = [x_k, m_k, m'_(k-1)] @ W_0 + B
    c'_k = sigmoid(f + forget_bias + W_F_diag * c_k) * c_k + sigmoid(i + W_I_diag * c_k) * tanh(j)
    m'_k = sigmoid(o + W_O_diag * c'_k) * tanh(c'_k)
    ```

    The output joins all m'_k, the state all (c'_k, m'_k): [B, K * H] and [B, K * 2H] for K slices. K follows from the
    input size, so `input_size` is needed before a state can be made; TensorFlow's `state_size` was that of one slice.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.TimeFreqLSTMCell(5, feature_size=2, frequency_skip=1, input_size=4)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 15])
    """

    input_kernel = "W_0"
    W_0: Tensor
    B: Tensor
    W_F_diag: Tensor
    W_I_diag: Tensor
    W_O_diag: Tensor

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int = 1,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        check_positive_int("num_unit_shards", num_unit_shards)
        self.input_size = check_positive_int("input_size", input_size)
        self.feature_size = check_positive_int("feature_size", feature_size)
        self.frequency_skip = check_positive_int("frequency_skip", frequency_skip)
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.cell_clip = None if cell_clip is None else check_number("cell_clip", cell_clip, minimum=0)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.slices = count_slices(self.input_size, self.feature_size, self.frequency_skip)
        self.state_size = 2 * self.num_units * self.slices
        self.output_size = self.num_units * self.slices
        initial = chosen("initializer", initializer, glorot_uniform)
        self.declare("W_0", initial)
        self.declare("B", zeros)
        for diagonal in ("W_F_diag", "W_I_diag", "W_O_diag") if self.use_peepholes else ():
            self.declare(diagonal, initial)
        self.build(input_size)

    def shown_input_size(self) -> str:
        """Known from the start."""
        return f"input_size={self.input_size}"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        units = self.num_units
        shapes: dict[str, tuple[int, ...]] = {"W_0": (self.feature_size + 2 * units, 4 * units), "B": (4 * units,)}
        if self.use_peepholes:
            shapes |= {"W_F_diag": (units,), "W_I_diag": (units,), "W_O_diag": (units,)}
        return shapes

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs are as wide as the cell was made for, and the state fits them."""
        check_width(inputs, self.input_size)
        check_parameters_fit(inputs, self._met_first())
        self._open_state(inputs, state)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` [B, I] and `state` [B, K * 2H] -> output [B, K * H] and the next state."""
        self.check_step(inputs, state)
        parts = state.chunk(2 * self.slices, 1)
        below = torch.zeros_like(parts[1])
        outputs, states = [], []
        for index in range(self.slices):
            start, c, m = index * self.frequency_skip, parts[2 * index], parts[2 * index + 1]
            joined = torch.cat([inputs[:, start : start + self.feature_size], m, below], 1)
            i, j, f, o = torch.addmm(self.B, joined, self.W_0).chunk(4, 1)
            f = f + self.forget_bias
            if self.use_peepholes:
                f, i = f + self.W_F_diag * c, i + self.W_I_diag * c
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
            if self.cell_clip is not None:
                c = c.clamp(-self.cell_clip, self.cell_clip)
            below = torch.sigmoid(o + self.W_O_diag * c if self.use_peepholes else o) * torch.tanh(c)
            outputs.append(below)
            states += [c, below]
        return torch.cat(outputs, 1), torch.cat(states, 1)


class _Sides(NamedTuple):
    """Memory and output of one place in the grid: coming along frequency, and along time."""

    c: Tensor
    m: Tensor


class GridLSTMCell(VectorsCell):
    """Grid LSTM (Kalchbrenner et al. 2016): at every slice of the features, one LSTM along time, one along frequency.

    For every slice x_k of a block, from the lowest up, with (c, m) from the step before and (c_f, m_f) from the slice
    below, and s one of time and frequency:

    ```
    i_s, j_s, f_s, o_s = [x_k, m, m_f] @ W_s + B_s
    c'_s = sigmoid(f_s + forget_bias) * (c or c_f) + sigmoid(i_s) * tanh(j_s)
    m'_s = sigmoid(o_s) * tanh(c'_s)
    ```

    With `use_peepholes` every gate also sees both memories, each through a diagonal; with
    `couple_input_forget_gates`, f = 1 - i. `share_time_frequency_weights` gives both the weights of frequency. Blocks
    are the features from `start_freqindex_list[b]` to `end_freqindex_list[b]` (one block is all of them), with
    weights of their own; `num_frequency_blocks[b]` says how many slices block b has. The output joins m'_time and
    m'_frequency of all slices. The state is a named tuple `state_f00_b00_c`, `state_f00_b00_m`, ... of vectors [B, H],
    or with `state_is_tuple=False` one tensor.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.GridLSTMCell(5, feature_size=2, frequency_skip=1, num_frequency_blocks=[3])
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 30])
    """

    input_kernel = "W_f_0"
    directions: tuple[str, ...] = ("",)
    """Prefixes of the names of states; those of parameters are without the end."""

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        share_time_frequency_weights: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int | None = None,
        num_frequency_blocks: Sequence[int] | None = None,
        start_freqindex_list: Sequence[int] | None = None,
        end_freqindex_list: Sequence[int] | None = None,
        couple_input_forget_gates: bool = False,
        state_is_tuple: bool = True,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        check_positive_int("num_unit_shards", num_unit_shards)
        self.feature_size = check_positive_int("feature_size", feature_size)
        self.frequency_skip = check_positive_int("frequency_skip", frequency_skip)
        self.use_peepholes = check_flag("use_peepholes", use_peepholes)
        self.share_time_frequency_weights = check_flag("share_time_frequency_weights", share_time_frequency_weights)
        self.couple_input_forget_gates = check_flag("couple_input_forget_gates", couple_input_forget_gates)
        self.state_is_tuple = check_flag("state_is_tuple", state_is_tuple)
        self.cell_clip = None if cell_clip is None else check_number("cell_clip", cell_clip, minimum=0)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.num_frequency_blocks = _check_blocks(num_frequency_blocks)
        self._starts = _check_features("start_freqindex_list", start_freqindex_list)
        self._ends = _check_features("end_freqindex_list", end_freqindex_list)
        self._check_edges()
        vectors = 2 * sum(self.num_frequency_blocks) * len(self.directions)
        self.output_size = vectors * self.num_units
        self.state_size = self.output_size
        if self.state_is_tuple:
            kind = grid_state_type(self.directions, tuple(self.num_frequency_blocks))
            self.state_size = kind(*[self.num_units] * vectors)
        initial = chosen("initializer", initializer, glorot_uniform)
        for path in self.parameter_shapes(0):
            self.declare(path, zeros if path.rpartition(".")[2].startswith("B_") else initial)
        self.build_if_known(input_size)

    @property
    def state_tuple_type(self) -> Any:
        """The type of the state; None if that is one tensor."""
        return type(self.state_size) if self.state_is_tuple else None

    def _check_edges(self) -> None:
        blocks, starts, ends = len(self.num_frequency_blocks), self._starts, self._ends
        counts = (1, 1) if starts is None and ends is None else (len(starts or ()), len(ends or ()))
        if counts != (blocks, blocks):
            what, fix = "the frequency blocks do not fit", "Pass a start and an end for each block."
            got = f"{blocks} blocks, {counts[0]} starts, {counts[1]} ends"
            raise ValueError(problem(what, got=got, expected="as many of each", fix=fix))

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        gates = 3 if self.couple_input_forget_gates else 4
        kinds = ["freq"] if self.share_time_frequency_weights else ["freq", "time"]
        shapes: dict[str, tuple[int, ...]] = {}
        for scope in (f"{direction.rstrip('_')}." if direction else "" for direction in self.directions):
            for block in range(len(self.num_frequency_blocks)):
                for kind in kinds:
                    rows = self.feature_size + 2 * self.num_units
                    shapes[f"{scope}W_{kind[0]}_{block}"] = (rows, gates * self.num_units)
                    shapes[f"{scope}B_{kind[0]}_{block}"] = (gates * self.num_units,)
                for name in _diagonals(kinds, self.couple_input_forget_gates) if self.use_peepholes else ():
                    shapes[f"{scope}{name}_{block}"] = (self.num_units,)
        return shapes

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs have the slices that the blocks need, and the state fits them."""
        check_width(inputs, None)
        for block in range(len(self.num_frequency_blocks)):
            self._check_block(block, inputs.shape[1])
        check_parameters_fit(inputs, self._met_first())
        self._open_state(inputs, state)

    def _check_block(self, block: int, width: int) -> None:
        start, end = self._edges(block, width)
        found = count_slices(end - start, self.feature_size, self.frequency_skip)
        if found != self.num_frequency_blocks[block] or end > width:
            what = "`num_frequency_blocks` does not fit the inputs"
            fix = "Check the input size, `feature_size` and `frequency_skip`."
            got = f"{found} slices in features {start} to {end} of {width}"
            raise ValueError(problem(what, got=got, expected=f"{self.num_frequency_blocks[block]} slices", fix=fix))

    def _edges(self, block: int, width: int) -> tuple[int, int]:
        return (0, width) if self._starts is None or self._ends is None else (self._starts[block], self._ends[block])

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """`inputs` [B, I] and the state -> the outputs of all slices and the next state."""
        self.check_step(inputs, state)
        states = iter(
            _pytree.flatten(state) if self.state_is_tuple else state.chunk(self.output_size // self.num_units, 1)
        )
        outputs: list[Tensor] = []
        next_states: list[Tensor] = []
        for direction in self.directions:
            scope = self.get_submodule(direction.rstrip("_")) if direction else self
            for block, slices in enumerate(self._slices(inputs, direction)):
                sides = [_Sides(next(states), next(states)) for _ in slices]
                for along_time, along_frequency in self._walk(scope, block, slices, sides):
                    outputs += [along_time.m, along_frequency.m]
                    next_states += along_time
        joined = torch.cat(outputs, 1)
        return joined, type(self.state_size)(*next_states) if self.state_is_tuple else torch.cat(next_states, 1)

    def _slices(self, inputs: Tensor, direction: str) -> list[list[Tensor]]:
        """The slices of every block, lowest first."""
        starts = [self._edges(block, inputs.shape[1])[0] for block in range(len(self.num_frequency_blocks))]
        return [
            [inputs[:, first : first + self.feature_size] for first in _firsts(start, count, self.frequency_skip)]
            for start, count in zip(starts, self.num_frequency_blocks, strict=True)
        ]

    def _walk(self, scope: Any, block: int, slices: list[Tensor], sides: list[_Sides]) -> list[tuple[_Sides, _Sides]]:
        """Along the slices of a block: for each, what comes out along time, and along frequency."""
        below = _Sides(torch.zeros_like(sides[0].c), torch.zeros_like(sides[0].m))
        found = []
        for piece, before in zip(slices, sides, strict=True):
            joined = torch.cat([piece, before.m, below.m], 1)
            along_frequency, along_time = self._cross(scope, block, joined, below, before)
            found.append((along_time, along_frequency))
            below = along_frequency
        return found

    def _cross(self, scope: Any, block: int, joined: Tensor, below: _Sides, before: _Sides) -> tuple[_Sides, _Sides]:
        """The two LSTMs at one slice: along frequency, and along time."""
        kinds = {"freq": below.c, "time": before.c}
        weights = {"freq": "freq", "time": "freq" if self.share_time_frequency_weights else "time"}

        def diagonal(gate: str, kind: str, c_frequency: Tensor, c_time: Tensor) -> Tensor | int:
            if not self.use_peepholes:
                return 0
            name = f"W_{gate}_diag_{weights[kind]}"
            from_frequency: Tensor = getattr(scope, f"{name}f_{block}") * c_frequency
            from_time: Tensor = getattr(scope, f"{name}t_{block}") * c_time
            return from_frequency + from_time

        memories, open_gates = {}, {}
        for kind, c in kinds.items():
            letter = weights[kind][0]
            gates = torch.addmm(getattr(scope, f"B_{letter}_{block}"), joined, getattr(scope, f"W_{letter}_{block}"))
            i, j, *forget, o = gates.split(self.num_units, 1)
            i = torch.sigmoid(i + diagonal("I", kind, below.c, before.c))
            f = 1 - i
            if forget:
                f = torch.sigmoid(forget[0] + self.forget_bias + diagonal("F", kind, below.c, before.c))
            memory = f * c + i * torch.tanh(j)
            memories[kind] = memory if self.cell_clip is None else memory.clamp(-self.cell_clip, self.cell_clip)
            open_gates[kind] = o
        c_frequency, c_time = memories["freq"], memories["time"]
        outputs = {
            kind: torch.sigmoid(o + diagonal("O", kind, c_frequency, c_time)) * torch.tanh(memories[kind])
            for kind, o in open_gates.items()
        }
        return _Sides(c_frequency, outputs["freq"]), _Sides(c_time, outputs["time"])


class BidirectionalGridLSTMCell(GridLSTMCell):
    """A grid LSTM up the frequencies and another one down, each with weights of its own (`fwd`, `bwd`).

    `backward_slice_offset` shifts the slices of the way down, so that the two look at different ones; what lies
    outside of the inputs is zero. The state is a named tuple, first the way up: `fwd_state_f00_b00_c`, ...

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.BidirectionalGridLSTMCell(5, feature_size=2, frequency_skip=1, num_frequency_blocks=[3])
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 4), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 60])
    """

    input_kernel = "fwd.W_f_0"
    directions = ("fwd_", "bwd_")
    fwd: ParameterScope
    bwd: ParameterScope

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        share_time_frequency_weights: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int | None = None,
        num_frequency_blocks: Sequence[int] | None = None,
        start_freqindex_list: Sequence[int] | None = None,
        end_freqindex_list: Sequence[int] | None = None,
        couple_input_forget_gates: bool = False,
        backward_slice_offset: int = 0,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
    ) -> None:
        super().__init__(
            num_units,
            use_peepholes,
            share_time_frequency_weights,
            cell_clip,
            initializer,
            num_unit_shards,
            forget_bias,
            feature_size,
            frequency_skip,
            num_frequency_blocks,
            start_freqindex_list,
            end_freqindex_list,
            couple_input_forget_gates,
            True,
            reuse,
            name,
            dtype,
            input_size=input_size,
        )
        if not math.isfinite(check_number("backward_slice_offset", backward_slice_offset)):
            what, fix = "`backward_slice_offset` is out of range", "Pass how many features to shift the slices by."
            raise ValueError(problem(what, got=backward_slice_offset, expected="a finite number", fix=fix))
        self.backward_slice_offset = int(backward_slice_offset)

    def _slices(self, inputs: Tensor, direction: str) -> list[list[Tensor]]:
        """The slices of every block in the order of a direction."""
        if direction == self.directions[0]:
            return super()._slices(inputs, direction)
        offset = self.backward_slice_offset
        shifted = functional.pad(inputs, (max(0, -offset), max(0, offset)))[:, max(0, offset) :]
        starts = [self._edges(block, inputs.shape[1])[0] for block in range(len(self.num_frequency_blocks))]
        return [
            [
                shifted[:, first : first + self.feature_size]
                for first in reversed(_firsts(start, count, self.frequency_skip))
            ]
            for start, count in zip(starts, self.num_frequency_blocks, strict=True)
        ]


def count_slices(width: int, feature_size: int, skip: int) -> int:
    """How many slices of `feature_size` features, `skip` apart, fit into the given number of features."""
    count = (width - feature_size) // skip + 1
    if count < 1:
        what, fix = "no slice fits into the features", "Pass a smaller `feature_size`."
        raise ValueError(problem(what, got=f"{width} features", expected=f"at least {feature_size}", fix=fix))
    return count


def check_width(inputs: Any, width: int | None) -> None:
    """Raise unless the inputs are [B, width] of floating point numbers."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 2 or not inputs.is_floating_point():
        fix = "Pass one row of features for each sequence."
        got = f"{tuple(inputs.shape)} of {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ValueError(problem("`inputs` are no rows of numbers", got=got, expected="[B, I]", fix=fix))
    if width is not None and inputs.shape[1] != width:
        fix = "Use one cell for each input width."
        what = "`inputs` have another width than the cell was made for"
        raise ValueError(problem(what, got=tuple(inputs.shape), expected=f"[B, {width}]", fix=fix))


def _firsts(start: int, count: int, skip: int) -> list[int]:
    return [start + index * skip for index in range(count)]


def _diagonals(kinds: list[str], coupled: bool) -> list[str]:
    return [f"W_{gate}_diag_{kind}{side}" for kind in kinds for gate in ("IO" if coupled else "FIO") for side in "ft"]


def _check_blocks(blocks: Any) -> list[int]:
    if not isinstance(blocks, tuple | list) or not blocks:
        expected, fix = "a list with the number of slices of each block", "Pass `[slices]` for one block."
        raise ValueError(problem("`num_frequency_blocks` must be given", got=repr(blocks), expected=expected, fix=fix))
    return [check_positive_int("num_frequency_blocks", count) for count in blocks]


def _check_features(name: str, features: Any) -> list[int] | None:
    if features is None:
        return None
    if not isinstance(features, Iterable) or isinstance(features, str):
        expected, fix = "a list with one feature for each block", "Pass `[feature]` for one block."
        raise TypeError(problem(f"`{name}` must be a list", got=repr(features), expected=expected, fix=fix))
    return [check_positive_int(name, feature, minimum=0) for feature in features]
