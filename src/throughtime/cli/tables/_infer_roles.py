"""Which column is what: by what the user said, then by names, then by what the columns hold. Every guess says why."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import numpy as np

from throughtime._text import plural
from throughtime.cli._options import Columns as Said
from throughtime.cli._user_errors import listed, refuse
from throughtime.cli.tables._calendar import is_calendar
from throughtime.cli.tables._column_stats import Facts, Survey
from throughtime.cli.tables._schema import CATEGORY, CHARACTERS, NUMBER, TEXT, WORDS, Column, Layout
from throughtime.cli.tables._table import Table
from throughtime.cli.tables._timestamps import instants

CLASSIFY, TAG, FORECAST, GENERATE, TRANSLATE = TASKS = ("classify", "tag", "forecast", "generate", "translate")

SEQUENCE_NAMES = (
    "sequence sequence_id seq seq_id id series series_id unique_id utterance utterance_id sample sample_id session "
    "session_id sentence sentence_id document document_id user user_id patient patient_id group case trajectory episode"
).split()
ORDER_NAMES = "step time t timestamp date datetime ds position frame".split()
SPLIT_NAMES = "split is_test subset fold test".split()
TARGET_NAMES = "label class target tag y category speaker outcome".split()
# Those of them that are names of a quantity as well.
QUANTITY_NAMES = ["y", "target", "outcome"]
TEXT_NAMES = "text sentence document verse content message name".split()
PAIR_NAMES = (
    ("source", "target"),
    ("src", "tgt"),
    ("input", "output"),
    ("word", "phonemes"),
    ("question", "answer"),
    ("x", "y"),
)
LEFT_OUT = "left out: empty"
UNREADABLE = "neither numbers nor dates such as 2024-05-01"
NOTHING = "everywhere, which tells nothing"
# More different whole numbers than this are a quantity, not names of classes.
MOST_CLASSES = 256


class Guess(NamedTuple):
    """A layout, and for each column the reason of its role."""

    layout: Layout
    reasons: dict[str, str]


def check_said(table: Table, said: Said) -> None:
    """Every column that was named is there, and the task is one of ours."""
    if said.task is not None and said.task not in TASKS:
        refuse("`--task` is unknown", got=repr(said.task), expected=" or ".join(TASKS), fix="Leave it out to guess.")
    for kind in said.tokens:
        if kind not in (WORDS, CHARACTERS):
            fix = "Leave it out to guess."
            refuse("`--tokens` is unknown", got=repr(kind), expected=f"{WORDS} or {CHARACTERS}", fix=fix)
    flags = {"sequence": [said.sequence], "split": [said.split], "order": [said.order]}
    flags |= {flag: list(getattr(said, flag)) for flag in ("target", "inputs", "ignore", "categories")}
    for flag, names in flags.items():
        for name in names:
            if name is not None and name not in table.columns:
                refuse(
                    f"`--{flag}` names no column of {table.path.absolute().name}",
                    got=repr(name),
                    expected=listed(table.columns),
                    fix="Check the spelling.",
                )
    for name in said.ignore:
        others = [flag for flag, names in flags.items() if flag != "ignore" and name in names]
        if others:
            got, fix = f"`--{others[0]} {name}` too", "Say one of them."
            refuse(f"`--ignore` leaves {name} out", got=got, expected="one role for a column", fix=fix)


def sequence_column(table: Table, said: Said) -> str | None:
    """The column that names the sequences."""
    return said.sequence or table.sequence or _named(table.columns, SEQUENCE_NAMES, said)


def guess(found: Survey, said: Said) -> Guess:
    """The roles of all columns."""
    columns = found.table.columns
    reasons = dict.fromkeys(said.ignore, "ignored, as you said")
    split = said.split or _named(columns, SPLIT_NAMES, said)
    order = said.order or _named(columns, ORDER_NAMES, said)
    if order is not None and order in (*said.inputs, *said.target):
        order = None
    taken = {found.sequence, split, order, *said.ignore} - {None}
    for column, why in ((found.sequence, "names the sequence"), (split, "train or test"), (order, "order of steps")):
        if column is not None:
            reasons[column] = why
    if order is not None and _cannot_be_checked(found.facts[order]):
        reasons[order] += f", which is not checked: {UNREADABLE}"
    free = _not_empty([found.facts[name] for name in columns if name not in taken], found, said, reasons)
    texts = _texts_in_rows(found, said, free)
    if texts is not None:
        others = {name: why for name, why in reasons.items() if name != found.sequence}
        if found.table.sequence is not None:
            others[found.table.sequence] = "names the file, which is one text"
        return _text_guess(found, said, texts, split, others)
    if said.task in (GENERATE, TRANSLATE):
        refuse(
            f"{found.table.path} has no text to {said.task}",
            got=f"columns {listed(columns)}",
            expected="one row a text" if said.task == GENERATE else "two columns of text, one row a pair",
            fix="Name them with `--inputs` and `--target`, or choose another task.",
        )
    if order is None:
        order = next((fact.name for fact in free if fact.tells_time and not _is_asked_for(fact, said)), None)
        free = [fact for fact in free if fact.name != order]
        reasons |= {} if order is None else {order: "order of steps: dates that go forward"}
    return _long_guess(found, said, _not_unique(free, said, reasons), order, split, reasons)


def _cannot_be_checked(fact: Facts) -> bool:
    """Whether a column tells the time in a way of which it cannot be said what comes first."""
    return fact.first_word is not None and instants(np.array([fact.first_word[1]], object)) is None


def _not_empty(free: list[Facts], found: Survey, said: Said, reasons: dict[str, str]) -> list[Facts]:
    """The columns that hold something; one that does not is left out, unless it was asked for."""
    for fact in free:
        if fact.is_empty and fact.name in (*said.inputs, *said.target):
            _refuse_empty(found, fact)
    reasons |= {fact.name: LEFT_OUT for fact in free if fact.is_empty}
    return [fact for fact in free if not fact.is_empty]


def _not_unique(free: list[Facts], said: Said, reasons: dict[str, str]) -> list[Facts]:
    """The columns from which something can be learned; what differs in every row says nothing of the next one."""
    useless = {
        fact.name: "left out: dates that go back" if fact.goes_back else "left out: different in nearly every row"
        for fact in free
        if (fact.is_unique or fact.goes_back) and not _is_asked_for(fact, said)
    }
    reasons |= useless
    return [fact for fact in free if fact.name not in useless]


def _is_asked_for(fact: Facts, said: Said) -> bool:
    return fact.name in (*said.inputs, *said.target, *said.categories)


def _texts_in_rows(found: Survey, said: Said, free: list[Facts]) -> tuple[str, str | None] | None:
    """Source and target columns, if each row is a sequence of its own: without a name, or with one met only once."""
    if found.sequence is None or said.task == TRANSLATE:
        return _texts(free, said)
    if said.sequence is not None or max(found.lengths) > 1:
        return None
    if found.table.sequence is not None:
        # A folder of texts; the names of its files are none.
        return _texts(free, said)
    # A column called `sentence` may hold the sentences themselves.
    return _texts(free, said) or _texts([found.facts[found.sequence], *free], said)


def _named(columns: list[str], names: list[str], said: Said) -> str | None:
    """The first column with one of the names, unless it was given another role."""
    claimed = {*said.target, *said.inputs, *said.ignore}
    lower = {column.lower(): column for column in columns if column not in claimed}
    return next((lower[name] for name in names if name in lower), None)


def _texts(free: list[Facts], said: Said) -> tuple[str, str | None] | None:
    """Source and target columns of a table whose every row is a text, or None if it is not one."""
    texts = [fact.name for fact in free if not fact.is_number and fact.longest > 1 and fact.name not in said.categories]
    if said.inputs and said.target and said.task == TRANSLATE:
        return said.inputs[0], said.target[0]
    lower = {name.lower(): name for name in texts}
    for source, target in PAIR_NAMES:
        if source in lower and target in lower and said.task in (None, TRANSLATE):
            return lower[source], lower[target]
    # What is called a label is not a text to write.
    texts = [name for name in texts if name.lower() not in TARGET_NAMES]
    if len(texts) == 2 and len(free) == 2 and said.task in (None, TRANSLATE) and not said.target:
        return texts[0], texts[1]
    chosen = next((lower[name] for name in TEXT_NAMES if name in lower), None) or (texts[0] if texts else None)
    only = len(free) == 1 or said.task in (CLASSIFY, GENERATE) or (chosen and chosen.lower() in TEXT_NAMES)
    return (chosen, None) if chosen and only and said.task in (None, CLASSIFY, GENERATE) else None


def _text_guess(
    found: Survey, said: Said, texts: tuple[str, str | None], split: str | None, reasons: dict[str, str]
) -> Guess:
    """One row a sequence: texts in, and a text, a class or nothing out."""
    source, target = texts
    inputs = (_text_column(found.facts[source], said),)
    if target is not None:
        wanted = _text_column(found.facts[target], said, 1)
        _check_tokens(said, TRANSLATE)
        reasons |= {source: f"source: {inputs[0].tokens}", target: f"target: {wanted.tokens}"}
        return Guess(Layout(TRANSLATE, inputs, (wanted,), split=split), reasons)
    label = next(iter(said.target), None) or _named(found.table.columns, TARGET_NAMES, said)
    if said.task == CLASSIFY and label is None:
        _refuse_target(found, "a column of classes")
    generates = label is None or said.task == GENERATE
    _check_tokens(said, GENERATE if generates else CLASSIFY)
    if label is None or generates:
        reasons[source] = "text to learn to write"
        return Guess(Layout(GENERATE, (Column(source, TEXT),), (), split=split), reasons)
    reasons[source], reasons[label] = f"text: {inputs[0].tokens}", "the class of each text"
    return Guess(Layout(CLASSIFY, inputs, (Column(label, CATEGORY),), split=split), reasons)


def _text_column(fact: Facts, said: Said, place: int = 0) -> Column:
    """A text is split into words where most cells have several, into characters elsewhere; or as was said.

    Of texts that are mostly figures, such as dates, words are the wrong parts: another day or year was never seen,
    but all its digits were.
    """
    words = fact.spaced > fact.rows / 2 and fact.figures <= fact.tokens / 3 and fact.name not in said.categories
    tokens = WORDS if words else CHARACTERS
    return Column(fact.name, TEXT, tokens=said.tokens[min(place, len(said.tokens) - 1)] if said.tokens else tokens)


def _check_tokens(said: Said, task: str) -> None:
    """Texts to read or to translate have parts to choose; there is one choice for each text."""
    if said.tokens and task not in (TRANSLATE, CLASSIFY):
        expected, fix = "texts to translate or to classify", "Leave it out."
        refuse("`--tokens` is for texts in rows", got=f"a task to {task}", expected=expected, fix=fix)
    if len(said.tokens) > (2 if task == TRANSLATE else 1):
        expected = "one, or one for the source and one for the target" if task == TRANSLATE else "one"
        got = plural(len(said.tokens), "kind")
        refuse("`--tokens` has too many kinds", got=got, expected=expected, fix="Leave the others out.")


def _long_guess(
    found: Survey, said: Said, free: list[Facts], order: str | None, split: str | None, reasons: dict[str, str]
) -> Guess:
    """One row a step."""
    empty = [fact for fact in found.facts.values() if reasons.get(fact.name) == LEFT_OUT]
    targets, task = _long_targets(found, said, free, empty)
    if said.tokens:
        expected, fix = "one row a text", "Leave it out."
        refuse("`--tokens` is for texts in rows", got=f"rows that are steps, to {task}", expected=expected, fix=fix)
    # What is forecast is also what is known of the past.
    known = set(targets) if task == FORECAST else set()
    wished = {fact.name for fact in free if not said.inputs or fact.name in said.inputs} - set(targets)
    inputs = [Column(fact.name, _kind(fact, said)) for fact in free if fact.name in wished | known]
    unusable = [
        column.name for column in inputs if found.facts[column.name].distinct is None and column.kind == CATEGORY
    ]
    for name in unusable:
        reasons[name] = "left out: too many different texts"
    inputs = [column for column in inputs if column.name not in unusable]
    if not inputs:
        refuse(
            f"{found.table.path} has nothing to learn from",
            got=f"columns {listed(found.table.columns)}",
            expected="at least one input column besides the target",
            fix="Name them with `--inputs`.",
        )
    kind = NUMBER if task == FORECAST else CATEGORY
    meanings = {CLASSIFY: "target: one class a sequence", TAG: "target: a tag a step", FORECAST: "input and target"}
    reasons |= {column.name: f"input: {_meaning(found.facts[column.name], column)}" for column in inputs}
    reasons |= dict.fromkeys(targets, meanings[task])
    for fact in (found.facts[name] for name in targets if task == FORECAST):
        reasons[fact.name] += f", {fact.missing:,} missing" if fact.missing else ""
        if fact.name.lower() in TARGET_NAMES and _is_class(fact, said) and said.task is None:
            reasons[fact.name] += ": numbers by date (`--task tag`: classes)"
    wanted = tuple(Column(name, kind) for name in targets)
    return Guess(Layout(task, tuple(inputs), wanted, found.sequence, order, split), reasons)


def _long_targets(found: Survey, said: Said, free: list[Facts], empty: list[Facts]) -> tuple[list[str], str]:
    """Target columns and task of a table of one row a step."""
    named = list(said.target)
    if not named and said.task in (None, CLASSIFY, TAG):
        named = _guessed_target(found, said, free)
    dated = _dated_quantity(found, said, free)
    if dated is not None:
        return [dated], FORECAST
    if said.task == FORECAST or (not named and said.task is None):
        _check_numbers(found, said)
        return list(said.target) or _to_forecast(found, said, free, empty), FORECAST
    if not named:
        _refuse_target(found, "a column of classes")
    fact = found.facts[named[0]]
    if said.task is None and not _is_class(fact, said):
        _check_numbers(found, said)
        _check_not_steady(found, [found.facts[name] for name in named])
        return named, FORECAST
    if not _is_class(fact, said):
        refuse(
            f"`{fact.name}` is no target to {said.task}",
            got=f"numbers from {fact.low:.4g} to {fact.high:.4g}",
            expected=f"classes: words, or at most {MOST_CLASSES} whole numbers",
            fix=f"Name another with `--target`, or say `--categories {fact.name}`.",
        )
    if len(named) > 1:
        refuse(
            "there are several targets",
            got=", ".join(named),
            expected="one column of classes",
            fix="Name one, or say `--task forecast` for numbers.",
        )
    if found.sequence is None and said.task is None:
        return named, TAG
    return named, said.task or (CLASSIFY if fact.steady else TAG)


def _dated_quantity(found: Survey, said: Said, free: list[Facts]) -> str | None:
    """A column called a target whose numbers are a quantity and no classes, though they may be whole: it has a date.

    So it is in `unique_id, ds, y`, the long format of forecasting libraries, in `month, day, y`, where a calendar tells
    the date, and in `date, y`, where there is nothing to tell a class by.
    """
    named = _named([fact.name for fact in free], QUANTITY_NAMES, said)
    if said.task is not None or said.target or named is None or not _is_quantity(found, found.facts[named], said):
        return None
    if named.lower() == "y" and any(name.lower() == "ds" and name not in said.ignore for name in found.facts):
        return named
    others = [fact for fact in free if fact.name != named]
    by_calendar = [fact for fact in others if is_calendar(fact.name)]
    if len(by_calendar) == len(others):
        return named
    # Yes or no is a class on any day.
    return named if by_calendar and found.facts[named].distinct != 2 else None


def _is_quantity(found: Survey, fact: Facts, said: Said) -> bool:
    """Whether a column of numbers changes, and within a sequence."""
    is_steady = found.sequence is not None and max(found.lengths) > 1 and fact.steady
    return _kind(fact, said) == NUMBER and fact.low < fact.high and not is_steady


def _to_forecast(found: Survey, said: Said, free: list[Facts], empty: list[Facts]) -> list[str]:
    """All columns of numbers that can be worth a forecast: not the calendar, nor a counter, nor what never changes."""
    numbers = [fact for fact in free if _kind(fact, said) == NUMBER]
    if not numbers and empty:
        _refuse_empty(found, empty[0])
    numbers = [fact for fact in numbers if not is_calendar(fact.name)]
    if not numbers:
        _refuse_target(found, "a column of numbers to forecast, besides those of the calendar")
    changing = [fact for fact in numbers if fact.low < fact.high]
    if not changing:
        _refuse_constant(found, numbers[0])
    # What starts again within a sequence is a quantity with a period, not a counter.
    counters = {fact.name for fact in changing if fact.counts_up and not (fact.starts_again and found.sequence is None)}
    return [fact.name for fact in changing if fact.name not in counters] or [fact.name for fact in changing]


def _refuse_constant(found: Survey, fact: Facts) -> NoReturn:
    refuse(
        f"{found.table.path}, column `{fact.name}` never changes",
        got=f"{fact.low:.4g} everywhere",
        expected="numbers that change, to forecast them",
        fix="Name another column with `--target`.",
    )


def _check_numbers(found: Survey, said: Said) -> None:
    """What is to be forecast are numbers that change."""
    several = "; several targets mean a forecast" if len(said.target) > 1 else ""
    for name in said.target:
        if found.facts[name].low == found.facts[name].high and found.facts[name].is_number:
            _refuse_constant(found, found.facts[name])
        if _kind(found.facts[name], said) != NUMBER:
            refuse(
                f"`{name}` is no target to forecast",
                got=f"{'categories' if name in said.categories else 'text'}{several}",
                expected="columns of numbers",
                fix=f"Leave it out, or say `--target {name}` alone to learn its classes.",
            )


def _check_not_steady(found: Survey, facts: list[Facts]) -> None:
    """One number for each sequence is no series to forecast, though it would be learned as one that never changes."""
    for fact in facts:
        if found.sequence is not None and max(found.lengths) > 1 and fact.steady and fact.low < fact.high:
            refuse(
                f"`{fact.name}` is one number for each sequence",
                got=f"{fact.low:.4g} to {fact.high:.4g}, the same in all steps of a sequence",
                expected="classes to tell apart, or numbers by step to forecast: to tell a number is not a task here",
                fix=f"Make classes of it, such as low and high, or say `--ignore {fact.name}`.",
            )


def _guessed_target(found: Survey, said: Said, free: list[Facts]) -> list[str]:
    """A column that is called a target and holds classes, or the last one if it is text, or one called a target."""
    called = _named([fact.name for fact in free], TARGET_NAMES, said)
    if called is not None and _is_class(found.facts[called], said):
        return [called]
    if free and not free[-1].is_number and not is_calendar(free[-1].name):
        return [free[-1].name]
    if called is not None and said.task is None:
        return [called]
    # Whole numbers that never change within a sequence: what an NPZ file says of each sequence.
    by_sequence = [fact.name for fact in free if fact.steady and _is_class(fact, said)]
    return by_sequence[:1] if found.table.sequence else []


def _is_class(fact: Facts, said: Said) -> bool:
    if fact.name in said.categories or not fact.is_number:
        return True
    return fact.whole and fact.distinct is not None and fact.distinct <= MOST_CLASSES


def _kind(fact: Facts, said: Said) -> str:
    return CATEGORY if fact.name in said.categories or not fact.is_number else NUMBER


def _meaning(fact: Facts, column: Column) -> str:
    if column.kind == CATEGORY:
        missing = f", {fact.blank:,} missing" if fact.blank else ""
        return f"one of {fact.distinct} categories{missing}" if fact.distinct != 1 else f"the same category {NOTHING}"
    if fact.low == fact.high:
        return f"the same number {NOTHING}"
    missing = f", {fact.missing:,} missing, read as the mean" if fact.missing else ""
    known = "; of the calendar" if is_calendar(fact.name) else ""
    return f"number, {fact.low:.4g} to {fact.high:.4g}{missing}{known}"


def _refuse_empty(found: Survey, fact: Facts) -> NoReturn:
    refuse(
        f"{found.table.path}, column `{fact.name}` is empty",
        got=f"nothing in {plural(fact.rows, 'row')}",
        expected="something to learn",
        fix="Name another column.",
    )


def _refuse_target(found: Survey, expected: str) -> NoReturn:
    refuse(
        f"{found.table.path} has no target",
        got=f"columns {listed(found.table.columns)}",
        expected=expected,
        fix="Name it with `--target`.",
    )
