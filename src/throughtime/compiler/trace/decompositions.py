"""Operations that are recorded as several simpler ones, so that each part can leave the loop by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime._torch_internals import OpOverload
from throughtime.compiler.errors import Uncompilable

aten = torch.ops.aten


def _tensor(result: Tensor) -> Tensor:
    """The result of an operation, typed."""
    return result


def _plus_bias(multiply: OpOverload) -> Callable[..., Tensor]:
    """A matmul and the addition of a bias."""

    def decompose(bias: Tensor, one: Tensor, other: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        product = multiply(one, other)
        if alpha != 1:
            product = aten.mul.Tensor(product, alpha)
        if beta != 1:
            bias = aten.mul.Tensor(bias, beta)
        return _tensor(aten.add.Tensor(product, bias))

    return decompose


def _mv(matrix: Tensor, vector: Tensor) -> Tensor:
    return _tensor(aten.squeeze.dim(aten.mm.default(matrix, aten.unsqueeze.default(vector, 1)), 1))


def _trilinear(
    one: Tensor, two: Tensor, three: Tensor, e1: list[int], e2: list[int], e3: list[int], sums: list[int], _: int = 1
) -> Tensor:
    """The operation behind `bilinear`: a product of three tensors with inserted dimensions, summed over others."""
    letters = "abcdefgh"[: one.ndim + len(e1)]
    terms = ["".join(letter for place, letter in enumerate(letters) if place not in e) for e in (e1, e2, e3)]
    kept = "".join(letter for place, letter in enumerate(letters) if place not in sums)
    return _tensor(aten.einsum.default.decompose(f"{','.join(terms)}->{kept}", [one, two, three]))


def _split(value: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    dim %= value.ndim
    starts = range(0, max(value.shape[dim], 1), max(size, 1))
    return [aten.slice.Tensor(value, dim, start, min(start + size, value.shape[dim])) for start in starts]


def _split_with_sizes(value: Tensor, sizes: list[int], dim: int = 0) -> list[Tensor]:
    dim %= value.ndim
    parts, start = [], 0
    for size in sizes:
        parts.append(aten.slice.Tensor(value, dim, start, start + size))
        start += size
    return parts


def _unbind(value: Tensor, dim: int = 0) -> list[Tensor]:
    return [aten.select.int(value, dim, index) for index in range(value.shape[dim])]


def _native_dropout(value: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if not train:
        return value, aten.ones_like.default(value, dtype=torch.bool)
    kept = aten.bernoulli.p(aten.empty_like.default(value), 1 - p)
    scaled = aten.mul.Tensor(kept, 1 / (1 - p) if p < 1 else 0.0)
    return aten.mul.Tensor(value, scaled), aten._to_copy.default(kept, dtype=torch.bool)


def _rsub(one: Tensor, other: Any, alpha: float = 1) -> Tensor:
    """`other - alpha * one`, as a sum: subtraction has no overload with a number on the left."""
    return _tensor(aten.add.Tensor(aten.mul.Tensor(one, -alpha), other))


def _addcmul(base: Tensor, one: Tensor, other: Tensor, *, value: float = 1) -> Tensor:
    product = aten.mul.Tensor(one, other)
    return _tensor(aten.add.Tensor(base, product if value == 1 else aten.mul.Tensor(product, value)))


def _addcdiv(base: Tensor, one: Tensor, other: Tensor, *, value: float = 1) -> Tensor:
    quotient = aten.div.Tensor(one, other)
    return _tensor(aten.add.Tensor(base, quotient if value == 1 else aten.mul.Tensor(quotient, value)))


def _lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    return _tensor(aten.add.Tensor(start, aten.mul.Tensor(aten.sub.Tensor(end, start), weight)))


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return _tensor(aten.where.self(aten.gt.Scalar(x, 0), x, aten.mul.Tensor(weight, x)))


def _prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    above, none = aten.gt.Scalar(x, 0), aten.zeros.default([], dtype=x.dtype, device=x.device)
    of_x = aten.where.self(above, grad, aten.mul.Tensor(weight, grad))
    return of_x, aten.where.self(above, none, aten.mul.Tensor(x, grad))


def _like(factory: OpOverload) -> Callable[..., Tensor]:
    """Draw or fill by shape alone, so that the result does not depend on the tensor that it is like."""

    def make(value: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Tensor:
        made: Tensor = factory(list(value.shape), dtype=dtype or value.dtype, device=device or value.device)
        return made

    return make


def _full_like(value: Tensor, fill: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    made: Tensor = aten.full.default(list(value.shape), fill, dtype=dtype or value.dtype, device=device or value.device)
    return made


def _new(fill: OpOverload) -> Callable[..., Tensor]:
    def make(value: Tensor, size: list[int], *args: Any, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
        made: Tensor = fill(size, *args, dtype=dtype or value.dtype, device=device or value.device)
        return made

    return make


def _select_backward(grad: Tensor, sizes: list[int], dim: int, index: int) -> Tensor:
    dim, index = dim % len(sizes), index % sizes[dim]
    return _slice_backward(aten.unsqueeze.default(grad, dim), sizes, dim, index, index + 1, 1)


def _masked_fill(value: Tensor, mask: Tensor, fill: Any) -> Tensor:
    if not isinstance(fill, Tensor):
        fill = aten.full.default([], fill, dtype=value.dtype, device=value.device)
    return _tensor(aten.where.self(mask, fill, value))


def _fill(value: Tensor, fill: Any) -> Tensor:
    return _full_like(value, fill)


def _zero(value: Tensor) -> Tensor:
    return _tensor(aten.zeros.default(list(value.shape), dtype=value.dtype, device=value.device))


def _copy(value: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The new contents of `value` after `value.copy_(source)`."""
    if source.dtype != value.dtype:
        source = aten._to_copy.default(source, dtype=value.dtype)
    return source if source.shape == value.shape else _tensor(aten.expand.default(source, list(value.shape)))


def _index_put(value: Tensor, indices: list[Any], piece: Tensor, accumulate: bool = False) -> Any:
    """One number at the places of a mask is a `where`; other forms are not decomposed."""
    mask = indices[0]
    chosen = len(indices) == 1 and mask.dtype == torch.bool and piece.ndim == 0
    if not chosen:
        return NotImplemented
    mask = aten.view.default(mask, [*mask.shape, *[1] * (value.ndim - mask.ndim)])
    piece = piece if piece.dtype == value.dtype else aten._to_copy.default(piece, dtype=value.dtype)
    return aten.where.self(mask, aten.add.Tensor(value, piece) if accumulate else piece, value)


def _slice_backward(grad: Tensor, sizes: list[int], dim: int, start: int, end: int, step: int) -> Tensor:
    zeros = aten.zeros.default(sizes, dtype=grad.dtype, device=grad.device)
    return _tensor(aten.slice_scatter.default(zeros, grad, dim, start, end, step))


def _glu(x: Tensor, dim: int = -1) -> Tensor:
    value, gate = _split(x, x.shape[dim] // 2, dim)
    return _tensor(aten.mul.Tensor(value, aten.sigmoid.default(gate)))


def _glu_backward(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    value, gate = _split(x, x.shape[dim] // 2, dim)
    opened = aten.sigmoid.default(gate)
    through = aten.mul.Tensor(grad, opened)
    of_gate = aten.mul.Tensor(aten.mul.Tensor(through, value), _rsub(opened, 1))
    return _tensor(aten.cat.default([through, of_gate], dim))


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """Without the buffer that torch saves for the gradient, whose size depends on the device."""
    nothing = aten.zeros.default([0], dtype=x.dtype, device=x.device)
    rest = aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(x))))
    return aten.sub.Tensor(aten.clamp.default(x, None, 0), rest), nothing


def _log_sigmoid_backward(grad: Tensor, x: Tensor, _buffer: Tensor) -> Tensor:
    return _tensor(aten.mul.Tensor(grad, aten.sigmoid.default(aten.neg.default(x))))


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """With given statistics, a batch norm is a scale and a shift."""
    if training or mean is None:
        raise Uncompilable("the rows of a batch are not independent: a batch norm takes its statistics of them")
    shape = [1, -1, *[1] * (x.ndim - 2)]
    y = (x - mean.view(shape)) * torch.rsqrt(var + eps).view(shape)
    y = y if weight is None else y * weight.view(shape)
    nothing = aten.zeros.default([0], dtype=x.dtype, device=x.device)
    return y if bias is None else y + bias.view(shape), nothing, nothing


def _batch_norm_backward(
    d: Tensor, x: Tensor, weight: Any, mean: Any, var: Any, _m: Any, _s: Any, _train: bool, eps: float, mask: list[bool]
) -> Any:
    shape, others = [1, -1, *[1] * (x.ndim - 2)], [0, *range(2, x.ndim)]
    scale = torch.rsqrt(var + eps).view(shape)
    dx = d * scale if weight is None else d * (scale * weight.view(shape))
    dweight = aten.sum.dim_IntList(d * ((x - mean.view(shape)) * scale), others) if mask[1] else None
    return dx, dweight, aten.sum.dim_IntList(d, others) if mask[2] else None


def _group_norm(
    x: Tensor, weight: Any, bias: Any, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer norm over the features of each group."""
    each = c // groups * size
    y, mean, rstd = aten.native_layer_norm.default(x.view(n, groups, each), [each], None, None, eps)
    shape, y = [1, -1, *[1] * (x.ndim - 2)], y.view(x.shape)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape), mean.view(n, groups), rstd.view(n, groups)


def _group_norm_backward(  # noqa: PLR0913 (aten's signature)
    d: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, n: int, c: int, size: int, groups: int, mask: Any
) -> Any:
    shape, parts = [1, -1, *[1] * (x.ndim - 2)], [n, groups, c // groups * size]
    mean, rstd, others = mean.view(n, groups, 1), rstd.view(n, groups, 1), [0, *range(2, x.ndim)]
    inner = (d if weight is None else d * weight.view(shape)).reshape(parts)
    masked = aten.native_layer_norm_backward.default(
        inner, x.reshape(parts), parts[2:], mean, rstd, None, None, [True, False, False]
    )
    normal = ((x.reshape(parts) - mean) * rstd).view(x.shape)
    dweight = aten.sum.dim_IntList(d * normal, others) if mask[1] else None
    return masked[0].view(x.shape), dweight, aten.sum.dim_IntList(d, others) if mask[2] else None


# A decomposition returns `NotImplemented` for arguments that it does not support.
DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.addmm.default: _plus_bias(aten.mm.default),
    aten.baddbmm.default: _plus_bias(aten.bmm.default),
    aten.mv.default: _mv,
    aten._trilinear.default: _trilinear,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.unbind.int: _unbind,
    aten.native_dropout.default: _native_dropout,
    aten.rsub.Scalar: _rsub,
    aten.rsub.Tensor: _rsub,
    aten.addcmul.default: _addcmul,
    aten.addcdiv.default: _addcdiv,
    aten._prelu_kernel.default: _prelu,
    aten._prelu_kernel_backward.default: _prelu_backward,
    aten.lerp.Scalar: _lerp,
    aten.lerp.Tensor: _lerp,
    aten.rand_like.default: _like(aten.rand.default),
    aten.randn_like.default: _like(aten.randn.default),
    aten.zeros_like.default: _like(aten.zeros.default),
    aten.ones_like.default: _like(aten.ones.default),
    aten.empty_like.default: _like(aten.empty.memory_format),
    aten.full_like.default: _full_like,
    aten.new_zeros.default: _new(aten.zeros.default),
    aten.new_ones.default: _new(aten.ones.default),
    aten.new_empty.default: _new(aten.empty.memory_format),
    aten.new_full.default: _new(aten.full.default),
    aten.select_backward.default: _select_backward,
    aten.slice_backward.default: _slice_backward,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.glu.default: _glu,
    aten.glu_backward.default: _glu_backward,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.fill.Scalar: _fill,
    aten.fill.Tensor: _copy,
    aten.zero.default: _zero,
    aten.copy.default: _copy,
    aten.index_put.default: _index_put,
}
