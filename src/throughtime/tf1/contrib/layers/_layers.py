"""Layers as functions, with variables named `weights` and `biases`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime._errors import problem
from throughtime.tf1._namespace import export, lookup
from throughtime.tf1.contrib._arg_scope import add_arg_scope
from throughtime.tf1.contrib.layers._variables import model_variable
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.layers._convolutional import sizes_of
from throughtime.tf1.ops._convert import convert_to_tensor

_RELU: Any = "relu"
_XAVIER: Any = "xavier"
_ZEROS: Any = "zeros"


def _initializer(value: Any) -> Any:
    """Defaults are looked up when they are needed."""
    if value is _XAVIER:
        return lookup("contrib.layers.xavier_initializer")()
    return lookup("zeros_initializer")() if value is _ZEROS else value


def _activation(value: Any) -> Callable[[Any], Any] | None:
    return lookup("nn.relu") if value is _RELU else value  # type: ignore[no-any-return]


def _collections(given: Any, name: str) -> list[Any]:
    """The collections for one variable: a list for all, or a dict by name."""
    if isinstance(given, dict):
        given = given.get(name)
    return list(given or [])


def finished(outputs: Any, activation: Any, outputs_collections: Any) -> Any:
    """The activation of a layer's outputs, added to collections."""
    function = _activation(activation)
    found = outputs if function is None else function(outputs)
    get_default_graph().add_to_collections(outputs_collections or [], found)
    return found


def _normalized_or_biased(
    outputs: Any, size: int, normalizer: Any, settings: Any, biases: Any, regularizer: Any, collections: Any,
    trainable: bool,
) -> Any:  # fmt: skip
    if normalizer is not None:
        return normalizer(outputs, **(settings or {}))
    if biases is None:
        return outputs
    bias = model_variable(
        "biases",
        shape=[size],
        dtype=outputs.dtype.base_dtype,
        initializer=_initializer(biases),
        regularizer=regularizer,
        collections=_collections(collections, "biases"),
        trainable=trainable,
    )
    return lookup("nn.bias_add")(outputs, bias)


def _known(size: int | None) -> int:
    if size is None:
        fix = "Set the shape of the inputs."
        what = "The last dimension of the inputs should be defined"
        raise ValueError(problem(what, got=None, expected="a number", fix=fix))
    return size


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Any = _RELU,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """`activation_fn(inputs @ weights + biases)` over the last axis."""
    with variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        tensor = convert_to_tensor(inputs)
        sizes = tensor.shape.as_list()
        weights = model_variable(
            "weights",
            shape=[_known(sizes[-1]), int(num_outputs)],
            dtype=tensor.dtype.base_dtype,
            initializer=_initializer(weights_initializer),
            regularizer=weights_regularizer,
            collections=_collections(variables_collections, "weights"),
            trainable=trainable,
        )
        if len(sizes) == 2:
            outputs = lookup("matmul")(tensor, weights)
        else:
            outputs = lookup("tensordot")(tensor, weights, [[len(sizes) - 1], [0]])
            outputs.set_shape([*sizes[:-1], int(num_outputs)])
        outputs = _normalized_or_biased(
            outputs, int(num_outputs), normalizer_fn, normalizer_params, biases_initializer, biases_regularizer,
            variables_collections, trainable,
        )  # fmt: skip
        return finished(outputs, activation_fn, outputs_collections)


def _with_activation(name: str) -> Callable[..., Any]:
    def layer(inputs: Any, num_outputs: int, *args: Any, **options: Any) -> Any:
        function = None if name == "linear" else lookup(f"nn.{name}")
        return fully_connected(inputs, num_outputs, function, *args, **options)

    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = f"`fully_connected` with {name} for an activation."
    return layer


linear, relu, relu6 = map(_with_activation, ("linear", "relu", "relu6"))


@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = _RELU,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A convolution over all axes between the first and the last."""
    _check_format(data_format)
    with variable_scope(scope, "Conv", [inputs], reuse=reuse):
        tensor = convert_to_tensor(inputs)
        rank = len(tensor.shape.as_list()) - 2
        weights = model_variable(
            "weights",
            shape=[*sizes_of(kernel_size, rank), _known(tensor.shape.as_list()[-1]), int(num_outputs)],
            dtype=tensor.dtype.base_dtype,
            initializer=_initializer(weights_initializer),
            regularizer=weights_regularizer,
            collections=_collections(variables_collections, "weights"),
            trainable=trainable,
        )
        outputs = lookup("nn.convolution")(
            tensor, weights, padding=padding.upper(), strides=sizes_of(stride, rank), dilation_rate=sizes_of(rate, rank)
        )
        outputs = _normalized_or_biased(
            outputs, int(num_outputs), normalizer_fn, normalizer_params, biases_initializer, biases_regularizer,
            variables_collections, trainable,
        )  # fmt: skip
        return finished(outputs, activation_fn, outputs_collections)


def _check_format(data_format: str | None) -> None:
    if data_format and data_format.startswith("NC"):
        fix = "Transpose the inputs to NHWC."
        what = "the format is not supported"
        raise NotImplementedError(problem(what, got=data_format, expected="channels last", fix=fix))


def _pool(kind: str) -> Callable[..., Any]:
    def pool2d(
        inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID", data_format: str = "NHWC",
        outputs_collections: Any = None, scope: Any = None,
    ) -> Any:  # fmt: skip
        _check_format(data_format)
        with get_default_graph().name_scope(scope or f"{kind.title()}Pool2D"):
            sizes, steps = sizes_of(kernel_size, 2), sizes_of(stride, 2)
            outputs = lookup("nn.pool")(convert_to_tensor(inputs), sizes, kind, padding.upper(), strides=steps)
            return finished(outputs, None, outputs_collections)

    pool2d.__qualname__ = f"{kind.lower()}_pool2d"
    pool2d.__doc__ = f"{'The largest value' if kind == 'MAX' else 'The mean'} of each window."
    return add_arg_scope(pool2d)


max_pool2d, avg_pool2d = _pool("MAX"), _pool("AVG")


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """All axes but the first as one."""
    return finished(lookup("layers.flatten")(inputs, name=scope or "Flatten"), None, outputs_collections)


@add_arg_scope
def dropout(
    inputs: Any, keep_prob: Any = 0.5, noise_shape: Any = None, is_training: Any = True,
    outputs_collections: Any = None, scope: Any = None, seed: Any = None,
) -> Any:  # fmt: skip
    """Zeros at random while training, the rest scaled."""
    rate = 1 - keep_prob
    outputs = lookup("layers.dropout")(inputs, rate, noise_shape, seed, is_training, scope or "Dropout")
    return finished(outputs, None, outputs_collections)


@add_arg_scope
def bias_add(
    inputs: Any, activation_fn: Any = None, initializer: Any = _ZEROS, regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    data_format: str = "NHWC", scope: Any = None,
) -> Any:  # fmt: skip
    """Inputs plus a vector."""
    _check_format(data_format)
    with variable_scope(scope, "BiasAdd", [inputs], reuse=reuse):
        tensor = convert_to_tensor(inputs)
        outputs = _normalized_or_biased(
            tensor, _known(tensor.shape.as_list()[-1]), None, None, initializer, regularizer, variables_collections,
            trainable,
        )  # fmt: skip
        return finished(outputs, activation_fn, outputs_collections)


@add_arg_scope
def one_hot_encoding(
    labels: Any, num_classes: int, on_value: float = 1.0, off_value: float = 0.0, outputs_collections: Any = None,
    scope: Any = None,
) -> Any:  # fmt: skip
    """A vector with a one for each label."""
    found = convert_to_tensor(labels)
    whole = found if found.dtype.name == "int64" else lookup("cast")(found, lookup("int64"))
    outputs = lookup("one_hot")(whole, num_classes, on_value, off_value, name=scope)
    return finished(outputs, None, outputs_collections)


def stack(inputs: Any, layer: Callable[..., Any], stack_args: Any, **options: Any) -> Any:
    """Layers of one kind on top of each other, an argument for each."""
    scope = options.pop("scope", None)
    with variable_scope(scope, "Stack", [inputs]):
        outputs = inputs
        base = scope or layer.__name__
        for place, arguments in enumerate(stack_args):
            given = arguments if isinstance(arguments, list | tuple) else [arguments]
            outputs = layer(outputs, *given, **{**options, "scope": f"{base}_{place + 1}"})
        return outputs


def repeat(inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The same layer several times on top of each other."""
    scope = options.pop("scope", None)
    with variable_scope(scope, "Repeat", [inputs]):
        outputs = inputs
        base = scope or layer.__name__
        for place in range(repetitions):
            outputs = layer(outputs, *args, **{**options, "scope": f"{base}_{place + 1}"})
        return outputs


@add_arg_scope
def embed_sequence(
    ids: Any, vocab_size: int | None = None, embed_dim: int | None = None, unique: bool = False,
    initializer: Any = None, regularizer: Any = None, trainable: bool = True, scope: Any = None, reuse: Any = None,
) -> Any:  # fmt: skip
    """The embeddings of numbers of words [batch, steps]."""
    del unique
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            "Must specify vocab size and embedding dimension when not reusing. "
            f"Got vocab_size={vocab_size} and embed_dim={embed_dim}"
        )
    with variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
        table = model_variable(
            "embeddings", shape=shape, initializer=initializer, regularizer=regularizer, trainable=trainable
        )
        return lookup("nn.embedding_lookup")(table, ids)


_NAMES = {
    "fully_connected": fully_connected,
    "linear": linear,
    "relu": relu,
    "relu6": relu6,
    "convolution": convolution,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "convolution1d": convolution,
    "convolution2d": convolution,
    "convolution3d": convolution,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "flatten": flatten,
    "dropout": dropout,
    "bias_add": bias_add,
    "one_hot_encoding": one_hot_encoding,
    "stack": stack,
    "repeat": repeat,
    "embed_sequence": embed_sequence,
}
for _place in ("contrib.layers", "contrib.slim"):
    for _name, _function in _NAMES.items():
        export(f"{_place}.{_name}", _function)
export("contrib.layers.legacy_fully_connected", fully_connected)
export("contrib.layers.python.layers.fully_connected", fully_connected)
export("contrib.layers.python.layers.linear", linear)
