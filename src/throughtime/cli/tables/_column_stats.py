"""One look over a table, whatever its size: what each column holds, and how long the sequences are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._group_rows import names_in
from throughtime.cli.tables._table import LARGEST, RowChunk, Table, Values, is_number, number_of, text_of
from throughtime.cli.tables._timestamps import Clock

# Beyond this number of different values a column is no longer counted value by value.
COUNTED = 20_000
# A column with so few cells that are no numbers is one of numbers, and those are mistakes.
STRAY = 0.05
# In this number of rows a category occurs again.
MANY = 200
# In a small table a single one is more than that, and a mistake all the same from this number of cells on.
_FEW = 4
# Between spaces: digits and marks, but no letter, as in `6,` and `12:30`.
_FIGURES = re.compile(r"(?<!\S)(?=\S*\d)(?:[\d_]|[^\w\s])+(?!\S)")
# Numbers as people write them: 1,5 and 1,234.5 and 1.234,5 and 1'234, $5 and 5 %.
_WRITTEN = re.compile(
    r"[$€£¥]? ?[+-]?(\d*,\d+|\d+(\.\d+)?|\d{1,3}(,\d{3})+(\.\d*)?|\d{1,3}([.'\u2019\u00a0\u202f]\d{3})+([.,]\d*)?)"
    r"(e[+-]?\d+)?[ \u00a0\u202f]?[%$€£¥]?",
    re.IGNORECASE,
)


@dataclass
class Facts:
    """What is known of a column after reading it once."""

    name: str
    rows: int = 0
    missing: int = 0
    words: int = 0
    # Words that are numbers, but not as they are read here.
    written: int = 0
    first_word: tuple[int, str] | None = None
    first_wild: tuple[int, str] | None = None
    whole: bool = True
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    squares: float = 0.0
    counts: dict[str, int] | None = field(default_factory=dict)
    longest: int = 0
    characters: int = 0
    spaced: int = 0
    tokens: int = 0
    figures: int = 0
    steady: bool = True
    # Dates that go forward within every sequence, and dates that do not.
    tells_time: bool = False
    goes_back: bool = False
    # Numbers that change by the same amount from row to row, and those that start again from the first one.
    counts_up: bool = True
    starts_again: bool = False
    stride: float | None = None
    ends: tuple[float, float] | None = None

    @property
    def is_number(self) -> bool:
        """Whether every cell that holds something holds a number."""
        return self.words == 0 and self.rows > self.missing

    @property
    def is_empty(self) -> bool:
        """Whether no cell holds anything."""
        return self.rows == self.missing

    @property
    def blank(self) -> int:
        """How many cells hold nothing at all; 0 where there were too many different values to count."""
        return 0 if self.counts is None else self.rows - sum(self.counts.values())

    @property
    def distinct(self) -> int | None:
        """How many different values there are; None: too many to count."""
        return None if self.counts is None else len(self.counts)

    @property
    def is_unique(self) -> bool:
        """Whether it is text that differs in nearly every row: a name, a remark, a moment, but no category."""
        cells = self.rows - self.missing
        many = not self.is_number and cells >= MANY and self.distinct is not None
        return many and len(self.counts or {}) >= (1 - STRAY) * cells

    @property
    def mean(self) -> float:
        """The mean of the numbers."""
        return self.total / max(1, self.rows - self.missing - self.words)

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        count = max(1, self.rows - self.missing - self.words)
        return math.sqrt(max(0.0, self.squares / count - self.mean**2))

    def take(self, values: Values, lines: Values) -> None:
        """Account for some more rows."""
        self.rows += len(values)
        if values.dtype == object:
            # Texts come again and again: what is asked of one is asked once.
            times = Counter(values.tolist())
            self._take_texts(values, lines, times)
            self._count(times)
        else:
            # A file may hold signalling NaNs, of which numpy would warn.
            with np.errstate(invalid="ignore"):
                numbers = values.astype(np.float64)
            self._take_numbers(numbers, lines)
            distinct, counts = np.unique(values, return_counts=True)
            # Numbers that differ little have one name.
            times = Counter()
            for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
                times[text_of(value)] += count
            self._count(times)

    def _take_texts(self, values: Values, lines: Values, times: Counter[str]) -> None:
        try:
            self._take_numbers(np.array([float(text) if text else math.nan for text in values]), lines)
        except ValueError:
            numbers = {text for text in times if is_number(text)}
            good = np.fromiter(map(numbers.__contains__, values), bool, len(values))
            words = {text: count for text, count in times.items() if text not in numbers}
            self.words += sum(words.values())
            self.written += sum(count for text, count in words.items() if _WRITTEN.fullmatch(text.strip()))
            if self.first_word is None and words:
                place = int(np.argmin(good))
                self.first_word = int(lines[place]), values[place]
            self._take_numbers(np.array([number_of(text) for text in values[good]]), lines[good])
        self.longest = max(self.longest, *map(len, times))
        self.characters += sum(count * len(text) for text, count in times.items())
        for text, count in times.items():
            if " " in text.strip():
                self.spaced += count
                self.tokens += count * len(text.split())
                self.figures += count * len(_FIGURES.findall(text))

    def _follow_count(self, numbers: Values) -> None:
        """See whether numbers go on as a counter of rows would."""
        if not self.counts_up or not len(numbers):
            return
        first, last = self.ends or (float(numbers[0]), None)
        values = numbers if last is None else np.concatenate([[last], numbers])
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.diff(values)
        if self.stride is None and len(steps):
            self.stride = float(steps[0])
        goes_on, again = steps == self.stride, values[1:] == first
        self.counts_up = self.stride != 0 and bool((goes_on | again).all())
        self.starts_again = self.starts_again or bool((again & ~goes_on).any())
        self.ends = first, float(numbers[-1])

    def _take_numbers(self, numbers: Values, lines: Values) -> None:
        self._follow_count(numbers)
        wild = np.abs(numbers) > LARGEST
        if self.first_wild is None and wild.any():
            self.first_wild = int(lines[wild][0]), f"{numbers[wild][0]:g}"
        known = numbers[~np.isnan(numbers)]
        self.missing += len(numbers) - len(known)
        known = known[np.abs(known) <= LARGEST]
        if len(known):
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))
            self.total += float(known.sum())
            self.squares += float(np.square(known).sum())
            self.whole = self.whole and bool((known == np.round(known)).all())

    def _count(self, times: Mapping[str, int]) -> None:
        if self.counts is None:
            return
        for text, count in times.items():
            self.counts[text] = self.counts.get(text, 0) + count
        self.counts.pop("", None)
        if len(self.counts) > COUNTED:
            self.counts = None


@dataclass
class Survey:
    """A table after one look: facts by column and, where sequences have names, how long each is."""

    table: Table
    facts: dict[str, Facts]
    sequence: str | None
    lengths: list[int]
    together: bool
    rows: int
    # What the user should know of the guesses, a line each.
    notes: list[str] = field(default_factory=list)


def survey(table: Table, sequence: str | None = None, names: frozenset[str] = frozenset()) -> Survey:
    """Read the table once, in pieces. `names` are columns of which it does not matter whether they hold numbers."""
    facts = {name: Facts(name) for name in table.columns}
    clocks = {name: Clock() for name in table.columns if name not in names}
    found = Survey(table, facts, sequence, [], together=True, rows=0)
    seen: dict[str, int] = {}
    before: RowChunk | None = None
    for piece in table.pieces():
        found.rows += len(piece)
        for name, fact in facts.items():
            fact.take(piece.columns[name], piece.lines)
        named = names_in(table, piece, sequence)
        starts = np.flatnonzero(np.concatenate([[True], named[1:] != named[:-1]]))
        if sequence is not None:
            _follow(found, seen, before, piece, sequence, named, starts)
        for name, clock in clocks.items():
            clock.take(piece.columns[name], named, starts)
        clocks = {name: clock for name, clock in clocks.items() if clock.dates}
        before = piece
    if found.rows == 0:
        fix = "Check that it is the right file."
        refuse(f"{table.path} is empty", got="no rows", expected="at least one sequence", fix=fix)
    for name, clock in clocks.items():
        facts[name].tells_time, facts[name].goes_back = clock.runs, clock.back
    found.lengths = list(seen.values()) if sequence is not None else [found.rows]
    _check_numbers(table, [fact for name, fact in facts.items() if name not in names])
    return found


def _follow(
    found: Survey,
    seen: dict[str, int],
    before: RowChunk | None,
    piece: RowChunk,
    sequence: str,
    names: Values,
    starts: Values,
) -> None:
    """Keep the length of each sequence, and which columns never change within one."""
    same = np.ones(len(names), bool)
    same[starts] = False
    goes_on = before is not None and before.texts(sequence)[-1] == names[0]
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        name = names[start]
        if name in seen and not (start == 0 and goes_on):
            found.together = False
        seen[name] = seen.get(name, 0) + int(end - start)
    for column, fact in found.facts.items():
        if fact.steady:
            values = piece.columns[column]
            changed = bool((same[1:] & (values[1:] != values[:-1])).any())
            across = before is not None and goes_on and before.columns[column][-1] != values[0]
            fact.steady = not (changed or across)


def _check_numbers(table: Table, facts: list[Facts]) -> None:
    """A few words in a column of numbers are mistakes, not categories; and numbers are such that one can count with."""
    for fact in facts:
        if fact.words and fact.written >= (1 - STRAY) * fact.words:
            line, text = fact.first_word or (0, "")
            mark = "a comma in a number" if "," in text else "marks in its numbers"
            refuse(
                f"{table.place(line)}, column `{fact.name}` has {mark}",
                got=repr(text),
                expected="a point, as in 1.5, nothing between thousands, and no sign of a unit",
                fix=f"Save the file with such numbers, or say `--categories {fact.name}`.",
            )
        cells = fact.rows - fact.missing
        if 0 < fact.words <= STRAY * cells or (fact.words == 1 and cells >= _FEW):
            line, text = fact.first_word or (0, "")
            refuse(
                f"{table.place(line)}, column `{fact.name}` is not a number",
                got=repr(text),
                expected="a number, as in the other rows",
                fix=f"Correct the cell, or say `--categories {fact.name}`.",
            )
        if fact.is_number and fact.first_wild is not None:
            line, text = fact.first_wild
            refuse(
                f"{table.place(line)}, column `{fact.name}` is too large a number",
                got=text,
                expected=f"at most {LARGEST:g}",
                fix=f"Leave the cell empty if it is not known, or say `--ignore {fact.name}`.",
            )
