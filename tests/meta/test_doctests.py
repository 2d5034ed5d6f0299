"""Every example in a docstring of the package runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import throughtime as tt

pytestmark = pytest.mark.covers("docs")

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples() -> Iterator[doctest.DocTest]:
    """One `DocTest` for each docstring of the package that has an example."""
    names = [module.name for module in pkgutil.walk_packages(tt.__path__, "throughtime.")]
    for name in ["throughtime", *sorted(names)]:
        if not name.endswith("__main__"):
            found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
            yield from (test for test in found if test.examples)


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_docstring(example: doctest.DocTest) -> None:
    report: list[str] = []
    # Each example brings its own imports, as a reader would have to.
    example.globs = {"__name__": "__main__"}
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append)
    assert not report, "".join(report)
