"""All rows times matrices by machine code, against torch's products."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import throughtime as tt
from compare import check_close
from kernel_checks import thread_count
from throughtime.backends.native_gemm import times
from throughtime.backends.torch_codegen import SectionFunction
from throughtime.compiler import ROWS, Node, Value
from throughtime.compiler.ir.gemm_ops import TIMES
from throughtime.compiler.pipeline import optimize_section
from throughtime.native.gemm.policy import GemmPolicy, gemm_policy

pytestmark = pytest.mark.covers("kernels")
aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def _by_machine_code() -> Iterator[None]:
    """However few multiplications there are."""
    with gemm_policy.change(torch_up_to=0):
        yield


class Operations(TorchDispatchMode):
    """The names of torch's operations inside a `with` statement."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def is_torchs(rows: list[Tensor], matrices: list[Tensor]) -> bool:
    """Whether torch computes a product, rightly."""
    with Operations() as operations:
        product = times(rows, matrices)
    check_close("times", expected(rows, matrices), product)
    return "mm" in operations.names


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def expected(rows: list[Tensor], matrices: list[Tensor]) -> Tensor:
    """In float64, rounded in the end."""
    products = [one.double() @ matrix.double() for one, matrix in zip(rows, matrices, strict=True)]
    return torch.stack(products).sum(0).to(rows[0].dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 11, 47, 48, 49, 150])
@pytest.mark.parametrize("columns", [1, 8, 16, 31, 32, 33, 70])
def test_any_number_of_rows_and_columns(count: int, columns: int, dtype: torch.dtype) -> None:
    rows, matrix = random(count, 13, dtype=dtype), random(13, columns, dtype=dtype)
    check_close("times", expected([rows], [matrix]), times([rows], [matrix]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_are_added_up(dtype: torch.dtype) -> None:
    rows = [random(100, depth, dtype=dtype) for depth in (1, 40, 7)]
    matrices = [random(depth, 37, dtype=dtype) for depth in (1, 40, 7)]
    check_close("times", expected(rows, matrices), times(rows, matrices))


def test_rows_and_matrices_that_lie_anywhere() -> None:
    wide = random(60, 50)
    negative = torch.complex(wide, wide).conj().imag[:, :9]
    assert negative.is_neg()
    rows = [wide[:, 3:12], wide[:, ::5][:, :9], wide[:9].T[:50].contiguous().repeat(2, 1)[:60], negative]
    square = random(30, 40)
    matrices = [square[:9, :33], square.T[:9, :30].repeat(1, 2)[:, :33], square[::3][:9, ::1][:, :33], square[:9, :33]]
    check_close("times", expected(rows, matrices), times(rows, matrices))


def test_nothing_is_written_beside_the_result() -> None:
    memory = torch.full((30, 24), -1.0)
    rows, matrix = random(30, 6), random(6, 19)
    got = times([rows], [matrix], out=memory[:, :19])
    check_close("times", expected([rows], [matrix]), got)
    assert bool((memory[:, 19:] == -1).all())


def test_the_number_of_threads_changes_no_bit() -> None:
    rows, matrix = random(999, 60), random(60, 70)
    with gemm_policy.change(thread=1):
        with thread_count(3):
            several = times([rows], [matrix])
        assert torch.equal(times([rows], [matrix]), several)


def test_few_multiplications_are_left_to_torch() -> None:
    with gemm_policy.use(GemmPolicy()):
        assert is_torchs([random(9, 4), random(9, 5)], [random(4, 8), random(5, 8)])


def value(name: str, *shape: object, dtype: torch.dtype = torch.float32) -> Value:
    return Value(name, shape, dtype)  # type: ignore[arg-type]


def three_products(dtype: torch.dtype = torch.float32, columns: int = 8) -> tuple[list[Node], list[Value]]:
    """`f @ A + g @ B + h @ C`, and its parts."""
    rows = [value(name, ROWS, 5, dtype=dtype) for name in "fgh"]
    matrices = [value(name, 5, columns, dtype=dtype) for name in "ABC"]
    parts = [value(f"part_{index}", ROWS, columns, dtype=dtype) for index in range(3)]
    sums = [value(name, ROWS, columns, dtype=dtype) for name in ("some", "all")]
    pairs = zip(rows, matrices, parts, strict=True)
    nodes = [Node(aten.mm.default, (one, matrix), {}, (part,)) for one, matrix, part in pairs]
    nodes.append(Node(aten.add.Tensor, (parts[0], parts[1]), {}, (sums[0],)))
    nodes.append(Node(aten.add.Tensor, (sums[0], parts[2]), {}, (sums[1],)))
    return nodes, [*rows, *matrices, *parts, *sums]


def test_a_sum_of_products_becomes_one_operation() -> None:
    nodes, (f, g, h, a, b, c, *_, whole) = three_products()
    (node,) = optimize_section(nodes, [whole], by_kernels=True)
    assert (node.target, node.args) == (TIMES, ([f, g, h], [a, b, c]))
    given = {one: random(9 if one.has_rows else 5, 5 if one.has_rows else 8) for one in (f, g, h, a, b, c)}
    env = dict(given)
    SectionFunction("after", nodes, [whole], (), by_kernels=True).run(9, env)
    check_close("sum", expected([given[f], given[g], given[h]], [given[a], given[b], given[c]]), env[whole])


def test_what_somebody_needs_by_itself_stays() -> None:
    nodes, (*_, part, _, _, _, whole) = three_products()
    names = [node.name for node in optimize_section(nodes, [whole, part], by_kernels=True)]
    assert names.count("times") == 3
    assert names.count("add") == 2


def test_what_is_left_to_torch() -> None:
    nodes, values = three_products(torch.bfloat16)
    assert "times" not in [node.name for node in optimize_section(nodes, values[-1:], by_kernels=True)]


def test_few_columns_are_many_multiplications() -> None:
    """Unless it is one column, with which torch is quick."""
    with gemm_policy.change(torch_up_to=8 * 100 * 30):
        columns = (1, 2, 3, 8, 9)
        left = [count for count in columns if is_torchs([random(100, 31)], [random(31, count)])]
    assert left == [1]


def test_gradients_of_inputs_and_of_their_gradients() -> None:
    """A gradient of a gradient is made of what torch can differentiate, whatever the first one was made of."""
    cell = tt.OutputProjectionWrapper(tt.BasicLSTMCell(9, input_size=8), 11, input_size=9).double()
    x = random(3, 4, 8, dtype=torch.float64).requires_grad_()

    def run(inputs: Tensor) -> Tensor:
        with tt.backend("cpu"):
            return tt.dynamic_rnn(cell, inputs, [4, 1, 3], dtype=torch.float64)[0]

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


class TwoDtypes(tt.RNNCell):
    """A sum of products of two dtypes, before the loop and after it, and a join of two."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.single, self.again = (torch.nn.Parameter(random(units, units) / units) for _ in range(2))
        self.double_ = torch.nn.Parameter(random(units, units, dtype=torch.float64) / units)
        self.joined = torch.nn.Parameter(random(2 * units, units, dtype=torch.float64) / units)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        before = (inputs @ self.single + inputs.double() @ self.double_).float()
        h = torch.tanh(before + h @ self.again)
        after = h @ self.again + h.double() @ self.double_ + torch.cat([h, torch.sin(inputs).double()], 1) @ self.joined
        return after.float(), h


@pytest.mark.parametrize("few", [0, 1 << 22])
def test_products_of_two_dtypes(few: int) -> None:
    cell, x = TwoDtypes(12), random(5, 6, 12).requires_grad_()

    def run() -> list[Tensor]:
        outputs, state = tt.dynamic_rnn(cell, x, [6, 1, 0, 5, 6], dtype=torch.float32)
        found = torch.autograd.grad((outputs**2).sum() + state.sum(), [x, *cell.parameters()])
        # What is float64 has passed through float32 on its way.
        return [outputs, state, *(leaf.float() for leaf in found)]

    with tt.backend("reference"):
        want = run()
    with gemm_policy.change(torch_up_to=few):
        for _ in range(3):
            check_close("two dtypes", want, run())


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_a_cell_that_is_converted_between_both_passes(dtype: torch.dtype, needs: bool) -> None:
    cell, x = tt.LSTMCell(9, input_size=8), random(4, 5, 8).requires_grad_(needs)
    for _ in range(3):
        outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32)
        cell.to(dtype)
        with pytest.raises(RuntimeError, match=r"is not what it was in the forward pass: got .*float(64|16), expected"):
            outputs.sum().backward()
        cell.float()


@pytest.mark.parametrize("lengths", [None, [5, 1, 3, 0]])
def test_a_gradient_that_is_handed_through_has_memory_of_its_own(lengths: list[int] | None) -> None:
    class Skip(tt.BasicRNNCell):
        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            _, state = super().forward(torch.zeros_like(inputs), state)
            return inputs + state, state

    cell, x = Skip(8, input_size=8), random(4, 5, 8).requires_grad_()
    for _ in range(3):
        given, x.grad = torch.ones(4, 5, 8), None
        tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)[0].backward(given)
        assert x.grad is not None
        x.grad.zero_()
        assert bool((given == 1).all())


def test_gradients_of_gradients_leave_nothing_behind() -> None:
    cell, x = tt.GRUCell(4, input_size=3), random(2, 3, 3).requires_grad_()

    def twice() -> None:
        outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32)
        (first,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
        first.sum().backward()

    for _ in range(3):
        twice()
    known = len(linecache.cache)
    for _ in range(5):
        twice()
    assert len(linecache.cache) <= known
