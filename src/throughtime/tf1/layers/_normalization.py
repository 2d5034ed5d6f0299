"""Batch normalisation."""

from __future__ import annotations

from typing import Any

import torch

from throughtime._errors import problem
from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._dtypes import bool_
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.layers._base import Layer
from throughtime.tf1.layers._switch import static_flag
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.train._moving_average import assign_average


def batch_normalized(
    inputs: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    variance: Any,
    training: Any,
    epsilon: float,
    axis: int,
    unbiased_ranks: tuple[int, ...] = (4,),
) -> tuple[Any, Any, Any]:
    """Normalised inputs, and the mean and variance for the moving averages.

    While training these are the batch's; otherwise they are those that were given. For some ranks the variance for
    the averages is the unbiased one: those for which TensorFlow uses its fused kernel.
    """
    optional = [tensor for tensor in (gamma, beta) if tensor is not None]
    flag = convert_to_tensor(training, bool_)
    known = static_flag(training)

    def kernel(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, flag: torch.Tensor, *rest: Any) -> Any:
        scale = rest[0] if gamma is not None else None
        shift = rest[-1] if beta is not None else None
        is_training = bool(flag) if known is None else known
        channels = axis % x.ndim
        over = [place for place in range(x.ndim) if place != channels]
        shape = [size if place == channels else 1 for place, size in enumerate(x.shape)]
        used = torch.var_mean(x, over, correction=0)[::-1] if is_training else (mean, variance)
        factor = torch.rsqrt(used[1] + epsilon)
        factor = factor if scale is None else factor * scale
        offset = -used[0] * factor if shift is None else shift - used[0] * factor
        count = x.numel() // max(x.shape[channels], 1)
        unbiased = count / max(count - 1, 1) if is_training and x.ndim in unbiased_ranks else 1.0
        return x * factor.reshape(shape) + offset.reshape(shape), used[0], used[1] * unbiased

    tensors = [convert_to_tensor(tensor) for tensor in (inputs, mean, variance)]
    dtype, shapes = tensors[0].dtype, [tensors[0].shape, tensors[1].shape, tensors[1].shape]
    rest = [convert_to_tensor(tensor) for tensor in optional]
    made = create_op("FusedBatchNorm", kernel, [*tensors, flag, *rest], dtypes=[dtype] * 3, shapes=shapes)
    made.attrs["tuple"] = True
    return made.outputs[0], made.outputs[1], made.outputs[2]


@exported("layers.BatchNormalization", "keras.layers.BatchNormalization")
class BatchNormalization(Layer):
    """Normalisation by the batch's mean and variance, with moving averages for use after training."""

    def __init__(
        self,
        axis: Any = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        moving_mean_initializer: Any = None,
        moving_variance_initializer: Any = None,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: Any = None,
        trainable: bool = True,
        virtual_batch_size: Any = None,
        adjustment: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        del renorm_clipping, renorm_momentum, fused
        super().__init__(trainable, name, **options)
        if renorm or virtual_batch_size or adjustment:
            got = "renorm" if renorm else "virtual_batch_size or adjustment"
            fix = "Leave it out."
            message = problem("batch renormalisation is not supported", got=got, expected="plain batches", fix=fix)
            raise NotImplementedError(message)
        self.axis = axis[0] if isinstance(axis, list | tuple) else axis
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        zeros, ones = lookup("zeros_initializer"), lookup("ones_initializer")
        self._options: dict[str, tuple[Any, Any, Any]] = {
            "gamma": (gamma_initializer or ones(), gamma_regularizer, gamma_constraint),
            "beta": (beta_initializer or zeros(), beta_regularizer, beta_constraint),
            "moving_mean": (moving_mean_initializer or zeros(), None, None),
            "moving_variance": (moving_variance_initializer or ones(), None, None),
        }
        self.gamma: Any = None
        self.beta: Any = None

    def build(self, input_shape: Any) -> None:
        """Make scale, offset and averages."""
        size = input_shape.as_list()[self.axis]
        if size is None:
            raise ValueError(
                f"There are undefined dimensions in the input axis {self.axis}: {input_shape}. Set the shape."
            )
        if self.scale:
            self.gamma = self._weight("gamma", size)
        if self.center:
            self.beta = self._weight("beta", size)
        self.moving_mean = self._weight("moving_mean", size, trainable=False)
        self.moving_variance = self._weight("moving_variance", size, trainable=False)
        self.built = True

    def _weight(self, name: str, size: int, trainable: bool = True) -> Any:
        initializer, regularizer, constraint = self._options[name]
        return self.add_weight(
            name, [size], initializer=initializer, regularizer=regularizer, constraint=constraint, trainable=trainable
        )

    def call(self, inputs: Any, training: Any = False, *args: Any, **arguments: Any) -> Any:
        """The output; while training, the updates of the averages join `tf.GraphKeys.UPDATE_OPS`."""
        del args, arguments
        averages = (self.moving_mean, self.moving_variance)
        found = batch_normalized(inputs, self.gamma, self.beta, *averages, training, self.epsilon, self.axis)
        if static_flag(training) is not False:
            decay = convert_to_tensor(self.momentum)
            pairs = zip(averages, found[1:], strict=True)
            self.add_update([assign_average(average, value, decay) for average, value in pairs])
        return found[0]


@exported("layers.batch_normalization")
def batch_normalization(
    inputs: Any,
    axis: Any = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: Any = None,
    virtual_batch_size: Any = None,
    adjustment: Any = None,
) -> Any:
    """Normalisation by the batch's mean and variance; `training` may be a tensor."""
    layer = BatchNormalization(
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        moving_mean_initializer,
        moving_variance_initializer,
        beta_regularizer,
        gamma_regularizer,
        beta_constraint,
        gamma_constraint,
        renorm,
        renorm_clipping,
        renorm_momentum,
        fused,
        trainable,
        virtual_batch_size,
        adjustment,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs, training=training)
