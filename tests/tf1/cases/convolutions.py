"""Convolutions and pooling."""

import functools

from . import case as _case
from .case import floats

# Kernels and parameters are variables: their shapes are known.
case = functools.partial(_case.case, known=("w", "d"))
for _padding in ("SAME", "VALID"):
    for _stride in (1, 2):
        case(
            "nn.conv2d",
            lambda tf, x, w, p=_padding, s=_stride: tf.nn.conv2d(x, w, strides=[1, s, s, 1], padding=p),
            "%s_%d" % (_padding, _stride),
            x=floats(2, 5, 6, 3),
            w=floats(3, 3, 3, 4),
        )
        case(
            "nn.conv1d",
            lambda tf, x, w, p=_padding, s=_stride: tf.nn.conv1d(x, w, s, p),
            "%s_%d" % (_padding, _stride),
            x=floats(2, 7, 3),
            w=floats(3, 3, 4),
        )
        case(
            "nn.conv3d",
            lambda tf, x, w, p=_padding, s=_stride: tf.nn.conv3d(x, w, [1, s, s, s, 1], p),
            "%s_%d" % (_padding, _stride),
            x=floats(1, 4, 5, 4, 2),
            w=floats(2, 3, 2, 2, 3),
        )
        case(
            "nn.depthwise_conv2d",
            lambda tf, x, w, p=_padding, s=_stride: tf.nn.depthwise_conv2d(x, w, [1, s, s, 1], p),
            "%s_%d" % (_padding, _stride),
            x=floats(1, 5, 6, 3),
            w=floats(3, 3, 3, 2),
        )
        for _kind in ("max", "avg"):
            case(
                "nn.%s_pool" % _kind,
                lambda tf, x, f=_kind + "_pool", p=_padding, s=_stride: getattr(tf.nn, f)(
                    x, ksize=[1, 2, 3, 1], strides=[1, s, s, 1], padding=p
                ),
                "%s_%d" % (_padding, _stride),
                x=floats(2, 5, 6, 2),
            )
            case(
                "nn.%s_pool1d" % _kind,
                lambda tf, x, f=_kind + "_pool1d", p=_padding, s=_stride: getattr(tf.nn, f)(x, 2, s, p),
                "%s_%d" % (_padding, _stride),
                x=floats(2, 5, 2),
            )
            case(
                "nn.%s_pool3d" % _kind,
                lambda tf, x, f=_kind + "_pool3d", p=_padding, s=_stride: getattr(tf.nn, f)(
                    x, [1, 2, 2, 2, 1], [1, s, s, s, 1], p
                ),
                "%s_%d" % (_padding, _stride),
                x=floats(1, 3, 4, 3, 2),
            )
            case(
                "nn.%s_pool_v2" % _kind,
                lambda tf, x, f=_kind + "_pool_v2", p=_padding, s=_stride: getattr(tf.nn, f)(x, 2, s, p),
                "%s_%d" % (_padding, _stride),
                x=floats(2, 5, 6, 2),
            )
    case(
        "nn.atrous_conv2d",
        lambda tf, x, w, p=_padding: tf.nn.atrous_conv2d(x, w, 2, p),
        _padding,
        x=floats(1, 7, 8, 2),
        w=floats(3, 3, 2, 3),
    )
    case(
        "nn.separable_conv2d",
        lambda tf, x, d, w, p=_padding: tf.nn.separable_conv2d(x, d, w, [1, 1, 1, 1], p),
        _padding,
        x=floats(1, 5, 6, 3),
        d=floats(3, 3, 3, 2),
        w=floats(1, 1, 6, 4),
    )
    case(
        "nn.convolution",
        lambda tf, x, w, p=_padding: tf.nn.convolution(x, w, p),
        _padding,
        x=floats(1, 5, 6, 3),
        w=floats(3, 3, 3, 2),
    )
    case(
        "nn.convolution",
        lambda tf, x, w, p=_padding: tf.nn.convolution(x, w, p, dilation_rate=[2]),
        _padding + "_dilated",
        x=floats(2, 9, 3),
        w=floats(3, 3, 2),
    )
    case("nn.pool", lambda tf, x, p=_padding: tf.nn.pool(x, [2, 2], "MAX", p), _padding, x=floats(1, 5, 6, 3))
    case(
        "nn.pool",
        lambda tf, x, p=_padding: tf.nn.pool(x, [2], "AVG", p, strides=[2]),
        _padding + "_avg",
        x=floats(1, 5, 3),
    )
    case(
        "nn.conv2d_transpose",
        lambda tf, x, w, p=_padding: tf.nn.conv2d_transpose(
            x, w, [1, 6, 8, 3] if p == "SAME" else [1, 7, 9, 3], [1, 2, 2, 1], p
        ),
        _padding,
        x=floats(1, 3, 4, 2),
        w=floats(3, 3, 3, 2),
        shapes=False,
    )
    case(
        "nn.dilation2d",
        lambda tf, x, w, p=_padding: tf.nn.dilation2d(x, w, [1, 1, 1, 1], [1, 1, 1, 1], p),
        _padding,
        x=floats(1, 5, 6, 2),
        w=floats(2, 2, 2),
    )
    case(
        "extract_image_patches",
        lambda tf, x, p=_padding: tf.extract_image_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], p),
        _padding,
        x=floats(1, 5, 6, 2),
        gradients=False,
    )
case(
    "nn.conv2d",
    lambda tf, x, w: tf.nn.conv2d(input=x, filter=w, strides=[1, 1, 1, 1], padding="SAME", name="named"),
    "named",
    x=floats(1, 4, 4, 2),
    w=floats(2, 2, 2, 3),
)
case(
    "nn.conv2d",
    lambda tf, x, w: tf.nn.conv2d(x, filters=w, strides=1, padding="SAME"),
    "filters",
    x=floats(1, 4, 4, 2),
    w=floats(2, 2, 2, 3),
)
case(
    "nn.conv2d",
    lambda tf, x, w: tf.nn.conv2d(x, w, [1, 1, 1, 1], "VALID", dilations=[1, 2, 2, 1]),
    "dilations",
    x=floats(1, 7, 7, 2),
    w=floats(3, 3, 2, 3),
    gradients=False,
)
case(
    "nn.conv2d",
    lambda tf, x, w: tf.nn.conv2d(x, w, [1, 1, 1, 1], [[0, 0], [1, 2], [0, 1], [0, 0]]),
    "explicit",
    x=floats(1, 4, 4, 2),
    w=floats(2, 2, 2, 3),
)
case(
    "nn.conv1d",
    lambda tf, x, w: tf.nn.conv1d(value=x, filters=w, stride=1, padding="SAME"),
    "keywords",
    x=floats(2, 7, 3),
    w=floats(3, 3, 4),
)
case(
    "nn.conv1d_transpose",
    lambda tf, x, w: tf.nn.conv1d_transpose(x, w, [1, 8, 3], 2, "SAME"),
    x=floats(1, 4, 2),
    w=floats(3, 3, 2),
    shapes=False,
)
case(
    "nn.conv3d_transpose",
    lambda tf, x, w: tf.nn.conv3d_transpose(x, w, [1, 4, 4, 4, 3], [1, 2, 2, 2, 1], "SAME"),
    x=floats(1, 2, 2, 2, 2),
    w=floats(2, 2, 2, 3, 2),
    shapes=False,
)
case(
    "nn.max_pool",
    lambda tf, x: tf.nn.max_pool(value=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME", name="named"),
    "named",
    x=floats(1, 4, 4, 2),
)
case("nn.max_pool2d", lambda tf, x: tf.nn.max_pool2d(x, 2, 2, "SAME"), x=floats(1, 4, 4, 2))
case("nn.avg_pool2d", lambda tf, x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), x=floats(1, 5, 5, 2))
case(
    "nn.max_pool_with_argmax",
    lambda tf, x: tf.nn.max_pool_with_argmax(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID"),
    x=floats(2, 4, 4, 2),
)
case(
    "nn.conv2d_backprop_input",
    lambda tf, w, g: tf.nn.conv2d_backprop_input([1, 4, 4, 2], w, g, [1, 1, 1, 1], "SAME"),
    w=floats(2, 2, 2, 3),
    g=floats(1, 4, 4, 3),
    gradients=False,
    shapes=False,
)
case(
    "nn.conv2d_backprop_filter",
    lambda tf, x, g: tf.nn.conv2d_backprop_filter(x, [2, 2, 2, 3], g, [1, 1, 1, 1], "SAME"),
    x=floats(1, 4, 4, 2),
    g=floats(1, 4, 4, 3),
    gradients=False,
    shapes=False,
)
for _padding in ("SAME", "VALID"):
    case(
        "nn.depthwise_conv2d_native",
        lambda tf, x, w, p=_padding: tf.nn.depthwise_conv2d_native(x, w, [1, 1, 1, 1], p),
        _padding,
        x=floats(1, 5, 6, 3),
        w=floats(3, 3, 3, 2),
    )
    case(
        "image.extract_patches",
        lambda tf, x, p=_padding: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], p),
        _padding,
        x=floats(1, 5, 6, 2),
        gradients=False,
    )
