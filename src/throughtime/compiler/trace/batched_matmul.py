"""Matmuls of rows with several vectors each, such as a memory of slots: `[n, S, E] @ [E, F]`.

torch folds all dimensions but the features into one and multiplies once, which hides the batch axis. Here the slots
become a batch of matmuls over rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

MOST_SLOTS = 16
"""The most slots that are multiplied one by one."""
MOST_HEADS = 32
"""The most matmuls that are recorded one by one."""


class RowAxes:
    """The batch axis of each matmul, recorded in the first trace, where no other axis has the size of the batch."""

    def __init__(self) -> None:
        self._found: list[int | None] = []
        self._rows = self._place = 0

    def begin(self, rows: int) -> None:
        """A trace for `rows` rows begins."""
        self._rows, self._place = rows, 0

    def of(self, shape: torch.Size) -> int | None:
        """The batch axis of the operand of the next matmul; None if it differs from that of the first trace."""
        if self._place == len(self._found):
            self._found.append(next((axis for axis, size in enumerate(shape[:-1]) if size == self._rows), None))
        axis = self._found[self._place]
        self._place += 1
        there = axis is not None and axis < len(shape) - 1 and shape[axis] == self._rows
        return axis if there else None


def linear(axes: RowAxes, original: Callable[..., Any], x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """`torch.nn.functional.linear`."""
    is_plain = bias is None or (bias.ndim == 1 and bias.dtype == x.dtype)
    if x.ndim < 3 or weight.ndim != 2 or not is_plain:
        return original(x, weight, bias)
    made = matmul(axes, None, x, weight.t())
    if made is None:
        return original(x, weight, bias)
    return made if bias is None else made + bias


def matmul(axes: RowAxes, original: Callable[..., Any] | None, one: Any, other: Any) -> Any:
    """`torch.matmul`."""
    made = None
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.ndim >= 3 and other.ndim == 2:
            axis = axes.of(one.shape)
            made = None if axis is None else _by_slots(one, other, axis)
        elif one.ndim == 2 and other.ndim >= 3:
            axis = axes.of(other.shape)
            if axis is not None and axis < other.ndim - 2:
                made = _by_slots(other.transpose(-2, -1), one.t(), axis).transpose(-2, -1)
        elif one.ndim == other.ndim == 4:
            made = by_heads(one, other)
    return made if made is not None or original is None else original(one, other)


def by_heads(one: Tensor, other: Tensor) -> Tensor | None:
    """`[n, heads, L, E] @ [n, heads, E, S]`, head by head; None if the numbers differ or are too large."""
    if one.shape[:2] != other.shape[:2] or one.shape[1] > MOST_HEADS:
        return None
    return torch.stack([one[:, head] @ other[:, head] for head in range(one.shape[1])], 1)


def _by_slots(x: Tensor, weights: Tensor, axis: int) -> Tensor:
    """`x [..., n, ..., E] @ weights [E, F]` with rows along `axis`."""
    moved = x.movedim(axis, -2)
    others, (rows, size) = moved.shape[:-2], moved.shape[-2:]
    slots, width = math.prod(others), weights.shape[1]
    if slots == 1:
        return (x.reshape(rows, size) @ weights).reshape(*x.shape[:-1], width)
    if slots <= MOST_SLOTS and x.device.type == "cpu":
        # Kernels multiply rows, so slots go one by one; torch is faster with all at once.
        each = moved.movedim(-2, 0).reshape(rows, slots, size).unbind(1)
        together = torch.stack([slot @ weights for slot in each], 1)
        return together.reshape(rows, *others, width).movedim(0, axis)
    product = torch.bmm(moved.reshape(slots, rows, size), weights.expand(slots, size, width))
    return product.reshape(*others, rows, width).movedim(-2, axis)


def multi_head_attention_forward(  # noqa: PLR0913 (torch's signature)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """What `torch.nn.MultiheadAttention` calls: queries [L, N, E], keys and values [S, N, E], head by head."""
    rare = (bias_k, bias_v, static_k, static_v)
    masked_by_row = attn_mask is not None and attn_mask.ndim != 2
    if query.ndim != 3 or add_zero_attn or masked_by_row or any(extra is not None for extra in rare):
        given = locals()
        names = functional.multi_head_attention_forward.__code__.co_varnames[:25]
        return functional.multi_head_attention_forward(**{name: given[name] for name in names})
    sources = (query, key, value)
    if use_separate_proj_weight:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        weights = (None, None, None) if in_proj_weight is None else in_proj_weight.chunk(3)
    biases: Any = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    projected = [_projected(*each).chunk(num_heads, 2) for each in zip(sources, weights, biases, strict=True)]
    mask = _mask(query, attn_mask, key_padding_mask)
    seen = [_attention(q, k, mask) for q, k, _ in zip(*projected, strict=True)]
    if dropout_p > 0:
        seen = [functional.dropout(attention, dropout_p, training) for attention in seen]
    heads = [torch.bmm(attention, v.transpose(0, 1)) for attention, v in zip(seen, projected[2], strict=True)]
    joined = torch.cat(heads, 2).transpose(0, 1)
    outputs = _projected(joined, out_proj_weight, out_proj_bias)
    if not need_weights:
        return outputs, None
    each_head = torch.stack(seen, 1)
    return outputs, each_head.mean(1) if average_attn_weights else each_head


def _attention(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """The attention weights of each query of a row [N, L, S]."""
    scores = torch.bmm(query.transpose(0, 1) / math.sqrt(query.shape[2]), key.permute(1, 2, 0))
    return torch.softmax(scores if mask is None else scores + mask, -1)


def _projected(x: Tensor, weight: Any, bias: Any) -> Tensor:
    """A projection of rows along the second axis."""
    made = _by_slots(x, weight.t(), 1)
    return made if bias is None else made + bias


def _mask(query: Tensor, attention: Tensor | None, padding: Tensor | None) -> Tensor | None:
    """The bias of scores [N, L, S]: minus infinity at masked places."""
    masks = [mask for mask in (attention, None if padding is None else padding.unsqueeze(1)) if mask is not None]
    total = None
    for mask in masks:
        added = mask
        if mask.dtype == torch.bool:
            added = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -math.inf)
        total = added if total is None else total + added
    return total


def layer_norm(
    axes: RowAxes,
    original: Callable[..., Any],
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """`torch.nn.functional.layer_norm` with rows along the first axis: its gradient would treat them as features."""
    axis = axes.of(x.shape) if x.ndim > 2 else None
    if not axis or axis >= x.ndim - len(normalized_shape):
        return original(x, normalized_shape, weight, bias, eps)
    return original(x.movedim(axis, 0), normalized_shape, weight, bias, eps).movedim(0, axis)


PRODUCTS: dict[str, Callable[..., Any]] = {
    "linear": linear,
    "matmul": matmul,
    "__matmul__": matmul,
    "layer_norm": layer_norm,
}
"""By name: torch has several Python objects for each function."""
