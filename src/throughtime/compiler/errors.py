"""Errors of the compiler."""

from __future__ import annotations


class Uncompilable(Exception):  # noqa: N818 - a refusal, not a mistake
    """The cell cannot be compiled; the message says why, in a form that fits after "because"."""


class VerificationError(AssertionError):
    """A pass made an invalid program: an internal error of the compiler, not of the cell."""
