"""TensorFlow's optimisers: arguments, slots and settings; the equations are in `_update_rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._operation import Operation
from throughtime.tf1.graph._scopes import control_dependencies
from throughtime.tf1.graph._variables import read_variable
from throughtime.tf1.train import _update_rules as rules
from throughtime.tf1.train._fused_optimizer import FusedOptimizer


@exported("train.GradientDescentOptimizer")
class GradientDescentOptimizer(FusedOptimizer):
    """Gradient descent."""

    _rows_only: ClassVar[bool] = False

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(rules.gradient_descent, name, use_locking, rate=learning_rate)


@exported("train.MomentumOptimizer")
class MomentumOptimizer(FusedOptimizer):
    """Gradient descent with momentum."""

    _slot_values = (("momentum", 0.0),)

    def __init__(
        self, learning_rate: Any, momentum: Any, use_locking: bool = False, name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:  # fmt: skip
        settings = {"rate": learning_rate, "momentum": momentum, "nesterov": use_nesterov}
        super().__init__(rules.momentum, name, use_locking, **settings)


@exported("train.AdamOptimizer")
class AdamOptimizer(FusedOptimizer):
    """Adam, with "epsilon hat": epsilon is added to the root before the bias correction."""

    _slot_values = (("m", 0.0), ("v", 0.0))
    _rows_only: ClassVar[bool] = False
    _powers: tuple[str, ...] = ("beta1", "beta2")

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "Adam", rule: Any = rules.adam,
    ) -> None:  # fmt: skip
        super().__init__(rule, name, use_locking, rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for name in self._powers:
            initial = self._call_if_callable(self._settings[name])
            self._create_non_slot_variable(initial, f"{name}_power", var_list[0])
        super()._create_slots(var_list)

    def _get_beta_accumulators(self) -> tuple[Any, ...]:
        return tuple(self._get_non_slot_variable(f"{name}_power") for name in self._powers)

    def _power_ops(self) -> dict[str, Operation]:
        return {name: power.op for name, power in zip(self._powers, self._get_beta_accumulators(), strict=True)}

    def _read_settings(self, state: Any, given: dict[str, Any]) -> dict[str, Any]:
        powers = {f"{name}_power": float(read_variable(state, op)) for name, op in self._power_ops().items()}
        return {**given, **powers}

    def _advance(self, state: Any, settings: dict[str, Any]) -> None:
        for name, op in self._power_ops().items():
            state.values[op] = read_variable(state, op) * settings[name]

    def _advance_ops(self, update_ops: Sequence[Any]) -> list[Any]:
        with control_dependencies(update_ops):
            pairs = zip(self._powers, self._get_beta_accumulators(), strict=True)
            return [power.assign(power.read_value() * self._settings[name]).op for name, power in pairs]


@exported("contrib.opt.NadamOptimizer")
class NadamOptimizer(AdamOptimizer):
    """Adam with Nesterov's momentum; a sparse gradient changes the moments of all rows, and its own rows."""

    _rows_only: ClassVar[bool] = True

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "Adam",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name, rules.nadam)

    def _change_rows(self, rows: Any, sums: Any, values: list[Any], settings: dict[str, Any]) -> None:
        rules.nadam_rows(rows, sums, *values, **settings)


@exported("contrib.opt.LazyAdamOptimizer")
class LazyAdamOptimizer(AdamOptimizer):
    """Adam that changes only the rows of an embedding that a batch has, moments included."""

    _rows_only: ClassVar[bool] = True


@exported("contrib.opt.AdaMaxOptimizer")
class AdaMaxOptimizer(AdamOptimizer):
    """Adam with the largest magnitude of gradients in the place of the second moment."""

    _rows_only: ClassVar[bool] = True
    _powers = ("beta1",)

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "AdaMax",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name, rules.adamax)


@exported("train.AdagradOptimizer")
class AdagradOptimizer(FusedOptimizer):
    """Adagrad."""

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1, use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:  # fmt: skip
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(rules.adagrad, name, use_locking, rate=learning_rate)
        self._slot_values = (("accumulator", initial_accumulator_value),)


@exported("train.AdagradDAOptimizer")
class AdagradDAOptimizer(FusedOptimizer):
    """Adagrad with dual averaging."""

    def __init__(
        self, learning_rate: Any, global_step: Any, initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0, l2_regularization_strength: Any = 0.0, use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:  # fmt: skip
        if initial_gradient_squared_accumulator_value <= 0.0:
            got = initial_gradient_squared_accumulator_value
            raise ValueError(f"initial_gradient_squared_accumulator_value must be positive: {got}")
        super().__init__(
            rules.adagrad_da, name, use_locking, rate=learning_rate, l1=l1_regularization_strength,
            l2=l2_regularization_strength, step=global_step,
        )  # fmt: skip
        squares = initial_gradient_squared_accumulator_value
        self._slot_values = (("gradient_accumulator", 0.0), ("gradient_squared_accumulator", squares))

    def _read_settings(self, state: Any, given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "step": given["step"] + 1}


@exported("train.AdadeltaOptimizer")
class AdadeltaOptimizer(FusedOptimizer):
    """Adadelta."""

    _slot_values = (("accum", 0.0), ("accum_update", 0.0))

    def __init__(
        self, learning_rate: Any = 0.001, rho: Any = 0.95, epsilon: Any = 1e-8, use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:  # fmt: skip
        super().__init__(rules.adadelta, name, use_locking, rate=learning_rate, rho=rho, epsilon=epsilon)


@exported("train.RMSPropOptimizer")
class RMSPropOptimizer(FusedOptimizer):
    """RMSProp: epsilon is inside of the root, and the average of squares begins with one."""

    def __init__(
        self, learning_rate: Any, decay: Any = 0.9, momentum: Any = 0.0, epsilon: Any = 1e-10,
        use_locking: bool = False, centered: bool = False, name: str = "RMSProp",
    ) -> None:  # fmt: skip
        rule = rules.rmsprop_centered if centered else rules.rmsprop
        settings = {"rate": learning_rate, "decay": decay, "momentum": momentum, "epsilon": epsilon}
        super().__init__(rule, name, use_locking, **settings)
        means = (("mg", 0.0),) if centered else ()
        self._slot_values = (("rms", 1.0), *means, ("momentum", 0.0))


@exported("train.FtrlOptimizer")
class FtrlOptimizer(FusedOptimizer):
    """Follow the regularised leader."""

    def __init__(
        self, learning_rate: Any, learning_rate_power: Any = -0.5, initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0, l2_regularization_strength: float = 0.0, use_locking: bool = False,
        name: str = "Ftrl", accum_name: str | None = None, linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:  # fmt: skip
        strengths = {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        for argument, value in strengths.items():
            if value < 0.0:
                raise ValueError(f"{argument} {value} needs to be positive or zero")
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power} needs to be negative or zero")
        super().__init__(
            rules.ftrl, name, use_locking, rate=learning_rate, power=learning_rate_power,
            l1=l1_regularization_strength, l2=l2_regularization_strength,
            l2_shrinkage=l2_shrinkage_regularization_strength,
        )  # fmt: skip
        self._slot_values = (("accum", initial_accumulator_value), ("linear", 0.0))
        self._scopes = {"accum": accum_name or name, "linear": linear_name or name}

    def _slot_scope(self, slot_name: str) -> str:
        return self._scopes[slot_name]


@exported("train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(FusedOptimizer):
    """Gradient descent with the proximal step of l1 and l2."""

    def __init__(
        self, learning_rate: Any, l1_regularization_strength: Any = 0.0, l2_regularization_strength: Any = 0.0,
        use_locking: bool = False, name: str = "ProximalGradientDescent",
    ) -> None:  # fmt: skip
        settings = {"rate": learning_rate, "l1": l1_regularization_strength, "l2": l2_regularization_strength}
        super().__init__(rules.proximal_gradient_descent, name, use_locking, **settings)


@exported("train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(FusedOptimizer):
    """Adagrad with the proximal step of l1 and l2."""

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1, l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0, use_locking: bool = False, name: str = "ProximalAdagrad",
    ) -> None:  # fmt: skip
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        settings = {"rate": learning_rate, "l1": l1_regularization_strength, "l2": l2_regularization_strength}
        super().__init__(rules.proximal_adagrad, name, use_locking, **settings)
        self._slot_values = (("accumulator", initial_accumulator_value),)
