"""`optimize_loss`: an optimiser, a decaying rate, clipping and summaries in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime._errors import problem
from throughtime.tf1._namespace import export, exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import float32
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._scopes import control_dependencies
from throughtime.tf1.graph._variable_scope import get_variable, variable_scope
from throughtime.tf1.graph._variables import trainable_variables
from throughtime.tf1.ops._convert import constant, convert_to_tensor
from throughtime.tf1.summary import _summaries as summary
from throughtime.tf1.train import _optimizers as optimizers
from throughtime.tf1.train._global_step import get_global_step
from throughtime.tf1.train._optimizer import Optimizer

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": optimizers.AdagradOptimizer,
    "Adam": optimizers.AdamOptimizer,
    "Ftrl": optimizers.FtrlOptimizer,
    "Momentum": lambda learning_rate: optimizers.MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": optimizers.RMSPropOptimizer,
    "SGD": optimizers.GradientDescentOptimizer,
}
OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm"]
export("contrib.layers.OPTIMIZER_CLS_NAMES", OPTIMIZER_CLS_NAMES)
export("contrib.layers.OPTIMIZER_SUMMARIES", OPTIMIZER_SUMMARIES)
export("contrib.layers.optimizers.OPTIMIZER_CLS_NAMES", OPTIMIZER_CLS_NAMES)


@exported("contrib.layers.optimize_loss", "contrib.layers.optimizers.optimize_loss")
def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Any = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Any = None,
    variables: Any = None,
    name: str | None = None,
    summaries: Any = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Any:
    """A tensor: the loss, after one step of training."""
    with variable_scope(name, "OptimizeLoss", [loss, global_step]):
        value = convert_to_tensor(loss)
        updates = get_default_graph().get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else list(update_ops)
        if updates:
            with control_dependencies(updates):
                value = lookup("identity")(value)
        step = get_global_step() if global_step is None else global_step
        wanted = ["loss", "learning_rate", "global_gradient_norm"] if summaries is None else summaries
        rate = _rate(learning_rate, learning_rate_decay_fn, step, "learning_rate" in wanted)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(
            value,
            trainable_variables() if variables is None else variables,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        pairs = _changed(pairs, gradient_noise_scale, gradient_multipliers, clip_gradients)
        if "loss" in wanted:
            summary.scalar("loss", value)
        _summarize(pairs, wanted)
        train = chosen.apply_gradients(pairs, global_step=step if increment_global_step else None, name="train")
        with control_dependencies([train]):
            return lookup("identity")(value, name="train_op" if not updates else None)


def _rate(learning_rate: Any, decay: Any, step: Any, is_shown: bool) -> Any:
    if learning_rate is None:
        return None
    if isinstance(learning_rate, float | int):
        if learning_rate < 0.0:
            raise ValueError(f"Invalid learning_rate {learning_rate}.")
        rate: Any = get_variable(
            "learning_rate", [], trainable=False, initializer=lambda: constant(learning_rate, float32)
        )
    else:
        rate = learning_rate
    if decay is not None:
        if step is None:
            raise ValueError("global_step is required for learning_rate_decay_fn.")
        rate = decay(rate, step)
    if is_shown:
        summary.scalar("learning_rate", rate)
    return rate


def _optimizer(optimizer: Any, rate: Any) -> Optimizer:
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            expected = f"one of {', '.join(sorted(OPTIMIZER_CLS_NAMES))}"
            fix = "Pass one of them, or a class."
            raise ValueError(problem("there is no such optimiser", got=optimizer, expected=expected, fix=fix))
        return OPTIMIZER_CLS_NAMES[optimizer](learning_rate=rate)
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        return optimizer(learning_rate=rate)  # type: ignore[call-arg]
    if isinstance(optimizer, Optimizer):
        return optimizer
    if callable(optimizer):
        return optimizer() if rate is None else optimizer(rate)  # type: ignore[no-any-return]
    raise ValueError(
        "Unrecognized optimizer: should be string, subclass of Optimizer, instance of subclass of Optimizer or "
        f"function. Got {optimizer!r}."
    )


def _changed(pairs: list[Any], noise: Any, multipliers: Any, clip: Any) -> list[Any]:
    """Gradients with noise, multiplied and clipped, each if asked for."""
    if noise is not None:
        pairs = [
            (None if g is None else convert_to_tensor(g) + noise * lookup("truncated_normal")(lookup("shape")(g)), v)
            for g, v in pairs
        ]
    if multipliers:
        factors = {variable: multipliers.get(variable, multipliers.get(variable.name)) for _, variable in pairs}
        pairs = [(g if g is None or factors[v] is None else lookup("multiply")(g, factors[v]), v) for g, v in pairs]
    if isinstance(clip, float | int):
        clipped, _ = lookup("clip_by_global_norm")([gradient for gradient, _ in pairs], float(clip))
        return list(zip(clipped, [variable for _, variable in pairs], strict=True))
    return list(clip(pairs)) if callable(clip) else pairs


def _summarize(pairs: list[Any], wanted: Any) -> None:
    gradients = [gradient for gradient, _ in pairs if gradient is not None]
    if "global_gradient_norm" in wanted or "gradient_norm" in wanted:
        summary.scalar("global_norm/gradient_norm", lookup("global_norm")(gradients))
    for gradient, variable in pairs:
        if gradient is not None and "gradients" in wanted:
            summary.histogram(f"gradients/{variable.op.name}", getattr(gradient, "values", gradient))
