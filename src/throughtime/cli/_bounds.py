"""Numbers on the command line, and the bounds that all of them have."""

from throughtime.cli._user_errors import refuse

LARGEST_SEED = 2**63 - 1
MOST = 1_000_000
# Each layer is a module: a million of them would take hours to make.
MOST_LAYERS = 1_000


def check_counts(counts: dict[str, int | None], most: int = MOST) -> None:
    """Each, by its flag, is at least 1 and at most `most`; None was not given."""
    for flag, value in counts.items():
        if value is not None and not 1 <= value <= most:
            wrong, expected = ("small", "1 or more") if value < 1 else ("large", f"at most {most:,}")
            refuse(f"`{flag}` is too {wrong}", got=value, expected=expected, fix="Leave it out for a good default.")


def check_seed(seed: int) -> None:
    """A seed that torch takes."""
    if not 0 <= seed <= LARGEST_SEED:
        refuse("`--seed` is out of range", got=seed, expected="0 or more, and below 2**63", fix="Try 0.")
