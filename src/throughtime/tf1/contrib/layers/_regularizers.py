"""Regularisers: functions of a variable that add to the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from throughtime._errors import problem
from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._scopes import name_scope

Regularizer = Callable[[Any], Any]


def _checked(scale: Any) -> float:
    if isinstance(scale, int) and not isinstance(scale, bool) and scale != 0:
        raise ValueError(f"scale cannot be an integer: {scale}")
    if isinstance(scale, float) and not 0 <= scale < float("inf"):
        fix = "Pass a float of at least zero."
        raise ValueError(problem("Setting a scale less than 0 on a regularizer", got=scale, expected=">= 0", fix=fix))
    return float(scale)


@exported("contrib.layers.l1_regularizer", "contrib.slim.l1_regularizer")
def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """`scale * sum(|weights|)`."""
    factor = _checked(scale)

    def regularize(weights: Any, name: str | None = None) -> Any:
        if not factor:
            return None
        with name_scope(scope or name, "l1_regularizer") as place:
            return lookup("multiply")(factor, lookup("reduce_sum")(lookup("abs")(weights)), name=place)

    return regularize


@exported("contrib.layers.l2_regularizer", "contrib.slim.l2_regularizer")
def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """`scale * sum(weights^2) / 2`."""
    factor = _checked(scale)

    def regularize(weights: Any) -> Any:
        if not factor:
            return None
        with name_scope(scope, "l2_regularizer") as place:
            return lookup("multiply")(factor, lookup("nn.l2_loss")(weights), name=place)

    return regularize


@exported("contrib.layers.l1_l2_regularizer", "contrib.slim.l1_l2_regularizer")
def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Regularizer:
    """The sum of both."""
    parts = [l1_regularizer(scale_l1), l2_regularizer(scale_l2)]
    both: Regularizer = sum_regularizer(parts, scope or "l1_l2_regularizer")
    return both


@exported("contrib.layers.sum_regularizer")
def sum_regularizer(regularizer_list: Sequence[Regularizer | None], scope: str | None = None) -> Any:
    """The sum of several."""
    used = [each for each in regularizer_list if each is not None]
    if not used:
        return None

    def regularize(weights: Any) -> Any:
        with name_scope(scope, "sum_regularizer") as place:
            found = [each for each in (one(weights) for one in used) if each is not None]
            return lookup("add_n")(found, name=place) if found else None

    return regularize


@exported("contrib.layers.apply_regularization")
def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Any:
    """The sum of a regulariser over variables, added to the collection of regularisation losses."""
    graph = get_default_graph()
    weights = graph.get_collection(GraphKeys.WEIGHTS) if weights_list is None else weights_list
    if not weights:
        raise ValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty") as scope:
        found = [each for each in map(regularizer, weights) if each is not None]
        total = lookup("add_n")(found, name=scope) if found else lookup("constant")(0.0)
    graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
    return total
