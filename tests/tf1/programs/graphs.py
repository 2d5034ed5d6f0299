"""Programs about graphs: names, scopes, variables, static shapes, collections, and the errors of misuse."""

import numpy as np

from .helpers import error_of, names


def _zeros(tf):
    return tf.zeros_initializer()


def operation_names(tf):
    a = tf.constant(1.0)
    b = tf.constant(2.0, name="b")
    tensors = [a, b, a + b, a * b, a - b, a / b, -a, tf.add(a, b), tf.matmul([[1.0]], [[2.0]]), a + 1, 2 * a]
    with tf.name_scope("scope"):
        tensors.append(tf.identity(a))
        tensors.append(tf.constant(3.0))
        with tf.name_scope("inner") as inner:
            tensors.append(a + b)
    with tf.name_scope("scope"):
        tensors.append(tf.identity(a))
    with tf.name_scope(inner):
        tensors.append(tf.identity(a, name="again"))
    with tf.name_scope(None):
        tensors.append(tf.placeholder(tf.float32))
    tensors += [tf.placeholder(tf.float32, name="x"), tf.placeholder(tf.float32, name="x")]
    tensors += [tf.Variable(1.0), tf.Variable(1.0), tf.Variable(1.0, name="w")]
    with tf.name_scope("scope"):
        tensors.append(tf.Variable(1.0, name="v"))
    graph = tf.get_default_graph()
    return {
        "names": names(tensors),
        "scope": inner,
        "unique": [graph.unique_name("b"), graph.unique_name("new"), graph.unique_name("new")],
        "found": graph.get_tensor_by_name("b:0").name,
        "operation": graph.get_operation_by_name("scope/inner/add").name,
        "types": [one.op.type for one in tensors[:2]],
    }


def variable_names(tf):
    found = []
    with tf.variable_scope("a"):
        found.append(tf.get_variable("v", [1], initializer=_zeros(tf)))
        with tf.variable_scope("b"):
            found.append(tf.get_variable("v", [1], initializer=_zeros(tf)))
            found.append(tf.Variable(1.0, name="plain"))
            found.append(tf.constant(1.0, name="c"))
    with tf.variable_scope("a", reuse=True) as scope:
        found.append(tf.get_variable("v", [1], initializer=_zeros(tf)))
        found.append(tf.constant(1.0, name="c"))
    with tf.variable_scope(scope):
        found.append(tf.get_variable("v"))
        found.append(tf.constant(1.0, name="c"))
    with tf.name_scope("ignored"):
        found.append(tf.get_variable("top", [1], initializer=_zeros(tf)))
        with tf.variable_scope("inside"):
            found.append(tf.get_variable("v", [1], initializer=_zeros(tf)))
            found.append(tf.constant(1.0, name="c"))
    for _ in range(2):
        with tf.variable_scope(None, default_name="layer"):
            found.append(tf.get_variable("w", [1], initializer=_zeros(tf)))
    with tf.variable_scope("outer"):
        for _ in range(2):
            with tf.variable_scope(None, "layer"):
                found.append(tf.get_variable("w", [1], initializer=_zeros(tf)))
    with tf.variable_scope("auto", reuse=tf.AUTO_REUSE):
        first = tf.get_variable("v", [1], initializer=_zeros(tf))
        second = tf.get_variable("v", [1], initializer=_zeros(tf))
    with tf.variable_scope("x") as x_scope:
        x_scope.set_initializer(tf.constant_initializer(2.0))
    return {
        "names": names(found),
        "same": first is second,
        "trainable": names(tf.trainable_variables()),
        "scoped": names(tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="a/")),
        "printed": repr(first),
        "scope": x_scope.name,
    }


def reuse_errors(tf):
    with tf.variable_scope("a"):
        tf.get_variable("v", [2], initializer=_zeros(tf))
        twice = error_of(lambda: tf.get_variable("v", [2]))

    def missing():
        with tf.variable_scope("a", reuse=True):
            tf.get_variable("w", [2])

    def shape():
        with tf.variable_scope("a", reuse=True):
            tf.get_variable("v", [3])

    def dtype():
        with tf.variable_scope("a", reuse=True):
            tf.get_variable("v", [2], dtype=tf.int32)

    def reuse_inherits():
        with tf.variable_scope("a", reuse=True), tf.variable_scope("b", reuse=False):
            tf.get_variable("new", [2])

    def by_method():
        with tf.variable_scope("c") as scope:
            scope.reuse_variables()
            tf.get_variable("v", [2])

    return {
        "twice": twice,
        "missing": error_of(missing),
        "shape": error_of(shape),
        "dtype": error_of(dtype),
        "inherits": error_of(reuse_inherits),
        "by_method": error_of(by_method),
        "no_shape": error_of(lambda: tf.get_variable("q", initializer=tf.zeros_initializer())),
        "open_shape": error_of(lambda: tf.get_variable("q2", [None, 2])),
        "both": error_of(lambda: tf.get_variable("q3", [2], initializer=tf.constant([1.0, 2.0]))),
        "no_name": error_of(lambda: tf.variable_scope(None)),
        "number": error_of(lambda: tf.variable_scope(3)),
        "no_value": error_of(tf.Variable),
        "collections": error_of(lambda: tf.Variable(1.0, collections="losses")),
    }


def getters_and_regularizers(tf):
    seen = []

    def own_getter(getter, name, *args, **kwargs):
        seen.append(name)
        return getter(name, *args, **kwargs)

    with tf.variable_scope("a", custom_getter=own_getter, regularizer=lambda v: tf.reduce_sum(v * v), dtype=tf.float64):
        v = tf.get_variable("v", [2], initializer=tf.constant_initializer(3.0))
        with tf.variable_scope("b", regularizer=tf.no_regularizer):
            w = tf.get_variable("w", [2], initializer=tf.constant_initializer(3.0))
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        value = session.run(losses)
    return {"seen": seen, "losses": value, "count": len(losses), "dtypes": [v.dtype.name, w.dtype.name]}


def variable_kinds(tf):
    v = tf.Variable([[1, 2]], name="ints", trainable=False)
    w = tf.get_variable("w", initializer=np.float32(3.0))
    c = tf.get_variable("c", initializer=tf.constant([1.5, 2.5]))
    local = tf.Variable(0, name="local", trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    other = tf.Variable(w.initialized_value() * 2, name="other")
    i = tf.get_variable("i", [2], dtype=tf.int32)
    return {
        "dtypes": [one.dtype.name for one in (v, w, c, local, other, i)],
        "shapes": [str(one.shape) for one in (v, w, c, local, other, i)],
        "global": names(tf.global_variables()),
        "local": names(tf.local_variables()),
        "trainable": names(tf.trainable_variables()),
        "op": [w.op.name, w.op.type, w.initializer.name, w.value().name],
        "text": [str(w), str(w.value())],
    }


def static_shapes(tf):
    x = tf.placeholder(tf.float32, [None, 4, 3])
    y = tf.placeholder(tf.float32)
    z = tf.placeholder(tf.float32, [None, None])
    size = tf.shape(x)
    batch = size[0]
    w = tf.Variable(np.zeros((3, 5), np.float32))
    tensors = [
        x, y, z, x[0], x[:, 0], x[:, -1, :], x[..., 1], x[:2], x[:, 1:3], x[:, None], x[:, ::2], size, batch,
        tf.reshape(x, [-1, 3]), tf.reshape(x, [-1, 12]), tf.reshape(x, size),
        tf.zeros([batch, 7]), tf.matmul(tf.reshape(x, [-1, 3]), w), tf.reduce_sum(x, 1), tf.reduce_sum(x),
        tf.reduce_sum(y), tf.reduce_sum(x, [0, 2]), tf.reduce_sum(x, 2, keepdims=True), x + 1.0, y + 1.0,
        x + tf.zeros([4, 3]), x + tf.zeros([2, 1, 1]), z + tf.zeros([5, 1]), tf.matmul(z, w), tf.transpose(x),
        tf.transpose(x, [1, 0, 2]), tf.concat([x, x], 0), tf.concat([x, x], 2), tf.stack([x, x]), tf.expand_dims(x, 1),
        tf.unstack(x, axis=1)[0], tf.tile(x, [1, 2, 1]), tf.fill([batch, 2], 1.0), tf.range(batch),
        tf.cast(x, tf.int32), tf.reshape(y, [2, -1]), tf.identity(y), tf.zeros_like(x), tf.ones_like(z),
        tf.split(x, 3, axis=2)[0], tf.squeeze(x[:, :1], [1]), tf.constant([[1, 2, 3]]), tf.rank(x), tf.size(x),
    ]  # fmt: skip
    late = tf.placeholder(tf.float32)
    late.set_shape([None, 2])
    return {
        "shapes": [str(one.shape) for one in tensors],
        "dtypes": [one.dtype.name for one in tensors],
        "lists": [str(x.get_shape().as_list()), str(late.shape), str(x.shape.ndims), str(y.shape.ndims)],
        "dims": [str(x.shape[0]), str(x.shape[1].value), str(x.get_shape()[1]), repr(x.shape), str(int(x.shape[1]))],
        "defined": [x.shape.is_fully_defined(), tf.zeros([2]).shape.is_fully_defined()],
        "printed": [repr(x), str(x), str(y)],
    }


def shape_errors(tf):
    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.placeholder(tf.float32)
    return {
        "matmul": error_of(lambda: tf.matmul(x, tf.zeros([4, 2]))),
        "add": error_of(lambda: x + tf.zeros([4])),
        "concat": error_of(lambda: tf.concat([x, tf.zeros([2, 4])], 0)),
        "reshape": error_of(lambda: tf.reshape(tf.zeros([2, 3]), [4, 2])),
        "set_shape": error_of(lambda: x.set_shape([None, 4])),
        "as_list": error_of(lambda: y.shape.as_list()),
        "bool": error_of(lambda: bool(x)),
        "iter": error_of(lambda: list(x)),
        "len": error_of(lambda: len(x)),
        "dtypes": error_of(lambda: x + tf.constant([1, 2, 3])),
        "float_to_int": error_of(lambda: tf.constant([1, 2]) + 1.5),
        "string": error_of(lambda: x + "a"),
        "index": error_of(lambda: x[1.5]),
        "convert": error_of(lambda: tf.convert_to_tensor(x, tf.int32)),
        "none": error_of(lambda: tf.convert_to_tensor(None)),
        "ragged": error_of(lambda: tf.constant([[1, 2], [3]])),
        "int": error_of(lambda: tf.constant(1.5, tf.int32)),
        "too_many": error_of(lambda: tf.constant([1, 2, 3], shape=[2])),
        "name": error_of(lambda: tf.constant(1, name="a b")),
        "no_tensor": error_of(lambda: tf.get_default_graph().get_tensor_by_name("nothing:0")),
        "no_operation": error_of(lambda: tf.get_default_graph().get_operation_by_name("nothing")),
        "no_index": error_of(lambda: tf.get_default_graph().get_tensor_by_name("Placeholder")),
        "dtype": error_of(lambda: tf.placeholder("nonsense")),
        "rank": error_of(lambda: tf.matmul(tf.zeros([2]), tf.zeros([2, 2]))),
    }


def several_graphs(tf):
    one, two = tf.Graph(), tf.Graph()
    with one.as_default():
        a = tf.constant(1.0, name="a")
        v = tf.get_variable("v", [1], initializer=_zeros(tf))
    with two.as_default():
        b = tf.constant(2.0, name="a")
        mixed = error_of(lambda: a + b)
        wrong = error_of(lambda: tf.Session(graph=two).run(a))
    with tf.Session(graph=one) as session:
        value = session.run(a)
        inside = tf.get_default_graph() is one
        session.run(tf.global_variables_initializer())
        found = session.run("v:0")
    one.finalize()

    def after():
        with one.as_default():
            tf.constant(1.0)

    return {
        "value": value, "found": found, "same": [a.name == b.name, inside, a.graph is one, v.graph is one],
        "mixed": mixed, "wrong": wrong, "finalized": error_of(after),
        "count": len(one.get_operations()) > 3,
    }  # fmt: skip


def collections(tf):
    tf.add_to_collection("mine", 1)
    tf.add_to_collection("mine", 2)
    tf.get_collection_ref("mine").append(3)
    graph = tf.get_default_graph()
    graph.add_to_collections(["mine", "other"], 4)
    return {
        "mine": tf.get_collection("mine"),
        "other": tf.get_collection("other"),
        "none": len(tf.get_collection("no")),
    }


def dtypes(tf):
    return {
        "names": [d.name for d in (tf.float32, tf.int64, tf.bool, tf.string, tf.half, tf.double)],
        "same": [
            tf.float32 == np.float32, tf.as_dtype("int32") == tf.int32, tf.float32 == tf.float64,
            tf.float32.is_floating, tf.int32.is_integer, tf.bool.is_integer,
            tf.as_dtype("float32_ref").base_dtype == tf.float32,
            tf.as_dtype(np.float64) is tf.float64, tf.float32.is_compatible_with(tf.as_dtype("float32_ref")),
        ],
        "limits": [tf.int8.max, tf.uint8.min, tf.float32.size],
        "text": [repr(tf.float32), str(tf.float32)],
        "numpy": [tf.float32.as_numpy_dtype.__name__, tf.bool.as_numpy_dtype.__name__],
        "constants": [
            tf.constant(x).dtype.name for x in (1, 1.0, True, "a", [1, 2.5], np.float64(1), np.arange(2), 2**40)
        ],
    }  # fmt: skip
