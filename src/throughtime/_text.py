"""Numbers as they are said."""


def plural(count: int, noun: str) -> str:
    """`1 step`, `1,000 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
