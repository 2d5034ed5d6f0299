"""How a gradient changed from the last step to the first, in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from throughtime.train.report._downsample import as_array, lost

# A gradient that falls or grows by more than this from end to end of a sequence deserves its name.
FAR = 1e3
NOTHING = 1e-30
# By more than this it has changed so much that it should be said.
MUCH = 30.0
# By less than this it has not changed to speak of.
NEARLY_ONE = 1.05
# Beyond this, digits of a number are not readable.
COUNTABLE = 1e12


def gradient_verdict(norms: Any, *, backwards: bool = False, every_step: bool = False) -> str:
    """What became of the gradient between the step it starts from and the step it ends at, in one sentence.

    A loss that looks at every step starts everywhere: of that it is said where most and where least arrives.

    >>> from throughtime.train.report._gradient_summary import gradient_verdict
    >>> gradient_verdict([1e-9, 1e-5, 0.1])
    'It vanishes: 100,000,000 times smaller at the first step than at the last. What is far away is hardly learned.'
    >>> gradient_verdict([0.2, 0.3, 0.1], every_step=True)
    'The loss looks at every step: the gradient is largest at step 2 and smallest at step 3, 3.0 times smaller.'
    """
    steps = as_array("norms", norms)
    broken = lost(steps)
    if broken:
        return f"It is lost: at {broken:,} of {len(steps):,} steps it is not a finite number. Something overflows."
    if not steps.any():
        return "Nothing flows back: the loss does not depend on the states."
    if len(steps) == 1:
        return "There is one step, and it arrives there: nothing has to flow back."
    return _spread(steps) if every_step else _way_back(steps, backwards=backwards)


def _way_back(steps: np.ndarray[Any, Any], *, backwards: bool) -> str:
    """How much of it is left where the reading began, against the last step that the loss looks at."""
    way = np.trim_zeros(steps if backwards else steps[::-1], "f")
    first, last = ("last", "the first") if backwards else ("first", "the last")
    silent = ""
    if len(way) < len(steps):
        # The loss does not look at the end.
        number, beyond = (len(steps) - len(way) + 1, "before") if backwards else (len(way), "after")
        if len(way) == 1:
            return f"Nothing flows back: the loss looks at nothing {beyond} step {number:,}."
        last, silent = f"step {number:,}", f" From what is {beyond} step {number:,} nothing flows back."
    start, end = float(way[0]), float(way[-1])
    if end * FAR < start:
        return f"It vanishes: {_left(start, end, first, last)}. What is far away is hardly learned.{silent}"
    if end > start * FAR:
        said = f"{_times(end / start)} larger at the {first} step than at {last}"
        return f"It explodes: {said}. Clip the gradient.{silent}"
    factor = end / start
    if max(factor, 1 / factor) < NEARLY_ONE:
        return f"It arrives: about as large at the {first} step as at {last}.{silent}"
    times, how, much = (factor, "larger", "grows") if factor >= 1 else (1 / factor, "smaller", "fades")
    said = f"It {much}: {times:,.0f}" if times > MUCH else f"It arrives: {times:,.1f}"
    return f"{said} times {how} at the {first} step than at {last}.{silent}"


def _left(start: float, end: float, first: str, last: str) -> str:
    if end == 0 or end < start * NOTHING:
        return f"nothing is left of it at the {first} step"
    return f"{_times(start / end)} smaller at the {first} step than at {last}"


def _spread(steps: np.ndarray[Any, Any]) -> str:
    """Where a gradient that starts at every step is largest and where smallest."""
    least, most = int(steps.argmin()), int(steps.argmax())
    low, high = float(steps[least]), float(steps[most])
    every = "The loss looks at every step: the gradient is"
    if high < low * NEARLY_ONE:
        return f"{every} about as large at all of them."
    large, there = f"{every} largest at step {most + 1:,}", f"at step {least + 1:,}"
    if low < high * NOTHING:
        return f"{large}, and nothing is left of it {there}. What is read there is not learned."
    if low * FAR < high:
        return f"{large} and smallest {there}, {_times(high / low)} smaller. What is read there is hardly learned."
    return f"{large} and smallest {there}, {high / low:,.1f} times smaller."


def _times(factor: float) -> str:
    """A large factor in words: as a number as long as it is readable."""
    return f"{factor:,.0f} times" if factor < COUNTABLE else f"more than {COUNTABLE:,.0f} times"
