"""What the user said: plain values, without a library behind them."""

from typing import NamedTuple

import typer


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
    tokens: tuple[str, ...] = ()


def given_options(context: typer.Context) -> list[str]:
    """The names of the options that were given, as opposed to those left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    # By its name: the class is click's, or typer's copy of it.
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def split_names(text: str) -> tuple[str, ...]:
    """`a,b` as names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
