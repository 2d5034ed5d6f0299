"""TensorFlow cells from their descriptions: TensorFlow's own, contrib's that are gone, and a few of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tensorflow1 import tf


class InputProjectionWrapper(tf.nn.rnn_cell.RNNCell):
    """contrib's: `cell(act(inputs kernel + bias))`."""

    def __init__(self, cell: Any, num_proj: int, activation: str | None = None) -> None:
        super().__init__()
        self._cell, self._num_proj, self._activation = cell, num_proj, tf.keras.activations.get(activation)

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def call(self, inputs: Any, state: Any) -> Any:
        return self._cell(self._activation(_linear(inputs, self._num_proj)), state)


class OutputProjectionWrapper(tf.nn.rnn_cell.RNNCell):
    """contrib's: `act(output kernel + bias)` of the cell's output."""

    def __init__(self, cell: Any, output_size: int, activation: str | None = None) -> None:
        super().__init__()
        self._cell, self._output_size, self._activation = cell, output_size, tf.keras.activations.get(activation)

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> int:
        return self._output_size

    def call(self, inputs: Any, state: Any) -> Any:
        output, state = self._cell(inputs, state)
        return self._activation(_linear(output, self._output_size)), state


class EmbeddingWrapper(tf.nn.rnn_cell.RNNCell):
    """contrib's: `cell(embedding[inputs])`. The table takes the dtype of the state."""

    def __init__(self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None) -> None:
        super().__init__()
        self._cell, self._shape, self._initializer = cell, (embedding_classes, embedding_size), initializer

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def call(self, inputs: Any, state: Any) -> Any:
        dtype = tf.nest.flatten(state)[0].dtype
        table = tf.get_variable("embedding", self._shape, dtype, self._initializer)
        return self._cell(tf.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)


class NestedCell(tf.nn.rnn_cell.RNNCell):
    """No weights; inputs, outputs and state are nests, with leaves of rank 1 and 2."""

    state_size: ClassVar[Any] = ({"grid": tf.TensorShape([2, 2])}, 3)
    output_size: ClassVar[Any] = {"left": 3, "right": (tf.TensorShape([2, 2]), 2)}

    def call(self, inputs: Any, state: Any) -> Any:
        (x, y), (held, h) = inputs, state
        grid = tf.tanh(y["grid"] + 0.5 * held["grid"] + h[:, :1, None])
        h = tf.tanh(x * h + tf.reduce_sum(grid, 2)[:, :1])
        return {"left": x + h, "right": (grid * grid, h[:, 1:])}, ({"grid": grid}, h)


class WeightedCell(tf.nn.rnn_cell.RNNCell):
    """A cell with weights that its author wrote: `h = sin(x kernel + scale h)`, and an output other than its state."""

    def __init__(self, num_units: int) -> None:
        super().__init__()
        self._num_units = num_units

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        self.kernel = self.add_weight("kernel", shape=[inputs_shape[-1], self._num_units])
        self.scale = self.add_weight("scale", shape=[self._num_units])
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        h = tf.sin(tf.matmul(inputs, self.kernel) + self.scale * state)
        return h * h, h


class CountingCell(tf.nn.rnn_cell.RNNCell):
    """The state is a vector and a whole number that counts the steps the loop took."""

    state_size = (3, tf.TensorShape([]))
    output_size = 3

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return tf.zeros([batch_size, self.output_size], dtype), tf.zeros([], tf.int32)

    def call(self, inputs: Any, state: Any) -> Any:
        h, count = state
        h = tf.tanh(inputs + h * tf.cast(count, h.dtype))
        return h, (h, count + 1)


OURS = (InputProjectionWrapper, OutputProjectionWrapper, EmbeddingWrapper, NestedCell, WeightedCell, CountingCell)
CLASSES = {each.__name__: each for each in OURS}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "outputs_minus_half_inputs": lambda inputs, outputs: outputs - 0.5 * inputs,
    "only_c": lambda state: tf.nn.rnn_cell.LSTMStateTuple(c=True, h=False) if isinstance(state, tuple) else True,
}


def build(spec: Any, dtype: str) -> Any:
    """What `spec` describes: a cell, a list of cells, a function, an initialiser, or just a value."""
    if isinstance(spec, list):
        return [build(each, dtype) for each in spec]
    if not isinstance(spec, dict):
        return spec
    if "repeat" in spec:
        return [build(spec["repeat"], dtype)] * spec["times"]
    if "function" in spec:
        return FUNCTIONS[spec["function"]]
    if "constant" in spec:
        return tf.constant_initializer(spec["constant"])
    arguments = {name: build(value, dtype) for name, value in spec.items() if name != "class"}
    if arguments.get("dtype") == "case":
        arguments["dtype"] = tf.as_dtype(dtype)
    return (CLASSES.get(spec["class"]) or getattr(tf.nn.rnn_cell, spec["class"]))(**arguments)


def _linear(inputs: Any, size: int) -> Any:
    kernel = tf.get_variable("kernel", [inputs.shape[-1], size], inputs.dtype)
    bias = tf.get_variable("bias", [size], inputs.dtype)
    return tf.matmul(inputs, kernel) + bias
