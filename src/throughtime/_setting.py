"""Thresholds of a part of the engine as one value that a `with` statement can replace.

A module keeps its thresholds in a frozen dataclass and reads them through a `Setting`. Tests and benchmarks replace
them for a while, without changing the attributes of modules.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Setting(Generic[T]):
    """The `value` that the whole process uses; a dataclass."""

    def __init__(self, value: T) -> None:
        self.value = value

    @contextlib.contextmanager
    def use(self, value: T) -> Iterator[T]:
        """Use another value inside the `with` statement, in all threads."""
        before, self.value = self.value, value
        try:
            yield value
        finally:
            self.value = before

    def change(self, **fields: Any) -> contextlib.AbstractContextManager[T]:
        """Use the same value with other fields inside the `with` statement."""
        return self.use(dataclasses.replace(self.value, **fields))  # type: ignore[type-var]
