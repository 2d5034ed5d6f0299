"""Torch functions that are traced as others, from which more can leave the loop or be lowered."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.trace.batched_matmul import (
    MOST_SLOTS,
    PRODUCTS,
    RowAxes,
    by_heads,
    matmul,
    multi_head_attention_forward,
)

aten = torch.ops.aten


def einsum(axes: RowAxes, original: Callable[..., Any], equation: str, *operands: Any) -> Any:
    """Two matrices as a matmul, other operands from left to right: the best order depends on the batch size."""
    given = list(operands) if isinstance(operands[0], Tensor) else list(operands[0])
    terms, _, result = "".join(equation.split()).partition("->")
    left, _, right = terms.partition(",")
    shared, open_ends = set(left) & set(right), set(left) ^ set(right)
    is_product = len(shared) == 1 and open_ends == set(result) and len(result) == 2
    if is_product and len(given) == 2 and len(left) == len(right) == 2:
        one = given[0] if left[1] in shared else given[0].t()
        other = given[1] if right[0] in shared else given[1].t()
        # A dimension of size 1 would be broadcast.
        if one.shape[1] == other.shape[0]:
            return one @ other if result[0] in left else (one @ other).t()
    if len(given) == 2 and "." not in terms and _fit(given, (left, right)):
        if _folds(left, right, result):
            spread = _by_letters(given, (left, right), result)
        else:
            spread = _with_matrices(axes, given, (left, right), result)
        if spread is not None:
            return spread
    return aten.einsum.default(equation, given)


def _fit(operands: list[Tensor], terms: tuple[str, str]) -> bool:
    """Whether every dimension has its own letter, and every letter one size: size 1 would be broadcast."""
    pairs = list(zip(terms, operands, strict=True))
    if any(len({*term}) != len(term) or len(term) != x.ndim for term, x in pairs):
        return False
    found = {(letter, size) for term, x in pairs for letter, size in zip(term, x.shape, strict=True)}
    return len(dict(found)) == len(found)


def _with_matrices(axes: RowAxes, operands: list[Tensor], terms: tuple[str, str], result: str) -> Tensor | None:
    """Slots times one matrix, or each group of slots times its own; None for other equations."""
    found = [axes.of(torch.Size((*x.shape, 1))) for x in operands]
    (axis, x, ours), (other, weights, theirs) = sorted(
        zip(found, operands, terms, strict=True), key=lambda part: part[0] is None
    )
    shared = {*ours} & {*theirs}
    groups, summed = "".join(shared & {*result}), "".join(shared - {*result})
    if axis is None or other is not None or len(summed) != 1 or ours[axis] in shared:
        return None
    if {*ours, *theirs} - shared != {*result} - shared:
        return None
    if not groups and len(theirs) == 2 and len(ours) > 2:
        made = matmul(axes, None, x.movedim(ours.index(summed), -1), weights if theirs[0] == summed else weights.t())
        letters = ours.replace(summed, "") + theirs.replace(summed, "")
    elif len(groups) == 1 and len(ours) == len(theirs) == 3 and x.shape[ours.index(groups)] <= MOST_SLOTS:
        made = _by_groups((x, ours), (weights, theirs), groups, summed)
        letters = ours[axis] + groups + theirs.replace(summed, "").replace(groups, "")
    else:
        return None
    return None if made is None else made.permute([letters.index(letter) for letter in result])


def _by_groups(one: tuple[Tensor, str], other: tuple[Tensor, str], group: str, summed: str) -> Tensor:
    """Rows times a matrix, for each group; the group dimension of the result is between those of rows and columns."""
    ours, theirs = (term.replace(group, "") for _, term in (one, other))
    each = range(one[0].shape[one[1].index(group)])
    left, right = ([x.select(term.index(group), number) for number in each] for x, term in (one, other))
    if ours[0] == summed:
        left = [part.t() for part in left]
    if theirs[1] == summed:
        right = [part.t() for part in right]
    return torch.stack([a @ b for a, b in zip(left, right, strict=True)], 1)


def _folds(left: str, right: str, result: str) -> bool:
    """Whether torch would fold several dimensions, the rows among them, into one, as it does for heads."""
    plain = len({*left}) == len(left) and len({*right}) == len(right) and {*left, *right} >= {*result}
    return plain and len({*left} & {*right} & {*result}) > 1


def _by_letters(operands: list[Tensor], terms: tuple[str, str], result: str) -> Tensor | None:
    """Broadcast products and a sum; None if the products would be much larger than the operands."""
    pairs = list(zip(terms, operands, strict=True))
    sizes = {letter: size for term, x in pairs for letter, size in zip(term, x.shape, strict=True)}
    if math.prod(sizes.values()) > 2 * max(x.numel() for x in operands):
        return None
    letters = result + "".join(letter for letter in sizes if letter not in result)
    one, other = (_along_letters(x, term, letters) for term, x in pairs)
    summed = list(range(len(result), len(letters)))
    product = one * other
    # A sum of integers is promoted to int64, an einsum is not.
    return product.sum(summed, dtype=product.dtype) if summed else product


def _along_letters(x: Tensor, term: str, letters: str) -> Tensor:
    """With a dimension for each letter, of size 1 for those that it does not have."""
    x = x.permute([term.index(letter) for letter in letters if letter in term])
    for place, letter in enumerate(letters):
        if letter not in term:
            x = x.unsqueeze(place)
    return x


def lstm_cell(inputs: Tensor, state: Any, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Any:
    """`torch.nn.LSTMCell`, without its in-place operations on parts of the gates."""
    h, c = state
    gates = functional.linear(inputs, w_x, b_x) + functional.linear(h, w_h, b_h)
    entering, forget, new, leaving = gates.chunk(4, 1)
    c = torch.sigmoid(forget) * c + torch.sigmoid(entering) * torch.tanh(new)
    return torch.sigmoid(leaving) * torch.tanh(c), c


def gru_cell(inputs: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Tensor:
    """`torch.nn.GRUCell`."""
    reset_x, update_x, new_x = functional.linear(inputs, w_x, b_x).chunk(3, 1)
    reset_h, update_h, new_h = functional.linear(h, w_h, b_h).chunk(3, 1)
    new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
    return new + torch.sigmoid(update_x + update_h) * (h - new)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The CPU kernel of torch needs contiguous features and does not check that."""
    scores_shape = (*query.shape[:-1], key.shape[-2])
    if attn_mask is not None and (is_causal or not _is_mask(attn_mask, query.dtype, scores_shape)):
        raise Uncompilable("attention has a mask of a kind that is not known")
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    # Torch computes half precision in float32.
    q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (query, key, value))
    scores = _multiplied(q * (q.shape[-1] ** -0.5 if scale is None else scale), k.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        is_choice = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_choice else scores + attn_mask
    seen = aten._safe_softmax.default(scores, -1)
    if dropout_p > 0:
        seen = functional.dropout(seen, dropout_p)
    return _multiplied(seen, v).to(query.dtype)


def _is_mask(mask: Tensor, dtype: torch.dtype, scores: Sequence[int]) -> bool:
    """Whether a mask has an entry for every score."""
    fits = mask.ndim <= len(scores) and all(
        size in (1, wanted) for size, wanted in zip(reversed(mask.shape), reversed(scores), strict=False)
    )
    return fits and mask.dtype in (torch.bool, dtype)


def _multiplied(one: Tensor, other: Tensor) -> Tensor:
    made = by_heads(one, other) if one.ndim == other.ndim == 4 else None
    return one @ other if made is None else made


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Without the check of torch that groups of a single row have several elements: other rows do not matter to it."""
    return torch.group_norm(x, num_groups, weight, bias, eps)


REPLACED: dict[str, Callable[..., Any]] = {
    "group_norm": group_norm,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "multi_head_attention_forward": multi_head_attention_forward,
}
"""By name: torch has several Python objects for each function."""

MOST_SUMMED = 64 * 64
"""The most elements of a row for which prefix sums are recorded as sums over masked copies."""


def cumsum(axes: RowAxes, original: Callable[..., Tensor], x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Prefix sums as sums over masked copies: kernels have sums, but no scan within a row."""
    axis = axes.of(torch.Size((*x.shape, 1)))
    is_place = -x.ndim <= dim < x.ndim
    given = x if dtype is None else x.to(dtype)
    if axis is None or not is_place or dim % x.ndim == axis or not given.is_floating_point():
        return original(x, dim, dtype=dtype)
    size, is_last = x.shape[dim], dim % x.ndim == x.ndim - 1
    if x.numel() // x.shape[axis] * size > MOST_SUMMED:
        return original(x, dim, dtype=dtype)
    up_to = torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
    each = torch.where(up_to, (given if is_last else given.movedim(dim, -1)).unsqueeze(-2), 0.0)
    return each.sum(-1) if is_last else each.sum(-1).movedim(-1, dim)


class _CumulativeProduct(torch.autograd.Function):
    """`cumprod` along the last dimension; the gradient of torch takes several operations for each element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = x.cumprod(-1)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The gradient of a product of prefixes, with few operations."""
        x, result = ctx.saved_tensors
        size = x.shape[-1]
        every = torch.ones(size, size, dtype=torch.bool, device=x.device)
        between = torch.where(every.triu(1), x.unsqueeze(-2), 1.0).cumprod(-1)
        from_here = torch.where(every.triu(), between, 0.0)
        before = torch.cat([torch.ones_like(result[..., :1]), result[..., :-1]], -1)
        return before * (from_here * gradients[0].unsqueeze(-2)).sum(-1)


def cumprod(axes: RowAxes, original: Callable[..., Tensor], x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The same values, with a gradient of few operations."""
    axis = axes.of(torch.Size((*x.shape, 1)))
    given = x if dtype is None else x.to(dtype)
    is_place = -x.ndim <= dim < x.ndim
    if axis is None or not is_place or dim % x.ndim == axis or not given.is_floating_point():
        return original(x, dim, dtype=dtype)
    if not given.requires_grad or x.numel() // x.shape[axis] * x.shape[dim] > MOST_SUMMED:
        return original(x, dim, dtype=dtype)
    made: Tensor = _CumulativeProduct.apply(given.movedim(dim, -1))  # type: ignore[no-untyped-call]
    return made.movedim(-1, dim)


def _triangle(axes: RowAxes, original: Callable[..., Tensor], x: Tensor, diagonal: int = 0) -> Tensor:
    """`tril` and `triu` of matrices of rows: zeros in the other half."""
    axis = axes.of(torch.Size((*x.shape, 1)))
    if axis is None or axis >= x.ndim - 2 or x.dtype == torch.bool:
        return original(x, diagonal)
    kept = original(torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device), diagonal)
    return torch.where(kept, x, torch.zeros((), dtype=x.dtype, device=x.device))


BY_AXES: dict[str, Callable[..., Any]] = {
    **PRODUCTS,
    "einsum": einsum,
    "cumsum": cumsum,
    "cumprod": cumprod,
    "tril": _triangle,
    "triu": _triangle,
}
"""The same for replacements that need the batch axis; they are called with it and with the function replaced."""
