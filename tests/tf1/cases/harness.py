"""Runs a case on a module that looks like TensorFlow 1: TensorFlow itself, or ours. Python 3.7 can load this.

Everything that is compared comes from here, so that both sides are asked the very same questions.
"""

import numpy as np

from .case import VARIANTS, cotangent


def flat(result):
    """The tensors and operations of a result, in order."""
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in flat(part)]
    if hasattr(result, "dense_shape") and result.dense_shape is not None:  # a SparseTensor
        return [result.indices, result.values, result.dense_shape]
    return [] if result is None else [result]


def build(tf, case, variant="full"):
    """Placeholders and the flat result of a case in the default graph."""
    inputs = {}
    for name, value in case.inputs.items():
        kind = tf.as_dtype(value.dtype) if value.dtype.kind not in "SUO" else tf.string
        if name in case.constant:
            inputs[name] = tf.constant(value, dtype=kind, name=name)
        else:
            declared = "full" if name in case.known else variant
            inputs[name] = tf.placeholder(kind, VARIANTS[declared](value.shape), name=name)
    return inputs, flat(case.build(tf, **inputs))


def feeds(case, inputs):
    """The feed_dict of a case."""
    return {inputs[name]: value for name, value in case.inputs.items() if name not in case.constant}


def shape_of(tensor):
    """A static shape as a list, None where the rank is unknown."""
    shape = tensor.get_shape()
    return None if shape.ndims is None else [None if size is None else int(size) for size in shape.as_list()]


def static_shapes(tf, case, variant):
    """The static shapes of a case's results when its inputs are declared in this variant; an error's type as text."""
    with tf.Graph().as_default():
        if case.seed is not None:
            tf.set_random_seed(case.seed)
        try:
            return [shape_of(tensor) for tensor in build(tf, case, variant)[1] if hasattr(tensor, "get_shape")]
        except (ValueError, TypeError) as error:
            return type(error).__name__


def run(tf, case):
    """Everything about a case but the static shapes of partly known inputs."""
    with tf.Graph().as_default() as graph:
        if case.seed is not None:
            tf.set_random_seed(case.seed)
        inputs, results = build(tf, case)
        made = {"names": [tensor.name for tensor in results], "last_id": graph._last_id}
        tensors = [tensor for tensor in results if hasattr(tensor, "get_shape")]
        made["shapes"] = [shape_of(tensor) for tensor in tensors]
        made["dtypes"] = [tensor.dtype.base_dtype.name for tensor in tensors]
        start = [tf.global_variables_initializer(), tf.local_variables_initializer()]
        one_thread = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with tf.Session(config=one_thread) as session:
            session.run(start)
            fed = feeds(case, inputs)
            made["values"] = [[np.asarray(value) for value in session.run(tensors, fed)] for _ in range(case.runs)]
            if not tensors:
                session.run(results, fed)
            gradients = gradient_tensors(tf, case, inputs, tensors, made["values"][0])
            present = [gradient for gradient in gradients if gradient is not None]
            found = iter(session.run(present, fed))
            made["gradients"] = [None if gradient is None else np.asarray(next(found)) for gradient in gradients]
    return made


def gradient_tensors(tf, case, inputs, tensors, values):
    """The gradients of all float results with respect to the float inputs."""
    pairs = [pair for pair in zip(tensors, values) if pair[0].dtype.base_dtype.name in ("float32", "float64")]
    xs = [inputs[name] for name in case.float_inputs]
    if not case.gradients or not pairs or not xs:
        return []
    weights = [cotangent(value.shape, value.dtype.name) for _, value in pairs]
    gradients = tf.gradients([tensor for tensor, _ in pairs], xs, grad_ys=weights)
    return [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
