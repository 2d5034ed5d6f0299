"""A compiled unroll as one differentiable operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime._active_modes import is_batched
from throughtime._errors import problem
from throughtime._torch_internals import has_saved_tensor_hooks, keeps_graph
from throughtime.backends.torch_codegen import Env
from throughtime.compiler import CellFingerprint, CellRerun, GuardCache, Program
from throughtime.layout.pack import Packing
from throughtime.layout.step_layout import StepLayout
from throughtime.runtime.bound_call import BoundCall
from throughtime.runtime.donation import DonationLock
from throughtime.runtime.forward import Executable, step_by_step
from throughtime.runtime.offload.plan import OffloadedChunks
from throughtime.runtime.rng import RngState


class UnrollCall(NamedTuple):
    """What an unroll is made with, besides tensors.

    `drawn` are the random numbers that serve the whole sequence; `chunk` is for how many steps to compute at once what
    does not depend on the state; with `swap` what the backward pass needs waits on the host. With `moves` the rows come
    padded, in the order of the batch, and leave so. With `direct` the forward pass is nothing but its kernel; without
    `moves` the rows then come and leave as [B, T, ...] or [T, B, ...], whichever `leading` says. The rows of a state
    that is `fresh` are all alike.
    """

    executable: Executable
    steps: StepLayout
    noise: RngState
    drawn: Env
    chunk: int | None
    swap: bool = False
    moves: Packing | None = None
    direct: BoundCall | None = None
    leading: tuple[int, int] | None = None
    fresh: bool = False

    def enter(self, rows: Sequence[Any], state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Rows of all steps and a state, or gradients of them as far as there are any, as the loop wants them."""
        if self.moves is not None:
            return self.moves.enter(rows, state)
        if self.leading is not None:
            rows = [None if leaf is None else leaf.flatten(0, 1) for leaf in rows]
        return list(rows), list(state)

    def start(self, inputs: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The rows and the state that the forward pass begins with."""
        if not self.fresh:
            return self.enter(inputs, state)
        rows, _ = self.enter(inputs, ())
        return rows, list(state)

    def leave(self, rows: Sequence[Any], state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The reverse."""
        if self.moves is not None:
            return self.moves.leave(rows, state)
        if self.leading is not None:
            rows = [None if leaf is None else leaf.unflatten(0, self.leading) for leaf in rows]
            if not torch.is_grad_enabled():
                # An operation must not give views, or nobody could change them in place.
                rows = [None if leaf is None else leaf.detach() for leaf in rows]
        return list(rows), list(state)


def run(
    call: UnrollCall, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs [N, ...] and the final state [B, ...]."""
    if call.executable.program.adjoint is None:
        with torch.no_grad():
            rows, start = call.enter(inputs, state)
            env = environment(call, tensors, rows)
            outputs, final, _ = call.executable.forward(env, start, call.steps, call.noise.generator, call.chunk)
            own = apart([*outputs, *final], [*tensors, *inputs, *state])
            return call.leave(own[: len(outputs)], own[len(outputs) :])
    results = _Unroll.apply(  # type: ignore[no-untyped-call]
        call, len(tensors), len(inputs), *tensors, *inputs, *state
    )
    count = len(call.executable.program.outputs)
    return list(results[:count]), list(results[count:])


def environment(call: UnrollCall, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> Env:
    """What a program starts from: the cell's tensors, the inputs, literals, and what is drawn once."""
    program = call.executable.program
    env = dict(zip(program.tensors, tensors, strict=True))
    env.update(zip(program.inputs, inputs, strict=True))
    env.update(program.literals)
    env.update(call.drawn)
    return env


class _Unroll(torch.autograd.Function):
    """The forward program, and the backward program as its gradient."""

    @staticmethod
    def forward(ctx: Any, call: UnrollCall, tensor_count: int, input_count: int, *leaves: Tensor) -> tuple[Tensor, ...]:
        split, executable = tensor_count + input_count, call.executable
        results, kept, swapped = _forward(call, leaves, tensor_count, split)
        ctx.call, ctx.tensor_count, ctx.split, ctx.swapped = call, tensor_count, split, swapped
        # What hooks hand out in the backward pass is theirs.
        has_hooks = has_saved_tensor_hooks()
        assert executable.backward is not None
        ctx.claim, ctx.may_overwrite = DonationLock(), bool(executable.backward.overwritten) and not has_hooks
        # Autograd knows how long saved tensors are wanted, wherever they are.
        ctx.save_for_backward(*leaves, *kept)
        ctx.set_materialize_grads(False)
        # A cell that may be run again must be then what it is now.
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
            saved = _saved_again(ctx, len(needed))
        leaves = saved[: len(needed)]
        _check_unchanged(call.executable.program, leaves[: ctx.tensor_count])
        if torch.is_grad_enabled() or any(map(is_batched, gradients)):
            _check_same_cell(call.noise.cell, ctx.structure)
            return (None, None, None, *_differentiably(call, leaves, ctx.tensor_count, ctx.split, needed, gradients))
        kept = saved[len(needed) :]
        moved, inputs = leaves[ctx.tensor_count :], ctx.split - ctx.tensor_count
        if call.moves is not None:
            moved, kept = kept[: len(moved)], kept[len(moved) :]
        rows: Sequence[Tensor] = moved[:inputs]
        if call.leading is not None:
            # An output is kept as it left.
            pairs = zip(kept, call.executable.kept, strict=True)
            kept = [leaf.flatten(0, 1) if leaf.ndim > len(value.shape) else leaf for leaf, value in pairs]
            rows = [leaf.flatten(0, 1) for leaf in rows]
        tensors, initial, wanted = leaves[: ctx.tensor_count], moved[inputs:], tuple(needed[: ctx.split])
        count = len(call.executable.program.outputs)
        cotangents = call.enter(gradients[:count], gradients[count:])
        # Asked when it is time to write: whatever fails before that can be tried again.
        is_last = not keeps_graph()
        overwrite = ctx.claim.take if ctx.may_overwrite and is_last else None
        with ctx.claim:
            found, states = _run_backward(
                call, tensors, rows, initial, kept, cotangents, wanted, ctx.swapped, overwrite
            )
        of_tensors, of_inputs = found[: ctx.tensor_count], _own(found[ctx.tensor_count :], gradients)
        of_state = [state if need else None for state, need in zip(states, needed[ctx.split :], strict=True)]
        of_inputs, of_state = call.leave(of_inputs, of_state)
        return (None, None, None, *of_tensors, *of_inputs, *of_state)


def _forward(
    call: UnrollCall, leaves: Sequence[Tensor], tensor_count: int, split: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], OffloadedChunks | None]:
    """Outputs and final state; what the backward pass wants besides the leaves; the plan for what waits on the host."""
    tensors, executable, swapped = leaves[:tensor_count], call.executable, None
    rows, state = call.start(leaves[tensor_count:split], leaves[split:])
    kept: Iterable[Tensor]
    if call.direct is not None:
        final = [leaf.clone(memory_format=torch.contiguous_format) for leaf in state]
        outputs, kept = call.direct.forward(tensors, rows, final, call.steps, call.leading)
        if call.moves is not None:
            outputs, final = call.leave(outputs, final)
    else:
        env = environment(call, tensors, rows)
        if call.swap:
            swapped = executable.keeping.plan(call.steps, call.chunk, leaves[split].device)
        outputs, final, found = executable.forward(env, state, call.steps, call.noise.generator, call.chunk, swapped)
        own = apart([*outputs, *final], [*leaves, *rows])
        outputs, final = call.leave(own[: len(outputs)], own[len(outputs) :])
        if call.leading is not None and swapped is None:
            # Outputs that are kept are kept with the axes that they leave with, because a direct call does so:
            # its kernel writes them that way. Torch's checkpoint wants every call to keep tensors of one shape.
            leaving = zip(executable.program.outputs, outputs, strict=True)
            found.update((value, leaf) for value, leaf in leaving if value in found)
        kept = found.values() if swapped is None else (*found.values(), *swapped.take())
    moved = () if call.moves is None else (*rows, *state)
    return (*outputs, *final), (*moved, *kept), swapped


def _saved_again(ctx: Any, count: int) -> tuple[Tensor, ...]:
    """What the forward pass saved, computed again because an output was changed in place, as by `outputs.relu_()`.

    The kernels save outputs that are returned to the caller; a copy of each would cost every call. A changed leaf is
    the caller's error, which `unpack` raises.
    """
    leaves = [saved.unpack() for saved in ctx._raw_saved_tensors[:count]]
    call: UnrollCall = ctx.call
    with torch.no_grad(), call.noise.again():
        _, kept, ctx.swapped = _forward(call, leaves, ctx.tensor_count, ctx.split)
    return (*leaves, *kept)


def _run_backward(
    call: UnrollCall,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    initial: Sequence[Tensor],
    kept: Sequence[Tensor],
    cotangents: tuple[list[Any], list[Any]],
    wanted: tuple[bool, ...],
    swapped: OffloadedChunks | None,
    overwrite: Callable[[], bool] | None,
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Gradients of tensors and inputs as far as they are wanted, and of the initial state, the shortest way."""
    direct = None if call.direct is None else call.direct.backward(tensors, wanted)
    if direct is not None:
        return direct.run(tensors, rows, initial, kept, *cotangents, call.steps, overwrite=overwrite)
    backward, env = call.executable.backward, environment(call, tensors, rows)
    assert backward is not None
    arguments = (env, initial, *cotangents, call.steps, wanted, call.chunk)
    if swapped is None:
        env.update(zip(backward.kept, kept, strict=True))
        return backward.run(*arguments, overwrite=overwrite)
    split = len(swapped.keeping.stays)
    env.update(zip(swapped.keeping.stays, kept[:split], strict=True))
    with swapped.returned(kept[split:]) as returned:
        return backward.run(*arguments, returned)


def _check_unchanged(program: Program, tensors: Sequence[Tensor]) -> None:
    """Refuse tensors of a cell that somebody has replaced since: autograd notices what is written into them alone."""
    for value, tensor in zip(program.tensors, tensors, strict=True):
        if tensor.dtype is not value.dtype or tensor.shape != value.shape:
            what = f"`{value.name}` is not what it was in the forward pass"
            expected = f"{list(value.shape)} {value.dtype}"
            fix = "Compute gradients before the cell is converted, or run it forward again."
            raise RuntimeError(problem(what, got=f"{list(tensor.shape)} {tensor.dtype}", expected=expected, fix=fix))


def _check_same_cell(cell: Any, structure: Any) -> None:
    """Refuse to run a cell again whose options have changed since its forward pass: they were part of that."""
    if structure is not None and _structure_of(cell) != structure:
        what = f"the cell {type(cell).__name__} is not what it was in the forward pass"
        fix = "Compute gradients before anything about it is changed, or run it forward again."
        raise RuntimeError(problem(what, got="other options, or another mode", expected="the same cell", fix=fix))


def _structure_of(cell: Any) -> Any:
    """What there is to a cell besides its tensors; nearly always a glance tells."""
    glance = GuardCache.last(cell) if isinstance(cell, nn.Module) else None
    return CellFingerprint(cell).structure if glance is None else glance.fingerprint.structure


def _own(found: Sequence[Tensor | None], given: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients with memory of their own: one that was only handed through may be somebody's to keep."""
    theirs = {tensor.untyped_storage().data_ptr() for tensor in given if tensor is not None}
    return [
        leaf.clone() if leaf is not None and leaf.untyped_storage().data_ptr() in theirs else leaf for leaf in found
    ]


def apart(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    """Results that share no memory with each other or with the arguments: they are their owner's to change."""
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
    """The forward pass, step by step in the cell itself: it keeps gradients from something, or has some of its own."""
    if call.executable.is_random or call.executable.program.random.nodes:
        what = "gradients cannot be differentiated of a cell that detaches something and draws random numbers"
        fix = 'Run it step by step, with `tt.backend("reference")`.'
        got = f"create_graph=True or is_grads_batched=True for {type(call.noise.cell).__name__}"
        raise RuntimeError(problem(what, got=got, expected="one of both", fix=fix))
    step, steps = replay.begin(call.noise.cell, tensors), call.steps
    streams = [steps.split(leaf) for leaf in rows]

    def run(number: int, current: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return step([stream[number] for stream in streams], current)

    pieces, final = step_by_step(run, state, steps)
    order = steps.by_step(final[0].device)
    return [torch.cat(parts)[order] for parts in pieces], final


def _differentiably(
    call: UnrollCall, leaves: Sequence[Tensor], tensor_count: int, split: int, needed: Sequence[bool], gradients: Any
) -> list[Tensor | None]:
    """The gradient in operations of torch, for gradients of it and for many at once: the forward pass is run again."""
    with torch.enable_grad(), call.noise.again():
        # The leaves may depend on each other, say a state on the weights; gradients are those of this unroll alone.
        # What was frozen since then has a gradient all the same.
        frozen = [need and not leaf.requires_grad for leaf, need in zip(leaves, needed, strict=True)]
        pairs = zip(leaves, frozen, strict=True)
        own = [leaf.detach().requires_grad_() if is_frozen else leaf.view_as(leaf) for leaf, is_frozen in pairs]
        rows, state = call.enter(own[tensor_count:split], own[split:])
        state = [call.steps.sorted(leaf) for leaf in state]
        if call.executable.program.replay is not None:
            outputs, final = _by_the_cell(call, call.executable.program.replay, own[:tensor_count], rows, state)
        else:
            env = environment(call, own[:tensor_count], rows)
            # Whatever autocast has cast is cast in the program.
            with torch.autocast(rows[0].device.type, enabled=False):
                outputs, final = call.executable.differentiable(env, state, call.steps, call.noise.generator)
        results = [leaf for leaves in call.leave(outputs, [*map(call.steps.unsorted, final)]) for leaf in leaves]
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
