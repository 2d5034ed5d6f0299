"""A step run again by the cell itself, for gradients of gradients.

A trace has a step and its gradient. It does not show how torch derived that gradient: detached tensors, `no_grad` and
custom gradients leave no mark. Where torch differentiates the gradient of such a cell, the cell runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime.cells._base import begin_sequence
from throughtime.cells._cell_types import CellLike
from throughtime.compiler.guards.fingerprint import CellFingerprint
from throughtime.compiler.trace.stand_in import with_tensors
from throughtime.compiler.trace.trace import StepCall, StepSignature

Leaves = Sequence[Tensor]


class CellRerun:
    """The call of a step, under the autocast of its trace."""

    def __init__(self, signature: StepSignature, step: StepCall) -> None:
        self._signature, self._step = signature, step
        kind = self._device = signature.input_leaves[0].device.type
        self._autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        self._rowless = [leaf.shape is None for leaf in signature.state_leaves]

    def begin(self, cell: CellLike, tensors: Leaves) -> Callable[[Leaves, Leaves], tuple[list[Tensor], list[Tensor]]]:
        """A step of the cell with these tensors as its own, from leaves of inputs and state to leaves of results."""
        fingerprint = CellFingerprint(cell)
        place = {id(tensor): number for number, tensor in enumerate(fingerprint.tensors)}
        stand_in = with_tensors(cell, lambda tensor: tensors[place[id(tensor)]], fingerprint.named)
        begin_sequence(stand_in)

        def step(inputs: Leaves, state: Leaves) -> tuple[list[Tensor], list[Tensor]]:
            rows = inputs[0].shape[0]
            # States without rows were broadcast to the batch.
            plain = [leaf[0] if rowless else leaf for leaf, rowless in zip(state, self._rowless, strict=True)]
            given = _pytree.pack_as(self._signature.inputs, inputs), _pytree.pack_as(self._signature.state, plain)
            with torch.autocast(self._device, self._autocast, enabled=self._autocast is not None):
                outputs, new_state = self._step(stand_in, *given)
            results = [leaf.expand(rows) if not leaf.ndim else leaf for leaf in (*outputs, *new_state)]
            return results[: len(outputs)], results[len(outputs) :]

        return step
