"""Learning rates that depend on the step, with TensorFlow's arithmetic: each is one operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.ops._convert import convert_to_tensor

Kernel = Callable[..., Tensor]


def _scheduled(kernel: Kernel, scope: str, name: str | None, rate: Any, step: Any, *numbers: Any) -> Any:
    """One operation that computes `kernel(rate, step, *numbers)`, all as numbers of the rate's dtype."""
    if step is None:
        what, fix = f"`global_step` is required for {scope}", "Pass `tf.train.get_or_create_global_step()`."
        raise ValueError(problem(what, got=None, expected="a tensor or variable", fix=fix))
    with get_default_graph().name_scope(name or scope) as place:
        inputs = [convert_to_tensor(rate, name="learning_rate"), convert_to_tensor(step)]
        inputs += [convert_to_tensor(number, preferred_dtype=inputs[0].dtype) for number in numbers]

    def computed(rate: Tensor, *others: Tensor) -> Tensor:
        return kernel(rate, *(other.to(rate.dtype) for other in others))

    # The cosine decay is a number behind its scope in TensorFlow.
    place = f"{place}Mul_3" if scope == "CosineDecay" else place
    return create_op(scope, computed, inputs, name=place, differentiable=False).outputs[0]


def _elapsed(step: Tensor, steps: Tensor, staircase: bool) -> Tensor:
    part = step / steps
    return torch.floor(part) if staircase else part


@exported("train.exponential_decay")
def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """`learning_rate * decay_rate ** (global_step / decay_steps)`."""

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, factor: Tensor) -> Tensor:
        return rate * factor ** _elapsed(step, steps, staircase)

    return _scheduled(kernel, "ExponentialDecay", name, learning_rate, global_step, decay_steps, decay_rate)


@exported("train.natural_exp_decay")
def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """`learning_rate * exp(-decay_rate * global_step / decay_steps)`."""

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, factor: Tensor) -> Tensor:
        return rate * torch.exp(-factor) ** _elapsed(step, steps, staircase)

    return _scheduled(kernel, "ExponentialDecay", name, learning_rate, global_step, decay_steps, decay_rate)


@exported("train.inverse_time_decay")
def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """`learning_rate / (1 + decay_rate * global_step / decay_steps)`."""

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, factor: Tensor) -> Tensor:
        return rate / (1 + factor * _elapsed(step, steps, staircase))

    return _scheduled(kernel, "InverseTimeDecay", name, learning_rate, global_step, decay_steps, decay_rate)


@exported("train.polynomial_decay")
def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Any:
    """From `learning_rate` to `end_learning_rate` in `decay_steps`; with `cycle`, again and again over longer times."""

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, end: Tensor, exponent: Tensor) -> Tensor:
        if cycle:
            steps = steps * torch.where(step == 0, torch.ones_like(step), torch.ceil(step / steps))
        else:
            step = torch.minimum(step, steps)
        return (rate - end) * (1 - step / steps) ** exponent + end

    numbers = (decay_steps, end_learning_rate, power)
    return _scheduled(kernel, "PolynomialDecay", name, learning_rate, global_step, *numbers)


@exported("train.cosine_decay")
def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None
) -> Any:
    """Half of a cosine in `decay_steps`, down to the fraction `alpha`."""

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, floor: Tensor) -> Tensor:
        fraction = torch.minimum(step, steps) / steps
        return rate * ((1 - floor) * _cosine(fraction) + floor)

    return _scheduled(kernel, "CosineDecay", name, learning_rate, global_step, decay_steps, alpha)


def _cosine(fraction: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.cos(math.pi * fraction))


@exported("train.cosine_decay_restarts")
def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Any:
    """Half cosines one after the other, each `t_mul` times as long and `m_mul` times as high as the one before."""

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, longer: Tensor, lower: Tensor, floor: Tensor) -> Tensor:
        fraction = step / steps
        if float(longer) == 1.0:
            restarts = torch.floor(fraction)
            fraction = fraction - restarts
        else:
            # At a restart the quotient is whole: with more digits it is not just below.
            grown = (1.0 - fraction * (1.0 - longer)).double()
            restarts = torch.floor((torch.log(grown) / torch.log(longer.double())).to(rate.dtype))
            before = (1.0 - longer**restarts) / (1.0 - longer)
            fraction = (fraction - before) / longer**restarts
        return rate * ((1 - floor) * lower**restarts * _cosine(fraction) + floor)

    numbers = (first_decay_steps, t_mul, m_mul, alpha)
    return _scheduled(kernel, "SGDRDecay", name, learning_rate, global_step, *numbers)


@exported("train.linear_cosine_decay")
def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Any:
    """A cosine of `num_periods`, times a line from `1 + alpha` to `alpha`, plus `beta`."""
    numbers = (decay_steps, num_periods, alpha, beta, 0.0)
    return _scheduled(_linear_cosine, "LinearCosineDecay", name, learning_rate, global_step, *numbers)


@exported("train.noisy_linear_cosine_decay")
def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Any:
    """`linear_cosine_decay` with noise on the line; its variance decays with the step."""
    noise = lookup("random_normal")([])

    def kernel(rate: Tensor, step: Tensor, steps: Tensor, *rest: Tensor) -> Tensor:
        periods, up, below, drawn, variance, decay = rest
        spread = torch.sqrt(variance / (1.0 + torch.minimum(step, steps)) ** decay)
        return _linear_cosine(rate, step, steps, periods, up, below, drawn * spread)

    numbers = (decay_steps, num_periods, alpha, beta, noise, initial_variance, variance_decay)
    return _scheduled(kernel, "NoisyLinearCosineDecay", name, learning_rate, global_step, *numbers)


def _linear_cosine(
    rate: Tensor, step: Tensor, steps: Tensor, periods: Tensor, alpha: Tensor, beta: Tensor, noise: Tensor
) -> Tensor:
    step = torch.minimum(step, steps)
    line = (steps - step) / steps + noise
    return rate * ((alpha + line) * _cosine(2.0 * periods * step / steps) + beta)


@exported("train.piecewise_constant", "train.piecewise_constant_decay")
def piecewise_constant(x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None) -> Any:
    """`values[0]` up to and including `boundaries[0]`, then `values[1]`, and so on."""
    if len(boundaries) != len(values) - 1:
        got = f"{len(boundaries)} boundaries and {len(values)} values"
        fix = "Add a value for the steps behind the last boundary."
        raise ValueError(problem("lengths do not fit", got=got, expected="one value more than boundaries", fix=fix))
    with get_default_graph().name_scope(name or "PiecewiseConstant") as scope:
        limits = [convert_to_tensor(limit) for limit in boundaries]
        numbers = [convert_to_tensor(value) for value in values]
        step = convert_to_tensor(x)

    def kernel(step: Tensor, *rest: Tensor) -> Tensor:
        passed = sum(int(step > limit) for limit in rest[: len(limits)])
        return rest[len(limits) + passed]

    made = create_op(
        "PiecewiseConstant",
        kernel,
        [step, *limits, *numbers],
        name=scope,
        dtypes=[numbers[0].dtype],
        shapes=[numbers[0].shape],
        differentiable=False,
    )
    return made.outputs[0]
