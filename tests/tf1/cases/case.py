"""What a recorded case is. Python 3.7 can load this: the same cases run under TensorFlow 1.15 and under `throughtime.tf1`.

A case is an expression over a module `tf` and inputs. TensorFlow's answers are recorded by `tools/record_tf1.py`: values, gradients with
respect to each float input, static shapes under several declared shapes of the inputs, names, dtypes.
"""

import zlib

import numpy as np

CASES = {}


class Case:
    """One expression: `build(tf, **inputs)` returns a tensor, or a list or tuple of tensors.

    `operation` is the name in the table that the case is evidence for. `gradients` and `shapes` say whether these are
    recorded. `runs` is the number of times the result is fetched in one session, `seed` the graph's seed.
    `tolerance` is relative to the largest number of the result.
    """

    def __init__(self, name, operation, build, inputs, gradients, shapes, runs, seed, tolerance, constant, known):
        self.name = name
        self.operation = operation
        self.build = build
        self.inputs = inputs
        self.gradients = gradients
        self.shapes = shapes
        self.runs = runs
        self.seed = seed
        self.tolerance = tolerance
        # Inputs that are constants of the graph, not placeholders: a shape that depends on their values is known.
        self.constant = constant
        # Inputs that are declared with their whole shape in every variant, as variables are.
        self.known = known

    @property
    def float_inputs(self):
        """The names of inputs that have gradients."""
        return [name for name, value in self.inputs.items() if value.dtype.kind == "f" and name not in self.constant]


def case(
    operation,
    build,
    label="",
    gradients=True,
    shapes=True,
    runs=1,
    seed=None,
    tolerance=1e-5,
    constant=(),
    known=(),
    **inputs,
):
    """Add a case; its name is the operation's, the label, and a number where both occur before."""
    base = operation + ("/" + label if label else "")
    name, number = base, 1
    while name in CASES:
        number += 1
        name = "%s#%d" % (base, number)
    arrays = {key: np.asarray(value) for key, value in inputs.items()}
    CASES[name] = Case(
        name, operation, build, arrays, gradients, shapes, runs, seed, tolerance, tuple(constant), tuple(known)
    )


def _random(kind, shape, salt):
    return np.random.RandomState(zlib.crc32(repr((kind, shape, salt)).encode()))


def floats(*shape, low=-2.0, high=2.0, dtype="float32", salt=0):
    """Numbers in [low, high), rounded to 1/256, all different from a whole number."""
    drawn = _random("floats", shape, salt).uniform(low, high, shape)
    return (np.floor(np.asarray(drawn) * 256) / 256 + 1 / 512).astype(dtype)


def ints(*shape, low=0, below=5, dtype="int32", salt=0):
    """Whole numbers in [low, below)."""
    return np.asarray(_random("ints", shape, salt).randint(low, below, shape)).astype(dtype)


def bools(*shape, salt=0):
    """Truth values."""
    return np.asarray(_random("bools", shape, salt).randint(0, 2, shape)).astype(bool)


def spd(*shape, salt=0):
    """Symmetric positive definite matrices, well conditioned."""
    root = floats(*shape, low=-1, high=1, salt=salt)
    return (root @ np.swapaxes(root, -1, -2) + 2 * np.eye(shape[-1], dtype="float32")).astype("float32")


def cotangent(shape, dtype):
    """The `grad_ys` of a result: fixed numbers around one."""
    size = int(np.prod(shape))
    return (1 + 0.5 * np.cos(np.arange(size) * 1.7)).reshape(shape).astype(dtype)


# The shapes that inputs are declared with.
VARIANTS = {
    "full": list,
    "batch": lambda shape: [None] + list(shape[1:]) if shape else [],
    "dims": lambda shape: [None] * len(shape),
    "rank": lambda shape: None,
}
