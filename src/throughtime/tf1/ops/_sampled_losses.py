"""Losses over a sample of the classes: sampled softmax and noise-contrastive estimation."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.ops._cross_entropy import _dense
from throughtime.tf1.ops._embedding import looked_up
from throughtime.tf1.ops._table import Static, Tensor, Tensors, operation


def _logits(
    weights: Tensors,
    biases: Tensors,
    labels: Tensor,
    inputs: Tensor,
    sampled: list[Tensor],
    remove_hits: bool,
    strategy: str,
) -> tuple[Tensor, Tensor]:
    """Logits of true and of drawn classes, less the logarithm of how often each is expected; and their labels."""
    ids, true_expected, sampled_expected = (one.detach() for one in sampled)
    count = labels.shape[1]
    both = torch.cat([labels.reshape(-1), ids])
    rows, shifts = looked_up(list(weights), both, strategy), looked_up(list(biases), both, strategy)
    split = labels.numel()
    true = (inputs.unsqueeze(1) * rows[:split].reshape(-1, count, inputs.shape[1])).sum(-1) + shifts[:split].reshape(
        -1, count
    )
    others = inputs @ rows[split:].mT + shifts[split:]
    if remove_hits:
        hits = (labels.unsqueeze(2) == ids).any(1)
        others = others + hits * -torch.finfo(others.dtype).max
    scores = torch.cat([true - torch.log(true_expected), others - torch.log(sampled_expected)], 1)
    return scores, torch.cat([torch.ones_like(true) / count, torch.zeros_like(others)], 1)


_RULES: dict[str, Any] = {
    "dtypes": lambda **given: [given["inputs"].dtype.base_dtype],
    "shape_rule": lambda **given: [(given["inputs"].shape.sizes or (None,))[:1]],
}


@operation("nn.sampled_softmax_loss", op_name="sampled_softmax_loss", **_RULES)
def _sampled_softmax(
    weights: Tensors,
    biases: Tensors,
    labels: Tensor,
    inputs: Tensor,
    ids: Tensor,
    true_expected: Tensor,
    sampled_expected: Tensor,
    remove_hits: Static,
    strategy: Static,
) -> Tensor:
    """The softmax cross-entropy over true and drawn classes."""
    scores, targets = _logits(
        weights, biases, labels, inputs, [ids, true_expected, sampled_expected], remove_hits, strategy
    )
    return _dense(targets.detach(), scores, -1)


@operation("nn.nce_loss", op_name="nce_loss", **_RULES)
def _nce(
    weights: Tensors,
    biases: Tensors,
    labels: Tensor,
    inputs: Tensor,
    ids: Tensor,
    true_expected: Tensor,
    sampled_expected: Tensor,
    remove_hits: Static,
    strategy: Static,
) -> Tensor:
    """The sum of sigmoid cross-entropies of true and drawn classes."""
    scores, targets = _logits(
        weights, biases, labels, inputs, [ids, true_expected, sampled_expected], remove_hits, strategy
    )
    losses = torch.relu(scores) - scores * targets + torch.log1p(torch.exp(-torch.abs(scores)))
    return losses.sum(1)


def _loss(
    make: Any,
    arguments: tuple[Any, ...],
    counts: tuple[int, int, int],
    sampled_values: Any,
    options: tuple[bool, str, str | None, int | None],
) -> Any:
    weights, biases, labels, inputs = arguments
    num_sampled, num_classes, num_true = counts
    remove_hits, strategy, name, seed = options
    labels = lookup("cast")(labels, "int64")
    if sampled_values is None:
        sampled_values = lookup("nn.log_uniform_candidate_sampler")(
            labels, num_true, num_sampled, True, num_classes, seed=seed
        )
    listed = [list(one) if isinstance(one, list | tuple) else [one] for one in (weights, biases)]
    return make(listed[0], listed[1], labels, inputs, *sampled_values, remove_hits, strategy, name=name)


@exported("nn.sampled_softmax_loss")
def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Any:
    """The softmax cross-entropy over true classes and a sample of the others."""
    return _loss(
        _sampled_softmax,
        (weights, biases, labels, inputs),
        (num_sampled, num_classes, num_true),
        sampled_values,
        (remove_accidental_hits, partition_strategy, name, seed),
    )


@exported("nn.nce_loss")
def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Any:
    """Noise-contrastive estimation over true classes and a sample of the others."""
    return _loss(
        _nce,
        (weights, biases, labels, inputs),
        (num_sampled, num_classes, num_true),
        sampled_values,
        (remove_accidental_hits, partition_strategy, name, None),
    )
