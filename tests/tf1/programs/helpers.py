"""What the programs share; Python 3.7 runs it too, under TensorFlow 1.15."""

import numpy as np


def numbers(seed, *shape):
    """The same numbers everywhere."""
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)


def fill_variables(tf, session):
    """Give every variable numbers that depend on its place and shape alone."""
    session.run(tf.global_variables_initializer())
    for place, variable in enumerate(tf.global_variables()):
        shape = variable.shape.as_list()
        variable.load(0.5 * numbers(100 + place, *shape), session)


def error_of(function):
    """The name of the error that a call raises."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "none"


def names(variables):
    """The names of variables or tensors."""
    return [one.name for one in variables]


def shapes(*tensors):
    """Static shapes as text."""
    return [str(tensor.shape) for tensor in tensors]
