"""The one comparison: values, final states and all gradients, with one tolerance for each dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""The error allowed for each dtype, relative to the largest value of a tensor (or to 1 where all are smaller)."""

Run = Callable[[Any, Any, Any], Any]
"""`run(cell, inputs, state)` gives a nest of tensors, such as `(outputs, final_state)`."""


class Measured(NamedTuple):
    """What a run gives: its results, and the gradient of every input, weight and initial state by name."""

    results: Any
    gradients: dict[str, Tensor]


def compare(reference: Run, candidate: Run, cell: Any, inputs: Any, state: Any) -> None:
    """Fail unless both runs give the same results and the same gradients, whatever is asked of them."""
    check_same(measure(reference, cell, inputs, state), measure(candidate, cell, inputs, state))


def measure(run: Run, cell: Any, inputs: Any, state: Any) -> Measured:
    """Run from fixed seeds, and pull random cotangents on all results back to everything that went in."""
    # Both runs of a comparison draw the same dropout masks.
    torch.manual_seed(0)
    inputs, state = (pytree.tree_map(_fresh, tree) for tree in (inputs, state))
    results = run(cell, inputs, state)
    sources = {
        **{f"inputs[{index}]": leaf for index, leaf in enumerate(pytree.tree_leaves(inputs))},
        **{f"initial_state[{index}]": leaf for index, leaf in enumerate(pytree.tree_leaves(state))},
        **{f"weights[{index}]": weight for index, weight in enumerate(weights(cell))},
    }
    return Measured(results, gradients(results, sources))


def gradients(results: Any, sources: dict[str, Any]) -> dict[str, Tensor]:
    """The gradients of random cotangents on `results`; zeros for a source that nothing depends on."""
    random = torch.Generator().manual_seed(1)
    leaves = [leaf for leaf in pytree.tree_leaves(results) if leaf.is_floating_point()]
    # One cotangent for each leaf, used or not, so that the next leaf always gets the same.
    pulls = [torch.randn(leaf.shape, generator=random, dtype=torch.float64).to(leaf.dtype) for leaf in leaves]
    pulled = [(leaf, pull) for leaf, pull in zip(leaves, pulls, strict=True) if leaf.requires_grad]
    wanted = {name: source for name, source in sources.items() if source is not None and source.requires_grad}
    if not pulled or not wanted:
        return {name: torch.zeros_like(source) for name, source in wanted.items()}
    outputs, cotangents = zip(*pulled, strict=True)
    found = torch.autograd.grad(outputs, list(wanted.values()), cotangents, allow_unused=True, materialize_grads=True)
    return dict(zip(wanted, found, strict=True))


def check_same(reference: Measured, candidate: Measured) -> None:
    """Fail unless two runs have given the same."""
    check_close("results", reference.results, candidate.results)
    assert reference.gradients.keys() == candidate.gradients.keys()
    for name, gradient in reference.gradients.items():
        check_close(f"the gradient of {name}", gradient, candidate.gradients[name])


def check_close(what: str, reference: Any, candidate: Any) -> None:
    """Fail unless two nests have one structure, and each leaf the dtype, shape and nearly the values of the other."""
    structures = pytree.tree_structure(reference), pytree.tree_structure(candidate)
    assert structures[0] == structures[1], f"{what}: the structure is {structures[1]}, expected {structures[0]}"
    for index, (want, got) in enumerate(zip(*map(pytree.tree_leaves, (reference, candidate)), strict=True)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{what}, leaf {index}"
        if not want.is_floating_point():
            assert torch.equal(got, want), f"{what}, leaf {index}"
        elif want.numel():
            allowed = TOLERANCE[want.dtype] * max(1.0, want.abs().max().item())
            error = (got.double() - want.double()).abs().max().item()
            # Written so that NaN fails.
            assert error <= allowed, f"{what}, leaf {index}: off by {error:.1e}, allowed {allowed:.1e}"


def weights(cell: Any) -> list[Tensor]:
    """What a cell learns: its parameters, or the `weights` of a cell that is no module."""
    return list(cell.parameters()) if isinstance(cell, nn.Module) else list(cell.weights)


def _fresh(leaf: Any) -> Any:
    """A copy that gradients can be asked of."""
    return leaf if leaf is None else leaf.detach().clone().requires_grad_(leaf.is_floating_point())
