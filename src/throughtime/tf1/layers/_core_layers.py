"""Dense, dropout and flatten."""

from __future__ import annotations

from typing import Any

from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.layers._base import Layer, activation_of, known_size
from throughtime.tf1.layers._switch import either


@exported("layers.Dense", "python.layers.core.Dense", "keras.layers.Dense")
class Dense(Layer):
    """`activation(inputs @ kernel + bias)` over the last axis."""

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **options)
        self.units, self.activation, self.use_bias = int(units), activation_of(activation), use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = lookup("zeros_initializer")() if bias_initializer is None else bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint

    def build(self, input_shape: Any) -> None:
        """Make kernel and bias."""
        inside = known_size(self, input_shape.as_list()[-1])
        self.kernel = self.add_weight(
            "kernel",
            [inside, self.units],
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.units],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs: Any, *args: Any, **arguments: Any) -> Any:
        """The output."""
        del args, arguments
        rank = inputs.shape.ndims
        if rank == 2:
            outputs = lookup("matmul")(inputs, self.kernel)
        else:
            outputs = lookup("tensordot")(inputs, self.kernel, [[rank - 1], [0]])
            outputs.set_shape([*inputs.shape.as_list()[:-1], self.units])
        if self.bias is not None:
            outputs = lookup("nn.bias_add")(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)


@exported("layers.dense", "python.layers.core.dense", "layers.fully_connected")
def dense(
    inputs: Any,
    units: int,
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
) -> Any:
    """`activation(inputs @ kernel + bias)`, with variables of its own."""
    layer = Dense(
        units,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        activity_regularizer,
        kernel_constraint,
        bias_constraint,
        trainable,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs)


@exported("layers.Dropout", "keras.layers.Dropout")
class Dropout(Layer):
    """Zeros at random while training, the rest scaled."""

    def __init__(
        self, rate: Any = 0.5, noise_shape: Any = None, seed: Any = None, name: str | None = None, **options: Any
    ) -> None:
        super().__init__(name=name, **options)
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = False, *args: Any, **arguments: Any) -> Any:
        """The output."""
        del args, arguments

        def dropped() -> Any:
            return lookup("nn.dropout")(inputs, rate=self.rate, noise_shape=self.noise_shape, seed=self.seed)

        return either(training, dropped, lambda: lookup("identity")(inputs))


@exported("layers.dropout")
def dropout(
    inputs: Any, rate: Any = 0.5, noise_shape: Any = None, seed: Any = None, training: Any = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Zeros at random while training, the rest scaled."""
    return Dropout(rate, noise_shape, seed, name)(inputs, training=training)


@exported("layers.Flatten", "keras.layers.Flatten")
class Flatten(Layer):
    """All axes but the first as one."""

    def call(self, inputs: Any, *args: Any, **arguments: Any) -> Any:
        """The output."""
        del args, arguments
        sizes = inputs.shape.as_list()[1:]
        width = None if None in sizes else inputs.shape[1:].num_elements()
        first = inputs.shape.as_list()[0]
        batch = lookup("shape")(inputs)[0] if first is None else first
        outputs = lookup("reshape")(inputs, [batch, -1 if width is None else width])
        outputs.set_shape([first, width])
        return outputs


@exported("layers.flatten")
def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Any:
    """All axes but the first as one."""
    del data_format
    return Flatten(name=name)(inputs)
