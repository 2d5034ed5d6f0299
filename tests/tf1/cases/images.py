"""Images: resizing, cropping, colours, flips."""

import numpy as np

from .case import case, floats, ints

_image = floats(1, 4, 6, 3, low=0.05, high=0.95)
for _method in ("bilinear", "nearest_neighbor", "bicubic", "area"):
    for _size in ((8, 9), (3, 2), (4, 6)):
        for _align in (False, True):
            case(
                "image.resize_" + _method,
                lambda tf, x, m=_method, s=_size, a=_align: getattr(tf.image, "resize_" + m)(x, s, align_corners=a),
                "%s_%s" % (_size, _align),
                x=_image,
                gradients=_method not in ("area", "bicubic"),
                tolerance=1e-4,
            )
for _method in (0, 1, 2):
    case(
        "image.resize_images",
        lambda tf, x, m=_method: tf.image.resize_images(x, [5, 7], method=m),
        "method_%d" % _method,
        x=_image,
        tolerance=1e-4,
        gradients=_method != 2,
    )
case("image.resize_images", lambda tf, x: tf.image.resize_images(x, (5, 7)), "one_image", x=_image[0], tolerance=1e-4)
case("image.resize", lambda tf, x: tf.image.resize(x, [5, 7]), x=_image, tolerance=1e-4)
for _name in (
    "flip_left_right",
    "flip_up_down",
    "transpose_image",
    "transpose",
    "rot90",
    "rgb_to_grayscale",
    "per_image_standardization",
    "rgb_to_hsv",
    "rgb_to_yiq",
    "rgb_to_yuv",
):
    case(
        "image." + _name,
        lambda tf, x, f=_name: getattr(tf.image, f)(x),
        x=_image[0],
        tolerance=1e-4,
        gradients=_name in ("flip_left_right", "rgb_to_grayscale"),
    )
for _name in ("hsv_to_rgb", "yiq_to_rgb", "yuv_to_rgb"):
    case("image." + _name, lambda tf, x, f=_name: getattr(tf.image, f)(x), x=_image, tolerance=1e-4, gradients=False)
case("image.rot90", lambda tf, x: tf.image.rot90(x, k=3), "three", x=_image[0], gradients=False)
case("image.grayscale_to_rgb", lambda tf, x: tf.image.grayscale_to_rgb(x), x=_image[..., :1].copy())
case("image.adjust_brightness", lambda tf, x: tf.image.adjust_brightness(x, 0.2), x=_image)
case("image.adjust_contrast", lambda tf, x: tf.image.adjust_contrast(x, 1.7), x=_image, tolerance=1e-4, gradients=False)
case("image.adjust_gamma", lambda tf, x: tf.image.adjust_gamma(x, 2.0, 0.5), x=_image)
case(
    "image.adjust_saturation",
    lambda tf, x: tf.image.adjust_saturation(x, 0.5),
    x=_image,
    tolerance=1e-4,
    gradients=False,
)
case("image.adjust_hue", lambda tf, x: tf.image.adjust_hue(x, 0.3), x=_image, tolerance=1e-4, gradients=False)
case("image.central_crop", lambda tf, x: tf.image.central_crop(x, 0.5), x=_image[0])
case("image.crop_to_bounding_box", lambda tf, x: tf.image.crop_to_bounding_box(x, 1, 2, 2, 3), x=_image)
case("image.pad_to_bounding_box", lambda tf, x: tf.image.pad_to_bounding_box(x, 1, 2, 7, 9), x=_image)
for _size in ((6, 4), (3, 9), (4, 6)):
    case(
        "image.resize_image_with_crop_or_pad",
        lambda tf, x, s=_size: tf.image.resize_image_with_crop_or_pad(x, *s),
        "%s" % (_size,),
        x=_image,
    )
case("image.resize_with_crop_or_pad", lambda tf, x: tf.image.resize_with_crop_or_pad(x, 5, 5), x=_image)
case(
    "image.convert_image_dtype",
    lambda tf, x: tf.image.convert_image_dtype(x, tf.float32),
    x=ints(2, 3, below=255, dtype="uint8"),
)
case(
    "image.convert_image_dtype",
    lambda tf, x: tf.image.convert_image_dtype(x, tf.uint8),
    "to_uint8",
    x=_image[0],
    gradients=False,
)
case("image.total_variation", lambda tf, x: tf.image.total_variation(x), x=_image)
case("image.psnr", lambda tf, x, y: tf.image.psnr(x, y, 1.0), x=_image, y=_image[:, ::-1].copy(), gradients=False)
case("image.image_gradients", lambda tf, x: tf.image.image_gradients(x), x=_image)
case("image.sobel_edges", lambda tf, x: tf.image.sobel_edges(x), x=_image)
for _name in ("random_flip_left_right", "random_flip_up_down"):
    case(
        "image." + _name,
        lambda tf, x, f=_name: getattr(tf.image, f)(x, seed=3),
        x=_image[0],
        seed=4,
        runs=3,
        gradients=False,
    )
case(
    "image.random_brightness",
    lambda tf, x: tf.image.random_brightness(x, 0.3, seed=3),
    x=_image[0],
    seed=4,
    runs=2,
    gradients=False,
)
case(
    "image.random_contrast",
    lambda tf, x: tf.image.random_contrast(x, 0.3, 0.9, seed=3),
    x=_image[0],
    seed=4,
    runs=2,
    gradients=False,
)
case(
    "image.non_max_suppression",
    lambda tf, b, s: tf.image.non_max_suppression(b, s, 3),
    gradients=False,
    shapes=False,
    b=np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.2, 1, 3.2]], "float32"),
    s=np.array([0.5, 0.9, 0.3, 0.6], "float32"),
)
case(
    "image.extract_image_patches",
    lambda tf, x: tf.image.extract_image_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"),
    x=_image,
    gradients=False,
)
case(
    "image.random_crop", lambda tf, x: tf.image.random_crop(x, [2, 2, 3], seed=3), x=_image[0], seed=4, gradients=False
)
