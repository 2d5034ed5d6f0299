"""Weight decay beside the gradient: `AdamW` and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Operation
from throughtime.tf1.graph._scopes import control_dependencies
from throughtime.tf1.graph._variables import read_variable
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.train._optimizer import Optimizer
from throughtime.tf1.train._optimizers import AdamOptimizer, MomentumOptimizer


@exported("contrib.opt.DecoupledWeightDecayExtension")
class DecoupledWeightDecayExtension(Optimizer):
    """A mixin that decays a variable, `var -= weight_decay * var`, before the optimiser changes it.

    Of an embedding only the rows decay that the gradient has.
    """

    def __init__(self, weight_decay: Any, **arguments: Any) -> None:
        self._weight_decay = weight_decay
        self._decayed: set[Any] | None = None
        super().__init__(**arguments)

    def minimize(self, *args: Any, decay_var_list: Sequence[Any] | None = None, **arguments: Any) -> Operation:
        """As in `Optimizer`; only the variables of `decay_var_list` decay, if it is given."""
        self._decayed = None if decay_var_list is None else set(decay_var_list)
        return super().minimize(*args, **arguments)

    def apply_gradients(self, *args: Any, decay_var_list: Sequence[Any] | None = None, **arguments: Any) -> Operation:
        """As in `Optimizer`; only the variables of `decay_var_list` decay, if it is given."""
        if decay_var_list is not None:
            self._decayed = set(decay_var_list)
        return super().apply_gradients(*args, **arguments)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        with control_dependencies(self._decays(var)):
            return super()._apply_dense(grad, var)

    def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> Any:
        with control_dependencies(self._decays(var, grad.indices)):
            return super()._apply_sparse_duplicate_indices(grad, var)

    def _decays(self, var: Any, rows: Any = None) -> list[Operation]:
        """The operation that decays a variable, or some of its rows."""
        if self._decayed is not None and var not in self._decayed:
            return []
        weight = convert_to_tensor(self._call_if_callable(self._weight_decay), var.dtype.base_dtype)
        inputs = [weight] if rows is None else [weight, convert_to_tensor(rows)]
        target = var.op

        def kernel(state: Any, weight: torch.Tensor, *rows: torch.Tensor) -> tuple[()]:
            value = read_variable(state, target)
            keep = 1 - weight
            if not rows:
                state.values[target] = value * keep
                return ()
            distinct = torch.unique(rows[0].long())
            state.values[target] = value.index_copy(0, distinct, value[distinct] * keep)
            return ()

        return [create_op("DecayWeights", kernel, inputs, dtypes=[], shapes=[], stateful=True, mutates=target)]


@exported("contrib.opt.extend_with_decoupled_weight_decay")
def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A class of optimisers with weight decay: it takes `weight_decay` first, then the other's arguments."""

    class Extended(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[misc,valid-type]
        def __init__(self, weight_decay: Any, *args: Any, **arguments: Any) -> None:
            self._weight_decay, self._decayed = weight_decay, None
            base_optimizer.__init__(self, *args, **arguments)

    Extended.__name__ = f"{base_optimizer.__name__}WithDecoupledWeightDecay"
    return Extended


@exported("contrib.opt.AdamWOptimizer")
class AdamWOptimizer(DecoupledWeightDecayExtension, AdamOptimizer):
    """Adam with weight decay beside the gradient; the decay is not multiplied by the learning rate."""

    def __init__(
        self, weight_decay: Any, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "AdamW",
    ) -> None:  # fmt: skip
        settings = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        super().__init__(weight_decay, **settings, use_locking=use_locking, name=name)


@exported("contrib.opt.MomentumWOptimizer")
class MomentumWOptimizer(DecoupledWeightDecayExtension, MomentumOptimizer):
    """Momentum with weight decay beside the gradient."""

    def __init__(
        self, weight_decay: Any, learning_rate: Any, momentum: Any, use_locking: bool = False, name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:  # fmt: skip
        settings = {"learning_rate": learning_rate, "momentum": momentum, "use_nesterov": use_nesterov}
        super().__init__(weight_decay, **settings, use_locking=use_locking, name=name)


export("contrib.opt.python.training.weight_decay_optimizers.AdamWOptimizer", AdamWOptimizer)
