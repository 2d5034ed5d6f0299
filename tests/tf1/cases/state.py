"""Variables: assignment, scatters, counters."""

import numpy as np

from .case import case, floats

_start = floats(4, 3, salt=9)


def _variable(tf, value=_start, **keywords):
    return tf.Variable(value, name="v", **keywords)


def _after_assign(tf):
    counter = tf.Variable(1.0, name="counter")
    with tf.control_dependencies([counter.assign_add(1.0)]):
        return tf.identity(counter.read_value())


for _name in ("assign", "assign_add", "assign_sub"):
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(_variable(tf), x), x=floats(4, 3), runs=2, gradients=False)
    case(_name, lambda tf, x, f=_name: getattr(_variable(tf), f)(x), "method", x=floats(4, 3), runs=2, gradients=False)
    case(_name, lambda tf, f=_name: getattr(tf, f)(tf.Variable(3.0), 2, name="named"), "number", runs=2)
case("assign", lambda tf: tf.assign(tf.Variable(0, trainable=False, name="step"), 7), "int")
_rows = np.array([1, 3], "int32")
for _name in (
    "scatter_update",
    "scatter_add",
    "scatter_sub",
    "scatter_mul",
    "scatter_div",
    "scatter_min",
    "scatter_max",
):
    case(
        _name,
        lambda tf, i, u, f=_name: getattr(tf, f)(_variable(tf), i, u),
        i=_rows,
        u=floats(2, 3, low=0.3),
        runs=2,
        gradients=False,
        shapes=False,
    )
    case(
        _name,
        lambda tf, i, u, f=_name: getattr(tf, f)(_variable(tf), i, u),
        "scalar_index",
        i=np.array(2, "int32"),
        u=floats(3, low=0.3),
        gradients=False,
        shapes=False,
    )
case(
    "scatter_add",
    lambda tf, i, u: tf.scatter_add(_variable(tf), i, u),
    "repeated",
    i=np.array([1, 1, 0], "int32"),
    u=floats(3, 3),
    gradients=False,
    shapes=False,
)
for _name in ("scatter_nd_update", "scatter_nd_add", "scatter_nd_sub"):
    case(
        _name,
        lambda tf, i, u, f=_name: getattr(tf, f)(_variable(tf), i, u),
        i=np.array([[1, 2], [0, 0]], "int32"),
        u=floats(2),
        runs=2,
        gradients=False,
        shapes=False,
    )
case(
    "batch_scatter_update",
    lambda tf, i, u: tf.batch_scatter_update(_variable(tf), i, u),
    i=np.array([[0], [1], [2], [0]], "int32"),
    u=floats(4, 1),
    gradients=False,
    shapes=False,
)
case("count_up_to", lambda tf: tf.count_up_to(tf.Variable(0), 5), runs=3)
case("Variable.count_up_to", lambda tf: tf.Variable(0).count_up_to(5), runs=3)
case("is_variable_initialized", lambda tf: tf.is_variable_initialized(_variable(tf)))
case("report_uninitialized_variables", lambda tf: tf.report_uninitialized_variables([_variable(tf)]), shapes=False)
case("Variable", lambda tf: _variable(tf) * 2.0, "multiplied")
case("Variable", lambda tf: _variable(tf)[1:, 0], "sliced")
case("Variable", lambda tf: _variable(tf).initialized_value(), "initialized_value", shapes=False)
case("Variable", lambda tf: _variable(tf).read_value(), "read_value")
case("Variable", lambda tf: tf.identity(_variable(tf)), "identity")
case(
    "nn.embedding_lookup",
    lambda tf, i: tf.nn.embedding_lookup(_variable(tf), i),
    "variable",
    i=np.array([1, 3, 1], "int32"),
)
case("control_dependencies", _after_assign, runs=3)
case(
    "contrib.framework.get_or_create_global_step",
    lambda tf: tf.train.get_or_create_global_step().assign_add(1),
    runs=2,
    shapes=False,
)
