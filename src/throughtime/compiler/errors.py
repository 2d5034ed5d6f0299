"""What can stop a cell from being compiled, and what must never happen."""

from __future__ import annotations


class Uncompilable(Exception):  # noqa: N818 - a refusal, not a mistake
    """The cell cannot be compiled; the message says why, in a form that fits after "because"."""


class VerificationError(AssertionError):
    """A pass of the compiler made a program that breaks the grammar: a defect of the compiler, not of the cell."""
