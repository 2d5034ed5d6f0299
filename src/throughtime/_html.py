"""HTML for notebooks: fragments that take their colours from the page, so that they read on light and on dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_RULE = "1px solid rgba(128, 128, 128, 0.35)"
_CARD = f"border: {_RULE}; border-radius: 6px; padding: 0.6em 0.9em; max-width: 60em; overflow-x: auto"
_CELL = f"padding: 0.15em 0.9em 0.15em 0; text-align: right; border-bottom: {_RULE}; white-space: nowrap"
_PRE = "margin: 0.4em 0 0; overflow-x: auto; font-size: 85%; background: transparent; color: inherit"


def card(title: str, *parts: str) -> str:
    """A frame with a title around fragments of HTML; the title is text."""
    body = "".join(parts)
    return f'<div style="{_CARD}"><div style="font-weight: 600">{html.escape(title)}</div>{body}</div>'


def lines(rows: Iterable[tuple[str, str]]) -> str:
    """A name and a text on each line."""
    return "".join(
        f'<div><span style="opacity: 0.65">{html.escape(name)}</span> {html.escape(text)}</div>' for name, text in rows
    )


def folded(title: str, text: str) -> str:
    """Text in a fixed font, shown when its title is clicked."""
    return (
        f'<details style="margin-top: 0.4em"><summary style="cursor: pointer">{html.escape(title)}</summary>'
        f'<pre style="{_PRE}">{html.escape(text)}</pre></details>'
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], bold: int | None = None) -> str:
    """A table of text; the row of this number stands out."""
    head = "".join(f'<th style="{_CELL}; opacity: 0.65; font-weight: 400">{html.escape(name)}</th>' for name in columns)
    body = []
    for place, row in enumerate(rows):
        style = f"{_CELL}; font-weight: 600" if place == bold else _CELL
        body.append("<tr>" + "".join(f'<td style="{style}">{html.escape(cell)}</td>' for cell in row) + "</tr>")
    plain = "border-collapse: collapse; margin-top: 0.4em; background: transparent; color: inherit"
    return f'<table style="{plain}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def framed(page: str, title: str, height: int = 720) -> str:
    """A whole page in a frame of its own, whose scripts reach nothing outside of it."""
    style = f"width: 100%; height: {height}px; border: {_RULE}; border-radius: 6px"
    return (
        f'<iframe title="{html.escape(title)}" sandbox="allow-scripts" style="{style}" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )
