"""Programs with control flow: cond, case, loops, maps, scans, arrays of tensors, Python functions."""

import numpy as np

from .helpers import error_of, numbers


def conditions(tf):
    x = tf.placeholder(tf.float32, [None, 2])
    p = tf.placeholder(tf.bool, [])
    w = tf.Variable([[2.0, 1.0]])
    v = tf.Variable(0.0)
    one = tf.cond(p, lambda: x * w, lambda: x + 1)
    two = tf.cond(p, lambda: (x, {"a": w}), lambda: (x * 2, {"a": w * 3}))
    count = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.identity(v))
    nested = tf.cond(p, lambda: tf.cond(x[0, 0] > 0, lambda: x, lambda: -x), lambda: x * 0)
    gradient = tf.gradients(one, [x, w])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = [session.run([one, two, gradient, nested], {x: numbers(1, 2, 2), p: flag}) for flag in (True, False)]
        counts = [session.run(count, {p: flag}) for flag in (True, False, True)]
    return {"values": values, "counts": counts, "shapes": [str(one.shape), str(two[1]["a"].shape)],
            "errors": [
                error_of(lambda: tf.cond(True, lambda: x, lambda: x)),
                error_of(lambda: tf.cond(p, lambda: x, lambda: (x, x))),
                error_of(lambda: tf.cond(p, lambda: x, lambda: tf.constant(1))),
                error_of(lambda: tf.cond(p, 1, 2)),
            ]}  # fmt: skip


def cases(tf):
    x = tf.placeholder(tf.float32, [])
    y = tf.case([(x < 1, lambda: tf.constant(10.0)), (x < 2, lambda: x * 2)], default=lambda: tf.constant(30.0))
    with tf.Session() as session:
        return {"values": [session.run(y, {x: value}) for value in (0.5, 1.5, 2.5)]}


def loops(tf):
    x = tf.placeholder(tf.float32, [None, 2])
    w = tf.Variable(numbers(2, 2, 2))
    i, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [tf.constant(0), x])
    gradient = tf.gradients(y, [w, x])
    grown = tf.while_loop(
        lambda i, y: i < 2, lambda i, y: [i + 1, tf.concat([y, y], 0)], [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])],
    )[1]  # fmt: skip
    limited = tf.while_loop(lambda i: i < 100, lambda i: i + 1, [0], maximum_iterations=5)
    nested = tf.while_loop(
        lambda i, s: i < 3,
        lambda i, s: (i + 1, s + tf.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t + 2), (0, 0))[1]),
        (0, 0),
    )[1]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = session.run([i, y, gradient, grown, limited, nested], {x: numbers(1, 3, 2)})
    known = tf.zeros([1, 2])
    return {"values": values, "shapes": [str(t.shape) for t in (i, y, grown)],
            "errors": [
                error_of(lambda: tf.while_loop(lambda i: i, lambda i: i, [])),
                error_of(lambda: tf.while_loop(lambda i: i < 3, lambda i: (i, i), [0])),
                error_of(lambda: tf.while_loop(lambda y: True, lambda y: tf.concat([y, y], 0), [known])),
                error_of(lambda: tf.while_loop(1, lambda i: i, [0])),
            ]}  # fmt: skip


def arrays(tf):
    x = tf.placeholder(tf.float32, [3, 2])
    array = tf.TensorArray(tf.float32, size=3)
    result = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.write(i, x[i] * 2)), (0, array))[1].stack()
    rows = tf.TensorArray(tf.float32, size=3).unstack(x)
    dynamic = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
    dynamic = dynamic.write(0, x[0]).write(1, x[1])
    tensors = [result, rows.read(1), rows.gather([2, 0]), dynamic.size(), dynamic.stack(), dynamic.concat()]
    gradient = tf.gradients(tf.reduce_sum(result * result), x)[0]
    with tf.Session() as session:
        values = session.run(tensors + [gradient], {x: numbers(1, 3, 2)})
    return {"values": values, "shapes": [str(tensors[1].shape), str(result.shape)]}


def over_elements(tf):
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.placeholder(tf.float32, [None, 2])
    tensors = [
        tf.map_fn(lambda r: r * r, x),
        tf.map_fn(lambda p: p[0] + tf.reduce_sum(p[1]), (x, y), dtype=tf.float32),
        tf.map_fn(lambda r: (r, tf.cast(r, tf.int32)), x, dtype=(tf.float32, tf.int32)),
        tf.scan(lambda a, r: a + r, x),
        tf.scan(lambda a, r: a * 0.5 + tf.reduce_sum(r), x, initializer=tf.constant(1.0)),
        tf.scan(lambda a, r: (a[0] + r, a[1] - r), x, initializer=(tf.zeros([2]), tf.ones([2]))),
        tf.scan(lambda a, r: a + r, x, reverse=True),
        tf.foldl(lambda a, r: a - r, x),
        tf.foldr(lambda a, r: a - r, x, initializer=tf.ones([2])),
    ]
    gradient = tf.gradients([tensors[0], tensors[3], tensors[7]], x)
    with tf.Session() as session:
        values = session.run(tensors + [gradient], {x: numbers(1, 3, 2), y: numbers(2, 3, 2)})
    return {"values": values, "shapes": [str(tensors[0].shape), str(tensors[3].shape), str(tensors[7].shape)],
            "errors": [
                error_of(lambda: tf.map_fn(1, x)),
            ]}  # fmt: skip


def python_functions(tf):
    x = tf.placeholder(tf.float32, [2])
    one = tf.py_func(lambda a: a * 2, [x], tf.float32)
    two = tf.py_func(lambda a, b: (a + b, np.int64(3)), [x, one], [tf.float32, tf.int64])
    text = tf.py_func(lambda: "word", [], tf.string)

    def fail(a):
        raise ValueError("no")

    with tf.Session() as session:
        values = session.run([one, two], {x: [1.0, 2.0]})
        word = session.run(text).decode()
        error = error_of(lambda: session.run(tf.py_func(fail, [x], tf.float32), {x: [1.0, 2.0]}))
    return {
        "values": values,
        "word": word,
        "error": error,
        "shape": str(one.shape),
        "gradient": str(tf.gradients(one, x)),
    }


def own_gradients(tf):
    @tf.custom_gradient
    def scaled(x):
        return x * 2, lambda dy: dy * 10 + x

    @tf.RegisterGradient("Flipped%d" % id(tf.get_default_graph()))
    def flipped(op, grad):
        return [-grad * 3 + op.inputs[0]]

    x = tf.constant([1.0, 2.0])
    y = scaled(x)
    with tf.get_default_graph().gradient_override_map({"Identity": "Flipped%d" % id(tf.get_default_graph())}):
        z = tf.identity(x)
    gradients = [tf.gradients(y, x), tf.gradients(z * 2, x), tf.gradients(y + z, x)]
    with tf.Session() as session:
        return {"values": session.run([y, z, gradients, x])}


def templates(tf):
    def scaled(x):
        return x * tf.get_variable("w", [2], initializer=tf.ones_initializer())

    shared = tf.make_template("shared", scaled)
    first, second = shared(tf.constant([1.0, 2.0])), shared(tf.constant([3.0, 4.0]))
    other = tf.make_template("shared", scaled)(tf.constant([5.0, 6.0]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = session.run([first, second, other, tf.tuple([first, second])])
    return {"values": values, "names": [v.name for v in tf.global_variables()]}
