"""Exponential moving averages of variables and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._scopes import name_scope, outside_of_functions
from throughtime.tf1.graph._variable_scope import get_variable, variable_scope
from throughtime.tf1.graph._variables import (
    Variable,
    global_variables,
    group,
    moving_average_variables,
    read_variable,
    trainable_variables,
)
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.train._optimizer import filled


@exported("train.ExponentialMovingAverage")
class ExponentialMovingAverage:
    """`average -= (1 - decay) * (average - value)`, at each run of the operation that `apply` returns."""

    def __init__(
        self,
        decay: float,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay, self._num_updates, self._zero_debias, self._name = decay, num_updates, zero_debias, name
        self._averages: dict[Any, Variable] = {}

    @property
    def name(self) -> str:
        """What stands behind a variable's name in the name of its average."""
        return self._name

    def apply(self, var_list: Sequence[Any] | None = None) -> Operation:
        """Make averages where there are none, and the operation that updates them."""
        values = trainable_variables() if var_list is None else list(var_list)
        for value in values:
            if value in self._averages:
                raise ValueError(f"Moving average already computed for: {value.name}")
            self._averages[value] = self._slot(value)
        with name_scope(self._name) as scope:
            decay = self._decay_tensor()
            updates = [self._update(value, self._averages[value], decay) for value in values]
            return group(*updates, name=scope)

    def _slot(self, value: Any) -> Variable:
        with outside_of_functions() as graph, variable_scope(None, f"{value.op.name}/{self._name}"):
            is_variable = isinstance(value, Variable)
            initial = value.initialized_value() if is_variable else (lambda: filled(value, 0.0))
            slot = get_variable("", initializer=initial, trainable=False)
            if is_variable:
                graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, value)
        return slot

    def _decay_tensor(self) -> Tensor:
        decay = convert_to_tensor(self._decay, name="decay")
        if self._num_updates is None:
            return decay

        def kernel(decay: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
            updates = count.to(decay.dtype)
            return torch.minimum(decay, (1.0 + updates) / (10.0 + updates))

        return create_op("Minimum", kernel, [decay, convert_to_tensor(self._num_updates)]).outputs[0]

    def _update(self, value: Any, average: Variable, decay: Tensor) -> Operation:
        tensor = value.read_value() if isinstance(value, Variable) else convert_to_tensor(value)
        if self._zero_debias and not isinstance(value, Variable):
            return assign_debiased(average, tensor, decay)
        return assign_average(average, tensor, decay)

    def average(self, var: Any) -> Variable | None:
        """The variable that holds the average."""
        return self._averages.get(var)

    def average_name(self, var: Any) -> str:
        """The name of the average in a checkpoint."""
        if var in self._averages:
            return self._averages[var].op.name
        return get_default_graph().unique_name(f"{var.op.name}/{self._name}", mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Variable]:
        """What a `Saver` takes to restore averages into the variables themselves."""
        averaged = moving_avg_variables
        if averaged is None:
            averaged = dict.fromkeys([*trainable_variables(), *moving_average_variables()])
        found = {self.average_name(variable): variable for variable in averaged}
        names = {variable.op.name for variable in averaged}
        for variable in global_variables():
            if variable.op.name not in names and variable.op.name not in found:
                found[variable.op.name] = variable
        return found


def assign_average(average: Variable, value: Tensor, decay: Tensor) -> Operation:
    """`average -= (1 - decay) * (average - value)`."""
    target = average.op

    def kernel(state: Any, value: torch.Tensor, decay: torch.Tensor) -> tuple[()]:
        old = read_variable(state, target)
        state.values[target] = old - (old - value.detach()) * (1 - decay.to(old.dtype))
        return ()

    return create_op("AssignMovingAvg", kernel, [value, decay], dtypes=[], shapes=[], stateful=True, mutates=target)


def assign_debiased(average: Variable, value: Tensor, decay: Tensor) -> Operation:
    """An average that begins with zero, divided by what it would be if all values had been one."""
    with outside_of_functions(), variable_scope(average.op.name):
        biased = get_variable("biased", initializer=lambda: filled(average, 0.0), trainable=False)
        steps = get_variable("local_step", initializer=lambda: _zero(average), trainable=False)
    targets = [each.op for each in (average, biased, steps)]

    def kernel(state: Any, value: torch.Tensor, decay: torch.Tensor) -> tuple[()]:
        _, old, count = (read_variable(state, op) for op in targets)
        decay = decay.to(old.dtype)
        new, count = old - (old - value.detach()) * (1 - decay), count + 1
        results = (new / (1 - decay**count), new, count)
        state.values.update(zip(targets, results, strict=True))
        return ()

    return create_op(
        "AssignMovingAvg", kernel, [value, decay], dtypes=[], shapes=[], stateful=True, attrs={"writes": targets}
    )


def _zero(average: Variable) -> Tensor:
    return convert_to_tensor(0.0, average.dtype.base_dtype)


@exported("python.training.moving_averages.assign_moving_average")
def assign_moving_average(
    variable: Variable, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """Update one average; gives its new value."""
    with name_scope(name, "AssignMovingAvg"):
        tensor, rate = convert_to_tensor(value), convert_to_tensor(decay, variable.dtype.base_dtype)
        update = (assign_debiased if zero_debias else assign_average)(variable, tensor, rate)
        with get_default_graph().control_dependencies([update]):
            return variable.read_value()
