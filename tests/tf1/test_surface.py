"""The surface of `throughtime.tf1`: names, parameters and the generated page."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import throughtime.tf1 as tf
from throughtime.tf1._namespace import PUBLIC
from throughtime.tf1.ops._aliases import SECOND_NAMES
from throughtime.tf1.ops._table import TABLE

pytestmark = pytest.mark.covers("tf1")

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((Path(__file__).parent / "goldens" / "surface.json").read_text())


def parameters(function: Any) -> list[str]:
    entry = getattr(function, "entry", None)
    return list(entry.positional) if entry is not None else list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", [name for name in TABLE if RECORDED.get(name)])
def test_parameters_have_tensorflows_names_and_order(name: str) -> None:
    ours, theirs = parameters(PUBLIC[name]), [one.lstrip("*") for one in RECORDED[name]]
    variadic = {"kwargs", "args"} & set(theirs)
    assert variadic or ours[: len(theirs)] == theirs


@pytest.mark.parametrize("name", [name for name in SECOND_NAMES if name in PUBLIC])
def test_second_names_are_the_same_function(name: str) -> None:
    for other in SECOND_NAMES[name]:
        assert PUBLIC[other] is PUBLIC[name] or other in RECORDED


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "tf1_surface.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_missing_name_says_what_is_near() -> None:
    with pytest.raises(AttributeError, match=r"Did you mean tf\.reduce_sum"):
        tf.reduce_summ  # noqa: B018


def test_a_name_that_is_not_supported_says_so() -> None:
    with pytest.raises(AttributeError, match=r"TensorFlow 1\.15 has it, but it is not supported here"):
        tf.fingerprint  # noqa: B018


def test_errors_of_arguments() -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    with pytest.raises(ValueError, match="exactly one of `rate` and `keep_prob`"):
        tf.nn.dropout(x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        tf.reduce_sum(x, axes=1)
    with pytest.raises(ValueError, match="Cannot specify both 'reduction_indices' and 'axis'"):
        tf.reduce_sum(x, axis=1, reduction_indices=1)
    with pytest.raises(ValueError, match="cannot take inputs of shapes"):
        tf.matmul(x, x)
    with pytest.raises(ValueError, match="Both labels and logits"):
        tf.nn.softmax_cross_entropy_with_logits(logits=x)
    with pytest.raises(TypeError, match="must have one dtype"):
        tf.add(x, tf.constant(1))


def test_a_module_that_is_missing_has_no_near_name() -> None:
    with pytest.raises(AttributeError, match=r"'data'\. TensorFlow 1\.15 has it, but it is not supported here\.$"):
        tf.data  # noqa: B018
