"""Every cell on a GPU against the reference in float64 on the CPU: values, final states and all gradients.

`gpu/test_matrix.py` runs this on a card. The same code runs on any machine, on a CPU and in Triton's interpreter.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import weights
from descriptors import BY_NAME, Case, Descriptor, variational

more = tt.cells
UNITS = 70
"""No multiple of what kernels multiply at a time, and wide enough for several blocks of threads that meet."""
TIME = 6
LENGTHS = [TIME, 0, 1, TIME - 1, 3]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Of the norm of each result and gradient."""

_WIDE = [
    Descriptor("LSTM projection", lambda units: tt.LSTMCell(units, num_proj=units // 2, state_is_tuple=False)),
    Descriptor("LSTM full", lambda units: tt.LSTMCell(units, True, 0.7, num_proj=units // 2, proj_clip=0.4)),
    Descriptor("Multi", lambda units: tt.MultiRNNCell([tt.LSTMCell(units), tt.GRUCell(units - 1)])),
    Descriptor("Multi flat", lambda u: tt.MultiRNNCell([tt.BasicRNNCell(u - 1), tt.GRUCell(u)], state_is_tuple=False)),
    Descriptor("Dropout in Multi", lambda u: tt.MultiRNNCell([variational(tt.GRUCell(u - 1)), tt.GRUCell(u)])),
    Descriptor("LayerNormLSTM", lambda u: more.LayerNormLSTMCell(u, True, 0.7, None, u // 2, 0.4, layer_norm=True)),
    Descriptor("WeightNormLSTM", lambda units: more.WeightNormLSTMCell(units, use_peepholes=True, num_proj=units // 2)),
    Descriptor("Coupled", lambda u: more.CoupledInputForgetGateLSTMCell(u, True, num_proj=u // 2, proj_clip=0.5)),
    Descriptor("GLSTM", lambda u: more.GLSTMCell(u, num_proj=u // 2 - 1, number_of_groups=2), 4),
    Descriptor("NAS", lambda units: more.NASCell(units, num_proj=units // 2, use_bias=True)),
]
CELLS = BY_NAME | {descriptor.name: descriptor for descriptor in _WIDE}
"""Every descriptor; those that project to two units whatever their size are as wide as the others here."""

DRAWN = {name for name in CELLS if name.startswith("Dropout")}
"""Cells that draw random numbers, which are others on a GPU, and in float64."""
NORMALISED = {"LayerNormBasicLSTM", "LayerNormLSTM", "LayerNormGRU", "Coupled normalised"}
"""Cells with TensorFlow's layer norm, which adds something else to variances in float16."""
CORNERS = {"LSTM full", "LayerNormLSTM", "Coupled", "TimeFreqLSTM", "Phased", "SLSTM", "SLSTM exponential"}
"""Cells that clip, or take the larger of two numbers: half precision may see one on the other side of such a corner."""
SEEDS = (1, 2, 3, 4)
"""So it is enough there if all is right for one of these: a corner is rare, and a defect is not."""
OF_THEIR_OWN = {"NTM", "SLSTM", "SLSTM exponential"}
"""Cells that divide by what is in their state, so that not any numbers will do: they start where they have ended."""

REFUSED = {
    **{("triton", name): "is not in the vocabulary of row programs" for name in CELLS if name.startswith("Conv")},
    ("triton", "GridLSTM"): "is more than the registers of a GPU take",
    # In float32 its blocks do not fit either.
    ("triton", "BidirectionalGridLSTM"): " GPU",
    ("triton", "Attention"): "cannot all be on the GPU at once",
    ("triton", "NTM"): "reduced along an axis of a row",
    ("triton", "scalar state"): "has no rows, but a gradient",
    ("triton", "no state"): "it has no state",
    ("aten", "scalar state"): "has no rows, but a gradient",
    ("aten", "no state"): "it has no state",
}
"""What a backend does not take, and what it says: nothing else."""


def case_of(name: str, dtype: torch.dtype, units: int = UNITS, seed: int = SEEDS[0]) -> Case:
    """A cell, and something to run it on."""
    torch.manual_seed(seed)
    case = CELLS[name].case(len(LENGTHS), TIME, dtype, units=units)
    with torch.no_grad():
        if name == "Phased":
            for weight, least in ((case.cell.period, 1.0), (case.cell.ratio_on, 0.2)):
                weight.copy_(least * (1 + torch.rand(weight.shape)))
        if name not in OF_THEIR_OWN:
            return case
        start = tt.dynamic_rnn(case.cell, case.inputs, dtype=dtype)[1]
    return case._replace(state=start)


def moved(case: Case, device: str, dtype: torch.dtype) -> Case:
    """The same numbers elsewhere, or in another dtype."""

    def move(leaf: Any) -> Any:
        return leaf.detach().to(device, dtype if leaf.is_floating_point() else leaf.dtype)

    cell = copy.deepcopy(case.cell)
    if isinstance(cell, nn.Module):
        cell.to(device, dtype)
        for module in cell.modules():
            if isinstance(module, tt.DeviceWrapper):
                module.device = torch.device(device)
    else:
        cell.weights = [move(weight).requires_grad_() for weight in cell.weights]
    return Case(cell, *(pytree.tree_map_only(Tensor, move, tree) for tree in (case.inputs, case.state)), dtype)


def measured(case: Case, lengths: Any, backend: str, **options: Any) -> list[Tensor]:
    """Results and gradients, on the CPU."""
    torch.manual_seed(0)
    inputs, state = (
        pytree.tree_map_only(Tensor, lambda leaf: leaf.detach().clone().requires_grad_(leaf.is_floating_point()), tree)
        for tree in (case.inputs, case.state)
    )
    with tt.backend(backend):
        found = tt.dynamic_rnn(case.cell, inputs, lengths, state, case.dtype, **options)
    leaves = [leaf for leaf in pytree.tree_leaves(found) if leaf.is_floating_point()]
    random = torch.Generator().manual_seed(2)
    pulls = [torch.randn(leaf.shape, generator=random, dtype=torch.float64).to(leaf) for leaf in leaves]
    given = [leaf for leaf in pytree.tree_leaves((inputs, state)) if leaf is not None and leaf.is_floating_point()]
    pulled = [(leaf, pull) for leaf, pull in zip(leaves, pulls, strict=True) if leaf.requires_grad]
    gradients = torch.autograd.grad(
        [leaf for leaf, _ in pulled],
        [*given, *weights(case.cell)],
        [pull for _, pull in pulled],
        allow_unused=True,
        materialize_grads=True,
    )
    return [leaf.detach().cpu() for leaf in (*pytree.tree_leaves(found), *gradients)]


def check_close(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    """Each tensor, by its norm."""
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == want.shape, f"tensor {place}"
        error = float((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-6))
        # Written so that NaN fails.
        assert error <= tolerance, f"tensor {place}: {error:.1e}, allowed {tolerance:.1e}"


def check_case(case: Case, lengths: Any, backend: str, device: str, **options: Any) -> None:
    """A backend on a device against the reference in float64 on the CPU."""
    wanted = measured(moved(case, "cpu", torch.float64), lengths, "reference", **options)
    _check_runs(moved(case, device, case.dtype), lengths, backend, wanted, **options)


def check_cell(name: str, dtype: torch.dtype, backend: str, device: str, units: int = UNITS) -> None:
    """The same for one of all cells; where it is another cell in float64, the reference runs where it runs."""
    is_another = name in DRAWN or (name in NORMALISED and dtype == torch.float16)
    seeds = SEEDS if name in CORNERS and dtype.itemsize == 2 else SEEDS[:1]
    complaints = []
    for seed in seeds:
        case = case_of(name, dtype, units, seed)
        there = moved(case, device, dtype)
        judge = there if is_another else moved(case, "cpu", torch.float64)
        wanted = measured(judge, LENGTHS, "reference")
        try:
            _check_runs(there, LENGTHS, backend, wanted)
        except AssertionError as complaint:
            complaints.append(str(complaint))
        else:
            return
    raise AssertionError(f"{name}: {complaints}")


def _check_runs(there: Case, lengths: Any, backend: str, wanted: list[Tensor], **options: Any) -> None:
    # As it is, recorded, replayed: blocks that come once in a walk are recorded in the second.
    for _ in range(3 if backend == "aten" else 1):
        check_close(measured(there, lengths, backend, **options), wanted, TOLERANCE[there.dtype])
