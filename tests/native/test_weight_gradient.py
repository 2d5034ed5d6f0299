"""Gradients of matrices by machine code: sums over rows, against torch's products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from compare import check_close
from kernel_checks import thread_count
from throughtime.backends.native_gemm import over_rows, product_over_rows
from throughtime.backends.torch_codegen import SectionFunction
from throughtime.compiler import ROWS, Node, Value
from throughtime.compiler.ir.gemm_ops import OVER_ROWS
from throughtime.compiler.pipeline import optimize_section
from throughtime.layout.previous_step import PreviousStep, by_torch
from throughtime.layout.step_layout import StepLayout
from throughtime.native.gemm import weight_gradient
from throughtime.native.gemm.policy import gemm_policy
from throughtime.native.gemm.weight_gradient import DEPTH, GROUP, WIDEST

pytestmark = pytest.mark.covers("kernels")
aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64]


def expected(g: Tensor, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """In float64, rounded in the end."""
    product = torch.cat([part.double() for part in parts], 1).T @ g.double()
    return product.to(g.dtype), g.double().sum(0).to(g.dtype)


def rows(count: int, width: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, width, dtype=dtype, generator=torch.Generator().manual_seed(width))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, DEPTH - 1, DEPTH, DEPTH + 1, 2 * DEPTH + 5])
@pytest.mark.parametrize("columns", [1, 7, 16, 17, 33, 16 * GROUP, 16 * GROUP + 15, 32 * GROUP + 1])
def test_sums_over_any_number_of_rows_and_columns(count: int, columns: int, dtype: torch.dtype) -> None:
    g, parts = rows(count, columns, dtype), [rows(count, width, dtype) for width in (5, 1, 12)]
    check_close("over rows", expected(g, parts), over_rows([g], parts))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, DEPTH + 1])
@pytest.mark.parametrize("columns", [0, 1, 15, 16, 40, 16 * GROUP, 16 * GROUP + 15])
def test_sums_of_the_parts(count: int, columns: int, dtype: torch.dtype) -> None:
    g, parts = rows(count, columns, dtype), [rows(count, width, dtype) for width in (5, 1, 12)]
    sums = torch.cat(parts, 1).double().sum(0).to(dtype)
    check_close("over rows", (expected(g, parts)[0], sums), over_rows([g], parts, sum_parts=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("widths", [(0,), (0, 3), (1,), (6, 7), (WIDEST,), (WIDEST + 1, 2), (2 * WIDEST + 7,)], ids=str)
def test_parts_of_any_width(widths: tuple[int, ...], dtype: torch.dtype) -> None:
    g, parts = rows(40, 24, dtype), [rows(40, width, dtype) for width in widths]
    check_close("over rows", expected(g, parts), over_rows([g], parts))


@pytest.mark.parametrize("columns", [16, 20])
@pytest.mark.parametrize("sum_parts", [False, True])
def test_many_rows_of_one_sign_lose_nothing(columns: int, sum_parts: bool) -> None:
    """Numbers that are small beside their sum, as gradients of a long sequence are."""
    g, part = torch.full((1_000_000, columns), 0.1), torch.rand(1_000_000, 8)
    product, sums = over_rows([g], [part], sum_parts=sum_parts)
    want = part.double().T @ g.double(), (part if sum_parts else g).double().sum(0)
    for got, exact in zip((product, sums), want, strict=True):
        assert float(((got - exact) / exact).abs().max()) < 1e-5


@pytest.mark.parametrize("columns", [1, 12, 32, 40, 96, 150, 300])
@pytest.mark.parametrize("features", [20, 64, 65, 450])
@pytest.mark.parametrize("sum_parts", [False, True])
def test_threads_share_columns_or_features(columns: int, features: int, sum_parts: bool) -> None:
    """To the bit as one thread leaves it."""
    count = DEPTH + 9
    steps = StepLayout(torch.full((count,), 1), torch.arange(count), 1, 1)
    pieces = [rows(count, width, torch.float32) for width in (columns // 2, columns - columns // 2) if width]
    state = PreviousStep.of(rows(count, features - 7, torch.float32), rows(1, features - 7, torch.float32), steps)
    parts = [rows(count, 7, torch.float32), state]
    found = []
    for number in (1, 2, 3, 8):
        with gemm_policy.change(thread=1), thread_count(number):
            found.append(over_rows(pieces, parts, sum_parts=sum_parts))
    whole, given = torch.cat(pieces, 1), [parts[0], state.tensor()]
    sums = torch.cat(given, 1).double().sum(0).float() if sum_parts else expected(whole, given)[1]
    check_close("over rows", (expected(whole, given)[0], sums), found[0])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_shares() -> None:
    """Both ways: all of it is covered, and no thread has much more than another."""
    assert weight_gradient._shares(96, 288, 2, 32) == [(0, 96, 0, 144), (0, 96, 144, 288)]
    assert weight_gradient._shares(128, 288, 2, 32) == [(0, 64, 0, 288), (64, 128, 0, 288)]
    assert weight_gradient._shares(12, 40, 2, 32) == [(0, 12, 0, 40)]
    assert len(weight_gradient._shares(12, 288, 16, 32)) == 9


def test_no_columns_at_all() -> None:
    product, sums = over_rows([torch.ones(3, 0)], [torch.ones(3, 4)])
    assert product.shape == (4, 0)
    assert sums.shape == (0,)


def test_rows_that_lie_anywhere() -> None:
    wide = rows(50, 40, torch.float32)
    g, turned, spread = wide[:, 3:20], rows(9, 50, torch.float32).T, torch.ones(1, 6).expand(50, 6)
    negative = torch.complex(wide, wide).conj().imag[:, :5]
    assert negative.is_neg()
    parts = [wide[::1, 20:31], turned, spread, negative, torch.zeros(()).expand(50, 2)]
    check_close("over rows", expected(g, parts), over_rows([g], parts))
    check_close("backwards", expected(turned, [g]), over_rows([turned], [g]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("widths", [(1, 1), (3, 30), (16, 16, 16), (5, 33, 90), (0, 7), (16 * GROUP + 3, 40)], ids=str)
@pytest.mark.parametrize("sum_parts", [False, True])
def test_pieces_side_by_side(widths: tuple[int, ...], sum_parts: bool, dtype: torch.dtype) -> None:
    count = DEPTH + 9
    pieces, part = [rows(count, width, dtype) for width in widths], rows(count, 21, dtype)
    product, sums = expected(torch.cat(pieces, 1), [part])
    want = (product, part.double().sum(0).to(dtype)) if sum_parts else (product, sums)
    check_close("pieces", want, over_rows(pieces, [part], sum_parts=sum_parts))


STEPS = {
    "batch-major": StepLayout(torch.full((7,), 40), torch.arange(7), 7, 40),
    "batch-major, backwards": StepLayout(torch.full((7,), 40), torch.arange(6, -1, -1), 7, 40),
    "time-major": StepLayout(torch.full((7,), 40), 40 * torch.arange(7), 1, 40),
    "time-major, backwards": StepLayout(torch.full((7,), 40), 40 * torch.arange(6, -1, -1), 1, 40),
    "packed": StepLayout(torch.tensor([90, 90, 33, 2, 1]), torch.tensor([0, 90, 180, 213, 215]), 1, 95),
    "one step": StepLayout(torch.tensor([3]), torch.tensor([0]), 1, 3),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_streams_as_they_were_at_the_step_before(name: str, dtype: torch.dtype) -> None:
    steps = STEPS[name]
    stream, initial = rows(steps.total, 19, dtype), -rows(steps.batch_size, 19, dtype)
    before = by_torch(steps, stream, initial)
    lagged, x, g = PreviousStep.of(stream, initial, steps), rows(steps.total, 5, dtype), rows(steps.total, 50, dtype)
    assert torch.equal(lagged.tensor(), before)
    check_close("parts", expected(g, [x, before]), over_rows([g], [x, lagged]))
    check_close("pieces", expected(torch.cat([before, x], 1), [g]), over_rows([lagged, x], [g]))
    check_close("alone", expected(before, [before]), over_rows([lagged], [lagged]))


def test_wide_parts_of_the_step_before() -> None:
    """Cut into pieces, and as more columns than one group of panels has, on several threads."""
    steps = STEPS["packed"]
    wide = 2 * WIDEST + 7
    stream, initial = rows(steps.total, wide, torch.float32), rows(steps.batch_size, wide, torch.float32).flip(1)
    before, lagged, x = (
        by_torch(steps, stream, initial),
        PreviousStep.of(stream, initial, steps),
        rows(steps.total, 90, stream.dtype),
    )
    check_close("parts", expected(x, [before]), over_rows([x], [lagged]))
    check_close("pieces", expected(torch.cat([x, before], 1), [x]), over_rows([x, lagged], [x]))


def test_no_rows_or_no_columns_of_the_step_before() -> None:
    steps = STEPS["one step"]
    lagged = PreviousStep.of(torch.ones(3, 2), torch.arange(6.0).view(3, 2), steps)
    product, sums = over_rows([lagged], [torch.ones(3, 0)])
    assert product.shape == (0, 2)
    assert sums.tolist() == [6.0, 9.0]


def test_nothing_is_written_beside_the_results() -> None:
    """A panel is wider than what is left of a matrix: the next row begins there, or other memory."""
    g, part = rows(30, 19, torch.float32), rows(30, 8, torch.float32)
    memory = torch.full((8 * 19 + 19 + 64,), -1.0)
    product, sums = memory[: 8 * 19].view(8, 19), memory[8 * 19 : 9 * 19]
    address = [
        weight_gradient.StridedRows(tensor.data_ptr(), tensor.stride(0) * 4, tensor.shape[1]) for tensor in (g, part)
    ]
    weight_gradient.weight_gradient(g.dtype, 30, address[:1], address[1:], product.data_ptr(), sums=sums.data_ptr())
    check_close("over rows", expected(g, [part]), (product, sums))
    assert bool((memory[9 * 19 :] == -1).all())


def test_the_number_of_threads_changes_no_bit() -> None:
    g, parts = rows(700, 300, torch.float32), [rows(700, width, torch.float32) for width in (40, 130)]
    many = over_rows([g], parts)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = over_rows([g], parts)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(one, many, strict=True))


def test_no_number_is_lost_and_none_spreads() -> None:
    g, part = rows(20, 20, torch.float32), rows(20, 7, torch.float32)
    g[3, 18], part[5, 2] = torch.nan, torch.inf
    product, sums = over_rows([g], [part])
    assert product.isnan().any(0).nonzero().flatten().tolist() == [18]
    assert product.isinf().any(1).nonzero().flatten().tolist() == [2]
    assert sums.isnan().nonzero().flatten().tolist() == [18]


def value(name: str, *shape: object, dtype: torch.dtype = torch.float32) -> Value:
    return Value(name, shape, dtype)  # type: ignore[arg-type]


def gradients(left: Value, right: Value, name: str) -> tuple[Value, list[Node]]:
    """`leftᵀ @ right`."""
    turned = value(f"{name}_turned", left.row_size, ROWS, dtype=left.dtype)
    result = value(name, left.row_size, right.row_size, dtype=left.dtype)
    return result, [
        Node(aten.t.default, (left,), {}, (turned,)),
        Node(aten.mm.default, (turned, right), {}, (result,)),
    ]


def bias_of(g: Value) -> tuple[Value, list[Node]]:
    """The sum of `g`, as a bias gets it."""
    total, flat = value("total", 1, g.row_size, dtype=g.dtype), value("bias", g.row_size, dtype=g.dtype)
    return flat, [
        Node(aten.sum.dim_IntList, (g, [0], True), {}, (total,)),
        Node(aten.view.default, (total, [g.row_size]), {}, (flat,)),
    ]


def ran(nodes: list[Node], gives: list[Value], given: dict[Value, Tensor]) -> tuple[Tensor, ...]:
    function = SectionFunction("after", nodes, gives, (), by_kernels=True)
    env = dict(given)
    function.run(9, env)
    return tuple(env[one] for one in gives)


def test_products_with_one_gradient_and_its_sum_become_one_operation() -> None:
    x, h, g = value("x", ROWS, 3), value("h", ROWS, 4), value("g", ROWS, 9)
    (of_x, first), (of_h, second), (flat, sums) = gradients(x, g, "of_x"), gradients(h, g, "of_h"), bias_of(g)
    given = {one: rows(9, one.row_size, torch.float32) for one in (x, h, g)}
    matrix = value("matrix", 7, 9)
    together = [*first, *second, Node(aten.cat.default, ([of_x, of_h], 0), {}, (matrix,)), *sums]
    assert [node.target for node in optimize_section(together, [matrix, flat], by_kernels=True)] == [OVER_ROWS]
    check_close("joined", expected(given[g], [given[x], given[h]]), ran(together, [matrix, flat], given))
    # Each by itself: still one operation, of which both are parts.
    apart = [*first, *second, *sums]
    names = [node.name for node in optimize_section(apart, [of_x, of_h, flat], by_kernels=True)]
    assert sorted(names) == ["over_rows", "slice", "slice"]
    want = (given[x].T @ given[g], given[h].T @ given[g], given[g].sum(0))
    check_close("apart", want, ran(apart, [of_x, of_h, flat], given))


def test_the_other_way_round() -> None:
    """Matrices as torch has them, [outputs, inputs]: what is summed up for the bias is turned, and may be joined."""
    x, h, f, g, gates = (value(name, ROWS, width) for name, width in zip("xhfgj", (3, 4, 5, 6, 11), strict=True))
    (top, first), (below, second), (of_h, third) = (
        gradients(f, x, "top"), gradients(g, x, "below"), gradients(gates, h, "of_h"),
    )  # fmt: skip
    matrix, (flat, sums) = value("matrix", 11, 3), bias_of(gates)
    nodes = [
        Node(aten.cat.default, ([f, g], 1), {}, (gates,)), *first, *second, *third,
        Node(aten.cat.default, ([top, below], 0), {}, (matrix,)), *sums,
    ]  # fmt: skip
    names = [node.name for node in optimize_section(nodes, [matrix, of_h, flat], by_kernels=True)]
    assert names.count("over_rows") == 1
    assert "sum" not in names
    given = {one: rows(9, one.row_size, torch.float32) for one in (x, h, f, g)}
    whole = torch.cat([given[f], given[g]], 1)
    want = (whole.T @ given[x], whole.T @ given[h], whole.sum(0))
    check_close("turned", want, ran(nodes, [matrix, of_h, flat], given))


@pytest.mark.parametrize(
    ("wide", "columns", "dtype", "biased"),
    [
        (3, 7, torch.float32, True),
        (3, 9, torch.bfloat16, True),
    ],
)
def test_what_is_left_to_torch(wide: int, columns: int, dtype: torch.dtype, biased: bool) -> None:
    x, g = value("x", ROWS, wide, dtype=dtype), value("g", ROWS, columns, dtype=dtype)
    (of_x, nodes), (flat, sums) = gradients(x, g, "of_x"), bias_of(g)
    gives = [of_x, flat] if biased else [of_x]
    assert "mm" in [node.name for node in optimize_section([*nodes, *sums], gives, by_kernels=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "wide", "columns"), [(0, 3, 9), (9, 3, 9), (300, 70, 90), (129, 512, 128)])
def test_a_product_without_a_bias(count: int, wide: int, columns: int, dtype: torch.dtype) -> None:
    """A few multiplications are left to torch when it runs."""
    x, g = value("x", ROWS, wide, dtype=dtype), value("g", ROWS, columns, dtype=dtype)
    of_x, nodes = gradients(x, g, "of_x")
    assert [node.name for node in optimize_section(nodes, [of_x], by_kernels=True)] == ["product_over_rows"]
    plain = rows(count, wide, dtype), rows(count, columns, dtype)
    turned = rows(wide, count, dtype).T, rows(columns, count, dtype).T
    for a, own_g in (plain, turned):
        check_close("product", a.T @ own_g, product_over_rows(a, own_g))


def test_a_product_that_depends_on_another_is_made_after_it() -> None:
    x, g, changed = value("x", ROWS, 9), value("g", ROWS, 9), value("changed", ROWS, 9)
    (of_x, first), (of_changed, second), (flat, sums) = (
        gradients(x, g, "of_x"), gradients(changed, g, "of_changed"), bias_of(g),
    )  # fmt: skip
    nodes = [*first, Node(aten.mm.default, (x, of_x), {}, (changed,)), *second, *sums]
    given = {one: rows(9, 9, torch.float32) for one in (x, g)}
    want = given[x].T @ given[g]
    found = ran(nodes, [of_x, of_changed, flat], given)
    check_close("in order", (want, (given[x] @ want).T @ given[g], given[g].sum(0)), found)


@pytest.mark.parametrize(("x_wide", "h_wide", "taken"), [(3, 64, 3), (16, 9, 9), (16, 64, 64), (16, 32, None)])
def test_sums_where_there_is_room_for_them(x_wide: int, h_wide: int, taken: int | None) -> None:
    """Of products of the same turned side, the one whose last panel is not full, or else one of many panels."""
    x, h, g = value("x", ROWS, x_wide), value("h", ROWS, h_wide), value("g", ROWS, 12)
    (of_x, first), (of_h, second), (flat, sums) = gradients(g, x, "of_x"), gradients(g, h, "of_h"), bias_of(g)
    nodes = optimize_section([*first, *second, *sums], [of_x, of_h, flat], by_kernels=True)
    found = [node.args[0][0].row_size for node in nodes if node.target is OVER_ROWS]
    assert found == ([] if taken is None else [taken])


def test_a_join_of_two_dtypes_is_left_to_torch() -> None:
    single, double = value("single", ROWS, 8), value("double", ROWS, 8, dtype=torch.float64)
    x, g = value("x", ROWS, 9, dtype=torch.float64), value("g", ROWS, 16, dtype=torch.float64)
    (product, products), (flat, sums) = gradients(x, g, "product"), bias_of(g)
    nodes = [Node(aten.cat.default, ([single, double], 1), {}, (g,)), *products, *sums]
    given = {one: rows(9, one.row_size, one.dtype) for one in (single, double, x)}
    joined = torch.cat([given[single], given[double]], 1)
    check_close("joined", (given[x].T @ joined, joined.sum(0)), ran(nodes, [product, flat], given))


def test_what_uses_a_gradient_comes_after_it() -> None:
    """A cell that is used twice has the sum of two gradients, for which the first waits."""
    x, g, h, f = (value(name, ROWS, 9) for name in "xghf")
    pairs = [(*gradients(x, g, "one"), *bias_of(g)), (*gradients(h, f, "other"), *bias_of(f))]
    total, bias = value("total", 9, 9), value("bias", 9)
    nodes = [node for _, products, _, sums in pairs for node in (*products, *sums)]
    nodes.append(Node(aten.add.Tensor, (pairs[0][0], pairs[1][0]), {}, (total,)))
    nodes.append(Node(aten.add.Tensor, (pairs[0][2], pairs[1][2]), {}, (bias,)))
    given = {one: rows(9, 9, torch.float32) * index for index, one in enumerate((x, g, h, f), 1)}
    want = (given[x].T @ given[g] + given[h].T @ given[f], given[g].sum(0) + given[f].sum(0))
    check_close("sums", want, ran(nodes, [total, bias], given))


@pytest.mark.parametrize("make", [tt.BasicLSTMCell, tt.GRUCell, tt.BasicRNNCell])
def test_kernels_make_the_gradients_of_their_matrices_themselves(make: Any) -> None:
    cell = make(12, input_size=3)
    made: list[str] = []
    compiled = SectionFunction.__init__

    def noted(function: Any, name: str, *args: Any, **options: Any) -> None:
        compiled(function, name, *args, **options)
        made.append(function.source)

    with pytest.MonkeyPatch.context() as patch, tt.backend("cpu"):
        patch.setattr(SectionFunction, "__init__", noted)
        tt.dynamic_rnn(cell, torch.randn(3, 4, 3), [4, 2, 1], dtype=torch.float32)[0].sum().backward()
    assert sum("over_rows" in source for source in made) == 1
    assert not any("aten_mm" in source for source in made)
