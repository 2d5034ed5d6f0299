"""`Optimizer`: what all optimisers share, and what a program's own subclass overrides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from throughtime._errors import problem
from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._scopes import control_dependencies, name_scope, outside_of_functions
from throughtime.tf1.graph._variable_scope import get_variable, variable_scope
from throughtime.tf1.graph._variables import Variable, assign_add, group, trainable_variables
from throughtime.tf1.ops._convert import convert_to_tensor

Pair = tuple[Any, Any]


@exported("train.Optimizer", "python.training.optimizer.Optimizer")
class Optimizer:
    """Base class of optimisers.

    A subclass overrides `_apply_dense(grad, var)`, which returns an operation, and may override `_create_slots`,
    `_prepare`, `_apply_sparse` and `_finish`.
    """

    GATE_NONE, GATE_OP, GATE_GRAPH = range(3)

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking, self._name = use_locking, name
        self._slots: dict[str, dict[Variable, Variable]] = {}
        self._non_slots: dict[tuple[str, Any], Variable] = {}

    def get_name(self) -> str:
        """The name that slots and operations get."""
        return self._name

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """An operation that computes the gradients of `loss` and applies them."""
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        if all(gradient is None for gradient, _ in pairs):
            names = [str(variable) for _, variable in pairs]
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, "
                f"between variables {names} and loss {loss}."
            )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[Pair]:
        """Gradients and variables, in pairs; the gradient is None where the loss does not depend on a variable."""
        if callable(loss) and not isinstance(loss, Tensor):
            what, fix = "`loss` is a function, which needs eager execution", "Pass the tensor that it returns."
            raise RuntimeError(problem(what, got="a function", expected="a tensor", fix=fix))
        if gate_gradients not in {self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH}:
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH.  "
                f"Not {gate_gradients}"
            )
        variables = trainable_variables() if var_list is None else _flat(var_list)
        if not variables:
            raise ValueError("No variables to optimize.")
        gradients = lookup("gradients")(
            loss,
            variables,
            grad_ys=grad_loss,
            gate_gradients=gate_gradients == self.GATE_OP,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        pairs = list(zip(gradients, variables, strict=True))
        self._assert_valid_dtypes([variable for gradient, variable in pairs if gradient is not None])
        return pairs

    def apply_gradients(
        self, grads_and_vars: Iterable[Pair], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """An operation that changes variables by their gradients; then `global_step` is one higher."""
        pairs = [(_as_gradient(gradient), variable) for gradient, variable in grads_and_vars]
        used = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not pairs:
            raise ValueError("No variables provided.")
        if not used:
            names = ([variable.name for _, variable in pairs],)
            raise ValueError(f"No gradients provided for any variable: {names}.")
        with outside_of_functions():
            self._create_slots([variable for _, variable in used])
        with name_scope(name, self._name) as scope:
            self._prepare()
            updates = self._updates(used)
            if global_step is None:
                made = self._finish(updates, scope)
            else:
                with control_dependencies([self._finish(updates, "update")]):
                    made = assign_add(global_step, 1, name=scope).op
        train_ops = get_default_graph().get_collection_ref(GraphKeys.TRAIN_OP)
        if made not in train_ops:
            train_ops.append(made)
        return made

    def _updates(self, pairs: Sequence[Pair]) -> list[Any]:
        """The operations that change the variables."""
        return [self._update(gradient, variable) for gradient, variable in pairs]

    def _update(self, gradient: Any, variable: Any) -> Any:
        with name_scope(f"update_{variable.op.name}"):
            is_sparse = hasattr(gradient, "indices")
            apply = self._apply_sparse_duplicate_indices if is_sparse else self._apply_dense
            return constrained(apply(gradient, variable), variable)

    # What a subclass overrides

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Make the slots of variables."""

    def _prepare(self) -> None:
        """Make tensors of the settings, before the updates."""

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        """The operation that changes one variable."""
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        """The same, in the spelling of newer subclasses."""
        what, fix = f"{type(self).__name__} does not say how a variable changes", "Override `_apply_dense(grad, var)`."
        message = problem(what, got=handle.name, expected="an `_apply_dense` method", fix=fix)
        raise NotImplementedError(message)

    def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> Any:
        """Sum the gradients of equal rows, then call `_apply_sparse`."""
        return self._apply_sparse(lookup("IndexedSlices")(*_summed(grad), grad.dense_shape), var)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        """The operation that changes some rows of a variable; by default the gradient becomes dense."""
        return self._apply_dense(convert_to_tensor(grad), var)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        """One operation that has run when all updates have."""
        return group(*update_ops, name=name_scope)

    def _valid_dtypes(self) -> set[Any]:
        return {lookup(name) for name in ("float16", "bfloat16", "float32", "float64")}

    def _assert_valid_dtypes(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if tensor.dtype.base_dtype not in self._valid_dtypes():
                names = sorted(dtype.name for dtype in self._valid_dtypes())
                got = tensor.dtype.base_dtype.name
                raise ValueError(f"Invalid type {got!r} for {tensor.name}, expected: {names}.")

    def _call_if_callable(self, param: Any) -> Any:
        return param() if callable(param) else param

    # Slots

    def get_slot(self, var: Any, name: str) -> Variable | None:
        """The slot `name` of a variable."""
        return self._slots.get(name, {}).get(var)

    def get_slot_names(self) -> list[str]:
        """The names of the slots."""
        return sorted(self._slots)

    def variables(self) -> list[Variable]:
        """Slots and the other variables of this optimiser."""
        graph = get_default_graph()
        slots = [slot for by_variable in self._slots.values() for slot in by_variable.values() if slot.graph is graph]
        others = [variable for (_, owner), variable in self._non_slots.items() if owner is graph]
        return sorted([*others, *slots], key=lambda variable: variable.name)

    def _slot_dict(self, slot_name: str) -> dict[Variable, Variable]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Variable:
        """The slot of a variable, made with an initial value if it is not there."""
        slots = self._slot_dict(slot_name)
        if var not in slots:
            # The empty name gives the slot the name of its scope: "kernel/Adam", then "kernel/Adam_1".
            with variable_scope(None, f"{var.op.name}/{op_name}"):
                slots[var] = get_variable("", initializer=val, trainable=False)
        return slots[var]

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Variable:
        slots = self._slot_dict(slot_name)
        if var not in slots:
            with variable_scope(None, f"{var.op.name}/{op_name}"):
                slots[var] = get_variable("", shape, dtype, initializer=initializer, trainable=False)
        return slots[var]

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Variable:
        return self._filled_slot(var, 0.0, slot_name, op_name)

    def _filled_slot(self, var: Any, value: float, slot_name: str, op_name: str) -> Variable:
        return self._get_or_make_slot(var, lambda: filled(var, value), slot_name, op_name)

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any = None) -> Variable:
        """A variable of the optimiser itself, one for each graph."""
        del colocate_with
        key = (name, get_default_graph())
        if key not in self._non_slots:
            self._non_slots[key] = Variable(initial_value, trainable=False, name=name)
        return self._non_slots[key]

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Variable | None:
        return self._non_slots.get((name, graph or get_default_graph().root()))


def filled(variable: Any, value: float) -> Tensor:
    """A tensor of one number, of the shape and dtype that a variable has."""
    dtype, shape = variable.dtype.base_dtype, variable.shape
    if not shape.is_fully_defined():
        like = variable.initialized_value()
        return create_op("Fill", lambda initial: torch.full_like(initial, value), [like]).outputs[0]

    def kernel(state: Any) -> torch.Tensor:
        return torch.full(shape.as_list(), value, dtype=dtype.torch_dtype, device=state.device)

    return create_op("Fill", kernel, dtypes=[dtype], shapes=[shape], stateful=True).outputs[0]


def constrained(update: Any, variable: Any) -> Any:
    """The update, followed by the variable's constraint if it has one."""
    if variable.constraint is None:
        return update
    with control_dependencies([update]):
        return variable.assign(variable.constraint(variable.read_value())).op


def _flat(variables: Any) -> list[Any]:
    """Variables in a nest of lists."""
    if isinstance(variables, Variable | Tensor):
        return [variables]
    return [found for each in variables for found in _flat(each)]


def _as_gradient(gradient: Any) -> Any:
    return gradient if gradient is None or hasattr(gradient, "indices") else convert_to_tensor(gradient)


def _summed(grad: Any) -> tuple[Any, Any]:
    """The sums of values of equal rows, and the distinct rows."""
    rows, places = lookup("unique")(grad.indices)
    sums = lookup("unsorted_segment_sum")(grad.values, places, lookup("shape")(rows)[0])
    return sums, rows
