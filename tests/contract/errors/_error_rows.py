"""The one form of every error test: what is called, what is raised, and the words that must be in the message."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import throughtime as tt

F32, F64, I64 = torch.float32, torch.float64, torch.int64
B, T, H = 2, 3, 5
I = 4  # noqa: E741 - the input size, as everywhere
X = torch.linspace(-1, 1, B * T * I).reshape(B, T, I)
STEPS = list(X.unbind(1))
ZEROS = torch.zeros(B, H)

PACKAGE = Path(tt.__file__).parent
# Every message: what is wrong: got this, expected that. How to fix it.
HOUSE_FORM = re.compile(r".+: got .+, expected .+\. \S.+\.", re.DOTALL)


class Row(NamedTuple):
    """One misuse. `call` gets a fresh `Watched` cell, which may have run `calls` times when the error comes."""

    name: str
    error: type[Exception]
    says: tuple[str, ...]
    call: Callable[[Any], object]
    calls: int = 0


class Watched(tt.BasicRNNCell):
    """A cell that counts how often it is called."""

    def __init__(self) -> None:
        super().__init__(H)
        self.calls = 0

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        self.calls += 1
        return super().forward(inputs, state)


class Returning(tt.RNNCell):
    """A cell that returns what a function of its inputs and state says."""

    def __init__(self, function: Callable[[Any, Any], object], state_size: object = H, output_size: object = H) -> None:
        super().__init__()
        self.state_size, self.output_size, self.function = state_size, output_size, function

    def forward(self, inputs: Any, state: Any) -> Any:
        return self.function(inputs, state)


def run(*args: Any, **options: Any) -> Any:
    """`dynamic_rnn` in float32, unless a row says otherwise."""
    return tt.dynamic_rnn(*args, **{"dtype": F32, **options})


def rows(table: Iterable[Row]) -> pytest.MarkDecorator:
    """One test for each row."""
    table = list(table)
    assert len({row.name for row in table}) == len(table), "two rows of one name"
    return pytest.mark.parametrize("row", table, ids=[row.name.replace(" ", "-") for row in table])


def refusal(error: BaseException) -> str | None:
    """None for an error in the house form, raised by the package itself; else what is wrong with it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    home = Path(frame.f_code.co_filename)
    if not isinstance(error, TypeError | ValueError):
        return f"{type(error).__name__}: {error}"
    if PACKAGE not in home.parents:
        return f"raised by {home}: {error}"
    if error.__cause__ is not None or not (error.__context__ is None or error.__suppress_context__):
        return f"another error shows behind it: {error}"
    return None if HOUSE_FORM.fullmatch(str(error)) else f"not in the house form: {error}"


def check(row: Row) -> None:
    """The row's call fails as it should: right type, right words, in the house form, no work done."""
    cell = Watched()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the type is compared below, exactly
        row.call(cell)
    message = str(caught.value)
    assert type(caught.value) is row.error, message
    assert refusal(caught.value) is None
    assert [words for words in row.says if words not in message] == [], message
    assert cell.calls <= row.calls
    if not row.calls:
        assert not cell.built
        assert cell.variable_scope is None


def junk() -> Iterator[Any]:
    """Values that someone, somewhere, will pass; fresh ones, since a generator serves once."""
    yield from (None, True, 0, -1, 1.5, float("nan"), 1j, "text", b"bytes", "")
    yield from ([], (), {}, {1, 2}, [None], ["a", "b"], [[1.0], [1.0, 2.0]], {"a": None}, range(3), slice(2))
    yield from (object(), ..., (step for step in STEPS), torch.float64, torch.device("cpu"), torch.Size([2]))
    yield from (
        np.array([None, "a"]),
        np.array("text"),
        np.float64(2.5),
        np.array([], np.float32),
        np.zeros((2, 2, 2, 2)),
    )
    yield from (torch.tensor([]), torch.tensor(2), torch.tensor(0.5), torch.zeros(7), torch.zeros(2, 2, 2, 2))
    yield from (ZEROS.to_sparse(), ZEROS > 0, ZEROS + 0j, torch.zeros(B, H, device="meta"), tt.TensorArray(F32))
