"""What the user said about columns: plain values, without a library behind them."""

from typing import NamedTuple


class Columns(NamedTuple):
    """The flags about columns; None or empty: guess."""

    task: str | None = None
    sequence: str | None = None
    target: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    split: str | None = None
    order: str | None = None
    categories: tuple[str, ...] = ()


def split_names(text: str) -> tuple[str, ...]:
    """`a,b` as names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
