"""The equations of TensorFlow's optimisers: each changes variables and slots in place, given their gradients.

Arguments are lists of tensors of one dtype and device, then the settings as floats. The equations are those of
TensorFlow's kernels, not torch's: where epsilon stands, and what a slot begins with, differs between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime._torch_internals import fused_adagrad_, fused_adam_, fused_sgd_

Tensors = list[Tensor]
Rule = Callable[..., None]


def gradient_descent(variables: Tensors, gradients: Tensors, *, rate: float) -> None:
    """`var -= rate * g`."""
    _sgd(variables, gradients, [], rate, 0.0, False)


def momentum(
    variables: Tensors, gradients: Tensors, accum: Tensors, *, rate: float, momentum: float, nesterov: bool
) -> None:
    """`accum = momentum * accum + g`, then `var -= rate * accum`; with Nesterov, by `g + momentum * accum` instead."""
    if not momentum:
        # torch leaves the buffer alone then; TensorFlow stores the gradient in it.
        for each, gradient in zip(accum, gradients, strict=True):
            each.copy_(gradient)
        return gradient_descent(variables, gradients, rate=rate)
    return _sgd(variables, gradients, accum, rate, momentum, nesterov)


def _sgd(variables: Tensors, gradients: Tensors, accum: Tensors, rate: float, momentum: float, nesterov: bool) -> None:
    fused_sgd_(
        variables,
        gradients,
        accum,
        weight_decay=0.0,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=bool(nesterov),
        maximize=False,
        is_first_step=False,
    )


# torch divides by `1 - beta ** step`; at this step that is one, and the rate holds the correction, as in TensorFlow.
_LATE_STEP = 1e12


def adam(
    variables: Tensors,
    gradients: Tensors,
    m: Tensors,
    v: Tensors,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
    beta2_power: float,
) -> None:
    """`var -= alpha * m / (sqrt(v) + epsilon)` with `alpha = rate * sqrt(1 - beta2^t) / (1 - beta1^t)`.

    This is the form with "epsilon hat": torch adds epsilon after the correction of v, TensorFlow before.
    """
    steps = [torch.full((), _LATE_STEP, device=variables[0].device)] * len(variables)
    fused_adam_(
        variables,
        gradients,
        m,
        v,
        [],
        steps,
        lr=_corrected(rate, beta1_power, beta2_power),
        beta1=beta1,
        beta2=beta2,
        weight_decay=0.0,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def _corrected(rate: float, beta1_power: float, beta2_power: float) -> float:
    return rate * math.sqrt(1 - beta2_power) / (1 - beta1_power)


def nadam(
    variables: Tensors,
    gradients: Tensors,
    m: Tensors,
    v: Tensors,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
    beta2_power: float,
) -> None:
    """Adam with `(1 - beta1) * g + beta1 * m` in the place of m."""
    alpha = _corrected(rate, beta1_power, beta2_power)
    for variable, gradient, first, second in zip(variables, gradients, m, v, strict=True):
        first.lerp_(gradient, 1 - beta1)
        second.lerp_(gradient.square(), 1 - beta2)
        ahead = first.lerp(gradient, 1 - beta1)
        variable.addcdiv_(ahead, second.sqrt().add_(epsilon), value=-alpha)


def nadam_rows(
    rows: Tensor,
    gradient: Tensor,
    variable: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
    beta2_power: float,
) -> None:
    """The sparse form of `nadam`: the moments of all rows decay, and only the given rows of the variable change."""
    m.mul_(beta1).index_add_(0, rows, gradient * (1 - beta1))
    v.mul_(beta2).index_add_(0, rows, gradient.square() * (1 - beta2))
    ahead = gradient * (1 - beta1) + beta1 * m[rows]
    alpha = _corrected(rate, beta1_power, beta2_power)
    variable.index_add_(0, rows, ahead / (v[rows].sqrt() + epsilon), alpha=-alpha)


def adamax(
    variables: Tensors,
    gradients: Tensors,
    m: Tensors,
    v: Tensors,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
) -> None:
    """`v = max(beta2 * v, |g|)`, then `var -= rate / (1 - beta1^t) * m / (v + epsilon)`."""
    for variable, gradient, first, largest in zip(variables, gradients, m, v, strict=True):
        first.lerp_(gradient, 1 - beta1)
        torch.maximum(largest.mul_(beta2), gradient.abs(), out=largest)
        variable.addcdiv_(first, largest + epsilon, value=-rate / (1 - beta1_power))


def adagrad(variables: Tensors, gradients: Tensors, accum: Tensors, *, rate: float) -> None:
    """`accum += g^2`, then `var -= rate * g / sqrt(accum)`."""
    if variables[0].device.type == "cpu":
        steps = [torch.zeros(())] * len(variables)
        fused_adagrad_(
            variables, gradients, accum, steps, lr=rate, lr_decay=0.0, weight_decay=0.0, eps=0.0, maximize=False
        )
        return
    for variable, gradient, squares in zip(variables, gradients, accum, strict=True):
        squares.addcmul_(gradient, gradient)
        variable.addcmul_(gradient, squares.rsqrt(), value=-rate)


def adagrad_da(
    variables: Tensors,
    gradients: Tensors,
    sums: Tensors,
    squares: Tensors,
    *,
    rate: float,
    l1: float,
    l2: float,
    step: float,
) -> None:
    """Dual averaging: the variable follows from the sums of gradients and of their squares, with l1 and l2."""
    for variable, gradient, total, square in zip(variables, gradients, sums, squares, strict=True):
        total.add_(gradient)
        square.addcmul_(gradient, gradient)
        below = square.sqrt().add_(l2 * step * rate)
        above = torch.sign(total) * (total.abs() - l1 * step).clamp_min(0) if l1 > 0 else total
        variable.copy_(above / below * -rate)


def adadelta(
    variables: Tensors, gradients: Tensors, accum: Tensors, updates: Tensors, *, rate: float, rho: float, epsilon: float
) -> None:
    """The step is `g * sqrt(updates + epsilon) / sqrt(accum + epsilon)`, of averages of squares."""
    for variable, gradient, square, update in zip(variables, gradients, accum, updates, strict=True):
        square.lerp_(gradient.square(), 1 - rho)
        step = (update + epsilon).sqrt_() * (square + epsilon).rsqrt_() * gradient
        variable.add_(step, alpha=-rate)
        update.lerp_(step.square(), 1 - rho)


def rmsprop(
    variables: Tensors,
    gradients: Tensors,
    rms: Tensors,
    moments: Tensors,
    *,
    rate: float,
    decay: float,
    momentum: float,
    epsilon: float,
) -> None:
    """`mom = momentum * mom + rate * g / sqrt(ms + epsilon)`, then `var -= mom`."""
    for variable, gradient, square, moment in zip(variables, gradients, rms, moments, strict=True):
        square.lerp_(gradient.square(), 1 - decay)
        moment.mul_(momentum).addcdiv_(gradient, (square + epsilon).sqrt_(), value=rate)
        variable.sub_(moment)


def rmsprop_centered(
    variables: Tensors,
    gradients: Tensors,
    rms: Tensors,
    means: Tensors,
    moments: Tensors,
    *,
    rate: float,
    decay: float,
    momentum: float,
    epsilon: float,
) -> None:
    """The same with the variance of the gradients, `ms - mg^2`, in the place of ms."""
    for variable, gradient, square, mean, moment in zip(variables, gradients, rms, means, moments, strict=True):
        square.lerp_(gradient.square(), 1 - decay)
        mean.lerp_(gradient, 1 - decay)
        variance = (square - mean.square()).add_(epsilon)
        moment.mul_(momentum).addcdiv_(gradient, variance.sqrt_(), value=rate)
        variable.sub_(moment)


def ftrl(
    variables: Tensors,
    gradients: Tensors,
    accum: Tensors,
    linear: Tensors,
    *,
    rate: float,
    power: float,
    l1: float,
    l2: float,
    l2_shrinkage: float,
) -> None:
    """Follow the regularised leader, with l1, l2 and a decay of the loss itself (shrinkage)."""
    for variable, gradient, squares, line in zip(variables, gradients, accum, linear, strict=True):
        new = squares.addcmul(gradient, gradient)
        root, old_root = new.pow(-power), squares.pow(-power)
        line.add_(gradient).sub_((root - old_root).mul_(variable), alpha=1 / rate)
        if l2_shrinkage:
            line.add_(variable, alpha=2 * l2_shrinkage)
        quotient = (torch.sign(line) * l1 - line) / (root / rate + 2 * l2)
        variable.copy_(torch.where(line.abs() > l1, quotient, torch.zeros_like(quotient)))
        squares.copy_(new)


def proximal_gradient_descent(variables: Tensors, gradients: Tensors, *, rate: float, l1: float, l2: float) -> None:
    """Gradient descent, then the proximal step of l1 and l2."""
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.copy_(_proximal(variable.sub(gradient, alpha=rate), rate, l1, l2))


def proximal_adagrad(
    variables: Tensors, gradients: Tensors, accum: Tensors, *, rate: float, l1: float, l2: float
) -> None:
    """Adagrad, then the proximal step of l1 and l2 with Adagrad's rates."""
    for variable, gradient, squares in zip(variables, gradients, accum, strict=True):
        squares.addcmul_(gradient, gradient)
        rates = squares.rsqrt().mul_(rate)
        variable.copy_(_proximal(variable - gradient * rates, rates, l1, l2))


def _proximal(moved: Tensor, rate: Any, l1: float, l2: float) -> Tensor:
    shrunk = torch.sign(moved) * (moved.abs() - rate * l1).clamp_min(0) if l1 > 0 else moved
    found: Tensor = shrunk / (1.0 + rate * l2)
    return found


def on_rows(rule: Rule, rows: Tensor, variable: Tensor, gradient: Tensor, slots: Tensors, **settings: Any) -> None:
    """Apply a rule to some rows of a variable and its slots; the others stay as they are.

    `rows` are distinct, and `gradient` has one row for each.
    """
    targets = [variable, *slots]
    parts = [target.index_select(0, rows) for target in targets]
    rule([parts[0]], [gradient], *([part] for part in parts[1:]), **settings)
    for target, part in zip(targets, parts, strict=True):
        target.index_copy_(0, rows, part)


def summed_rows(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows, and the sum of the values of each."""
    distinct, places = torch.unique(rows.long(), return_inverse=True)
    totals = torch.zeros((len(distinct), *values.shape[1:]), dtype=values.dtype, device=values.device)
    return distinct, totals.index_add_(0, places, values)
