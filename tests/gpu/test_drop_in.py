"""`tt.nn` on a card: kernels take torch's weights as they lie, and give what torch gives. `make test-gpu`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import throughtime as tt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS = ("LSTM", "GRU", "RNN")
LENGTHS = [9, 2, 5, 1, 5]


def trained(module: Any, x: Any) -> list[Tensor]:
    """Outputs, final states and all gradients."""
    data = (x.data if isinstance(x, PackedSequence) else x).detach().requires_grad_()
    outputs, last = module(x._replace(data=data) if isinstance(x, PackedSequence) else data)
    outputs = outputs.data if isinstance(outputs, PackedSequence) else outputs
    results = [outputs, *(last if isinstance(last, tuple) else [last])]
    pulls = [torch.linspace(-1, 1, leaf.numel()).view(leaf.shape).to(leaf) for leaf in results]
    gradients = torch.autograd.grad(results, [data, *module.parameters()], pulls)
    return [*results, *gradients]


def check(want: list[Tensor], got: list[Tensor], most: float) -> None:
    for place, pair in enumerate(zip(want, got, strict=True)):
        one, other = (leaf.detach().cpu().double() for leaf in pair)
        error = float((one - other).norm() / one.norm().clamp_min(1e-6))
        assert error <= most, f"tensor {place}: {error:.1e}"


@pytest.mark.parametrize("form", ["dense", "packed"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one layer", "deep"])
@pytest.mark.parametrize("kind", KINDS)
def test_as_on_the_cpu(kind: str, options: dict[str, Any], form: str) -> None:
    theirs = getattr(nn, kind)(20, 70, **options)
    ours = tt.accelerate(copy.deepcopy(theirs)).cuda()
    x: Any = torch.randn(9, 5, 20)
    if form == "packed":
        x = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    want = trained(theirs, x)
    with tt.backend("triton"):
        for _ in range(2):
            check(want, trained(ours, x.to("cuda")), 1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_lower_precision_and_lengths(kind: str) -> None:
    theirs = getattr(nn, kind)(20, 70, bidirectional=True)
    ours = tt.accelerate(copy.deepcopy(theirs)).cuda()
    x = torch.randn(9, 5, 20, device="cuda")
    with tt.backend("triton"), torch.autocast("cuda", torch.bfloat16):
        outputs, _ = ours(x)
    assert outputs.dtype is torch.bfloat16
    check([theirs.cuda()(x)[0]], [outputs], 3e-2)
    outputs, _ = ours(x, sequence_length=torch.tensor(LENGTHS, device="cuda"))
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    padded, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0])
    check([padded], [outputs], 1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_compile() -> None:
    ours, x = tt.nn.LSTM(20, 70, num_layers=2).cuda(), torch.randn(9, 5, 20, device="cuda")
    compiled = torch.compile(lambda x: ours(x)[0].sin(), fullgraph=True)
    check([ours(x)[0].sin()], [compiled(x)], 1e-4)
