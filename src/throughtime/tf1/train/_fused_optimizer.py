"""Optimisers with an update rule of TensorFlow: one operation changes all variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._variables import read_variable
from throughtime.tf1.ops._convert import convert_to_tensor, is_tensor
from throughtime.tf1.train._optimizer import Optimizer, Pair, constrained
from throughtime.tf1.train._update_rules import Rule, on_rows, summed_rows


class FusedOptimizer(Optimizer):
    """An optimiser that is a rule of `_update_rules`, its slots and its settings.

    A subclass sets `_settings`: numbers, or tensors that are read in each run. One that overrides `_apply_dense` gets
    one operation for each variable, as in TensorFlow.
    """

    # Slots in the order of the rule's arguments: name and initial value.
    _slot_values: tuple[tuple[str, float], ...] = ()
    # Whether a sparse gradient changes only the rows that it has. Otherwise it is as if it were zero elsewhere.
    _rows_only: ClassVar[bool] = True

    def __init__(self, rule: Rule, name: str, use_locking: bool = False, **settings: Any) -> None:
        super().__init__(use_locking, name)
        self._rule = rule
        self._settings = settings

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            for name, value in self._slot_values:
                self._filled_slot(variable, value, name, self._slot_scope(name))

    def _slot_scope(self, slot_name: str) -> str:
        """What stands behind the variable's name in the name of a slot."""
        del slot_name
        return self._name

    def _updates(self, pairs: Sequence[Pair]) -> list[Any]:
        methods = ("_apply_dense", "_apply_sparse", "_apply_sparse_duplicate_indices", "_resource_apply_dense")
        if any(getattr(type(self), name) is not getattr(FusedOptimizer, name) for name in methods):
            return super()._updates(pairs)
        update = self._update_op(pairs, finish=True)
        self._is_finished = True
        return [constrained(update, variable) for _, variable in pairs if variable.constraint is not None] or [update]

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return self._update_op([(grad, var)])

    def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> Any:
        return self._update_op([(grad, var)])

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._update_op([(grad, var)])

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        if not getattr(self, "_is_finished", False):
            update_ops = [*update_ops, *self._advance_ops(update_ops)]
        self._is_finished = False
        return super()._finish(update_ops, name_scope)

    def _advance_ops(self, update_ops: Sequence[Any]) -> list[Any]:
        """Operations that advance the optimiser's own variables, where each variable has an update of its own."""
        del update_ops
        return []

    def _advance(self, state: Any, settings: dict[str, Any]) -> None:
        """Advance the optimiser's own variables after an update of all variables."""

    def _read_settings(self, state: Any, given: dict[str, Any]) -> dict[str, Any]:
        """The settings of the rule in this run, with what the optimiser's own variables add."""
        del state
        return given

    def _change_rows(self, rows: Any, sums: Any, values: list[Any], settings: dict[str, Any]) -> None:
        """Change some rows of a variable and of its slots."""
        on_rows(self._rule, rows, values[0], sums, values[1:], **settings)

    def _update_op(self, pairs: Sequence[Pair], finish: bool = False) -> Operation:
        """One operation that reads gradients and settings, and changes variables and slots in place."""
        gradients = [_parts(gradient) for gradient, _ in pairs]
        sizes = [len(parts) for parts in gradients]
        names = list(self._settings)
        settings = {name: self._call_if_callable(self._settings[name]) for name in names}
        tensors = {name: convert_to_tensor(value) for name, value in settings.items() if is_tensor(value)}
        # Settings are float32 in TensorFlow: with beta2 = 0.999 that changes 1 - beta2 by a part in 80,000.
        numbers = {name: float(np.float32(value)) for name, value in settings.items() if name not in tensors}
        targets = [self._targets(variable) for _, variable in pairs]
        kernel = _UpdateKernel(self, sizes, targets, list(tensors), numbers, finish)
        in_place = _UpdateKernel(self, sizes, targets, list(tensors), numbers, finish, in_place=True)
        inputs = [part for parts in gradients for part in parts] + list(tensors.values())
        writes = [target for group in targets for target in group]
        return create_op(
            f"Apply{self._name}", kernel, inputs, name="Apply", dtypes=[], shapes=[], stateful=True,
            differentiable=False, attrs={"writes": writes, "in_place": in_place},
        )  # fmt: skip

    def _targets(self, variable: Any) -> list[Operation]:
        """The operations of a variable and of its slots."""
        slots = [self._slots[name][variable] for name, _ in self._slot_values]
        return [each.op for each in (variable, *slots)]


def _parts(gradient: Any) -> list[Tensor]:
    """The tensors of a gradient: one, or values and rows."""
    if hasattr(gradient, "indices"):
        return [convert_to_tensor(gradient.values), convert_to_tensor(gradient.indices)]
    return [gradient]


class _UpdateKernel:
    """The kernel of an update: gradients come first (a tensor, or values and rows), then settings that are tensors."""

    def __init__(
        self,
        optimizer: FusedOptimizer,
        sizes: list[int],
        targets: list[list[Operation]],
        tensor_names: list[str],
        numbers: dict[str, Any],
        finish: bool,
        in_place: bool = False,
    ) -> None:
        self.read_target = read_variable if in_place else _own
        self.optimizer, self.sizes, self.targets = optimizer, sizes, targets
        self.tensor_names, self.numbers, self.finish = tensor_names, numbers, finish

    @torch.no_grad()
    def __call__(self, state: Any, *inputs: Any) -> tuple[()]:
        optimizer = self.optimizer
        count = sum(self.sizes)
        given = {name: float(value) for name, value in zip(self.tensor_names, inputs[count:], strict=True)}
        settings = optimizer._read_settings(state, {**self.numbers, **given})
        dense: dict[torch.dtype, list[list[torch.Tensor]]] = {}
        at = 0
        for size, targets in zip(self.sizes, self.targets, strict=True):
            parts, at = inputs[at : at + size], at + size
            values = [self.read_target(state, targets[0]), *(read_variable(state, each) for each in targets[1:])]
            if size == 2 and optimizer._rows_only:
                rows, sums = summed_rows(parts[1], parts[0])
                optimizer._change_rows(rows, sums, values, settings)
            else:
                gradient = _dense(parts, values[0]) if size == 2 else parts[0]
                dense.setdefault(values[0].dtype, []).append([values[0], gradient, *values[1:]])
        for group in dense.values():
            optimizer._rule(*(list(column) for column in zip(*group, strict=True)), **settings)
        if self.finish:
            optimizer._advance(state, settings)
        return ()


def _own(state: Any, variable: Operation) -> torch.Tensor:
    """A copy that becomes the variable's value: a later gradient of the run needs the value from before."""
    value: torch.Tensor = read_variable(state, variable).detach().clone()
    state.values[variable] = value
    return value


def _dense(parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like).index_add_(0, parts[1], parts[0])
