"""Slices, gathers, scatters, masks, partitions."""

import numpy as np

from .case import bools, case, floats, ints

SLICES = {
    "row": lambda x: x[0],
    "last": lambda x: x[-1],
    "range": lambda x: x[1:3],
    "step": lambda x: x[::2],
    "from_end": lambda x: x[:-1],
    "column": lambda x: x[:, 1],
    "both": lambda x: x[1:, :2],
    "number": lambda x: x[1, 2],
    "new_axis": lambda x: x[:, None],
    "ellipsis": lambda x: x[..., 0],
    "reverse": lambda x: x[::-1],
    "reverse_step": lambda x: x[:, ::-2],
    "new_last": lambda x: x[..., None],
    "slice_of_slice": lambda x: x[1:][0],
    "empty": lambda x: x[2:2],
    "negative_range": lambda x: x[-3:-1],
    "past_end": lambda x: x[1:99],
    "ellipsis_middle": lambda x: x[0, ..., 1:2],
    "two_new": lambda x: x[None, :, None, 1],
    "whole": lambda x: x[:],
}
for _label, _f in SLICES.items():
    case("Tensor.__getitem__", lambda tf, x, f=_f: f(x), _label, x=floats(4, 5))
case("Tensor.__getitem__", lambda tf, x, i: x[i], "tensor", x=floats(4, 5), i=np.array(2, "int32"))
case("Tensor.__getitem__", lambda tf, x, i: x[:i], "tensor_end", x=floats(4, 5), i=np.array(2, "int32"))
case("Tensor.__getitem__", lambda tf, x, i: x[i:], "tensor_begin", x=floats(4, 5), i=np.array(2, "int32"))
case("Tensor.__getitem__", lambda tf, x: x[:, tf.shape(x)[1] - 1], "dynamic", x=floats(4, 5))
case("Tensor.__getitem__", lambda tf, x: x[:, -1, :], "last_step", x=floats(2, 3, 4))
case("Tensor.__getitem__", lambda tf, x: list(tf.unstack(x)), "rows", x=floats(2, 3))
for _label, _args in {"plain": ([1, 0], [2, 3]), "rest": ([1, 2], [-1, -1]), "one": ([0, 1], [4, 1])}.items():
    case("slice", lambda tf, x, a=_args: tf.slice(x, *a), _label, x=floats(4, 5))
case("slice", lambda tf, x, b: tf.slice(x, [b, 0], [2, 5]), "dynamic", x=floats(4, 5), b=np.array(1, "int32"))
case("slice", lambda tf, x: tf.slice(x, begin=[0, 0], size=[tf.shape(x)[0], 2], name="named"), "named", x=floats(4, 5))
for _label, _args in {
    "plain": ([1, 0], [3, 4]),
    "strides": ([0, 0], [4, 5], [2, 2]),
    "back": ([3, 4], [0, 0], [-1, -2]),
}.items():
    case("strided_slice", lambda tf, x, a=_args: tf.strided_slice(x, *a), _label, x=floats(4, 5))
case(
    "strided_slice",
    lambda tf, x: tf.strided_slice(x, [0, 1], [0, 2], begin_mask=1, end_mask=1),
    "masks",
    x=floats(4, 5),
)
case("strided_slice", lambda tf, x: tf.strided_slice(x, [0, 1], [4, 2], shrink_axis_mask=2), "shrink", x=floats(4, 5))
case("strided_slice", lambda tf, x: tf.strided_slice(x, [0, 0], [4, -1], [1, 1]), "to_the_last", x=floats(4, 5))

case("gather", lambda tf, x, i: tf.gather(x, i), x=floats(4, 3), i=ints(5, below=4))
case("gather", lambda tf, x, i: tf.gather(x, i), "matrix", x=floats(4, 3), i=ints(2, 2, below=4))
case("gather", lambda tf, x, i: tf.gather(x, i, axis=1), "axis", x=floats(2, 4, 3), i=ints(5, below=4))
case("gather", lambda tf, x, i: tf.gather(params=x, indices=i, name="named"), "named", x=floats(4), i=ints(below=4))
case("gather", lambda tf, x: tf.gather(x, [0, 2]), "list", x=floats(4, 3))
case(
    "gather",
    lambda tf, x, i: tf.gather(x, i, batch_dims=1, axis=1),
    "batch_dims",
    x=floats(2, 4, 3),
    i=ints(2, 5, below=4),
)
case("gather", lambda tf, x, i: tf.gather(x, i, axis=-1), "last", x=floats(2, 4), i=ints(2, 2, below=4))
case("gather", lambda tf, x, i: tf.gather(x, i), "int64", x=ints(4, 3), i=ints(5, below=4, dtype="int64"))
case("gather_nd", lambda tf, x, i: tf.gather_nd(x, i), x=floats(4, 3), i=np.array([[0, 1], [3, 2], [0, 1]], "int32"))
case("gather_nd", lambda tf, x, i: tf.gather_nd(x, i), "rows", x=floats(4, 3), i=np.array([[0], [3]], "int32"))
case(
    "gather_nd",
    lambda tf, x, i: tf.gather_nd(params=x, indices=i, name="named"),
    "nested",
    x=floats(2, 3, 4),
    i=ints(5, 2, 2, below=2),
)
case(
    "gather_nd",
    lambda tf, x, i: tf.gather_nd(x, i, batch_dims=1),
    "batch_dims",
    x=floats(2, 3, 4),
    i=ints(2, 1, below=3),
)
case(
    "gather_nd",
    lambda tf, x, n: tf.gather_nd(x, tf.stack([tf.range(tf.shape(x)[0]), n - 1], axis=1)),
    "last_steps",
    x=floats(3, 4, 2),
    n=ints(3, low=1, below=5),
)
case("batch_gather", lambda tf, x, i: tf.batch_gather(x, i), x=floats(2, 4), i=ints(2, 3, below=4), gradients=False)
case("scatter_nd", lambda tf, i, u: tf.scatter_nd(i, u, [5]), i=np.array([[1], [3], [1]], "int32"), u=floats(3))
case(
    "scatter_nd", lambda tf, i, u: tf.scatter_nd(i, u, [4, 2]), "rows", i=np.array([[1], [3]], "int32"), u=floats(2, 2)
)
case(
    "scatter_nd",
    lambda tf, i, u: tf.scatter_nd(indices=i, updates=u, shape=tf.constant([2, 3]), name="named"),
    "named",
    i=np.array([[0, 1], [1, 2]], "int32"),
    u=floats(2),
)
for _name in (
    "tensor_scatter_nd_update",
    "tensor_scatter_nd_add",
    "tensor_scatter_nd_sub",
    "tensor_scatter_update",
    "tensor_scatter_add",
    "tensor_scatter_sub",
):
    case(
        _name,
        lambda tf, x, i, u, f=_name: getattr(tf, f)(x, i, u),
        x=floats(5),
        i=np.array([[1], [3]], "int32"),
        u=floats(2),
    )
    case(
        _name,
        lambda tf, x, i, u, f=_name: getattr(tf, f)(x, i, u),
        "rows",
        x=floats(4, 2),
        i=np.array([[1], [0]], "int32"),
        u=floats(2, 2),
    )
case("boolean_mask", lambda tf, x, m: tf.boolean_mask(x, m), x=floats(4, 3), m=bools(4))
case("boolean_mask", lambda tf, x, m: tf.boolean_mask(x, m), "matrix", x=floats(4, 3), m=bools(4, 3))
case("boolean_mask", lambda tf, x, m: tf.boolean_mask(x, m, axis=1), "axis", x=floats(2, 4, 3), m=bools(4))
case("boolean_mask", lambda tf, x, m: tf.boolean_mask(tensor=x, mask=m, name="named"), "named", x=ints(4), m=bools(4))
case("boolean_mask", lambda tf, x: tf.boolean_mask(x, [True, False, True]), "list", x=floats(3, 2))
case("dynamic_partition", lambda tf, x, p: tf.dynamic_partition(x, p, 3), x=floats(6), p=ints(6, below=3))
case("dynamic_partition", lambda tf, x, p: tf.dynamic_partition(x, p, 2), "rows", x=floats(6, 2), p=ints(6, below=2))
case("dynamic_stitch", lambda tf, x, y: tf.dynamic_stitch([[0, 2], [1, 3, 4]], [x, y]), x=floats(2), y=floats(3))
case(
    "dynamic_stitch",
    lambda tf, x, y: tf.dynamic_stitch([tf.constant([1, 0]), tf.constant([2])], [x, y]),
    "rows",
    x=floats(2, 3),
    y=floats(1, 3),
)
case(
    "sparse_to_dense",
    lambda tf, i, v: tf.sparse_to_dense(i, [5], v),
    i=np.array([1, 3], "int32"),
    v=floats(2),
    gradients=False,
)
case(
    "sparse_to_dense",
    lambda tf, i: tf.sparse_to_dense(i, [3, 4], 1.0, 0.0),
    "one_hot",
    i=np.array([[0, 1], [2, 3]], "int32"),
    gradients=False,
)
case(
    "sparse_to_dense",
    lambda tf, i, v: tf.sparse_to_dense(i, [3, 4], v, default_value=-1),
    "default",
    i=np.array([[0, 1], [2, 3]], "int32"),
    v=ints(2),
)
