"""Programs with layers, losses and metrics; see `tf1_programs`."""

from __future__ import annotations

import numpy as np

from tf1_programs import PROGRAMS, cases, found, names, numbers, program


def filled(tf, session):
    """Give every variable numbers that depend on its place in the order of names."""
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    for seed, each in enumerate(sorted(tf.global_variables(), key=lambda variable: variable.op.name)):
        shape = each.shape.as_list()
        value = numbers(*shape, seed=seed) + (1.5 if "variance" in each.op.name else 0)
        session.run(tf.assign(each, value.reshape(shape)))


IMAGE, SERIES, ROWS = (2, 6, 5, 3), (2, 7, 3), (4, 3)
RELU, TANH = "nn.relu", "nn.tanh"
LAYERS = {
    "dense": ("layers.dense", ROWS, {"units": 2}),
    "dense_activation": ("layers.dense", ROWS, {"units": 2, "activation": RELU, "use_bias": False, "name": "head"}),
    "dense_of_series": ("layers.dense", SERIES, {"units": 4, "activation": TANH}),
    "dropout_at_inference": ("layers.dropout", ROWS, {"rate": 0.4}),
    "flatten": ("layers.flatten", IMAGE, {}),
    "conv1d": ("layers.conv1d", SERIES, {"filters": 4, "kernel_size": 3}),
    "conv1d_same": ("layers.conv1d", SERIES, {"filters": 4, "kernel_size": 2, "strides": 2, "padding": "same"}),
    "conv1d_dilated": ("layers.conv1d", SERIES, {"filters": 2, "kernel_size": 2, "dilation_rate": 2}),
    "conv2d": ("layers.conv2d", IMAGE, {"filters": 4, "kernel_size": [3, 2], "activation": RELU}),
    "conv2d_same": ("layers.conv2d", IMAGE, {"filters": 2, "kernel_size": 3, "strides": (2, 1), "padding": "same"}),
    "conv2d_transpose": ("layers.conv2d_transpose", IMAGE, {"filters": 2, "kernel_size": 3, "strides": (2, 2)}),
    "separable_conv2d": ("layers.separable_conv2d", IMAGE, {"filters": 4, "kernel_size": 3}),
    "max_pooling1d": ("layers.max_pooling1d", SERIES, {"pool_size": 2, "strides": 2}),
    "max_pooling2d": ("layers.max_pooling2d", IMAGE, {"pool_size": [2, 2], "strides": 2, "padding": "same"}),
    "average_pooling2d": ("layers.average_pooling2d", IMAGE, {"pool_size": 3, "strides": 1, "padding": "same"}),
    "average_pooling1d": ("layers.average_pooling1d", SERIES, {"pool_size": 3, "strides": 1}),
    "batch_normalization": ("layers.batch_normalization", ROWS, {}),
    "batch_normalization_training": ("layers.batch_normalization", ROWS, {"training": True, "momentum": 0.9}),
    "batch_normalization_of_images": ("layers.batch_normalization", IMAGE, {"training": True, "scale": False}),
    "fully_connected": ("contrib.layers.fully_connected", ROWS, {"num_outputs": 2}),
    "fully_connected_linear": (
        "contrib.layers.fully_connected",
        ROWS,
        {"num_outputs": 2, "activation_fn": None, "scope": "head", "biases_initializer": None},
    ),
    "fully_connected_of_series": ("contrib.layers.fully_connected", SERIES, {"num_outputs": 2}),
    "linear": ("contrib.layers.linear", ROWS, {"num_outputs": 2}),
    "contrib_batch_norm": ("contrib.layers.batch_norm", ROWS, {"decay": 0.9}),
    "contrib_batch_norm_inference": ("contrib.layers.batch_norm", ROWS, {"is_training": False, "scale": True}),
    "contrib_conv2d": ("contrib.layers.conv2d", IMAGE, {"num_outputs": 4, "kernel_size": 3, "stride": 2}),
    "contrib_conv2d_valid": (
        "contrib.layers.conv2d",
        IMAGE,
        {"num_outputs": 4, "kernel_size": [2, 3], "padding": "VALID", "activation_fn": TANH},
    ),
    "contrib_max_pool2d": ("contrib.layers.max_pool2d", IMAGE, {"kernel_size": 2}),
    "contrib_avg_pool2d": ("contrib.layers.avg_pool2d", IMAGE, {"kernel_size": [2, 2], "padding": "SAME"}),
    "contrib_flatten": ("contrib.layers.flatten", IMAGE, {}),
    "layer_norm": ("contrib.layers.layer_norm", SERIES, {}),
    "layer_norm_rows": ("contrib.layers.layer_norm", SERIES, {"begin_norm_axis": 2, "activation_fn": RELU}),
    "unit_norm": ("contrib.layers.unit_norm", ROWS, {"dim": 1}),
    "bias_add": ("contrib.layers.bias_add", ROWS, {"activation_fn": RELU}),
}


@cases(LAYERS)
def layer(tf, path, shape, settings):
    """A layer on numbers: output, gradient by its input, names of variables, and what its updates leave."""
    functions = {key: found(tf, value) for key, value in settings.items() if value in (RELU, TANH)}
    inputs = tf.placeholder(tf.float32, shape)
    outputs = found(tf, path)(inputs, **dict(settings, **functions))
    gradient = tf.gradients(tf.reduce_sum(outputs * outputs), inputs)[0]
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.Session() as session:
        filled(tf, session)
        feeds = {inputs: numbers(*shape, seed=7)}
        arrays = {"outputs": session.run(outputs, feeds), "gradient": session.run(gradient, feeds)}
        session.run(updates, feeds)
        arrays.update({"after " + each.op.name: session.run(each) for each in tf.global_variables()})
    arrays["names"] = names(tf.global_variables())
    arrays["trainable"] = names(tf.trainable_variables())
    arrays["shape"] = np.array(outputs.shape.as_list())
    return arrays


@program
def layer_scopes(tf):
    """Names of layers one after the other, inside of scopes, shared, and as objects."""
    x = tf.placeholder(tf.float32, [None, 3])
    tf.layers.dense(tf.layers.dense(x, 3), 3)
    with tf.variable_scope("a"):
        tf.layers.dense(x, 3)
        tf.layers.dense(x, 3, name="named")
    with tf.variable_scope("a", reuse=True):
        tf.layers.dense(x, 3, name="named")
    shared = tf.layers.Dense(2, name="object")
    shared(x)
    shared(x + 1)
    with tf.variable_scope("b"):
        tf.layers.batch_normalization(x, training=True)
        tf.contrib.layers.fully_connected(x, 2)
        tf.contrib.layers.fully_connected(x, 2)
        tf.contrib.layers.fully_connected(x, 2, scope="fc", normalizer_fn=tf.contrib.layers.batch_norm)
    tf.layers.dense(x, 2, kernel_regularizer=tf.contrib.layers.l2_regularizer(0.1))
    tf.contrib.layers.embed_sequence(tf.placeholder(tf.int32, [None, 4]), vocab_size=9, embed_dim=5)
    losses = [each.name for each in tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)]
    return {"names": names(tf.global_variables()), "losses": np.array(losses), "dense": np.array([shared.scope_name])}


@program
def regularizers(tf):
    """Regularisers of a variable, and their collection."""
    weights = tf.constant(numbers(3, 2))
    layers = tf.contrib.layers
    found = [
        layers.l1_regularizer(0.3)(weights),
        layers.l2_regularizer(0.3)(weights),
        layers.l1_l2_regularizer(0.1, 0.2)(weights),
        layers.sum_regularizer([layers.l1_regularizer(0.3), layers.l2_regularizer(0.3)])(weights),
        layers.apply_regularization(layers.l2_regularizer(0.5), [weights, weights]),
    ]
    with tf.variable_scope("model", regularizer=layers.l2_regularizer(0.1)):
        tf.get_variable("kernel", initializer=numbers(2, 2))
    found.append(tf.losses.get_regularization_loss())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return {"values": np.array(session.run(found))}


TARGETS = (np.random.RandomState(3).uniform(0, 1, (4, 3)) > 0.5).astype(np.float32)
LOSSES = {
    "absolute_difference": ("absolute_difference", TARGETS, {}),
    "mean_squared_error": ("mean_squared_error", TARGETS, {}),
    "huber": ("huber_loss", TARGETS, {"delta": 0.3}),
    "log": ("log_loss", TARGETS, {}),
    "hinge": ("hinge_loss", TARGETS, {}),
    "cosine": ("cosine_distance", TARGETS, {"axis": 1}),
    "pairwise": ("mean_pairwise_squared_error", TARGETS, {}),
    "sigmoid": ("sigmoid_cross_entropy", TARGETS, {"label_smoothing": 0.1}),
    "softmax": ("softmax_cross_entropy", np.eye(3, dtype=np.float32)[[0, 2, 1, 1]], {"label_smoothing": 0.1}),
    "sparse": ("sparse_softmax_cross_entropy", np.array([0, 2, 1, 1], np.int32), {}),
}


@cases(LOSSES)
def loss(tf, name, labels, settings):
    """A loss with every kind of weights and reduction, and its gradient."""
    scores = tf.constant(np.abs(numbers(4, 3, seed=5)) * 0.9 + 0.05)
    function = getattr(tf.losses, name)
    by_row = name in {"softmax_cross_entropy", "sparse_softmax_cross_entropy"}
    column = np.array([1.0, 0.0, 2.0, 0.5], np.float32)
    weights = {"none": 1.0, "scalar": 0.3, "column": column if by_row else column[:, None], "zero": 0.0}
    arrays = {}
    with tf.Session() as session:
        for key, value in weights.items():
            total = function(labels, scores, weights=value, **settings)
            arrays[key], arrays[key + " gradient"] = session.run([total, tf.gradients(total, scores)[0]])
        arrays["total"] = session.run(tf.losses.get_total_loss())
        if name != "mean_pairwise_squared_error":
            for how in tf.losses.Reduction.all():
                total = function(labels, scores, weights=weights["column"], reduction=how, **settings)
                arrays[how] = session.run(total)
    arrays["count"] = np.array(len(tf.losses.get_losses()))
    return arrays


METRICS = {
    "mean": ("mean", 1, {}),
    "accuracy": ("accuracy", 2, {}),
    "precision": ("precision", 2, {}),
    "recall": ("recall", 2, {}),
    "auc": ("auc", 2, {}),
    "auc_pr": ("auc", 2, {"curve": "PR", "num_thresholds": 20}),
    "true_positives": ("true_positives", 2, {}),
    "false_negatives": ("false_negatives", 2, {}),
    "mean_squared_error": ("mean_squared_error", 2, {}),
    "root_mean_squared_error": ("root_mean_squared_error", 2, {}),
    "mean_absolute_error": ("mean_absolute_error", 2, {}),
    "mean_iou": ("mean_iou", 2, {"num_classes": 2}),
    "mean_per_class_accuracy": ("mean_per_class_accuracy", 2, {"num_classes": 2}),
    "mean_tensor": ("mean_tensor", 1, {}),
}


@cases(METRICS)
def metric(tf, name, count, settings):
    """A measure over three batches, with and without weights."""
    arrays = {}
    scores = name in {
        "auc",
        "mean",
        "mean_squared_error",
        "root_mean_squared_error",
        "mean_absolute_error",
        "mean_tensor",
    }
    for weighted in (False, True):
        labels, predictions = (tf.placeholder(tf.float32, [6]) for _ in range(2))
        weights = tf.placeholder(tf.float32, [6]) if weighted else None
        inputs = [labels, predictions][2 - count :]
        value, update = getattr(tf.metrics, name)(*inputs, weights=weights, **settings)
        with tf.Session() as session:
            session.run(tf.local_variables_initializer())
            for seed in range(3):
                draws = np.random.RandomState(seed)
                feeds = {labels: draws.randint(0, 2, 6), predictions: draws.uniform(0, 1, 6)}
                if not scores:
                    feeds[predictions] = draws.randint(0, 2, 6)
                if weighted:
                    feeds[weights] = draws.uniform(0, 1, 6)
                key = "%s%d" % ("weighted" if weighted else "plain", seed)  # noqa: UP031
                arrays[key + " update"] = session.run(update, feeds)
                arrays[key] = session.run(value)
    arrays["names"] = names(tf.local_variables())
    return arrays


OPTIMIZED = {
    "name": {"optimizer": "SGD"},
    "adam": {"optimizer": "Adam"},
    "clipped": {"optimizer": "SGD", "clip_gradients": 0.1},
    "summaries": {"optimizer": "Adagrad", "summaries": ["loss", "learning_rate"]},
}


@cases({key: (settings,) for key, settings in OPTIMIZED.items()})
def optimize_loss(tf, settings):
    """`contrib.layers.optimize_loss`: losses over ten steps."""
    x = tf.placeholder(tf.float32, [4, 3])
    kernel = tf.get_variable("kernel", initializer=numbers(3, 2))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel) - 1.0))
    train = tf.contrib.layers.optimize_loss(
        loss, tf.train.get_or_create_global_step(), 0.1, learning_rate_decay_fn=halved(tf), **settings
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = [session.run(train, {x: numbers(4, 3, seed=seed)}) for seed in range(10)]
        arrays = {"losses": np.array(values), "kernel": session.run(kernel)}
    arrays["names"] = names(tf.global_variables())
    return arrays


def halved(tf):
    return lambda rate, step: tf.train.exponential_decay(rate, step, 5, 0.5)


__all__ = ["PROGRAMS"]
