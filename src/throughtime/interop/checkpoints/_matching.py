"""Which variable of a checkpoint is which of ours: names of all times, and what belongs to optimisers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from throughtime.cells._base import snake_case
from throughtime.interop.checkpoints._checkpoint import TFCheckpoint
from throughtime.interop.checkpoints._object_graph import GRAPH, full_names

# What the last parts of names were called: before TensorFlow 1.2, and before 1.0.
_ENDINGS = (
    (r"/Linear/Matrix$", "/kernel"),
    (r"/Linear/Bias$", "/bias"),
    (r"/weights$", "/kernel"),
    (r"/biases$", "/bias"),
    (r"/W_0$", "/kernel"),
    (r"/B$", "/bias"),
    (r"/W_P_0$", "/projection/kernel"),
)
_COUNTERS = re.compile(r"(.*/)?(beta[12]_power(_\d+)?|global_step|save_counter)")


@dataclass(frozen=True)
class Match:
    """Names here to names there; those that are nowhere; those that nothing here takes, by why."""

    found: dict[str, str]
    missing: list[str]
    unexpected: list[str]
    optimizer: list[str]
    unused: list[str]


def match(names: Iterable[str], scopes: Collection[str], checkpoint: TFCheckpoint) -> Match:
    """Find the variable of each name; of the rest, those within `scopes` should have been ours."""
    keys = names_in(checkpoint)
    spelled = _by_modern_name(keys)
    found, missing = {}, []
    for name in names:
        other = name if name in keys else spelled.get(modern(name))
        if other is None:
            missing.append(name)
        else:
            found[name] = keys[other]
    taken = set(found.values())
    left = [name for name, key in keys.items() if key not in taken]
    optimizer = [name for name in left if is_bookkeeping(name, keys)]
    others = [name for name in left if name not in set(optimizer)]
    inside = [modern(f"{scope}/") for scope in scopes]
    unexpected = [name for name in others if any(modern(name).startswith(scope) for scope in inside)]
    unused = [name for name in others if name not in set(unexpected)]
    return Match(found, missing, unexpected, optimizer, unused)


def names_in(checkpoint: TFCheckpoint) -> dict[str, str]:
    """The checkpoint's keys by the names of variables; in a checkpoint of objects the two are not the same."""
    names = {key: name for name, key in full_names(checkpoint).items()}
    return {names.get(key, key): key for key in checkpoint if key != GRAPH}


def modern(name: str) -> str:
    """A name as TensorFlow 1.2 and later would have it; nothing is told apart by capitals."""
    for ending, now in _ENDINGS:
        name = re.sub(ending, now, name)
    parts = [re.sub(r"^cell(\d+)$", r"cell_\1", snake_case(part)) for part in name.split("/")]
    return "/".join("bidirectional_rnn" if part == "bi_rnn" else part for part in parts)


def _by_modern_name(names: Iterable[str]) -> dict[str, str]:
    """Names by what they would be now; where two would be the same, neither can be meant."""
    named = {name: modern(name) for name in names}
    counts = Counter(named.values())
    return {now: name for name, now in named.items() if counts[now] == 1}


def is_bookkeeping(name: str, names: Collection[str]) -> bool:
    """Whether a variable is an optimiser's: a counter, or lies below another variable, as `kernel/Adam` does."""
    if _COUNTERS.fullmatch(name) or ".OPTIMIZER_SLOT" in name:
        return True
    below = name.rpartition("/")[0]
    # An optimiser may have a scope of its own in front.
    while below:
        if below in names:
            return True
        below = below.partition("/")[2]
    return False


def other_scopes(names: Collection[str], scope: str, checkpoint: TFCheckpoint) -> list[str]:
    """The scopes in which a checkpoint has all of these names, if it has them elsewhere."""
    ends = [name.removeprefix(f"{scope}/") for name in names]
    known = {modern(name): name for name in names_in(checkpoint)}
    first = modern(ends[0])
    starts = [name.removesuffix(first) for name in known if name.endswith(f"/{first}") or name == first]
    found = [start for start in starts if all(f"{start}{modern(end)}" in known for end in ends)]
    # As they are spelled there.
    return ["/".join(known[f"{start}{first}"].split("/")[: start.count("/")]) for start in found]
