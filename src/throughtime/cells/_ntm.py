"""A cell with a memory that it reads and writes by address."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime import _pytree
from throughtime._errors import check_device, check_floating_dtype, check_number, check_positive_int, problem, type_name
from throughtime._torch_internals import register_namedtuple
from throughtime.cells._base import RNNCell, check_cell, initial_state
from throughtime.cells._lazy_build import build_once, repeatable
from throughtime.cells._parameters import check_parameter_dtype, check_parameters_fit, glorot_uniform, input_width
from throughtime.cells._step_call import StepCall


class NTMControllerState(NamedTuple):
    """The state of a `NTMCell`: of its controller, what its heads read, where they look, and the memory."""

    controller_state: Any
    read_vector_list: Any
    w_list: Any
    M: Any


# Programs that torch.export saves may return one.
register_namedtuple(NTMControllerState, serialized_type_name="throughtime.NTMControllerState")


class NTMCell(StepCall):
    """Neural Turing machine (Graves et al. 2014): a controller with heads on a memory of N rows of D numbers.

    ```
    y, controller_state' = controller([x, reads], controller_state)
    k, beta, g, s, gamma = y @ parameters_kernel + parameters_bias      for each head, clipped and squashed
    w~ = g * softmax(beta * cosine(k, M)) + (1 - g) * w                 by content, or where it was
    w' = sharpened(shifted(w~, s), gamma)                               a little to the left or right, and sharper
    reads' = w' M;   M' = M * (1 - w' erase) + w' add
    output = [y, reads'] @ output_kernel + output_bias                  clipped
    ```

    N is `memory_size`, D `memory_vector_dim`; heads move by at most `shift_range` rows a step. What is learnt includes
    the first reads, the first addresses and the first memory, from which `zero_state` starts (TensorFlow started from
    zeros and a counter, in a state of another shape than its `state_size`). `output_dim` is the width of the output.
    With `write_head_num=0` the memory is only read, and is what was learnt at every step.

    >>> import torch, throughtime as tt
    >>> cell = tt.cells.NTMCell(tt.LSTMCell(8), 6, 4, read_head_num=1, write_head_num=1, output_dim=3)
    >>> tt.dynamic_rnn(cell, torch.ones(2, 7, 5), dtype=torch.float32)[0].shape
    torch.Size([2, 7, 3])
    """

    def __init__(
        self,
        controller: Any,
        memory_size: int,
        memory_vector_dim: int,
        read_head_num: int,
        write_head_num: int,
        shift_range: int = 1,
        output_dim: int | None = None,
        clip_value: float = 20,
        dtype: torch.dtype = torch.float32,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        check_cell("controller", controller)
        self.controller = controller
        self.memory_size = check_positive_int("memory_size", memory_size)
        self.memory_vector_dim = check_positive_int("memory_vector_dim", memory_vector_dim)
        self.read_head_num = check_positive_int("read_head_num", read_head_num)
        self.write_head_num = check_positive_int("write_head_num", write_head_num, minimum=0)
        self.shift_range = _check_shifts(shift_range, self.memory_size)
        self.output_size = check_positive_int("output_dim", output_dim)
        self.clip_value = check_number("clip_value", clip_value, minimum=0)
        self.heads = self.read_head_num + self.write_head_num
        self.state_size = NTMControllerState(
            controller.state_size,
            [self.memory_vector_dim] * self.read_head_num,
            [self.memory_size] * self.heads,
            torch.Size((self.memory_size, self.memory_vector_dim)),
        )
        self._make_parameters(check_parameter_dtype(dtype) or torch.float32)

    def _make_parameters(self, dtype: torch.dtype) -> None:
        """Nothing here depends on the inputs, and the first state depends on some of it."""
        outputs, rows, width = self.controller.output_size, self.memory_size, self.memory_vector_dim
        # For each head a key, three numbers and the shifts; for each one that writes, what to erase and what to add.
        self._sizes = [width, 1, 1, 2 * self.shift_range + 1, 1]
        numbers = sum(self._sizes) * self.heads + 2 * width * self.write_head_num

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(shape, dtype=dtype))

        self.parameters_kernel, self.parameters_bias = new(outputs, numbers), new(numbers)
        joined = outputs + width * self.read_head_num
        self.output_kernel, self.output_bias = new(joined, self.output_size), new(self.output_size)
        for kernel in (self.parameters_kernel, self.output_kernel):
            spread = kernel.shape[0] ** -0.5
            nn.init.trunc_normal_(kernel, std=spread, a=-2 * spread, b=2 * spread)
        for name, count, size in (("read_vector", self.read_head_num, width), ("address_weights", self.heads, rows)):
            for head in range(count):
                first = new(1, size)
                glorot_uniform(first.data)
                self.register_parameter(f"initial_{name}_{head}", first)
        self.memory = nn.Parameter(torch.full((rows, width), 1e-6, dtype=dtype))

    def extra_repr(self) -> str:
        """The memory and the heads."""
        return f"{self.memory_size} x {self.memory_vector_dim}, {self.read_head_num} + {self.write_head_num} heads"

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Build the controller, which sees what was read beside the inputs."""
        if isinstance(self.controller, RNNCell):
            width = input_width(inputs_shape) + self.memory_vector_dim * self.read_head_num
            build_once(self.controller, (None, width), dtype, device)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> NTMControllerState:
        """The first reads, addresses and memory, as they were learnt."""
        batch_size = check_positive_int("batch_size", batch_size, minimum=0)
        fix = "Ask for a floating point `dtype`: what was learnt is of such numbers."
        dtype = check_floating_dtype("dtype", dtype, "states", fix)
        device = None if device is None else check_device("device", device)
        # As everywhere: a user's cell may have `get_initial_state` alone, which knows of no device.
        inner = (
            initial_state(self.controller, batch_size, dtype)
            if device is None
            else self.controller.zero_state(batch_size, dtype, device=device)
        )

        def for_all_rows(first: Tensor) -> Tensor:
            return first.to(dtype=dtype, device=device).expand(batch_size, *first.shape[1:])

        reads = [getattr(self, f"initial_read_vector_{head}") for head in range(self.read_head_num)]
        places = [getattr(self, f"initial_address_weights_{head}") for head in range(self.heads)]
        return NTMControllerState(
            inner,
            [for_all_rows(torch.tanh(first)) for first in reads],
            [for_all_rows(torch.softmax(first, 1)) for first in places],
            for_all_rows(self.memory.unsqueeze(0)),
        )

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs are rows of numbers, and the state has its four parts."""
        if not isinstance(inputs, Tensor) or inputs.ndim != 2:
            fix = "Pass one row of features for each sequence."
            what = "`inputs` of one step have the wrong rank"
            raise ValueError(problem(what, got=type_name(inputs), expected="[B, I]", fix=fix))
        check_parameters_fit(inputs, self.memory)
        _pytree.check_nested(self.state_size, state, "`state`")

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, NTMControllerState]:
        """`inputs` [B, I] and the state -> output [B, output_dim] and the next state."""
        self.check_step(inputs, state)
        controller_state, reads, places, memory = _pytree.conform(self.state_size, state, "`state`")
        y, controller_state = self.controller(torch.cat([inputs, *reads], 1), controller_state)
        numbers = torch.addmm(self.parameters_bias, y, self.parameters_kernel).clamp(-self.clip_value, self.clip_value)
        heads, writing = numbers.split(
            [sum(self._sizes) * self.heads, 2 * self.memory_vector_dim * self.write_head_num], 1
        )
        places = [
            self._address(head, memory, place) for head, place in zip(heads.chunk(self.heads, 1), places, strict=True)
        ]
        reads = [(place.unsqueeze(2) * memory).sum(1) for place in places[: self.read_head_num]]
        changes = writing.split([self.memory_vector_dim] * (2 * self.write_head_num), 1)
        for place, erase, add in zip(places[self.read_head_num :], changes[::2], changes[1::2], strict=True):
            where = place.unsqueeze(2)
            memory = memory * (1 - where * torch.sigmoid(erase).unsqueeze(1)) + where * torch.tanh(add).unsqueeze(1)
        output = torch.addmm(self.output_bias, torch.cat([y, *reads], 1), self.output_kernel)
        output = output.clamp(-self.clip_value, self.clip_value)
        return output, NTMControllerState(controller_state, reads, places, memory)

    def _address(self, head: Tensor, memory: Tensor, before: Tensor) -> Tensor:
        """Where a head looks [B, N]."""
        k, beta, g, s, gamma = head.split(self._sizes, 1)
        k, g = torch.tanh(k), torch.sigmoid(g)
        lengths = memory.square().sum(2).sqrt() * k.square().sum(1, keepdim=True).sqrt()
        likeness = (memory * k.unsqueeze(1)).sum(2) / (lengths + 1e-8)
        place = g * torch.softmax(functional.softplus(beta) * likeness, 1) + (1 - g) * before
        shifted = _shifted(place, torch.softmax(s, 1), self.shift_range)
        sharpened = shifted ** (functional.softplus(gamma) + 1)
        return sharpened / sharpened.sum(1, keepdim=True)


def _shifted(place: Tensor, shifts: Tensor, reach: int) -> Tensor:
    """`place` moved around the memory by 0, 1 .. reach, -reach .. -1 rows, each as much as `shifts` says."""
    moved = shifts[:, :1] * place
    for distance in range(1, reach + 1):
        ahead = torch.cat([place[:, -distance:], place[:, :-distance]], 1)
        back = torch.cat([place[:, distance:], place[:, :distance]], 1)
        end = shifts.shape[1] - distance
        moved = moved + shifts[:, distance : distance + 1] * ahead + shifts[:, end : end + 1] * back
    return moved


def _check_shifts(shift_range: Any, rows: int) -> int:
    reach = check_positive_int("shift_range", shift_range, minimum=0)
    if 2 * reach + 1 > rows:
        what, fix = "heads would move further than around the memory", "Pass a smaller `shift_range`."
        raise ValueError(problem(what, got=f"shift_range={reach}", expected=f"at most {(rows - 1) // 2}", fix=fix))
    return reach
