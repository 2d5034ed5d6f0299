"""A compiled unroll as one differentiable operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime.backends._execute import Executable
from throughtime.backends._noise import Noise
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env


class Call(NamedTuple):
    """What an unroll is made with, besides tensors.

    `drawn` are the random numbers that serve the whole sequence; `chunk` is for how many steps to compute at once what
    does not depend on the state.
    """

    executable: Executable
    steps: Steps
    noise: Noise
    drawn: Env
    chunk: int | None


def run(
    call: Call, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs [N, ...] and the final state [B, ...]."""
    if call.executable.program.adjoint is None:
        with torch.no_grad():
            env = environment(call, tensors, inputs)
            outputs, final, _ = call.executable.forward(env, state, call.steps, call.noise.generator, call.chunk)
        return outputs, final
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
        env = environment(call, leaves[:tensor_count], leaves[tensor_count:split])
        outputs, final, kept = call.executable.forward(
            env, leaves[split:], call.steps, call.noise.generator, call.chunk
        )
        ctx.call, ctx.tensor_count, ctx.split = call, tensor_count, split
        results = _distinct([*outputs, *final], leaves)
        ctx.save_for_backward(*leaves, *kept.values())
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(result for result in results if not result.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        needed = ctx.needs_input_grad[3:]
        saved = ctx.saved_tensors
        leaves = saved[: len(needed)]
        if torch.is_grad_enabled():
            return (None, None, None, *_differentiably(call, leaves, ctx.tensor_count, ctx.split, needed, gradients))
        state = leaves[ctx.split :]
        env = environment(call, leaves[: ctx.tensor_count], leaves[ctx.tensor_count : ctx.split])
        env.update(zip(call.executable.kept, saved[len(needed) :], strict=True))
        count = len(call.executable.program.outputs)
        wanted = tuple(needed[: ctx.split])
        found, states = call.executable.backward(
            env, state, gradients[:count], gradients[count:], call.steps, wanted, call.chunk
        )
        return (None, None, None, *found, *states)


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
        env = environment(call, own[:tensor_count], own[tensor_count:split])
        outputs, final = call.executable.differentiable(env, own[split:], call.steps, call.noise.generator)
    pairs = [
        (result, gradient)
        for result, gradient in zip((*outputs, *final), gradients, strict=True)
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
