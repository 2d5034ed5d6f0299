"""Sparse tensors: the parts that dense programs use."""

from .case import case, floats


def _sparse(tf, v):
    return tf.SparseTensor(indices=[[0, 1], [1, 0], [2, 2]], values=v, dense_shape=[3, 4])


for _name in ("sparse_tensor_to_dense", "sparse.to_dense"):
    case(
        _name,
        lambda tf, v, f=_name: (tf.sparse.to_dense if "." in f else tf.sparse_tensor_to_dense)(_sparse(tf, v)),
        v=floats(3),
        shapes=False,
        gradients=False,
    )
case(
    "sparse_tensor_to_dense",
    lambda tf, v: tf.sparse_tensor_to_dense(_sparse(tf, v), default_value=-1.0),
    "default",
    v=floats(3),
    shapes=False,
    gradients=False,
)
case(
    "sparse_tensor_dense_matmul",
    lambda tf, v, b: tf.sparse_tensor_dense_matmul(_sparse(tf, v), b),
    v=floats(3),
    b=floats(4, 2),
    shapes=False,
)
case(
    "sparse_tensor_dense_matmul",
    lambda tf, v, b: tf.sparse_tensor_dense_matmul(_sparse(tf, v), b, adjoint_a=True),
    "adjoint",
    v=floats(3),
    b=floats(3, 2),
    shapes=False,
)
case("sparse_reduce_sum", lambda tf, v: tf.sparse_reduce_sum(_sparse(tf, v), 1), v=floats(3), shapes=False)
case("sparse_reduce_sum", lambda tf, v: tf.sparse_reduce_sum(_sparse(tf, v)), "all", v=floats(3), shapes=False)
case(
    "sparse_reorder",
    lambda tf, v: tf.sparse_reorder(tf.SparseTensor([[2, 0], [0, 1], [1, 1]], v, [3, 2])),
    v=floats(3),
    shapes=False,
    gradients=False,
)
case(
    "sparse_reshape",
    lambda tf, v: tf.sparse_reshape(_sparse(tf, v), [4, 3]),
    v=floats(3),
    shapes=False,
    gradients=False,
)
case("sparse_transpose", lambda tf, v: tf.sparse_transpose(_sparse(tf, v)), v=floats(3), shapes=False, gradients=False)
case(
    "sparse_retain",
    lambda tf, v: tf.sparse_retain(_sparse(tf, v), [True, False, True]),
    v=floats(3),
    shapes=False,
    gradients=False,
)
case("sparse_softmax", lambda tf, v: tf.sparse_softmax(_sparse(tf, v)), v=floats(3), shapes=False, gradients=False)
case(
    "sparse_add",
    lambda tf, v: tf.sparse_tensor_to_dense(tf.sparse_add(_sparse(tf, v), _sparse(tf, v))),
    v=floats(3),
    shapes=False,
    gradients=False,
)
case(
    "sparse_to_indicator",
    lambda tf: tf.sparse_to_indicator(tf.SparseTensor([[0, 0], [1, 1]], [2, 0], [2, 2]), 3),
    shapes=False,
)
case("sparse.from_dense", lambda tf: tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]]), shapes=False)
case(
    "edit_distance",
    lambda tf: tf.edit_distance(
        tf.SparseTensor([[0, 0], [0, 1]], [1, 2], [1, 2]), tf.SparseTensor([[0, 0], [0, 1], [0, 2]], [1, 3, 2], [1, 3])
    ),
    shapes=False,
)
case(
    "nn.ctc_greedy_decoder",
    lambda tf, x: tf.nn.ctc_greedy_decoder(x, [5, 4]),
    x=floats(5, 2, 4),
    shapes=False,
    gradients=False,
)
