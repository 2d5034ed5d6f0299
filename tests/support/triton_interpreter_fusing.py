"""Fused steps inside Triton's interpreter, in a process of their own; see `test_fusing.py`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from triton.language import core
from triton.language.extra import libdevice
from triton.runtime.interpreter import TensorHandle

import throughtime as tt
import triton_interpreter  # noqa: F401 (mends the interpreter)
from backends import check_on, lengths_for
from descriptors import BY_NAME, Descriptor
from loop_programs import evaluate
from matrix_cells import LAYERS, WORDS, Layers
from random_cells import Recipe, recipes
from remembered_graphs import CELLS, REMEMBERED
from throughtime.backends.aten.graph_policy import graph_policy
from throughtime.backends.triton import HEADER, ElementwiseKernel, Written, elementwise_unsupported_reason
from throughtime.compiler.ir.loop_ir import BINARY, COMPARISONS, REDUCTIONS, UNARY, LoopProgram, Op, Row
from throughtime.compiler.passes.merge_matmuls import deep_bytes
from throughtime.compiler.trace import batched_matmul
from unrolls import packed, time_major
from user_cells import Step, weight

# The interpreter computes with numpy, which warns of infinities.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
FEW = ["LSTM full", "integer counters", "nests", "matrix rows", "LayerNormLSTM", "Conv2DLSTM", "Attention", "SLSTM"]
FEW += ["Zoneout", "two swapped", "Embedding"]
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True, scope="module")
def _recorded() -> Iterator[None]:
    """Blocks of 3 and 2 steps, so that short sequences have many."""
    monkeypatch = pytest.MonkeyPatch()
    # The interpreter has no functions of the card's own library.
    numbers = {"acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "atan2": np.arctan2, "pow": np.power}
    numbers |= {"nearbyint": np.rint} | {name: getattr(np, name) for name in "cosh expm1 log1p sinh tan trunc".split()}
    for name, function in numbers.items():
        monkeypatch.setattr(libdevice, name, elementwise(function))
    with graph_policy.use(REMEMBERED):
        yield
    monkeypatch.undo()


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, core.tensor)]
        with np.errstate(all="ignore"):
            found = function(*[arg.handle.data if isinstance(arg, core.tensor) else arg for arg in args])
        shaped = max(tensors, key=lambda tensor: tensor.numel.value)
        data = np.broadcast_to(found, shaped.handle.data.shape).astype(shaped.handle.data.dtype)
        return core.tensor(TensorHandle(data, shaped.dtype), shaped.type)

    return call


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many launches there were."""
    launches: list[int] = []
    call = ElementwiseKernel.__call__

    def counted(self: ElementwiseKernel, *args: Any) -> None:
        launches.append(1)
        call(self, *args)

    monkeypatch.setattr(ElementwiseKernel, "__call__", counted)
    return launches


@pytest.mark.parametrize("name", FEW)
def test_cells(name: str, kernels: list[int]) -> None:
    """Values, final states, and gradients of inputs, weights and the initial state."""
    (descriptor,) = (one for one in CELLS if one.name == name)
    check_on("aten", descriptor.case(4, 5), [5, 0, 1, 4])
    assert kernels


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_deep_products(dtype: torch.dtype) -> None:
    """In parts, whose sum is a group's."""
    for ends in (None, [5, 0, 1, 4]):
        with deep_bytes.use(0):
            check_on("aten", Descriptor("own", tt.LSTMCell).case(4, 5, dtype, units=7), ends)


@pytest.mark.parametrize("layer", ["linear", "attention", "encoder of slots"])
def test_rows_that_do_not_come_first(layer: str, monkeypatch: pytest.MonkeyPatch, kernels: list[int]) -> None:
    """Slots as a batch of products, as on a GPU: what is stored has its rows in the middle, and torch stores it."""
    monkeypatch.setattr(batched_matmul, "MOST_SLOTS", 0)
    case = Descriptor(layer, lambda _: Layers(LAYERS[layer]())).case(4, 5)
    for ends in (None, [5, 0, 1, 4]):
        check_on("aten", case, ends)
    assert kernels


@pytest.mark.parametrize("word", ["rows second", "rows last"])
def test_rows_in_the_middle_of_a_step(word: str) -> None:
    def step(x: Tensor, m: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        new = WORDS[word](torch.tanh(m / 2 + (x @ w).view(-1, 4, 6)))
        return new[:, :, 0], new

    case = Descriptor(word, lambda _: Step(step, torch.Size([4, 6]), 4, weight(3, 24))).case(4, 5)
    for ends in (None, [5, 0, 1, 4]):
        check_on("aten", case, ends)


@settings(max_examples=int(os.environ.get("RANDOM_CELLS", "4")), deadline=None)
@given(recipes())
def test_cells_nobody_wrote(recipe: Recipe) -> None:
    check_on("aten", recipe.case(3, 4), [4, 1, 3])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    check_on("aten", BY_NAME["GRU"].case(4, 5, dtype), [5, 3, 0, 4])


@pytest.mark.parametrize("unroll", [time_major, packed])
def test_layouts(unroll: Any) -> None:
    check_on("aten", BY_NAME["LSTM"].case(4, 5), [5, 2, 1, 4], unroll)
    check_on("aten", BY_NAME["LSTM"].case(4, 5), [5] * 4, unroll)


def test_both_directions_and_lengths_of_all_kinds() -> None:
    def both(cell: Any, inputs: Tensor, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
        return tt.bidirectional_dynamic_rnn(cell, cell, inputs, lengths, state, state, dtype)

    for ends in (None, lengths_for(4, 5)):
        check_on("aten", BY_NAME["GRU"].case(4, 5), ends, both)


@pytest.mark.parametrize(
    "options", [{"parallel_iterations": 4}, {"checkpoint_every": 4}, {"all_states": True}], ids=str
)
def test_options(options: dict[str, Any]) -> None:
    check_on("aten", BY_NAME["LSTM"].case(4, 7), [7, 2, 1, 6], **options)


def test_sizes() -> None:
    """Rows and units that fill no tile, one that takes several."""
    for batch, units in ((1, 1), (3, 17), (33, 9), (2, 257)):
        check_on("aten", Descriptor("own", tt.GRUCell).case(batch, 3, torch.float32, units=units), None)


class Mixes(tt.RNNCell):
    """Its kernel reads the inputs themselves."""

    state_size = output_size = 3

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(inputs - 0.5 * state)
        return state, state


def test_tensors_that_do_not_lie_side_by_side() -> None:
    cell = Mixes()
    whole = torch.randn(7, 5, 8, dtype=torch.float64)
    negative = torch._neg_view(whole[:, :, :3].contiguous())
    for x in (whole[:, :, 1:4], whole.transpose(0, 1)[:, :, ::3], whole.movedim(2, 0)[:, :, :3], negative):
        found = {}
        for backend in ("reference", "aten"):
            given = x.detach().requires_grad_()
            with tt.backend(backend):
                outputs = tt.dynamic_rnn(cell, given, dtype=torch.float64)[0]
            found[backend] = (outputs, *torch.autograd.grad(outputs.transpose(0, 1).square().sum(), given))
        for got, want in zip(found["aten"], found["reference"], strict=True):
            torch.testing.assert_close(got, want)


def run_op(kind: str, dtype: torch.dtype, *args: Tensor | float) -> Tensor | None:
    """One operation on rows in place, with the kernel of a group; None if it is refused."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    rows = [Row(f"x{index}", tensor.shape[1], tensor.dtype) for index, tensor in enumerate(tensors)]
    names = iter(rows)
    operands = tuple(next(names) if isinstance(arg, Tensor) else arg for arg in args)
    op = Op(kind, Row("out", 1 if kind in REDUCTIONS else tensors[-1].shape[1], dtype), operands)
    program = LoopProgram(kind, False, tuple(rows), (), (), (), (), (op,), (op.result,))
    if elementwise_unsupported_reason(program) is not None:
        return None
    count = len(tensors[0])
    results = [torch.empty(count, op.result.width, dtype=dtype) for _ in range(2)]
    read = {row.name: column for column, row in enumerate(rows[1:])}
    kernel = ElementwiseKernel(program, {}, read, [Written(True, len(read))])
    in_place = [*tensors[1:], results[1]]
    table = [count, 0] + [number for one in in_place for number in (one.data_ptr(), one.shape[1])]
    kernel(torch.tensor(table), tensors[:1], results[:1], count)
    assert len(table) == HEADER + 2 * len(in_place)
    torch.testing.assert_close(results[0], results[1], equal_nan=True, rtol=0, atol=0)
    return results[0]


def special(dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([[True, False, True, False, True]])
    if not dtype.is_floating_point:
        return torch.tensor([[0, 1, -1, 2, 5], [7, 100, -3, 3, 4]], dtype=dtype)
    odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, -7.0, 20.0]
    return torch.cat([torch.tensor(odd), torch.linspace(-8, 8, 30)]).view(-1, 5).to(dtype)


EXACT = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.int32, torch.bool], ids=str)
def test_every_operation(dtype: torch.dtype) -> None:
    """Against torch, with NaN and infinities; nearly all of them for numbers that are not whole."""
    one, taken = special(dtype), 0
    other = one.flip(0) if dtype == torch.bool else one.flip(0, 1)
    for kind in sorted(UNARY | BINARY | REDUCTIONS):
        args = [one, other] if kind in BINARY else [one]
        result = torch.bool if kind in COMPARISONS else dtype
        with np.errstate(all="ignore"):
            found = run_op(kind, result, *args)
        if found is None:
            continue
        taken += 1
        row = Row("out", found.shape[1], result)
        want = evaluate(Op(kind, row, tuple(Row(f"x{n}", 5, dtype) for n, _ in enumerate(args))), args)
        bound = EXACT.get(dtype, 0)
        want = want.to(result).view_as(found)
        assert torch.allclose(found.double(), want.double(), bound, bound, equal_nan=True), (kind, found, want)
    assert taken >= {torch.bool: 12, torch.int32: 18, torch.int64: 18}.get(dtype, 43)


def test_numbers_of_float64_stay_that_precise() -> None:
    x = torch.full((2, 3), 0.3, dtype=torch.float64)
    assert torch.equal(run_op("maximum", torch.float64, x, 0.1), x)
    assert torch.equal(run_op("minimum", torch.float64, x, 0.1), torch.full_like(x, 0.1))
    assert torch.equal(run_op("where", torch.float64, x > 1, x, 0.1), torch.full_like(x, 0.1))
    assert torch.equal(run_op("mul", torch.float64, x, 0.1), x * 0.1)


def test_kernels_that_cannot_be_made_leave_operations_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no such instruction")

    monkeypatch.setattr(ElementwiseKernel, "compile", fail)
    with pytest.warns(RuntimeWarning, match="without fused kernels: ValueError: no such instruction"):
        check_on("aten", BY_NAME["LSTM"].case(4, 5, units=19), [5, 2, 1, 4])
