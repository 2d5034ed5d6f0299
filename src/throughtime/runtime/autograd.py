"""A compiled unroll as one differentiable operation.

`forward_rows` and `backward_rows` are the two passes on packed rows. `run` makes them one autograd function; the custom
operator of torch.compile (`unroll/torch_compile/_custom_op.py`) calls them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime._active_modes import is_batched
from throughtime._errors import problem
from throughtime._torch_internals import has_saved_tensor_hooks, keeps_graph
from throughtime.backends.loop_backend import BoundCall, Cotangents, Gradients
from throughtime.backends.torch_codegen import Env
from throughtime.cells._cell_types import CellLike
from throughtime.compiler import CellFingerprint, CellRerun, GuardCache, Program
from throughtime.layout.pack import Packing
from throughtime.layout.step_layout import StepLayout
from throughtime.runtime.donation import DonationLock
from throughtime.runtime.forward import Executable, step_by_step
from throughtime.runtime.offload.plan import OffloadedChunks
from throughtime.runtime.rng import RngState


class UnrollCall(NamedTuple):
    """The arguments of an unroll besides tensors.

    `drawn` are the random numbers of the whole sequence. Sections outside the loop run on `chunk` steps at a time (None
    for all); with `swap` saved values are offloaded to the host. With `bound` the forward pass is one kernel call.
    `zero_start`: the initial state is zeros made for this call, so it need not be packed.
    """

    executable: Executable
    steps: StepLayout
    packing: Packing
    noise: RngState
    drawn: Env
    chunk: int | None = None
    swap: bool = False
    bound: BoundCall | None = None
    zero_start: bool = False


def run(
    call: UnrollCall, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs, in the form of the inputs, and the final state [B, ...]."""
    if call.executable.program.adjoint is None:
        with torch.no_grad():
            rows, start = call.packing.pack(inputs, state)
            outputs, final, _ = forward_rows(call, tensors, rows, start)
            own = without_aliases([*outputs, *final], [*tensors, *inputs, *state])
            return call.packing.unpack(own[: len(outputs)], own[len(outputs) :])
    results = _Unroll.apply(  # type: ignore[no-untyped-call]
        call, len(tensors), len(inputs), *tensors, *inputs, *state
    )
    count = len(call.executable.program.outputs)
    return list(results[:count]), list(results[count:])


def forward_rows(
    call: UnrollCall,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    state: Sequence[Tensor],
    offloaded: OffloadedChunks | None = None,
) -> tuple[list[Tensor], list[Tensor], Env]:
    """The forward pass on packed rows: outputs [N, ...], the final state, and the saved values."""
    env = environment(call, tensors, rows)
    return call.executable.forward(env, state, call.steps, call.noise.generator, call.chunk, offloaded)


def backward_rows(
    call: UnrollCall,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    saved: Sequence[Tensor],
    cotangents: Cotangents,
    offloaded: OffloadedChunks | None = None,
) -> Gradients:
    """The backward pass on packed rows; `saved` are the values of the forward pass, in the order of the executable."""
    bound = None if call.bound is None else call.bound.backward(tensors, cotangents.required)
    if bound is not None:
        return bound.run(tensors, rows, saved, cotangents, call.steps)
    backward, env = call.executable.backward, environment(call, tensors, rows)
    assert backward is not None
    if offloaded is None:
        env.update(zip(backward.kept, saved, strict=True))
        return backward.run(env, cotangents, call.steps, call.chunk)
    resident = offloaded.keeping.stays
    env.update(zip(resident, saved[: len(resident)], strict=True))
    with offloaded.returned(saved[len(resident) :]) as returned:
        return backward.run(env, cotangents._replace(donate=None), call.steps, call.chunk, returned)


def environment(call: UnrollCall, tensors: Sequence[Tensor], rows: Sequence[Tensor]) -> Env:
    """The values that a program starts from: the cell's tensors, the inputs, literals, random numbers."""
    program = call.executable.program
    env = dict(zip(program.tensors, tensors, strict=True))
    env.update(zip(program.inputs, rows, strict=True))
    env.update(program.literals)
    env.update(call.drawn)
    return env


class _Unroll(torch.autograd.Function):
    """The forward pass, and the backward pass as its gradient."""

    @staticmethod
    def forward(ctx: Any, call: UnrollCall, tensor_count: int, input_count: int, *leaves: Tensor) -> tuple[Tensor, ...]:
        split, executable = tensor_count + input_count, call.executable
        results, saved, offloaded = _forward(call, leaves, tensor_count, split)
        ctx.call, ctx.tensor_count, ctx.split, ctx.offloaded = call, tensor_count, split, offloaded
        # Tensors that saved-tensor hooks return belong to the hooks.
        has_hooks = has_saved_tensor_hooks()
        assert executable.backward is not None
        ctx.donation, ctx.may_donate = DonationLock(), bool(executable.backward.overwritten) and not has_hooks
        # Autograd frees saved tensors when the graph does not need them any more.
        ctx.save_for_backward(*leaves, *saved)
        ctx.set_materialize_grads(False)
        # A backward pass that calls the cell again must find it unchanged.
        ctx.structure = None if executable.program.replay is None else _structure_of(call.noise.cell)
        if executable.constant:
            ctx.mark_non_differentiable(*[results[place] for place in executable.constant])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        call: UnrollCall = ctx.call
        needed = ctx.needs_input_grad[3:]
        try:
            saved = ctx.saved_tensors
        except RuntimeError:
            saved = _recompute_saved(ctx, len(needed))
        leaves = saved[: len(needed)]
        tensors = leaves[: ctx.tensor_count]
        _check_unchanged(call.executable.program, tensors)
        if torch.is_grad_enabled() or any(map(is_batched, gradients)):
            _check_same_cell(call.noise.cell, ctx.structure)
            return (None, None, None, *_differentiably(call, leaves, ctx.tensor_count, ctx.split, needed, gradients))
        rows, initial, saved = _packed_as_saved(
            call, leaves[ctx.tensor_count : ctx.split], leaves[ctx.split :], saved[len(needed) :]
        )
        count = len(call.executable.program.outputs)
        outputs, state = call.packing.pack(gradients[:count], gradients[count:])
        # Called when the loop is about to write: a pass that fails before that can be repeated.
        is_last = not keeps_graph()
        donate = ctx.donation.take if ctx.may_donate and is_last else None
        cotangents = Cotangents(initial, outputs, state, tuple(needed[: ctx.split]), donate)
        with ctx.donation:
            found, states = backward_rows(call, tensors, rows, saved, cotangents, ctx.offloaded)
        of_tensors, of_inputs = found[: ctx.tensor_count], _own(found[ctx.tensor_count :], gradients)
        of_state = [state if need else None for state, need in zip(states, needed[ctx.split :], strict=True)]
        of_inputs, of_state = call.packing.unpack(of_inputs, of_state)
        return (None, None, None, *of_tensors, *of_inputs, *of_state)


def _forward(
    call: UnrollCall, leaves: Sequence[Tensor], tensor_count: int, split: int
) -> tuple[tuple[Tensor, ...], Iterable[Tensor], OffloadedChunks | None]:
    """Outputs and final state; the tensors to save besides the leaves; the plan of those that are offloaded."""
    tensors, inputs, start = leaves[:tensor_count], leaves[tensor_count:split], leaves[split:]
    executable, packing = call.executable, call.packing
    if call.bound is not None:
        return _forward_bound(call, call.bound, tensors, inputs, start)
    rows, state = packing.pack(inputs, start)
    offloaded = executable.keeping.plan(call.steps, call.chunk, start[0].device) if call.swap else None
    outputs, final, found = forward_rows(call, tensors, rows, state, offloaded)
    own = without_aliases([*outputs, *final], [*leaves, *rows])
    outputs, final = packing.unpack(own[: len(outputs)], own[len(outputs) :])
    if packing.leading is not None and offloaded is None:
        # Outputs are saved with the axes that they are returned with, because the kernel of a bound call writes them
        # that way: torch's checkpoint requires every call to save tensors of the same shapes.
        returned = zip(executable.program.outputs, outputs, strict=True)
        found.update((value, leaf) for value, leaf in returned if value in found)
    packed = (*rows, *state) if packing.copies else ()
    saved = found.values() if offloaded is None else (*found.values(), *offloaded.take())
    return (*outputs, *final), (*packed, *saved), offloaded


def _forward_bound(
    call: UnrollCall, bound: BoundCall, tensors: Sequence[Tensor], inputs: Sequence[Tensor], start: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], Iterable[Tensor], None]:
    """The same by one kernel call, which reads and writes sequences of one length in place."""
    packing = call.packing
    if not packing.copies:
        final = [leaf.clone(memory_format=torch.contiguous_format) for leaf in start]
        outputs, saved = bound.launch(tensors, inputs, final, call.steps, packing.leading)
        return (*outputs, *final), saved, None
    rows, state = packing.pack(inputs, () if call.zero_start else start)
    state = list(start) if call.zero_start else state
    final = [leaf.clone(memory_format=torch.contiguous_format) for leaf in state]
    outputs, saved = bound.launch(tensors, rows, final, call.steps, None)
    outputs, final = packing.unpack(outputs, final)
    return (*outputs, *final), (*rows, *state, *saved), None


def _packed_as_saved(
    call: UnrollCall, inputs: Sequence[Tensor], initial: Sequence[Tensor], saved: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
    """The rows of the inputs, the initial state in the order of the loop, and the other saved values."""
    packing = call.packing
    if packing.copies:
        first, second = len(inputs), len(inputs) + len(initial)
        return saved[:first], saved[first:second], saved[second:]
    if packing.leading is not None:
        # Outputs are saved with the axes that they were returned with.
        pairs = zip(saved, call.executable.kept, strict=True)
        saved = [leaf.flatten(0, 1) if leaf.ndim > len(value.shape) else leaf for leaf, value in pairs]
        return [leaf.flatten(0, 1) for leaf in inputs], initial, saved
    return inputs, initial, saved


def _recompute_saved(ctx: Any, count: int) -> tuple[Tensor, ...]:
    """The saved tensors, computed again because an output was changed in place, as by `outputs.relu_()`.

    The kernels save outputs that are returned to the caller; a copy of each would slow every call. A changed leaf is
    the caller's error, which `unpack` raises.
    """
    leaves = [saved.unpack() for saved in ctx._raw_saved_tensors[:count]]
    call: UnrollCall = ctx.call
    with torch.no_grad(), call.noise.again():
        _, saved, ctx.offloaded = _forward(call, leaves, ctx.tensor_count, ctx.split)
    return (*leaves, *saved)


def _check_unchanged(program: Program, tensors: Sequence[Tensor]) -> None:
    """Raise if a tensor of the cell was replaced since the forward pass: autograd only notices writes into it."""
    for value, tensor in zip(program.tensors, tensors, strict=True):
        if tensor.dtype is not value.dtype or tensor.shape != value.shape:
            what = f"`{value.name}` is not what it was in the forward pass"
            expected = f"{list(value.shape)} {value.dtype}"
            fix = "Compute gradients before the cell is converted, or run it forward again."
            raise RuntimeError(problem(what, got=f"{list(tensor.shape)} {tensor.dtype}", expected=expected, fix=fix))


def _check_same_cell(cell: CellLike, structure: Any) -> None:
    """Raise if the options of a cell that is to be called again have changed since its forward pass."""
    if structure is not None and _structure_of(cell) != structure:
        what = f"the cell {type(cell).__name__} is not what it was in the forward pass"
        fix = "Compute gradients before anything about it is changed, or run it forward again."
        raise RuntimeError(problem(what, got="other options, or another mode", expected="the same cell", fix=fix))


def _structure_of(cell: CellLike) -> Any:
    """The fingerprint of a cell without its tensors; the fast guard check usually has it."""
    guards = GuardCache.last(cell) if isinstance(cell, nn.Module) else None
    return CellFingerprint(cell).structure if guards is None else guards.fingerprint.structure


def _own(found: Sequence[Tensor | None], given: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients with memory of their own: one that was passed through belongs to the caller."""
    given_storages = {tensor.untyped_storage().data_ptr() for tensor in given if tensor is not None}
    return [
        leaf.clone() if leaf is not None and leaf.untyped_storage().data_ptr() in given_storages else leaf
        for leaf in found
    ]


def without_aliases(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    """Contiguous results that share no memory with each other or with the arguments: the caller may change them."""
    seen = {tensor.untyped_storage().data_ptr() for tensor in arguments}
    own = []
    for result in results:
        shared = result.untyped_storage().data_ptr() in seen and result.numel()
        own.append(result.clone(memory_format=torch.contiguous_format) if shared else result.contiguous())
        seen.add(own[-1].untyped_storage().data_ptr())
    return own


def _by_the_cell(
    call: UnrollCall, replay: CellRerun, tensors: Sequence[Tensor], rows: Sequence[Tensor], state: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The forward pass by calling the cell at every step: it detaches something, or has a custom backward."""
    if call.executable.is_random or call.executable.program.random.nodes:
        what = "gradients cannot be differentiated of a cell that detaches something and draws random numbers"
        fix = 'Run it step by step, with `tt.backend("reference")`.'
        got = f"create_graph=True or is_grads_batched=True for {type(call.noise.cell).__name__}"
        raise RuntimeError(problem(what, got=got, expected="one of both", fix=fix))
    step, steps = replay.begin(call.noise.cell, tensors), call.steps
    by_step = [steps.split(leaf) for leaf in rows]

    def run(number: int, current: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return step([parts[number] for parts in by_step], current)

    outputs, final = step_by_step(run, state, steps)
    order = steps.by_step(final[0].device)
    return [torch.cat(parts)[order] for parts in outputs], final


def _differentiably(
    call: UnrollCall,
    leaves: Sequence[Tensor],
    tensor_count: int,
    split: int,
    needed: Sequence[bool],
    gradients: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients in torch operations, for second derivatives and batched gradients: the forward pass is recomputed."""
    with torch.enable_grad(), call.noise.again():
        # Leaves may depend on each other, as a state on the weights; these gradients are those of this unroll alone.
        # A leaf that was frozen since the forward pass still has a gradient.
        frozen = [need and not leaf.requires_grad for leaf, need in zip(leaves, needed, strict=True)]
        pairs = zip(leaves, frozen, strict=True)
        own = [leaf.detach().requires_grad_() if is_frozen else leaf.view_as(leaf) for leaf, is_frozen in pairs]
        rows, state = call.packing.pack(own[tensor_count:split], own[split:])
        state = [call.steps.sorted(leaf) for leaf in state]
        if call.executable.program.replay is not None:
            outputs, final = _by_the_cell(call, call.executable.program.replay, own[:tensor_count], rows, state)
        else:
            env = environment(call, own[:tensor_count], rows)
            # The program contains the casts of autocast.
            with torch.autocast(rows[0].device.type, enabled=False):
                outputs, final = call.executable.differentiable(env, state, call.steps, call.noise.generator)
        outputs, final = call.packing.unpack(outputs, [*map(call.steps.unsorted, final)])
        results = [*outputs, *final]
    used = [
        (result, gradient)
        for result, gradient in zip(results, gradients, strict=True)
        if gradient is not None and result.requires_grad
    ]
    wanted = [leaf for leaf, need in zip(own, needed, strict=True) if need]
    found = iter(
        torch.autograd.grad(
            [result for result, _ in used],
            wanted,
            [gradient for _, gradient in used],
            allow_unused=True,
            create_graph=torch.is_grad_enabled(),
        )
    )
    return [next(found) if need else None for need in needed]
