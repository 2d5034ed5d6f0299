"""A compiled unroll as one differentiable operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime.backends._execute import Executable
from throughtime.backends._noise import Noise
from throughtime.backends._steps import Steps


class Call(NamedTuple):
    """What an unroll is made with, besides tensors."""

    executable: Executable
    steps: Steps
    noise: Noise


def run(call: Call, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs [N, ...] and the final state [B, ...]."""
    if call.executable.program.adjoint is None:
        with torch.no_grad():
            outputs, final, _ = call.executable.forward(tensors, inputs, state, call.steps, call.noise.generator)
        return outputs, final
    results = _Unroll.apply(call, len(tensors), len(inputs), *tensors, *inputs, *state)
    count = len(call.executable.program.outputs)
    return list(results[:count]), list(results[count:])


class _Unroll(torch.autograd.Function):
    """The forward program, and the backward program as its gradient."""

    @staticmethod
    def forward(ctx: Any, call: Call, tensor_count: int, input_count: int, *leaves: Tensor) -> tuple[Tensor, ...]:
        program, adjoint = call.executable.program, call.executable.program.adjoint
        assert adjoint is not None
        tensors, inputs = leaves[:tensor_count], leaves[tensor_count : tensor_count + input_count]
        state = leaves[tensor_count + input_count :]
        outputs, final, env = call.executable.forward(tensors, inputs, state, call.steps, call.noise.generator)
        lagged = [program.new_state[i] for i in call.executable._lagged_states]
        ctx.kept = [value for value in dict.fromkeys([*adjoint.saved, *lagged]) if value not in program.literals]
        ctx.save_for_backward(*leaves, *(env[value] for value in ctx.kept))
        ctx.call, ctx.counts = call, (tensor_count, input_count, len(leaves))
        ctx.set_materialize_grads(False)
        results = (*outputs, *final)
        ctx.mark_non_differentiable(*(result for result in results if not result.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        tensor_count, input_count, leaf_count = ctx.counts
        saved = ctx.saved_tensors
        leaves = saved[:leaf_count]
        if torch.is_grad_enabled():
            return (None, None, None, *_twice(call, leaves, tensor_count, input_count, gradients, ctx.needs_input_grad[3:]))
        program = call.executable.program
        env = dict(zip(ctx.kept, saved[leaf_count:], strict=True))
        env.update(program.literals)
        count = len(program.outputs)
        needed = ctx.needs_input_grad[3:]
        found, states = call.executable.backward(
            env,
            leaves[tensor_count + input_count :],
            gradients[:count],
            gradients[count:],
            call.steps,
            tuple(needed[: tensor_count + input_count]),
        )
        return (None, None, None, *found, *states)


def _twice(
    call: Call, leaves: Sequence[Tensor], tensor_count: int, input_count: int, gradients: Sequence[Any], needed: Any
) -> list[Tensor | None]:
    """The gradient in differentiable operations, for gradients of gradients: the forward pass is run again."""
    split = tensor_count + input_count
    with torch.enable_grad(), call.noise.again():
        outputs, final = call.executable.differentiable(
            leaves[:tensor_count], leaves[tensor_count:split], leaves[split:], call.steps, call.noise.generator
        )
    pairs = [
        (result, gradient)
        for result, gradient in zip((*outputs, *final), gradients, strict=True)
        if gradient is not None and result.requires_grad
    ]
    wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
    found = torch.autograd.grad(
        [result for result, _ in pairs], wanted, [gradient for _, gradient in pairs], allow_unused=True, create_graph=True
    )
    by_leaf = iter(found)
    return [next(by_leaf) if need else None for need in needed]
