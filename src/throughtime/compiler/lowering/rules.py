"""Lowering rules: from a node of a step to operations of a loop program. The operation table names them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Node, Value
from throughtime.compiler.ir.loop_ir import BINARY, COMPARISONS, Row
from throughtime.compiler.ir.strided_view import StridedView
from throughtime.compiler.lowering.builder import Lowering, shape_in
from throughtime.compiler.lowering.decompositions import COMPOSITES, layer_norm, layer_norm_backward
from throughtime.compiler.lowering.layout_rules import LAYOUT_RULES, Rule, features_axis


def rule_for(node: Node) -> Rule | None:
    """The rule for a node, if the operation table has one."""
    name = node.operation.lowering
    return None if name is None else LOWERING_RULES[name]


def _computing_dtype(node: Node) -> torch.dtype:
    """The dtype in which a comparison is made."""
    # By the type promotion of torch: scalars count less than tensors, Python numbers even less.
    compared = [
        torch.empty([0] * len(arg.shape), dtype=arg.dtype) if isinstance(arg, Value) else arg for arg in node.args
    ]
    return torch.result_type(*compared[:2]) if len(compared) > 1 else compared[0].dtype


def _same_name(lowering: Lowering, node: Node) -> Row:
    """The pointwise operation of the same name."""
    _check_real(node)
    result = node.result
    count = 2 if node.name in BINARY else 1
    within = _computing_dtype(node) if node.name in COMPARISONS else result.dtype
    if node.name in ("logical_and", "logical_or", "logical_not"):
        within = torch.bool
    args = [lowering.operand(arg, result, within) for arg in node.args[:count]]
    for option in node.target._schema.arguments[count:]:
        # Loop programs have no options, such as a rounding mode.
        if node.arg(option.name) != option.default_value:
            raise Uncompilable(f"{node.title} has {option.name}={node.arg(option.name)}")
    return lowering.pointwise(node.name, *args, dtype=result.dtype, name=result.name)


def _check_real(node: Node) -> None:
    for value in node.values:
        if value.dtype.is_complex:
            raise Uncompilable("it computes with complex numbers")


def _scaled_sum(lowering: Lowering, node: Node) -> Row:
    """`add` and `sub`, which may scale their second argument."""
    result, alpha = node.result, node.arg("alpha")
    one, other = (lowering.operand(arg, result, result.dtype) for arg in node.args[:2])
    if alpha != 1 and isinstance(other, Row):
        other = lowering.pointwise("mul", other, alpha, dtype=result.dtype)
    elif alpha != 1:
        assert isinstance(other, int | float)
        other *= alpha
    return lowering.pointwise(node.name, one, other, dtype=result.dtype, name=result.name)


def _mm(lowering: Lowering, node: Node) -> Row:
    left, right = node.args
    if right.has_rows or not left.has_rows or left.row_axis != 0:
        raise Uncompilable("a product is not of rows with a constant matrix")
    _check_floating(left)
    matrix = lowering.matrix(right)
    return lowering.emit(
        "product", lowering.row(left), matrix, width=matrix.columns, dtype=left.dtype, name=node.result.name
    )


def _check_floating(value: Value) -> None:
    if not value.dtype.is_floating_point:
        raise Uncompilable(f"a product is in {str(value.dtype).removeprefix('torch.')}")


def _bmm(lowering: Lowering, node: Node) -> Row:
    """A product of two matrices of a row: broadcast products, and sums over the shared dimension."""
    left, right = node.args
    if left.row_axis != 0 or right.row_axis != 0:
        raise Uncompilable("a product is of matrices that not every row has")
    _check_floating(left)
    (high, inner), (_, wide) = left.row_shape, right.row_shape
    full = (high, inner, wide)
    one, along_one = lowering.axes(lowering.row(left), (high, inner))
    other, along_other = lowering.axes(lowering.row(right), (inner, wide))
    along = (
        StridedView(along_one.start, full, (*along_one.strides, 0)),
        StridedView(along_other.start, full, (0, *along_other.strides)),
    )
    # The summed dimension may come first, second or last: the results are in the same order.
    order = min(((0, 1, 2), (0, 2, 1), (1, 0, 2)), key=lambda order: _gaps([axes.permuted(order) for axes in along]))
    name = node.result.name
    factors = [lowering.strided(row, axes.permuted(order)) for row, axes in zip((one, other), along, strict=True)]
    each = lowering.pointwise("mul", *factors, dtype=left.dtype, name="" if inner > 1 else name)
    return lowering.reduce("sum", each, [full[axis] for axis in order], [order.index(1)], name)


def _gaps(along: Sequence[StridedView]) -> tuple[int, int]:
    """The cost of a loop order: features that are read with strides, then short inner loops."""
    axis = next((axis for axis in (2, 1, 0) if along[0].sizes[axis] > 1), 2)
    size = along[0].sizes[axis]
    features = [
        math.prod(size for size, stride in zip(axes.sizes, axes.strides, strict=True) if stride)
        for axes in along
        if axes.strides[axis] not in (0, 1)
    ]
    return sum(features), -min(size, 64)


def _cast(lowering: Lowering, node: Node) -> Row:
    return lowering.cast_row(lowering.row(node.args[0]), node.result.dtype, node.result.name)


def _fill(lowering: Lowering, node: Node) -> Row:
    result = node.result
    number = {"zeros": 0, "ones": 1}.get(node.name)
    return lowering.fill(Row("", result.row_size, result.dtype), node.arg("fill_value") if number is None else number)


def _reduced_axes(node: Node) -> list[int]:
    """The axes of a row over which a node reduces."""
    source, dims = node.args[0], node.arg("dim")
    every = range(len(source.shape)) if not dims and dims != 0 else [dims] if isinstance(dims, int) else dims
    return [features_axis(source, dim) for dim in every]


def _reduction(lowering: Lowering, node: Node) -> Row:
    source, result = node.args[0], node.result
    row = lowering.cast_row(lowering.row(source), result.dtype)
    return lowering.reduce(node.name, row, source.row_shape, _reduced_axes(node), result.name)


_TRUTHS = {"any": "amax", "all": "amin"}


def _truth(lowering: Lowering, node: Node) -> Row:
    """`any` and `all`."""
    source = node.args[0]
    row = lowering.cast_row(lowering.row(source), torch.bool)
    return lowering.reduce(_TRUTHS[node.name], row, source.row_shape, _reduced_axes(node), node.result.name)


def _norm(lowering: Lowering, node: Node) -> Row:
    """`linalg_vector_norm`, the operation behind `norm` and `normalize`."""
    axes, result, order = _reduced_axes(node), node.result, node.arg("ord")
    x = lowering.formula(node.args[0], result.dtype)
    if order == 2:
        squares = (x * x).reduce("sum", axes)
        return lowering.pointwise("sqrt", squares.row, dtype=result.dtype, name=result.name)
    if order not in (1, math.inf):
        raise Uncompilable(f"{node.title} has ord={order}")
    kind, sizes = "sum" if order == 1 else "amax", x.abs()
    return lowering.reduce(kind, sizes.row, sizes.shape, axes, result.name)


def _logsumexp(lowering: Lowering, node: Node) -> Row:
    axes, result = _reduced_axes(node), node.result
    x = lowering.formula(node.args[0], result.dtype)
    largest = x.reduce("amax", axes)
    # Infinity cannot be subtracted.
    base = largest.where(largest.abs() < math.inf, 0.0)
    logs = (x - base).exp().reduce("sum", axes).log()
    return lowering.pointwise("add", logs.row, base.row, dtype=result.dtype, name=result.name)


def _mean(lowering: Lowering, node: Node) -> Row:
    axes, result = _reduced_axes(node), node.result
    total = lowering.formula(node.args[0], result.dtype).reduce("sum", axes)
    count = math.prod(node.args[0].row_shape[axis] for axis in axes)
    return lowering.pointwise("mul", total.row, 1.0 / count, dtype=result.dtype, name=result.name)


def _var(lowering: Lowering, node: Node) -> Row:
    axes, result = _reduced_axes(node), node.result
    x = lowering.formula(node.args[0], result.dtype)
    correction = node.arg("correction") if node.has_arg("correction") else int(node.arg("unbiased"))
    count = math.prod(x.shape[axis] for axis in axes) - (1 if correction is None else correction)
    apart = x - x.mean(axes)
    total, scale = (apart * apart).reduce("sum", axes), 1.0 / count if count > 0 else math.inf
    var = lowering.pointwise(
        "mul", total.row, scale, dtype=result.dtype, name="" if node.name == "std" else result.name
    )
    return var if node.name == "var" else lowering.pointwise("sqrt", var, dtype=result.dtype, name=result.name)


def _where(lowering: Lowering, node: Node) -> Row:
    result = node.result
    dtypes = (torch.bool, result.dtype, result.dtype)
    args = [lowering.operand(arg, result, dtype) for arg, dtype in zip(node.args, dtypes, strict=True)]
    return lowering.pointwise("where", *args, dtype=result.dtype, name=result.name)


def _composite(lowering: Lowering, node: Node) -> Row:
    """A formula over rows, see `COMPOSITES`."""
    return _formula_row(lowering, node, list(node.args))


def _composite_along_dim(lowering: Lowering, node: Node) -> Row:
    """A formula with a reduction along one dimension."""
    args = list(node.args)
    if args[0].dtype != node.result.dtype:
        raise Uncompilable(f"{node.title} computes in another dtype than that of its result")
    place = [argument.name for argument in node.target._schema.arguments].index("dim")
    args[place] = features_axis(node.result, args[place])
    return _formula_row(lowering, node, args)


def _formula_row(lowering: Lowering, node: Node, args: Sequence[object]) -> Row:
    def formula(arg: object) -> object:
        if isinstance(arg, Value):
            return lowering.formula(arg, node.result.dtype, shape_in(arg, node.result))
        return arg

    options = {key: formula(arg) for key, arg in node.kwargs.items()}
    return COMPOSITES[node.name](*map(formula, args), **options).row


def _power(lowering: Lowering, node: Node) -> Row:
    base, exponent = node.args[:2]
    if isinstance(base, Value) and exponent in (1, 2) and base.dtype == node.result.dtype:
        row = lowering.row(base)
        return row if exponent == 1 else lowering.pointwise("mul", row, row, dtype=row.dtype, name=node.result.name)
    return _same_name(lowering, node)


def _layer_norm(lowering: Lowering, node: Node) -> tuple[Row | None, ...]:
    source, shape, weight, bias, eps = node.args
    groups = _groups(source, shape)
    x = lowering.formula(source, source.dtype, groups)
    gain, shift = (lowering.formula(value, source.dtype, groups[1:]) for value in (weight, bias))
    results = (result.row for result in layer_norm(x, gain, shift, eps))
    # On a GPU, mean and scale of half-precision rows are float32.
    return tuple(lowering.cast_row(row, value.dtype) for row, value in zip(results, node.results, strict=True))


def _layer_norm_backward(lowering: Lowering, node: Node) -> tuple[Row | None, ...]:
    gradient, source, shape, mean, scale, weight, _bias, mask = node.args
    if any(mask[1:]):
        raise Uncompilable("the gradient of a layer norm is not only that of its input")
    groups = _groups(source, shape)
    shapes = (groups, groups, (groups[0], 1), (groups[0], 1), groups[1:])
    values = zip((gradient, source, mean, scale, weight), shapes, strict=True)
    formulas = [lowering.formula(value, source.dtype, shape) for value, shape in values]
    return layer_norm_backward(*formulas).row, None, None


def _groups(source: Value, shape: Sequence[int]) -> tuple[int, int]:
    """The number of groups that are normalised, and the features of each."""
    return source.row_size // math.prod(shape), math.prod(shape)


LOWERING_RULES: dict[str, Rule] = {
    **LAYOUT_RULES,
    "bmm": _bmm,
    "cast": _cast,
    "composite": _composite,
    "composite_along_dim": _composite_along_dim,
    "fill": _fill,
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "logsumexp": _logsumexp,
    "mean": _mean,
    "mm": _mm,
    "norm": _norm,
    "power": _power,
    "reduction": _reduction,
    "same_name": _same_name,
    "scaled_sum": _scaled_sum,
    "truth": _truth,
    "var": _var,
    "where": _where,
}
"""By the name that the `lowering` column of the operation table has."""
