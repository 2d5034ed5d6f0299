"""Functions of torch that are traced as other ones: what torch does for them itself says less than what they mean."""

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
    """A product of two matrices as one, and anything else in the order written: the best one depends on the rows."""
    given = list(operands) if isinstance(operands[0], Tensor) else list(operands[0])
    terms, _, result = "".join(equation.split()).partition("->")
    left, _, right = terms.partition(",")
    shared, open_ends = set(left) & set(right), set(left) ^ set(right)
    is_product = len(shared) == 1 and open_ends == set(result) and len(result) == 2
    if is_product and len(given) == 2 and len(left) == len(right) == 2:
        one = given[0] if left[1] in shared else given[0].t()
        other = given[1] if right[0] in shared else given[1].t()
        # A dimension of one would be repeated.
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
    """Whether every dimension has a letter of its own, of one size: a dimension of one would be repeated."""
    pairs = list(zip(terms, operands, strict=True))
    if any(len({*term}) != len(term) or len(term) != x.ndim for term, x in pairs):
        return False
    found = {(letter, size) for term, x in pairs for letter, size in zip(term, x.shape, strict=True)}
    return len(dict(found)) == len(found)


def _with_matrices(axes: RowAxes, operands: list[Tensor], terms: tuple[str, str], result: str) -> Tensor | None:
    """Slots times one matrix, or each group of them times its own; None if it is something else."""
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
    """Rows times a matrix, for each group: what is left of both has the groups between."""
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
    """Everything times everything, and sums; None if that would be much more than there is."""
    pairs = list(zip(terms, operands, strict=True))
    sizes = {letter: size for term, x in pairs for letter, size in zip(term, x.shape, strict=True)}
    if math.prod(sizes.values()) > 2 * max(x.numel() for x in operands):
        return None
    letters = result + "".join(letter for letter in sizes if letter not in result)
    one, other = (_along_letters(x, term, letters) for term, x in pairs)
    summed = list(range(len(result), len(letters)))
    product = one * other
    # A sum of whole numbers would have room for more than an einsum has.
    return product.sum(summed, dtype=product.dtype) if summed else product


def _along_letters(x: Tensor, term: str, letters: str) -> Tensor:
    """With a dimension for each of the letters, of one where it has none."""
    x = x.permute([term.index(letter) for letter in letters if letter in term])
    for place, letter in enumerate(letters):
        if letter not in term:
            x = x.unsqueeze(place)
    return x


def lstm_cell(inputs: Tensor, state: Any, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Any:
    """`torch.nn.LSTMCell`, which works in place on parts of its gates."""
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
    """Of torch's own kernels for it the CPU's wants features side by side, and does not look whether they are."""
    scores_shape = (*query.shape[:-1], key.shape[-2])
    if attn_mask is not None and (is_causal or not _is_mask(attn_mask, query.dtype, scores_shape)):
        raise Uncompilable("attention has a mask of a kind that is not known")
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    # Torch computes half precision in single.
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
    """Whether a mask is one that every score has an entry of."""
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
    """Without the check of torch that a single row has more than one number to a group: other rows do not change it."""
    return torch.group_norm(x, num_groups, weight, bias, eps)


REPLACED: dict[str, Callable[..., Any]] = {
    "group_norm": group_norm,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "multi_head_attention_forward": multi_head_attention_forward,
}
"""By name: torch has several Python objects for one function."""

MOST_SUMMED = 64 * 64
"""How many numbers a row may have if each feature is summed with all before it."""


def cumsum(axes: RowAxes, original: Callable[..., Tensor], x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Everything up to each place, summed up there: kernels have sums, and know no order within a row."""
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
    """`cumprod` along the last dimension; torch writes its gradient down as some operations for each place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = x.cumprod(-1)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """All before a place, times the sum over all from there on of what lies between, times their gradients."""
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
    """`tril` and `triu` of the matrices of rows: zeros in the place of the other half."""
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
"""The same for those that ask where rows are; each is told that, and what it stands for."""
