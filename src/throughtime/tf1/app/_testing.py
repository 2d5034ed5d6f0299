"""`tf.test`: test cases with a session, and comparisons of arrays."""

from __future__ import annotations

import contextlib
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import Graph, get_default_graph, reset_default_graph
from throughtime.tf1.session._default import get_default_session
from throughtime.tf1.session._session import Session


@exported("test.TestCase")
class TestCase(unittest.TestCase):
    """A `unittest.TestCase` with a fresh graph for each test."""

    def setUp(self) -> None:
        """Begin with an empty graph."""
        super().setUp()
        reset_default_graph()

    @contextlib.contextmanager
    def test_session(self, graph: Graph | None = None, config: Any = None, **_: Any) -> Iterator[Session]:  # noqa: PT028
        """A session that is the default one."""
        with (graph or get_default_graph()).as_default(), Session(graph=graph, config=config) as session:
            yield session

    session = cached_session = test_session

    def evaluate(self, tensors: Any) -> Any:
        """The values of tensors in the default session."""
        return get_default_session().run(tensors)

    def get_temp_dir(self) -> str:
        """A folder for files of the test."""
        return tempfile.mkdtemp()

    def _value(self, value: Any) -> Any:
        return np.asarray(value.eval() if hasattr(value, "eval") else value)

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str = "") -> None:  # noqa: N802
        """Fail unless numbers are close; nests are compared part by part."""
        if isinstance(a, dict):
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, msg)
        elif isinstance(a, list | tuple) and any(np.ndim(each) for each in a) and len(a) == len(b):
            for one, other in zip(a, b, strict=True):
                self.assertAllClose(one, other, rtol, atol, msg)
        else:
            np.testing.assert_allclose(self._value(a), self._value(b), rtol=rtol, atol=atol, err_msg=msg)

    def assertAllEqual(self, a: Any, b: Any, msg: str = "") -> None:  # noqa: N802
        """Fail unless values are equal."""
        np.testing.assert_array_equal(self._value(a), self._value(b), err_msg=msg)

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:  # noqa: N802
        """Fail unless two numbers differ by at most `err`."""
        self.assertLessEqual(abs(f1 - f2), err, msg)  # noqa: PT009

    def assertShapeEqual(self, np_array: Any, tf_tensor: Any) -> None:  # noqa: N802
        """Fail unless an array has the static shape of a tensor."""
        self.assertEqual(list(np_array.shape), tf_tensor.shape.as_list())  # noqa: PT009


@exported("test.main")
def main(argv: Any = None) -> None:
    """Run the tests of the program."""
    unittest.main(argv=argv)


@exported("test.is_gpu_available")
def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """Whether there is a GPU."""
    del cuda_only, min_cuda_compute_capability
    return torch.cuda.is_available()


@exported("test.is_built_with_cuda")
def is_built_with_cuda() -> bool:
    """Whether torch can use GPUs."""
    return torch.version.cuda is not None


@exported("test.gpu_device_name")
def gpu_device_name() -> str:
    """The name of the first GPU, or an empty text."""
    return "/device:GPU:0" if torch.cuda.is_available() else ""


@exported("test.get_temp_dir")
def get_temp_dir() -> str:
    """A folder for files of tests."""
    return tempfile.mkdtemp()
