"""Cells that tell the gradient of their states: through the output of the same step, and through all later steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from throughtime import _pytree
from throughtime.cells import RNNCell


class Probed(RNNCell):
    """A cell whose new state is moved by probes of zeros: a probe's gradient is that of the state itself.

    `places` says which leaves of the state have a probe. An output that is such a leaf moves with it; for a cell
    that makes others of its state there is `Followed`.
    """

    def __init__(self, cell: Any, places: tuple[int, ...]) -> None:
        super().__init__()
        self.cell, self.places = cell, places
        self.state_size, self.output_size = cell.state_size, cell.output_size

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        inputs, probes = inputs
        output, state = self.cell(inputs, state)
        leaves = _pytree.flatten(state)
        moved = self.moved(leaves, probes)
        # Of two leaves that are one tensor, the first.
        same = {id(leaves[place]): moved[place] for place in reversed(self.places)}
        return _pytree.map_leaves(lambda leaf: same.get(id(leaf), leaf), output), _pytree.pack_as(state, moved)

    def moved(self, leaves: list[Any], probes: Sequence[Tensor]) -> list[Any]:
        """The leaves of a new state and what moves them."""
        found = list(leaves)
        for place, probe in zip(self.places, probes, strict=True):
            # A state of one number a row has one axis less than its probe.
            found[place] = found[place] + (probe if probe.ndim == found[place].ndim else probe.squeeze(-1))
        return found

    def check_step(self, inputs: Any, state: Any) -> None:
        if isinstance(self.cell, RNNCell):
            self.cell.check_step(inputs[0], state)

    def check_values(self, inputs: Any) -> None:
        if isinstance(self.cell, RNNCell):
            self.cell.check_values(inputs[0])


def returns_its_state(cell: Any, inputs: Any, state: Any) -> bool:
    """Whether every output of a step is a leaf of its new state, the tensor itself, as that of an LSTM or a GRU is."""
    devices = {leaf.device for leaf in _pytree.flatten([inputs, state]) if isinstance(leaf, Tensor) and leaf.is_cuda}
    # What is drawn here is drawn again where it counts.
    with torch.no_grad(), torch.random.fork_rng(list(devices)):
        output, new = cell(inputs, state)
    leaves = set(map(id, _pytree.flatten(new)))
    return all(id(leaf) in leaves for leaf in _pytree.flatten(output))


class Followed(Probed):
    """A probed cell whose outputs are followed back to the new state that they were computed from, if they were.

    A probe comes too late for them: they are made when it is added. So each step keeps the way from its state to its
    outputs, which takes the reference.
    """

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        inputs, probes = inputs
        with _Joins() as joins:
            output, state = self.cell(inputs, state)
        leaves, outputs = _pytree.flatten(state), _pytree.flatten(output)
        ours = [place for place, leaf in enumerate(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if ours:
            from_state = [(leaves[place], joins.made.get(id(leaves[place]))) for place in self.places]
            back = partial(_asked_of, [outputs[place] for place in ours], from_state)
            linked = _Linked.apply(back, probes, *(outputs[place] for place in ours), *probes)  # type: ignore[no-untyped-call]
            for place, leaf in zip(ours, linked, strict=True):
                outputs[place] = leaf
        return _pytree.pack_as(output, outputs), _pytree.pack_as(state, self.moved(leaves, probes))


class _Linked(torch.autograd.Function):
    """Outputs as they are, whose gradients also go to probes: by `back`, from gradients of outputs to those."""

    @staticmethod
    def forward(ctx: Any, back: Any, probes: Sequence[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.back, ctx.shapes = back, [probe.shape for probe in probes]
        return tensors[: len(tensors) - len(probes)]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        asked = ctx.back(gradients)
        shaped = [None if one is None else one.reshape(shape) for one, shape in zip(asked, ctx.shapes, strict=True)]
        return (None, None, *gradients, *shaped)


class _Join(NamedTuple):
    """What a tensor was joined from, and along which axis."""

    parts: Sequence[Tensor]
    axis: int


class _Joins(TorchFunctionMode):
    """What is joined meanwhile: with `state_is_tuple=False`, an output is a part that the state was joined from."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, _Join] = {}
        # As long as they live, nothing else has their id.
        self._alive: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.cat:
            given = dict(zip(("tensors", "dim"), args, strict=False)) | (kwargs or {})
            self.made[id(result)] = _Join(given["tensors"], given.get("dim", 0))
            self._alive.append(result)
        return result


def _asked_of(
    outputs: list[Tensor], leaves: list[tuple[Tensor, _Join | None]], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """What gradients of outputs ask of the leaves of the new state that they were computed from; None is nothing."""
    parts = [part for _, join in leaves if join is not None for part in join.parts]
    found = _stopped_at([*(leaf for leaf, _ in leaves), *parts], outputs, gradients)
    asked: list[Tensor | None] = []
    for leaf, join in leaves:
        whole = found.get(id(leaf))
        if join is not None and any(id(part) in found for part in join.parts):
            pieces = torch.cat([found.get(id(part), torch.zeros_like(part)) for part in join.parts], join.axis)
            whole = pieces if whole is None else whole + pieces
        asked.append(whole)
        # Of two leaves that are one tensor, the first.
        for tensor in (leaf, *(() if join is None else join.parts)):
            found.pop(id(tensor), None)
    return asked


def _stopped_at(tensors: list[Tensor], outputs: list[Tensor], gradients: Sequence[Tensor]) -> dict[int, Tensor]:
    """The gradients of `tensors` by their ids; none goes through one of them to another.

    The h of an LSTM is made of its c. But both are the state, and what is asked of h is not asked of c as well.
    """
    found: dict[int, Tensor] = {}

    def stop(place: int, gradient: Tensor) -> Tensor:
        found[place] = gradient
        return torch.zeros_like(gradient)

    inside = list({id(tensor): tensor for tensor in tensors if tensor.requires_grad}.values())
    hooks = [tensor.register_hook(partial(stop, id(tensor))) for tensor in inside]
    try:
        if inside:
            torch.autograd.grad(outputs, inside, gradients, retain_graph=True, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return found
