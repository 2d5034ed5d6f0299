"""Known calls on a CPU, whose two passes go straight to their kernels, against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
import user_cells
from backends import check_on
from bound_call_cases import BATCH, CELLS, LENGTHS, TIME, WIDTH, inputs
from compare import check_close
from throughtime.backends.cpu.bound_call import CpuBoundCall
from throughtime.native.gemm.policy import gemm_policy

pytestmark = pytest.mark.covers("kernels")
tree_leaves = torch.utils._pytree.tree_leaves


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each backward pass of a known call, whether it was direct. Products are machine code, however small."""
    ways: list[bool] = []
    plain = CpuBoundCall.backward

    def noted(*args: Any) -> Any:
        found = plain(*args)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(CpuBoundCall, "backward", noted)
    with gemm_policy.change(torch_up_to=0):
        yield ways


def trained(cell: Any, x: Tensor, lengths: Any, start: Any = None, *, of: str = "all", **options: Any) -> list[Tensor]:
    """Outputs, the final state, and gradients of everything, of a loss of all or of some of the results."""
    outputs, state = tt.dynamic_rnn(cell, x, lengths, start, x.dtype, **options)
    results = {"all": [outputs, *tree_leaves(state)], "outputs": [outputs], "state": tree_leaves(state)}[of]
    loss = sum((leaf * torch.linspace(-1, 1, leaf.numel(), dtype=x.dtype).view_as(leaf)).sum() for leaf in results)
    wanted = [one for one in (x, *cell.parameters(), *tree_leaves(start)) if one is not None and one.requires_grad]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [outputs, *tree_leaves(state), *(leaf for leaf in found if leaf is not None)]


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["T", "mixed"])
@pytest.mark.parametrize("name", CELLS)
def test_as_the_reference_has_it(name: str, lengths: Any, time_major: bool, direct: list[bool]) -> None:
    cell, x = CELLS[name]().double(), inputs(time_major)
    with tt.backend("reference"):
        want = trained(cell, x, lengths, time_major=time_major)
    for _ in range(3):
        check_close(name, want, trained(cell, x, lengths, time_major=time_major))
    # An output that is made after the loop is more than its kernel.
    assert (direct.count(True) >= 2) is (name != "residual")


@pytest.mark.parametrize("of", ["outputs", "state"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_that_nobody_gave(of: str, dtype: torch.dtype, direct: list[bool]) -> None:
    cell, x = CELLS["LSTM"]().to(dtype), inputs(dtype=dtype)
    with tt.backend("reference"):
        want = trained(cell, x, LENGTHS, of=of)
    for _ in range(3):
        check_close(of, want, trained(cell, x, LENGTHS, of=of))
    assert direct.count(True) >= 2


def test_gradients_of_some_alone(direct: list[bool]) -> None:
    """What is wanted changes from call to call."""
    cell, x = CELLS["stack"]().double(), inputs()
    for frozen in range(len(list(cell.parameters()))):
        for index, parameter in enumerate(cell.parameters()):
            parameter.requires_grad_(index != frozen)
        x.requires_grad_(frozen % 2 == 0)
        with tt.backend("reference"):
            want = trained(cell, x, LENGTHS)
        for _ in range(2):
            check_close(str(frozen), want, trained(cell, x, LENGTHS))
    assert direct.count(True) >= 4


def test_from_a_given_state(direct: list[bool]) -> None:
    cell, x = CELLS["stack"]().double(), inputs()
    start = torch.utils._pytree.tree_map(
        lambda leaf: torch.rand_like(leaf).requires_grad_(), cell.zero_state(BATCH, torch.float64)
    )
    with tt.backend("reference"):
        want = trained(cell, x, LENGTHS, start)
    for _ in range(3):
        check_close("given", want, trained(cell, x, LENGTHS, start))
    assert direct.count(True) >= 2


def test_other_lengths_of_a_known_call() -> None:
    cell, x = CELLS["LSTM"]().double(), inputs()
    for seed in range(12):
        lengths = torch.randint(0, TIME + 1, (BATCH,), generator=torch.Generator().manual_seed(seed)).tolist()
        with tt.backend("reference"):
            want = trained(cell, x, lengths)
        check_close(str(lengths), want, trained(cell, x, lengths))


def test_weights_that_lie_otherwise_than_they_did(direct: list[bool]) -> None:
    cell, x = CELLS["LSTM"]().double(), inputs()
    for _ in range(2):
        trained(cell, x, LENGTHS)
    outputs, _ = tt.dynamic_rnn(cell, x, LENGTHS, dtype=x.dtype)
    want = torch.autograd.grad(outputs.sum(), x, retain_graph=True)
    cell.kernel.data = cell.kernel.data.T.contiguous().T
    check_close("between the passes", want, torch.autograd.grad(outputs.sum(), x))
    assert direct[-2:] == [True, False]


def test_saved_tensors_may_be_moved_by_hooks() -> None:
    """What comes back from a hook need not lie as it did."""
    cell, x = CELLS["LSTM"]().double(), inputs()
    want = trained(cell, x, LENGTHS)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.clone(), lambda tensor: tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor
    ):
        for _ in range(2):
            check_close("hooks", want, trained(cell, x, LENGTHS))


@pytest.mark.parametrize("listed", user_cells.USER_CELLS, ids=lambda listed: listed.descriptor.name)
@pytest.mark.parametrize("lengths", [None, [2, 0, 5, 1, 4, 5]], ids=["T", "mixed"])
def test_cells_of_users(listed: user_cells.Listed, lengths: Any) -> None:
    case = listed.case(6, 5)
    with gemm_policy.change(torch_up_to=0):
        for _ in range(3):
            check_on("auto", case, lengths)


def test_the_number_of_threads_changes_no_bit() -> None:
    cell, threads = tt.LSTMCell(64, input_size=WIDTH), torch.get_num_threads()
    x = torch.randn(64, 40, WIDTH, requires_grad=True)
    lengths = [1 + 7 * row % 40 for row in range(64)]
    many = [trained(cell, x, lengths) for _ in range(2)][1]
    try:
        torch.set_num_threads(1)
        one = [trained(cell, x, lengths) for _ in range(2)][1]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(many, one, strict=True))
