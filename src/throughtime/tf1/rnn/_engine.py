"""The one place that calls the engine: a step function over captured tensors as a cell, unrolled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from throughtime.cells._base import RNNCell
from throughtime.runtime.explanation import Explanation
from throughtime.tf1.functions._func_graph import Function
from throughtime.tf1.graph._program import Program, compile_program
from throughtime.unroll._explain import explain
from throughtime.unroll._functional import functional_unroll
from throughtime.unroll._options import UnrollOptions

_OTHER_BATCH = 3


class StepCell(RNNCell):
    """A cell that is a step function and the tensors that it captures; `step_kind` makes its classes."""

    program: Program
    constants: tuple[torch.Tensor, ...]
    sizes: tuple[Any, Any]

    def __init__(self, *tensors: torch.Tensor):
        super().__init__(name="step")
        held: dict[str, Any] = {f"capture_{place}": tensor for place, tensor in enumerate(tensors)}
        # Past the checks of torch: a captured tensor is no parameter.
        self._parameters.update(held)
        self.state_size, self.output_size = self.sizes

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """One step."""
        leaves = [
            *(inputs if isinstance(inputs, tuple) else (inputs,)),
            *(state if isinstance(state, tuple) else (state,)),
        ]
        found = type(self).program.function(None, *self._parameters.values(), *leaves)
        outputs = _count(self.output_size)
        return _packed(found[:outputs]), _packed(found[outputs:])


def _count(size: Any) -> int:
    return len(size) if isinstance(size, tuple) and not isinstance(size, torch.Size) else 1


def _packed(leaves: Sequence[Any]) -> Any:
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def _row_size(sizes: Sequence[int | None]) -> Any:
    return sizes[0] if len(sizes) == 1 else torch.Size([size or 0 for size in sizes])


def step_kind(step: Function, output_count: int, name: str) -> type[StepCell]:
    """The class of cells that run `step`; its constants are tensors of the cell, which the engine must see."""
    constants = [op.outputs[0] for op in step.graph.get_operations() if op.type == "Const"]
    constants = [tensor for tensor in constants if tensor.dtype.is_floating]
    program = compile_program(step.outputs, [*step.inner, *constants, *step.arguments], step.targets)
    rows = [(tensor.shape.sizes or (None,))[1:] for tensor in step.outputs]
    outputs = _packed([_row_size(row) for row in rows[:output_count]])
    states = _packed([_row_size(row) for row in rows[output_count:]])
    values = tuple(tensor.op.attrs["value"] for tensor in constants)
    return type(name, (StepCell,), {"program": program, "constants": values, "sizes": (states, outputs)})


def _tensors(kind: type[StepCell], captures: Sequence[torch.Tensor], like: torch.Tensor) -> list[torch.Tensor]:
    """All tensors of the cell, on the device of its inputs."""
    if not kind.constants:
        return list(captures)
    if kind.constants[0].device != like.device:
        kind.constants = tuple(value.to(like.device) for value in kind.constants)
    return [*captures, *kind.constants]


def refusal(step: Function, output_count: int) -> str | None:
    """Why the engine cannot run a step; None if it can. Then a plain loop over whole batches does."""
    if step.stateful:
        return "the step reads or writes the session's state"
    if any(tensor.shape.sizes is None or None in tensor.shape.sizes[1:] for tensor in step.outputs):
        return "the sizes of its outputs are not known"
    leaves = step.arguments
    if any(not tensor.shape.sizes for tensor in leaves):
        return "a part of its inputs or state has no batch axis"
    if len(step.outputs) == output_count:
        return "it has no state"
    return _fixed_batch(step)


def _fixed_batch(step: Function) -> str | None:
    """Rows that have ended leave the batch: a step must take batches of any size."""
    for batch in (_OTHER_BATCH, _OTHER_BATCH + 2):
        arguments = [_blank(tensor, batch) for tensor in step.arguments]
        captures = [_blank(tensor, None) for tensor in step.inner]
        try:
            with torch.no_grad(), torch.device("meta"):
                found = step.program(None).function(None, *captures, *arguments)
        except Exception as error:
            return (
                f"the step needs the whole batch: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            )
        if any(one.ndim == 0 or one.shape[0] != batch for one in found):
            return "the step needs the whole batch: its outputs have another batch size than its inputs"
    return None


def rows_are_independent(step: Function, captures: Sequence[torch.Tensor]) -> bool:
    """Whether the first rows of a batch give the same without the last one; tried on random numbers."""
    program = step.program(captures[0].device if captures and captures[0].is_cuda else None)
    if program.random:
        return True
    generator = torch.Generator().manual_seed(0)
    device = captures[0].device if captures else torch.device("cpu")
    arguments = [_drawn(tensor, generator).to(device) for tensor in step.arguments]
    try:
        with torch.no_grad():
            every = program.function(None, *captures, *arguments)
            fewer = program.function(None, *captures, *[argument[:-1] for argument in arguments])
    except Exception:  # a kernel may raise anything
        return False
    return all(_close(one[:-1], other) for one, other in zip(every, fewer, strict=True))


def _drawn(tensor: Any, generator: torch.Generator) -> torch.Tensor:
    sizes = [_OTHER_BATCH, *(size or 1 for size in tensor.shape.sizes[1:])]
    dtype: torch.dtype = tensor.dtype.torch_dtype
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(sizes, generator=generator, dtype=torch.float64).to(dtype)
    return torch.zeros(sizes, dtype=dtype)


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def _blank(tensor: Any, batch: int | None) -> torch.Tensor:
    if batch is None and tensor.host is not None:
        value: torch.Tensor = tensor.host[0]
        return value
    sizes = [7 if size is None else size for size in tensor.shape.sizes or ()]
    if batch is not None:
        sizes[0] = batch
    return torch.empty(sizes, dtype=tensor.dtype.torch_dtype, device="meta")


def unroll(
    kind: type[StepCell],
    captures: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    lengths: torch.Tensor | None,
    state: Sequence[torch.Tensor] | None,
    dtype: torch.dtype | None,
    *,
    time_major: bool,
    reverse: bool,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The leaves of outputs and final state of `kind(*captures)` over `inputs`."""
    assert dtype is not None
    outputs, final = functional_unroll(
        kind,
        _tensors(kind, captures, inputs[0]),
        _packed(inputs),
        lengths,
        None if state is None else _packed(state),
        _options(dtype, time_major, reverse),
    )
    return [*(outputs if isinstance(outputs, tuple) else (outputs,))], [
        *(final if isinstance(final, tuple) else (final,))
    ]


@functools.lru_cache
def _options(dtype: torch.dtype, time_major: bool, reverse: bool) -> UnrollOptions:
    return UnrollOptions(dtype=dtype, time_major=time_major, reverse=reverse)


def explained(
    kind: type[StepCell],
    captures: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    lengths: torch.Tensor | None,
    state: Sequence[torch.Tensor] | None,
    dtype: torch.dtype,
    *,
    time_major: bool,
    reverse: bool,
) -> Explanation:
    """What the engine would do; the plan of both directions is the same."""
    del reverse
    first = None if state is None else _packed(state)
    return explain(kind(*_tensors(kind, captures, inputs[0])), _packed(inputs), lengths, first, dtype, time_major)
