"""Convolutions over one, two and three axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime.tf1._namespace import export, exported, lookup
from throughtime.tf1.layers._base import Layer, activation_of, known_size


def sizes_of(value: Any, rank: int) -> list[int]:
    """A size for each axis: one number stands for all."""
    return [int(value)] * rank if not hasattr(value, "__iter__") else [int(each) for each in value]


class _Convolution(Layer):
    """What all convolutions share; `rank` is the number of axes that the window moves along."""

    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
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
        self.filters, self.kernel_size = int(filters), sizes_of(kernel_size, self.rank)
        self.strides, self.dilation_rate = sizes_of(strides, self.rank), sizes_of(dilation_rate, self.rank)
        self.padding, self.data_format = padding.upper(), data_format
        self.activation, self.use_bias = activation_of(activation), use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = lookup("zeros_initializer")() if bias_initializer is None else bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint

    def _kernel_shape(self, channels: int) -> list[int]:
        return [*self.kernel_size, channels, self.filters]

    def build(self, input_shape: Any) -> None:
        """Make kernel and bias."""
        axis = -1 if self.data_format == "channels_last" else 1
        channels = known_size(self, input_shape.as_list()[axis])
        self.kernel = self.add_weight(
            "kernel",
            self._kernel_shape(channels),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.filters],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs: Any, *args: Any, **arguments: Any) -> Any:
        """The output."""
        del args, arguments
        outputs = self._convolve(_channels_last(inputs, self.data_format))
        if self.bias is not None:
            outputs = lookup("nn.bias_add")(outputs, self.bias)
        outputs = _channels_as(outputs, self.data_format)
        return outputs if self.activation is None else self.activation(outputs)

    def _convolve(self, inputs: Any) -> Any:
        return lookup("nn.convolution")(
            inputs, self.kernel, padding=self.padding, strides=self.strides, dilation_rate=self.dilation_rate
        )


def _channels_last(inputs: Any, data_format: str) -> Any:
    if data_format == "channels_last":
        return inputs
    return lookup("transpose")(inputs, [0, *range(2, inputs.shape.ndims), 1])


def _channels_as(outputs: Any, data_format: str) -> Any:
    if data_format == "channels_last":
        return outputs
    rank = outputs.shape.ndims
    return lookup("transpose")(outputs, [0, rank - 1, *range(1, rank - 1)])


@exported("layers.Conv1D", "layers.Convolution1D")
class Conv1D(_Convolution):
    """A convolution over [batch, steps, channels]."""

    rank = 1


@exported("layers.Conv2D", "layers.Convolution2D")
class Conv2D(_Convolution):
    """A convolution over [batch, height, width, channels]."""


@exported("layers.Conv3D", "layers.Convolution3D")
class Conv3D(_Convolution):
    """A convolution over [batch, depth, height, width, channels]."""

    rank = 3


@exported("layers.Conv2DTranspose", "layers.Deconvolution2D")
class Conv2DTranspose(_Convolution):
    """The gradient of a convolution by its input, as a layer."""

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        activation: Any = None,
        *args: Any,
        **options: Any,
    ) -> None:
        super().__init__(filters, kernel_size, strides, padding, data_format, 1, activation, *args, **options)

    def _kernel_shape(self, channels: int) -> list[int]:
        return [*self.kernel_size, self.filters, channels]

    def _convolve(self, inputs: Any) -> Any:
        static, dynamic = inputs.shape.as_list(), lookup("shape")(inputs)
        sizes = [
            self._length(dynamic[axis + 1] if static[axis + 1] is None else static[axis + 1], axis) for axis in (0, 1)
        ]
        batch = dynamic[0] if static[0] is None else static[0]
        shape = lookup("stack")([batch, *sizes, self.filters])
        outputs = lookup("nn.conv2d_transpose")(
            inputs, self.kernel, shape, strides=[1, *self.strides, 1], padding=self.padding
        )
        known = [size if isinstance(size, int) else None for size in sizes]
        outputs.set_shape([static[0], *known, self.filters])
        return outputs

    def _length(self, length: Any, axis: int) -> Any:
        stride, window = self.strides[axis], self.kernel_size[axis]
        return length * stride + (max(window - stride, 0) if self.padding == "VALID" else 0)


@exported("layers.SeparableConv2D", "layers.SeparableConvolution2D")
class SeparableConv2D(_Convolution):
    """A convolution of each channel on its own, then one across channels."""

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = (1, 1),
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        pointwise_initializer: Any = None,
        bias_initializer: Any = None,
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        **options: Any,
    ) -> None:
        options.update(bias_initializer=bias_initializer, bias_regularizer=bias_regularizer)
        super().__init__(
            filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, **options
        )
        self.depth_multiplier = depth_multiplier
        self._depthwise = (depthwise_initializer, depthwise_regularizer)
        self._pointwise = (pointwise_initializer, pointwise_regularizer)

    def build(self, input_shape: Any) -> None:
        """Make both kernels and the bias."""
        channels = known_size(self, input_shape.as_list()[-1 if self.data_format == "channels_last" else 1])
        shape = [*self.kernel_size, channels, self.depth_multiplier]
        first, second = self._depthwise, self._pointwise
        self.depthwise_kernel = self.add_weight("depthwise_kernel", shape, initializer=first[0], regularizer=first[1])
        shape = [1, 1, channels * self.depth_multiplier, self.filters]
        self.pointwise_kernel = self.add_weight("pointwise_kernel", shape, initializer=second[0], regularizer=second[1])
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias", [self.filters], initializer=self.bias_initializer, regularizer=self.bias_regularizer
            )
        self.built = True

    def _convolve(self, inputs: Any) -> Any:
        return lookup("nn.separable_conv2d")(
            inputs,
            self.depthwise_kernel,
            self.pointwise_kernel,
            strides=[1, *self.strides, 1],
            padding=self.padding,
            rate=self.dilation_rate,
        )


def functional(layer_class: type[Layer]) -> Callable[..., Any]:
    """The function of a layer: `conv2d(inputs, filters, ...)`."""

    def apply(inputs: Any, *args: Any, **arguments: Any) -> Any:
        name, reuse = arguments.pop("name", None), arguments.pop("reuse", None)
        options = {**arguments, "name": name, "_scope": name, "_reuse": reuse}
        return layer_class(*args, **options)(inputs)

    apply.__doc__ = layer_class.__doc__
    return apply


for _names, _class in (
    ("conv1d", Conv1D),
    ("conv2d", Conv2D),
    ("conv3d", Conv3D),
    ("conv2d_transpose", Conv2DTranspose),
    ("separable_conv2d", SeparableConv2D),
):
    export(f"layers.{_names}", functional(_class))
