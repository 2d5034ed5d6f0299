"""Programs about sessions: fetches, feeds, variables' values, control dependencies, gradients, and errors."""

import collections

import numpy as np

from .helpers import error_of, numbers

_Pair = collections.namedtuple("_Pair", "first second")


def fetches(tf):
    a, b = tf.constant(1.0, name="a"), tf.constant([2, 3], name="b")
    v = tf.Variable(5.0, name="v")
    with tf.Session() as session:
        nothing = session.run(tf.global_variables_initializer())
        single = session.run(a)
        values = session.run([a, (b, [a]), {"k": b, "n": _Pair(a, v)}, "a:0", v, v.op, _Pair(b, b), []])
        return {
            "single": single,
            "nothing": nothing,
            "values": values[:-1],
            "types": [type(value).__name__ for value in values],
            "inner": [type(values[1]).__name__, type(values[2]["n"]).__name__, type(single).__name__],
            "eval": [a.eval(), v.eval(), session.run(b).dtype.name],
        }


def feeds(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    n = tf.placeholder(tf.int32, [], name="n")
    d = tf.placeholder_with_default([1.0, 2.0], [None])
    y = x * 2
    z = y + 1
    with tf.Session() as session:
        return {
            "plain": session.run(z, {x: [[1, 2]]}),
            "by_name": session.run(z, {"x:0": np.ones((3, 2))}),
            "cut": session.run(z, {y: [[5, 6]]}),
            "default": session.run(d * 2),
            "given": session.run(d * 2, {d: [3.0]}),
            "scalar": session.run(n + 1, {n: 4}),
            "pair": session.run([x, n], {(x, n): (np.ones((1, 2)), 7)}),
            "constant": session.run(z, {x: np.zeros((0, 2))}),
            "bools": session.run(n, {n: True}),
        }


def feed_errors(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    n = tf.placeholder(tf.int32, [], name="n")
    c = tf.constant(1.0)
    with tf.Session() as session:
        run = session.run
        return {
            "missing": error_of(lambda: run(x)),
            "shape": error_of(lambda: run(x, {x: [[1, 2, 3]]})),
            "rank": error_of(lambda: run(x, {x: [1, 2]})),
            "tensor": error_of(lambda: run(x, {x: c})),
            "string": error_of(lambda: run(x, {x: [["a", "b"]]})),
            "key": error_of(lambda: run(x, {"y:0": 1})),
            "number_key": error_of(lambda: run(x, {3: 1})),
            "dict": error_of(lambda: run(x, [1])),
            "fetch_none": error_of(lambda: run(None)),
            "fetch_number": error_of(lambda: run(3)),
            "fetch_name": error_of(lambda: run("nothing:0")),
            "ragged": error_of(lambda: run(x, {x: [[1, 2], [3]]})),
            "none": error_of(lambda: run(x, {x: None})),
            "float_for_int": error_of(lambda: run(n, {n: 2**40})),
            "no_session": error_of(lambda: run(tf.Variable(1.0))),
        }


def without_session(tf):
    c = tf.constant(1.0)
    session = tf.Session()
    session.close()
    return {"eval": error_of(c.eval), "op": error_of(c.op.run), "closed": error_of(lambda: session.run(c))}


def assignments(tf):
    v = tf.Variable([1.0, 2.0], name="v")
    n = tf.Variable(0, name="n")
    add, sub, new = tf.assign_add(v, [1.0, 1.0]), v.assign_sub([0.5, 0.5]), tf.assign(v, [9.0, 9.0])
    count = tf.assign_add(n, 1)
    with tf.control_dependencies([count]):
        after = n.read_value()
    both = tf.group(add, count)
    with tf.Session() as session:
        uninitialised = error_of(lambda: session.run(v))
        session.run(tf.global_variables_initializer())
        values = [session.run(v), session.run(add), session.run(sub), session.run(new), session.run(after)]
        session.run(both)
        both.run()
        values += [session.run(v), session.run(n)]
        v.load([4.0, 4.0], session)
        values.append(session.run(v))
        session.run(v.initializer)
        first = session.run(v)
        first += 100
        values.append(session.run(v))
        reported = session.run(tf.report_uninitialized_variables())
        ready = session.run(tf.is_variable_initialized(v))
    with tf.Session() as other:
        fresh = error_of(lambda: other.run(n))
    return {
        "values": values, "uninitialised": uninitialised, "fresh": fresh, "reported": len(reported),
        "ready": bool(ready),
        "shape": error_of(lambda: tf.assign(v, [1.0, 2.0, 3.0])), "dtype": error_of(lambda: tf.assign(v, [1, 2])),
    }  # fmt: skip


def gradients(tf):
    x = tf.placeholder(tf.float32, [2, 3])
    w = tf.Variable(numbers(3, 3, 2), name="w")
    unused = tf.Variable(1.0, name="unused")
    y = tf.matmul(x, w)
    loss = tf.reduce_sum(y * y)
    first = tf.gradients(loss, [w, x, unused])
    second = tf.gradients(first[0], x)
    weighted = tf.gradients(y, [w], grad_ys=[tf.ones([2, 2]) * 3])
    several = tf.gradients([loss, y], [w, y])
    stopped = tf.gradients(tf.stop_gradient(y) * y, w)
    held = tf.gradients(loss + tf.reduce_sum(w), [w], stop_gradients=[y])
    integers = tf.gradients(loss, tf.constant(1))
    zero = tf.gradients(loss, [unused], unconnected_gradients="zero")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        fetches = [first[:2], second, weighted, several, stopped, held, zero, loss]
        values = session.run(fetches, {x: numbers(4, 2, 3)})
    return {"values": values, "none": [first[2] is None, integers[0] is None],
            "shapes": [str(g.shape) for g in (*first[:2], *second)]}  # fmt: skip


def interactive(tf):
    session = tf.InteractiveSession()
    v = tf.Variable(2.0)
    tf.global_variables_initializer().run()
    value = (v * 3).eval()
    default = tf.get_default_session() is session
    session.close()
    return {"value": value, "default": default}


def control(tf):
    v = tf.Variable(1.0)
    up = tf.assign(v, v * 2)
    with tf.control_dependencies([up]):
        out = tf.identity(tf.constant(5.0))
        with tf.control_dependencies(None):
            free = tf.identity(tf.constant(6.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = [session.run(free), session.run(v), session.run(out), session.run(v), session.run(out), session.run(v)]
    return {"values": values, "inputs": [op.name for op in out.op.control_inputs], "none": len(free.op.control_inputs)}


def configuration(tf):
    config = tf.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})
    config.gpu_options.allow_growth = True
    config.gpu_options.per_process_gpu_memory_fraction = 0.4
    with tf.device("/cpu:0"):
        c = tf.constant(1.0)
    with tf.Session(config=config) as session:
        return {"value": session.run(c), "device": c.device}


def slices(tf):
    array = np.arange(24).reshape(2, 3, 4).astype(np.float32)
    x = tf.placeholder(tf.float32, [None, 3, 4])
    i = tf.placeholder(tf.int32, [])
    tensors = [x[0], x[:, 1], x[..., -1], x[:, ::-1], x[:, None, 0], x[i], x[:, i:], x[:, :i, 1], x[:, -2:, ::2],
               x[0, 1, 2], x[tf.newaxis], x[:, i], x[:, 2:0:-1]]  # fmt: skip
    gradient = tf.gradients(tf.reduce_sum(x[:, ::-1] * x[i]), x)[0]
    with tf.Session() as session:
        return {
            "values": session.run(tensors + [gradient], {x: array, i: 1}),
            "shapes": [str(t.shape) for t in tensors],
        }


def operators(tf):
    a = tf.constant([7.0, -3.0, 2.5])
    i = tf.constant([7, -7, 2])
    tensors = [a + 1, 1 - a, a * a, 2 / a, a / 2, a // 2, a % 2, a**2, 2**a, -a, abs(a), a > 1, a <= 2.5, a < a, a >= a,
               i / 2, i // 2, i % 3, 7 // i, i * i, i - 1, ~(a > 1), (a > 1) & (a < 5), (a > 1) | (a < 0),
               (a > 1) ^ (a < 5)]  # fmt: skip
    with tf.Session() as session:
        values = session.run(tensors)
    return {
        "values": values,
        "dtypes": [t.dtype.name for t in tensors],
        "hash": len({a, i, a}),
        "same": [a == a, a == i],
    }
