"""A compiled unroll as one differentiable operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime.backends._execute import Executable
from throughtime.backends._keeping import Kept
from throughtime.backends._moves import Moves
from throughtime.backends._noise import Noise
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env


class Call(NamedTuple):
    """What an unroll is made with, besides tensors.

    `drawn` are the random numbers that serve the whole sequence; `chunk` is for how many steps to compute at once what
    does not depend on the state; with `swap` what the backward pass needs waits on the host. With `moves` the rows come
    padded, in the order of the batch, and leave so.
    """

    executable: Executable
    steps: Steps
    noise: Noise
    drawn: Env
    chunk: int | None
    swap: bool = False
    moves: Moves | None = None

    def enter(self, rows: Sequence[Any], state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Rows of all steps and a state, or gradients of them as far as there are any, as the loop wants them."""
        moves = self.moves
        if moves is None:
            return list(rows), list(state)
        return _each(moves.pack, rows), _each(moves.order.sort, state)

    def leave(self, rows: Sequence[Any], state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The reverse."""
        moves = self.moves
        if moves is None:
            return list(rows), list(state)
        return _each(moves.unpack, rows), _each(moves.order.unsort, state)


def _each(move: Callable[[Tensor], Tensor], leaves: Sequence[Any]) -> list[Any]:
    return [None if leaf is None else move(leaf) for leaf in leaves]


def run(
    call: Call, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs [N, ...] and the final state [B, ...]."""
    if call.executable.program.adjoint is None:
        with torch.no_grad():
            rows, start = call.enter(inputs, state)
            env = environment(call, tensors, rows)
            outputs, final, _ = call.executable.forward(env, start, call.steps, call.noise.generator, call.chunk)
            return call.leave(outputs, final)
    results = _Unroll.apply(  # type: ignore[no-untyped-call]
        call, len(tensors), len(inputs), *tensors, *inputs, *state
    )
    count = len(call.executable.program.outputs)
    return list(results[:count]), list(results[count:])


def environment(call: Call, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> Env:
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
    def forward(ctx: Any, call: Call, tensor_count: int, input_count: int, *leaves: Tensor) -> tuple[Tensor, ...]:
        split = tensor_count + input_count
        rows, state = call.enter(leaves[tensor_count:split], leaves[split:])
        env = environment(call, leaves[:tensor_count], rows)
        device = leaves[split].device
        swapped = call.executable.keeping.plan(call.steps, call.chunk, device) if call.swap else None
        outputs, final, kept = call.executable.forward(
            env, state, call.steps, call.noise.generator, call.chunk, swapped
        )
        ctx.call, ctx.tensor_count, ctx.split, ctx.swapped = call, tensor_count, split, swapped
        rows_out, state_out = call.leave(outputs, final)
        results = _distinct([*rows_out, *state_out], leaves)
        moved = () if call.moves is None else (*rows, *state)
        # Autograd knows how long saved tensors are wanted, wherever they are.
        ctx.save_for_backward(*leaves, *moved, *kept.values(), *(() if swapped is None else swapped.take()))
        ctx.set_materialize_grads(False)
        adjoint = call.executable.program.adjoint
        of_outputs = [] if adjoint is None else adjoint.output_tangents
        constant = [result for result, tangent in zip(results, of_outputs, strict=False) if tangent is None]
        whole = [result for result in results if not result.is_floating_point()]
        ctx.mark_non_differentiable(*constant, *whole)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        needed = ctx.needs_input_grad[3:]
        saved = ctx.saved_tensors
        leaves = saved[: len(needed)]
        if torch.is_grad_enabled():
            return (None, None, None, *_differentiably(call, leaves, ctx.tensor_count, ctx.split, needed, gradients))
        kept = saved[len(needed) :]
        moved, inputs = leaves[ctx.tensor_count :], ctx.split - ctx.tensor_count
        if call.moves is not None:
            moved, kept = kept[: len(moved)], kept[len(moved) :]
        env = environment(call, leaves[: ctx.tensor_count], moved[:inputs])
        swapped: Kept | None = ctx.swapped
        count = len(call.executable.program.outputs)
        tangents = call.enter(gradients[:count], gradients[count:])
        arguments = (env, moved[inputs:], *tangents, call.steps, tuple(needed[: ctx.split]), call.chunk)
        if swapped is None:
            env.update(zip(call.executable.kept, kept, strict=True))
            found, states = call.executable.backward(*arguments)
        else:
            split = len(swapped.keeping.stays)
            env.update(zip(swapped.keeping.stays, kept[:split], strict=True))
            with swapped.returned(kept[split:]) as returned:
                found, states = call.executable.backward(*arguments, returned)
        of_tensors, of_inputs = found[: ctx.tensor_count], found[ctx.tensor_count :]
        of_inputs, of_state = call.leave(of_inputs, states)
        return (None, None, None, *of_tensors, *of_inputs, *of_state)


def _distinct(results: list[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Results that are not each other or one of the arguments: autograd wants every one to be a tensor of its own."""
    seen = {id(leaf) for leaf in leaves}
    distinct = []
    for result in results:
        distinct.append(result.clone() if id(result) in seen else result)
        seen.add(id(distinct[-1]))
    return tuple(distinct)


def _differentiably(
    call: Call, leaves: Sequence[Tensor], tensor_count: int, split: int, needed: Sequence[bool], gradients: Any
) -> list[Tensor | None]:
    """The gradient in differentiable operations, for gradients of gradients: the forward pass is run again."""
    with torch.enable_grad(), call.noise.again():
        # The leaves may depend on each other, say a state on the weights; gradients are those of this unroll alone.
        own = [leaf.view_as(leaf) for leaf in leaves]
        rows, state = call.enter(own[tensor_count:split], own[split:])
        env = environment(call, own[:tensor_count], rows)
        outputs, final = call.executable.differentiable(env, state, call.steps, call.noise.generator)
        results = [leaf for leaves in call.leave(outputs, final) for leaf in leaves]
    pairs = [
        (result, gradient)
        for result, gradient in zip(results, gradients, strict=True)
        if gradient is not None and result.requires_grad
    ]
    wanted = [leaf for leaf, need in zip(own, needed, strict=True) if need]
    found = iter(
        torch.autograd.grad(
            [result for result, _ in pairs],
            wanted,
            [gradient for _, gradient in pairs],
            allow_unused=True,
            create_graph=True,
        )
    )
    return [next(found) if need else None for need in needed]
