"""TensorFlow 1 programs that record numbers: run once by TensorFlow itself, then compared with `throughtime.tf1`.

A program takes the module `tf` and returns arrays by name. It draws nothing at random, so both give the same numbers.
Python 3.7 runs this file, since TensorFlow 1.15 needs that.
"""

from __future__ import annotations

import numpy as np

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def cases(table):
    """Register a program for each entry of a table of arguments."""

    def register(function):
        for name, arguments in table.items():
            PROGRAMS[f"{function.__name__}.{name}"] = _bound(function, arguments)
        return function

    return register


def _bound(function, arguments):
    return lambda tf: function(tf, *arguments)


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)


def named(tf, session, variables=None):
    """Values of variables by name."""
    variables = tf.global_variables() if variables is None else variables
    return {each.op.name: session.run(each) for each in variables}


def names(variables):
    return np.array(sorted(f"{each.op.name} {each.shape.as_list()}" for each in variables))


RATE = 0.1
OPTIMIZERS = {
    "gradient_descent": ("train.GradientDescentOptimizer", {}),
    "momentum": ("train.MomentumOptimizer", {"momentum": 0.9}),
    "nesterov": ("train.MomentumOptimizer", {"momentum": 0.9, "use_nesterov": True}),
    "no_momentum": ("train.MomentumOptimizer", {"momentum": 0.0}),
    "adam": ("train.AdamOptimizer", {}),
    "adam_settings": ("train.AdamOptimizer", {"beta1": 0.7, "beta2": 0.9, "epsilon": 0.1}),
    "adagrad": ("train.AdagradOptimizer", {}),
    "adagrad_initial": ("train.AdagradOptimizer", {"initial_accumulator_value": 0.5}),
    "adadelta": ("train.AdadeltaOptimizer", {"rho": 0.9, "epsilon": 1e-3}),
    "rmsprop": ("train.RMSPropOptimizer", {}),
    "rmsprop_momentum": ("train.RMSPropOptimizer", {"decay": 0.8, "momentum": 0.5, "epsilon": 0.01}),
    "rmsprop_centered": ("train.RMSPropOptimizer", {"centered": True, "momentum": 0.3, "epsilon": 0.01}),
    "ftrl": ("train.FtrlOptimizer", {}),
    "ftrl_l1_l2": (
        "train.FtrlOptimizer",
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1, "learning_rate_power": -0.4},
    ),
    "ftrl_shrinkage": ("train.FtrlOptimizer", {"l2_shrinkage_regularization_strength": 0.1}),
    "proximal_gradient_descent": (
        "train.ProximalGradientDescentOptimizer",
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1},
    ),
    "proximal_adagrad": (
        "train.ProximalAdagradOptimizer",
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1},
    ),
    "proximal_plain": ("train.ProximalAdagradOptimizer", {}),
    "adamw": ("contrib.opt.AdamWOptimizer", {"weight_decay": 0.01}),
    "nadam": ("contrib.opt.NadamOptimizer", {}),
    "lazy_adam": ("contrib.opt.LazyAdamOptimizer", {}),
    "momentumw": ("contrib.opt.MomentumWOptimizer", {"weight_decay": 0.01, "momentum": 0.9}),
    "adamax": ("contrib.opt.AdaMaxOptimizer", {}),
}


def found(tf, path):
    value = tf
    for part in path.split("."):
        value = getattr(value, part)
    return value


def applied(tf, optimizer, loss, steps=None):
    """The operation of a step. TensorFlow may decay a weight before or after it is read: here it is after."""
    pairs = optimizer.compute_gradients(loss)
    with tf.control_dependencies([getattr(gradient, "values", gradient) for gradient, _ in pairs]):
        return optimizer.apply_gradients(pairs, global_step=steps)


def trained(tf, session, train, feeds, steps):
    """Values of all variables after some of the steps."""
    arrays = {}
    for step in range(steps):
        session.run(train, feeds(step))
        if step in {0, 1, 9, steps - 1}:
            arrays.update({"%s@%d" % item: value for item, value in _at(step, named(tf, session))})  # noqa: UP031
    return arrays


def _at(step, values):
    return (((name, step), value) for name, value in values.items())


@cases(OPTIMIZERS)
def dense(tf, path, settings):
    """Fifty steps of a linear model, with a learning rate that is a tensor."""
    rate = tf.placeholder(tf.float32, [])
    x, y = tf.placeholder(tf.float32, [4, 3]), tf.placeholder(tf.float32, [4, 2])
    kernel, bias = tf.Variable(numbers(3, 2), name="kernel"), tf.Variable(numbers(2, seed=1), name="bias")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel) + bias - y))
    steps = tf.Variable(0, trainable=False, name="global_step")
    train = applied(tf, found(tf, path)(learning_rate=rate, **settings), loss, steps)

    def feeds(step):
        return {x: numbers(4, 3, seed=step), y: numbers(4, 2, seed=100 + step), rate: RATE / (1 + 0.01 * step)}

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return trained(tf, session, train, feeds, 50)


@cases(OPTIMIZERS)
def sparse(tf, path, settings):
    """Fifty steps of an embedding, with rows that occur twice and rows that do not occur."""
    ids, target = tf.placeholder(tf.int32, [5]), tf.placeholder(tf.float32, [5, 2])
    table = tf.get_variable("table", initializer=numbers(7, 2))
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids) - target))
    train = applied(tf, found(tf, path)(learning_rate=tf.constant(RATE), **settings), loss)

    def feeds(step):
        draws = np.random.RandomState(step)
        return {ids: draws.choice([0, 1, 2, 2, 4, 5], 5), target: numbers(5, 2, seed=step)}

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return trained(tf, session, train, feeds, 50)


@program
def adagrad_da(tf):
    """Dual averaging takes the global step of its constructor."""
    arrays = {}
    for name, settings in {
        "plain": {},
        "l1_l2": {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1},
    }.items():
        tf.reset_default_graph()
        x = tf.placeholder(tf.float32, [4, 3])
        kernel = tf.Variable(numbers(3, 2), name="kernel")
        steps = tf.Variable(0, trainable=False, name="global_step", dtype=tf.int64)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel) - 0.5))
        optimizer = tf.train.AdagradDAOptimizer(RATE, steps, **settings)
        train = optimizer.minimize(loss, global_step=steps)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            run = trained(tf, session, train, lambda step, x=x: {x: numbers(4, 3, seed=step)}, 50)
            arrays.update({f"{name} {key}": value for key, value in run.items()})
    return arrays


@program
def clipped_embedding(tf):
    """The global norm of an embedding's gradient counts a row once for each time that it occurs."""
    ids = tf.constant([0, 2, 2, 1])
    table, kernel = tf.Variable(numbers(4, 3), name="table"), tf.Variable(numbers(3, 2, seed=1), name="kernel")
    loss = tf.reduce_sum(tf.square(tf.matmul(tf.nn.embedding_lookup(table, ids), kernel)))
    variables = tf.trainable_variables()
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 0.5)
    train = tf.train.MomentumOptimizer(RATE, 0.9).apply_gradients(zip(gradients, variables))  # noqa: B905
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        arrays = {"norm": session.run(norm)}
        arrays.update(trained(tf, session, train, lambda _: {}, 20))
    return arrays


DECAYS = {
    "exponential": ("exponential_decay", (10, 0.9), {}),
    "exponential_staircase": ("exponential_decay", (10, 0.9), {"staircase": True}),
    "natural_exp": ("natural_exp_decay", (10, 0.5), {}),
    "natural_exp_staircase": ("natural_exp_decay", (10, 0.5), {"staircase": True}),
    "inverse_time": ("inverse_time_decay", (10, 0.5), {}),
    "inverse_time_staircase": ("inverse_time_decay", (10, 0.5), {"staircase": True}),
    "polynomial": ("polynomial_decay", (20,), {"end_learning_rate": 0.01, "power": 2.0}),
    "polynomial_linear": ("polynomial_decay", (20,), {}),
    "polynomial_cycle": ("polynomial_decay", (20,), {"cycle": True}),
    "cosine": ("cosine_decay", (30,), {"alpha": 0.1}),
    "cosine_restarts": ("cosine_decay_restarts", (10,), {"t_mul": 1.5, "m_mul": 0.8, "alpha": 0.05}),
    "cosine_restarts_equal": ("cosine_decay_restarts", (10,), {"t_mul": 1.0}),
    "linear_cosine": ("linear_cosine_decay", (30,), {"num_periods": 1.5, "alpha": 0.1, "beta": 0.01}),
}


@cases(DECAYS)
def decay(tf, name, arguments, settings):
    """A learning rate over 45 steps; step zero included."""
    step = tf.Variable(0, trainable=False, name="global_step")
    rate = getattr(tf.train, name)(0.5, step, *arguments, **settings)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = []
        for _ in range(46):
            values.append(session.run(rate))
            session.run(tf.assign_add(step, 1))
        return {"rate": np.array(values), "name": np.array(rate.name)}


@program
def piecewise_constant(tf):
    step = tf.placeholder(tf.int32, [])
    rate = tf.train.piecewise_constant(step, [10, 20], [1.0, 0.5, 0.1])
    with tf.Session() as session:
        return {"rate": np.array([session.run(rate, {step: k}) for k in (0, 9, 10, 11, 20, 21, 99)])}


@program
def moving_average(tf):
    """Averages of variables, with a decay that depends on the step, and of a tensor with zero debias."""
    step = tf.Variable(0, trainable=False, name="global_step")
    weights = tf.Variable(numbers(3), name="weights")
    average = tf.train.ExponentialMovingAverage(0.9, num_updates=step, zero_debias=True)
    change = tf.assign(weights, weights * 0.5 + 1.0)
    loss = tf.reduce_sum(weights, name="loss")
    with tf.control_dependencies([change]):
        update = average.apply([weights])
    update_loss = average.apply([loss])
    restored = average.variables_to_restore()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        arrays = {}
        for k in range(5):
            session.run(update)
            session.run(update_loss)
            arrays["weights@%d" % k] = session.run(average.average(weights))  # noqa: UP031
            arrays["loss@%d" % k] = session.run(average.average(loss))  # noqa: UP031
            session.run(tf.assign_add(step, 1))
    arrays["names"] = np.array([average.average_name(weights), average.average_name(loss), *sorted(restored)])
    return arrays


@program
def summaries(tf):
    """The bytes of summaries."""
    loss = tf.constant(0.25, name="value")
    values = tf.constant(numbers(40) * 3)
    tf.summary.scalar("loss", loss)
    with tf.name_scope("inside"):
        tf.summary.scalar("loss of it", loss)
        tf.summary.histogram("weights", values)
        tf.summary.histogram("nothing", tf.zeros([0]))
    tf.summary.scalar("grouped", loss, family="family")
    tf.summary.text("words", tf.constant(["one", "two"]))
    merged = tf.summary.merge_all()
    names = [each.name for each in tf.get_collection(tf.GraphKeys.SUMMARIES)] + [merged.name]
    with tf.Session() as session:
        found = tf.Summary.FromString(session.run(merged))
    arrays = {"names": np.array(names)}
    for place, value in enumerate(found.value):
        arrays["value %d" % place] = np.frombuffer(value.SerializeToString(), np.uint8)  # noqa: UP031
    return arrays


def decoded(tf, session, data):
    if not tf.__version__.startswith("1.15.5") or not hasattr(tf.image, "decode_png"):
        import io

        from PIL import Image

        found = np.asarray(Image.open(io.BytesIO(data)))
        return found if found.ndim == 3 else found[..., None]
    return session.run(tf.image.decode_png(tf.constant(data)))


@program
def images(tf):
    """Pixels of image summaries, before they are encoded: the brightest is 255, or zero is 127."""
    arrays = {}
    for name, values in {"positive": np.abs(numbers(1, 4, 3, 3)), "signed": numbers(2, 3, 5, 1)}.items():
        found = tf.summary.image(name, tf.constant(values), max_outputs=1)
        with tf.Session() as session:
            value = tf.Summary.FromString(session.run(found)).value[0]
            arrays[name] = decoded(tf, session, value.image.encoded_image_string)
        arrays[name + " header"] = np.array([value.image.height, value.image.width, value.image.colorspace])
        arrays[name + " tag"] = np.array(value.tag)
    return arrays


def training(tf):
    """A model with Adam and a global step: input, training operation, variables."""
    x = tf.placeholder(tf.float32, [4, 3])
    kernel = tf.Variable(np.ones((3, 2), np.float32), name="a/kernel")
    bias = tf.get_variable("bias", initializer=np.zeros(2, np.float32))
    steps = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel) + bias - 0.5))
    return x, tf.train.AdamOptimizer(0.1).minimize(loss, global_step=steps)


def trained_between(session, train, x, first, last):
    for step in range(first, last):
        session.run(train, {x: numbers(4, 3, seed=step)})
