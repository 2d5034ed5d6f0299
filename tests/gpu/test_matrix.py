"""All cells on a card, on every backend that takes them: values, final states, all gradients. `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import throughtime as tt
from backends import raises_refusal
from descriptors import Descriptor
from gpu_matrix import CELLS, LENGTHS, REFUSED, case_of, check_case, check_cell, moved
from matrix_cells import LAYERS, Layers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("conformance"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
HALF = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """Convolutions of float32 in float32."""
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def check(name: str, dtype: torch.dtype, backend: str) -> None:
    """A cell on a backend, or what the backend says instead."""
    if (backend, name) not in REFUSED:
        check_cell(name, dtype, backend, "cuda")
        return
    there = moved(case_of(name, dtype), "cuda", dtype)
    with raises_refusal(backend, REFUSED[backend, name]), tt.backend(backend):
        tt.dynamic_rnn(there.cell, there.inputs, LENGTHS, there.state, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_one_kernel(name: str, dtype: torch.dtype) -> None:
    check(name, dtype, "triton")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_kernels_one_after_another(name: str, dtype: torch.dtype) -> None:
    check(name, dtype, "aten")


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", [name for backend, name in REFUSED if backend == "triton"])
def test_half_precision_where_one_kernel_is_refused(name: str, dtype: torch.dtype) -> None:
    check(name, dtype, "aten")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("name", ["scalar state", "no state"])
def test_what_only_the_reference_takes(name: str, dtype: torch.dtype) -> None:
    check_cell(name, dtype, "auto", "cuda")


@pytest.mark.parametrize("name", CELLS)
def test_auto_takes_the_first_backend_that_can(name: str) -> None:
    case = moved(case_of(name, torch.float32), "cuda", torch.float32)
    plan = tt.explain(case.cell, case.inputs, LENGTHS, case.state, torch.float32)
    assert plan.backend == next((one for one in ("triton", "aten") if (one, name) not in REFUSED), "reference")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", sorted(LAYERS.keys() - {"group norm"}))
def test_layers_of_torch_within_a_row(name: str, dtype: torch.dtype) -> None:
    """Slots are a batch of products here: rows lie in the middle of what a step stores."""
    torch.manual_seed(0)
    case = Descriptor(name, lambda _: Layers(LAYERS[name]())).case(4, 5, dtype)
    for lengths in (None, [5, 0, 1, 4]):
        check_case(case, lengths, "auto", "cuda")
