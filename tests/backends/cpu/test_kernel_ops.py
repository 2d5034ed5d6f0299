"""Each operation of a loop program against torch: NaN, infinities, extremes, every dtype; and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from loop_programs import packed
from throughtime.backends.cpu import compile_loop, unsupported_reason
from throughtime.compiler.ir.loop_ir import BINARY, COMPARISONS, DTYPES, REDUCTIONS, UNARY, LoopProgram, Op, Row

pytestmark = pytest.mark.covers("kernels")

# Half precision is for GPUs: `refusal` says so.
KERNEL_DTYPES = [dtype for dtype in DTYPES if dtype.itemsize != 2]

FLOATS = (torch.float32, torch.float64)
INFINITY, NAN = math.inf, math.nan


def special(dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if not dtype.is_floating_point:
        return torch.tensor([0, 1, -1, 2, 5, -7, 100, 2**31 - 1, -(2**31)], dtype=dtype)
    info = torch.finfo(dtype)
    odd = [0.0, -0.0, INFINITY, -INFINITY, NAN, info.max, info.min, info.tiny, info.tiny / 8, info.eps, -info.eps]
    odd += [0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, -7.0, 20.0, -20.0, 88.5, -87.0, 100.0, -100.0, 709.0, -745.0]
    sweep = [torch.linspace(-12, 12, 301, dtype=dtype), torch.logspace(-20, 20, 81, dtype=dtype)]
    return torch.cat([torch.tensor(odd, dtype=dtype), *sweep])


def run_op(kind: str, dtype: torch.dtype, args: list[Tensor | float], rows: list[Row]) -> Tensor | str:
    """One operation on streams; a refusal as text."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    names = iter(rows)
    operands = tuple(next(names) if isinstance(arg, Tensor) else arg for arg in args)
    width = 1 if kind in REDUCTIONS else tensors[0].shape[1]
    op = Op(kind, Row("out", width, dtype), operands)
    program = LoopProgram(kind, False, tuple(rows), (), (), (), (), (op,), (op.result,))
    if (reason := unsupported_reason(program)) is not None:
        return reason
    steps, count = packed(len(tensors[0]))
    out = torch.empty(count, width, dtype=dtype)
    compile_loop(program).run(tensors, [], [], [], [], [out], steps, 0, 1, 1)
    return out


def pointwise(kind: str, *args: Tensor | float, dtype: torch.dtype | None = None) -> Tensor | str:
    """An operation on vectors of any length, laid out in rows of eleven."""
    columns = 11
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    length = len(tensors[0])
    folded = [
        torch.cat([arg, arg[:1].expand(-length % columns)]).view(-1, columns) if isinstance(arg, Tensor) else arg
        for arg in args
    ]
    rows = [Row(f"x{n}", columns, tensor.dtype) for n, tensor in enumerate(tensors)]
    result_dtype = torch.bool if kind in COMPARISONS else dtype or tensors[-1].dtype
    result = run_op(kind, result_dtype, folded, rows)
    return result if isinstance(result, str) else result.flatten()[:length]


def ulps(got: Tensor, expected: Tensor) -> float:
    """The largest error in units in the last place; infinite where only one of the two is finite."""
    if not expected.dtype.is_floating_point:
        return 0.0 if torch.equal(got, expected) else INFINITY
    same = (got == expected) | (got.isnan() & expected.isnan())
    info = torch.finfo(expected.dtype)
    error = (got.double() - expected.double()).abs() / expected.double().abs().clamp(min=info.tiny) / info.eps
    return float(torch.where(same, 0.0, error.nan_to_num(nan=INFINITY)).max())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", sorted(UNARY - {"bitwise_not"}))
def test_functions_of_one_number(kind: str, dtype: torch.dtype) -> None:
    values = special(dtype)
    got = pointwise(kind, values)
    assert isinstance(got, Tensor)
    assert ulps(got, getattr(torch, kind)(values)) <= 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", sorted(BINARY - {"bitwise_and", "bitwise_or", "bitwise_xor"}))
def test_functions_of_two_numbers(kind: str, dtype: torch.dtype) -> None:
    values = special(dtype)[:28]
    left, right = (grid.flatten() for grid in torch.meshgrid(values, values, indexing="ij"))
    if kind in {"remainder", "floor_divide"}:
        # torch takes remainders of far larger numbers for NaN.
        fair = ~((left / right).abs() > 1e4) | (right == 0) | ~left.isfinite()
        left, right = left[fair], right[fair]
    got = pointwise(kind, left, right)
    assert isinstance(got, Tensor)
    assert ulps(got, getattr(torch, kind)(left, right)) <= 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_accuracy_of_gates(dtype: torch.dtype) -> None:
    values = torch.linspace(-20, 20, 20011, dtype=dtype)
    limit = 4e-7 if dtype == torch.float32 else 2e-15
    for kind in ("tanh", "sigmoid", "exp"):
        got = pointwise(kind, values)
        assert isinstance(got, Tensor)
        truth = getattr(torch, kind)(values.double())
        assert float(((got.double() - truth) / truth.where(truth != 0, 1.0)).abs().max()) < limit
        assert kind == "exp" or got.abs().max() <= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_powers(dtype: torch.dtype) -> None:
    values = special(dtype)[:27]
    for power in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7, 4.0, -3.0):
        got, turned = pointwise("pow", values, power), pointwise("pow", power, values)
        assert isinstance(got, Tensor)
        assert isinstance(turned, Tensor)
        assert ulps(got, values**power) <= 8
        assert ulps(turned, power**values) <= 8


WHOLE = ["abs", "neg", "relu", "sign", "bitwise_not", "ceil", "floor", "round", "trunc", "isnan", "logical_not"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_whole_numbers(dtype: torch.dtype) -> None:
    values = special(dtype)
    left, right = (grid.flatten() for grid in torch.meshgrid(values, values, indexing="ij"))
    for kind in WHOLE:
        if kind != "round" or dtype != torch.int32:
            assert ulps(pointwise(kind, values), getattr(torch, kind)(values)) == 0, kind  # type: ignore[arg-type]
    kinds = [
        *sorted({"add", "sub", "mul", "maximum", "minimum", *COMPARISONS} & BINARY),
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]
    for kind in kinds:
        assert ulps(pointwise(kind, left, right), getattr(torch, kind)(left, right)) == 0, kind  # type: ignore[arg-type]
    for kind, number in itertools.product(("floor_divide", "remainder"), (3, -3, 7, 1)):
        assert ulps(pointwise(kind, values, number), getattr(torch, kind)(values, number)) == 0  # type: ignore[arg-type]
    for power in (0, 1, 2, 5):
        assert ulps(pointwise("pow", values, power), values**power) == 0  # type: ignore[arg-type]


def test_truth_values() -> None:
    left, right = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for kind in (
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "add",
        "mul",
        "maximum",
        "minimum",
        *sorted(COMPARISONS & BINARY),
    ):
        assert ulps(pointwise(kind, left, right), getattr(torch, kind)(left, right)) == 0, kind  # type: ignore[arg-type]
    for kind in ("bitwise_not", "logical_not", "isnan"):
        assert ulps(pointwise(kind, left), getattr(torch, kind)(left)) == 0, kind  # type: ignore[arg-type]
    for dtype in KERNEL_DTYPES:
        values = special(dtype)[:4]
        condition = torch.tensor([True, False, True, False])[: len(values)]
        got = pointwise("where", condition, values, 1)
        assert ulps(got, torch.where(condition, values, torch.tensor(1, dtype=dtype))) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(KERNEL_DTYPES, KERNEL_DTYPES)), ids=str)
def test_casts(source: torch.dtype, target: torch.dtype) -> None:
    values = special(source)
    if source.is_floating_point and not target.is_floating_point and target != torch.bool:
        # What has no whole number is undefined in torch too.
        values = values[values.isfinite() & (values.abs() < 2**31)]
    got = pointwise("cast", values, dtype=target)
    assert isinstance(got, Tensor)
    assert ulps(got, values.to(target)) == 0


@pytest.mark.parametrize("width", [1, 5, 8, 25, 35, 100])
@pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=str)
def test_reductions(dtype: torch.dtype, width: int) -> None:
    values = (2 * torch.randn(9, width)).to(dtype)
    if dtype.is_floating_point and width > 1:
        values[0, 0], values[1, width // 2], values[2, -1], values[3, -1] = NAN, INFINITY, -INFINITY, NAN
    for kind in sorted(REDUCTIONS):
        result_dtype = dtype if dtype.is_floating_point or kind.startswith("a") else torch.int64
        got = run_op(kind, result_dtype, [values], [Row("x", width, dtype)])
        assert isinstance(got, Tensor)
        assert ulps(got, getattr(torch, kind)(values, 1, keepdim=True)) <= 400, kind


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Op("sin", Row("y", 3, torch.int64), (Row("i", 3, torch.int64),)), "sin is not defined for int64"),
        (Op("floor_divide", Row("y", 3, torch.int64), (Row("i", 3, torch.int64), 0)), "division by 0"),
        (Op("remainder", Row("y", 3, torch.int64), (Row("i", 3, torch.int64),) * 2), "only by a constant"),
        (Op("add", Row("y", 3, torch.bool), (Row("b", 3, torch.bool), 2.0)), "2.0 is no bool"),
        (Op("lt", Row("y", 3, torch.bool), (Row("i", 3, torch.int64), 0.5)), "0.5 is no int64"),
        (Op("lt", Row("y", 3, torch.bool), (Row("i", 3, torch.int64), Row("x", 3, torch.float32))), "different dtypes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(op: Op, reason: str) -> None:
    inputs = (Row("i", 3, torch.int64), Row("x", 3, torch.float32), Row("b", 3, torch.bool))
    said = unsupported_reason(LoopProgram("refused", False, inputs, (), (), (), (), (op,), (op.result,)))
    assert said is not None
    assert reason in said
