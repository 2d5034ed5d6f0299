"""Every recorded case of TensorFlow 1.15, replayed on `throughtime.tf1`: values, gradients, static shapes, names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases import case as case_module
from cases import families, golden, harness

import throughtime.tf1 as tf
from throughtime.tf1.ops._aliases import SECOND_NAMES
from throughtime.tf1.ops._table import TABLE

pytestmark = pytest.mark.covers("tf1")

GOLDENS = Path(__file__).parent / "goldens"


def load_cases() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every case with what TensorFlow answered, by family and name."""
    found = {}
    for family in families.FAMILIES:
        case_module.CASES.clear()
        sys.modules.pop(f"cases.{family}", None)
        importlib.import_module(f"cases.{family}")
        recorded = golden.load(GOLDENS / family)
        found.update({f"{family}:{name}": (case, recorded[name]) for name, case in case_module.CASES.items()})
    return found


CASES = load_cases()
every_case = pytest.mark.parametrize("name", CASES)


def compare(found: Any, expected: Any, tolerance: float, what: str) -> None:
    """Strings and whole numbers are equal, floats are within a tolerance of the largest number."""
    found = np.asarray(found)
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, TensorFlow has {expected.shape}"
    if expected.dtype.kind in "SUO":
        assert found.tolist() == expected.tolist(), what
        return
    assert found.dtype == expected.dtype, f"{what}: dtype {found.dtype}, TensorFlow has {expected.dtype}"
    if expected.dtype.kind not in "fc" or tolerance == 0:
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    floor = {"float16": 1e-3, "complex64": 1e-5}.get(expected.dtype.name, tolerance)
    np.testing.assert_allclose(found, expected, rtol=floor, atol=floor * max(scale, 1e-3), err_msg=what)


@every_case
def test_values_and_gradients(name: str) -> None:
    case, expected = CASES[name]
    found = harness.run(tf, case)
    assert found["dtypes"] == expected["dtypes"]
    for run, (values, answers) in enumerate(zip(found["values"], expected["values"], strict=True)):
        for place, (value, answer) in enumerate(zip(values, answers, strict=True)):
            compare(value, answer, case.tolerance, f"result {place} of run {run}")
    assert len(found["gradients"]) == len(expected["gradients"])
    for place, (value, answer) in enumerate(zip(found["gradients"], expected["gradients"], strict=True)):
        assert (value is None) == (answer is None), f"gradient {place}: {value} where TensorFlow has {answer}"
        if answer is not None:
            compare(value, answer, max(case.tolerance, 1e-5), f"gradient {place}")


# Static shapes of which TensorFlow knows more, by operation or by case.
LESS_KNOWN = {
    "pad/dynamic",  # an axis whose padding is zero in a tensor of paddings
    "linalg.lu",  # that a matrix of unknown size is square
    "substr/each",  # that strings of an unknown number are as many as their positions
    "sparse_reshape", "sparse_transpose", "sparse_retain", "sparse_to_indicator", "edit_distance",
}  # fmt: skip
# Results that TensorFlow composes of several operations, with names that say nothing about the call; or that are an
# argument itself where this package makes a node.
OTHER_NAMES = {
    "add_n/one", "real/of_float", "conj/of_float", "math.conj", "to_float", "clip_by_global_norm", "searchsorted",
    "pad/reflect", "pad/symmetric", "pad/lower", "gather_nd/batch_dims", "batch_gather", "linalg.tridiagonal_solve",
    "sparse_segment_sum/num_segments", "sparse_segment_mean/num_segments", "sparse_segment_sqrt_n/num_segments",
    "nn.swish", "nn.softmax/old", "nn.log_softmax/old", "math.softmax/old", "math.log_softmax/old",
    "nn.sampled_softmax_loss", "nn.nce_loss", "losses.mean_pairwise_squared_error", "losses.mean_squared_error/none",
    "losses.mean_squared_error/weighted_sum", "nn.pool", "random_gamma", "orthogonal_initializer",
    "initializers.orthogonal", "initializers.identity", "batch_scatter_update", "Variable/read_value",
    "control_dependencies", "image.image_gradients", "image.sobel_edges", "image.random_flip_left_right",
    "image.random_flip_up_down", "signal.idct", "verify_tensor_all_finite", "debugging.assert_all_finite",
    "sparse_reorder", "sparse_reshape", "sparse_retain", "sparse_softmax",
}  # fmt: skip


def listed(case: Any, names: set[str]) -> bool:
    return case.operation in names or case.name in names


def check_shape(found: Any, expected: Any, actual: tuple[int, ...], exact: bool) -> None:
    """A static shape holds for the recorded value and, with `exact`, knows each size that TensorFlow knows."""
    if found is not None:
        assert len(found) == len(actual), f"{found} for a value of shape {actual}"
        assert all(size in {None, real} for size, real in zip(found, actual, strict=True)), f"{found} for {actual}"
    if exact and expected is not None:
        assert found is not None, f"unknown, TensorFlow knows {expected}"
        known = zip(found, expected, strict=True)
        assert all(theirs is None or ours is not None for ours, theirs in known), (
            f"{found}, TensorFlow knows {expected}"
        )


@every_case
def test_static_shapes(name: str) -> None:
    case, expected = CASES[name]
    actual = [value.shape for value in expected["values"][0]]
    for variant, shapes in {"full": expected["shapes"], **expected.get("variants", {})}.items():
        found = harness.static_shapes(tf, case, variant)
        if isinstance(shapes, str):
            continue  # TensorFlow raises; knowing more is no fault
        assert not isinstance(found, str), f"{variant}: {found} where TensorFlow has {shapes}"
        exact = variant != "rank" and not listed(case, LESS_KNOWN)
        for ours, theirs, real in zip(found, shapes, actual, strict=bool(found)):
            check_shape(ours, theirs, real, exact)


@every_case
def test_names(name: str) -> None:
    case, expected = CASES[name]
    with tf.Graph().as_default():
        if case.seed is not None:
            tf.set_random_seed(case.seed)
        _, results = harness.build(tf, case)
    if listed(case, OTHER_NAMES):
        return
    for tensor, theirs in zip(results, expected["names"], strict=True):
        inside = f"{getattr(tensor, 'op', tensor).name}/"
        assert tensor.name == theirs or theirs.startswith(inside)


def test_seeds_count_operations_as_tensorflow_does() -> None:
    """An operation without a seed takes the number of operations before it: for most functions it is TensorFlow's."""
    matching = 0
    for case, expected in CASES.values():
        with tf.Graph().as_default() as graph:
            if case.seed is not None:
                tf.set_random_seed(case.seed)
            harness.build(tf, case)
            matching += graph._last_id == expected["last_id"]
    assert matching >= 1600
    assert len(CASES) >= 1800


def test_every_operation_has_a_recorded_case() -> None:
    called = {case.operation for case, _ in CASES.values()}
    assert {name for name, entry in TABLE.items() if not names_of(name, entry) & called} == set()


def names_of(name: str, entry: Any) -> set[str]:
    """Every public name under which an entry of the table is called, by itself or by the function around it."""
    return {name, *entry.names, *SECOND_NAMES.get(name, ())}
