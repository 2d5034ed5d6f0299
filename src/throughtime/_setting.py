"""A value of the whole process that a `with` statement can replace.

A module reads its thresholds, or a function of the system that it depends on, through a `Setting`. Tests and benchmarks
replace them for a while, without changing the attributes of modules. Several thresholds are a frozen dataclass.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Setting(Generic[T]):
    """The `value` that the whole process uses."""

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
        """Use a dataclass with other fields inside the `with` statement."""
        return self.use(dataclasses.replace(self.value, **fields))  # type: ignore[type-var]
