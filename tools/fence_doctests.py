"""A griffe extension for the documentation: examples in docstrings become code blocks.

Docstrings hold bare `>>>` lines, as Python's own do; Markdown would take them for quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fence(docstring: str) -> str:
    """`docstring` with a fence around every run of lines that begins with a prompt."""
    return EXAMPLE.sub(lambda example: f"```pycon\n{example.group()}\n```", docstring)


class FenceDoctests(griffe.Extension):
    """Fences the examples of every object that griffe loads."""

    def on_object(self, *, obj: griffe.Object, **_context: Any) -> None:
        """Called by griffe once an object is complete."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
