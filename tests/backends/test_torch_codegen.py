"""Sections of a program as functions over torch operations: what is written for a GPU says the same as for a CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from throughtime.backends.torch_codegen import SectionFunction
from throughtime.compiler import ROWS, Node, Value, taken_by

pytestmark = pytest.mark.covers("compiler")

aten = torch.ops.aten
NAMES = "abcd"


def joined_products() -> tuple[list[Node], list[Value], Value]:
    """`cat([a @ b, c @ d])`: a gradient of a matrix that was cut in two is one."""
    takes = [Value(name, (3, 3), torch.float64) for name in NAMES]
    parts = [Value(name, (3, 3), torch.float64) for name in ("first", "second")]
    whole = Value("whole", (6, 3), torch.float64)
    nodes = [
        Node(aten.mm.default, (takes[0], takes[1]), {}, (parts[0],)),
        Node(aten.mm.default, (takes[2], takes[3]), {}, (parts[1],)),
        Node(aten.cat.default, (parts, 0), {}, (whole,)),
    ]
    return nodes, takes, whole


def run(*, on_gpu: bool, reuse: tuple[()] | None, matrices: list[Tensor]) -> tuple[str, Tensor]:
    nodes, takes, whole = joined_products()
    function = SectionFunction("section", nodes, [whole], reuse, on_gpu=on_gpu)
    env = dict(zip(takes, matrices, strict=True))
    function.run(0, env)
    return function.source, env[whole]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_parts_of_a_join_are_made_in_their_places_on_a_gpu(on_gpu: bool) -> None:
    matrices = [torch.randn(3, 3, dtype=torch.float64) for _ in NAMES]
    source, found = run(on_gpu=on_gpu, reuse=(), matrices=matrices)
    assert (".split(" in source) == on_gpu
    assert torch.equal(found, torch.cat([matrices[0] @ matrices[1], matrices[2] @ matrices[3]]))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_reuses_no_memory_can_be_differentiated(on_gpu: bool) -> None:
    matrices = [torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in NAMES]
    assert torch.autograd.gradcheck(lambda *given: run(on_gpu=on_gpu, reuse=None, matrices=list(given))[1], matrices)


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_the_shapes_of_a_value(axis: int | None) -> None:
    shape = tuple(ROWS if place == axis else size for place, size in enumerate((2, 3, 4)))
    value, tensor = Value("value", shape, torch.float64), torch.randn(5 if axis == 0 else 2, 5 if axis == 1 else 3, 4)
    assert value.row_shape == tuple(size for place, size in enumerate((2, 3, 4)) if place != axis)
    assert value.row_bytes == 8 * value.row_size
    assert value.sized(5) == tuple(5 if place == axis else size for place, size in enumerate((2, 3, 4)))
    assert value.rows_placed(value.rows_first(tensor)).shape == tensor.shape
    assert torch.equal(value.rows_placed(value.rows_first(tensor)), tensor)


def test_what_nodes_take() -> None:
    nodes, takes, whole = joined_products()
    assert taken_by(nodes) == takes
    other = Value("other", (1,), torch.float64)
    assert taken_by(nodes, [whole, other]) == [*takes, other]
