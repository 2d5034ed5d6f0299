"""Part one: a five-neuron cell unrolled over four instances, both ways, laid side by side."""

from typing import NamedTuple

import torch
from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor

import throughtime as tt

X_BATCH = torch.tensor(
    [
        # step 0    step 1
        [[0, 1, 2], [9, 8, 7]],  # instance 0
        [[3, 4, 5], [0, 0, 0]],  # instance 1, padded with a zero vector
        [[6, 7, 8], [6, 5, 4]],  # instance 2
        [[9, 0, 1], [3, 2, 1]],  # instance 3
    ],
    dtype=torch.float32,
)
LENGTHS = [2, 1, 2, 2]
TOLERANCE = 1e-6

ZERO_STYLE = "dim"
COPIED_STYLE = "bold green"
LEGEND = Text.assemble(
    ("0", ZERO_STYLE),
    " is an exact zero: the output past the end of instance 1.\n",
    ("state = step 0", COPIED_STYLE),
    " is copied through: what the cell knew when instance 1 ended.",
)


class Unrolled(NamedTuple):
    """What an unrolling gives: outputs [B, T, H] and the final state [B, H]."""

    outputs: Tensor
    state: Tensor


def make_cell() -> tt.BasicRNNCell:
    """One layer of five neurons; both unrollings share its weights."""
    return tt.BasicRNNCell(5, input_size=3)


@torch.no_grad()
def unroll_both(cell: tt.BasicRNNCell, lengths: list[int] | None) -> tuple[Unrolled, Unrolled]:
    """The same cell and data through `static_rnn` and `dynamic_rnn`."""
    steps, state = tt.static_rnn(cell, list(X_BATCH.unbind(1)), dtype=torch.float32, sequence_length=lengths)
    static = Unrolled(torch.stack(steps, 1), state)
    dynamic = Unrolled(*tt.dynamic_rnn(cell, X_BATCH, dtype=torch.float32, sequence_length=lengths))
    return static, dynamic


def table(static: Unrolled, dynamic: Unrolled, lengths: list[int] | None) -> Table:
    """Every output and final state, a section for each instance."""
    title = "sequence_length = None" if lengths is None else f"sequence_length = {lengths}"
    # The widest layout that an 80-column terminal holds.
    grid = Table(title=title, title_justify="left", title_style="bold cyan", box=box.SIMPLE_HEAD, show_edge=False)
    grid.padding, grid.pad_edge = (0, 1, 0, 0), False
    for heading in ("", "", "static_rnn", "dynamic_rnn"):
        grid.add_column(heading, overflow="fold", min_width=1)
    for instance, inputs in enumerate(X_BATCH.int().tolist()):
        for step, x in enumerate(inputs):
            cells = (_numbers(unrolled.outputs[instance, step]) for unrolled in (static, dynamic))
            grid.add_row(str(instance) if step == 0 else "", f"step {step}: {' '.join(map(str, x))}", *cells)
        source = source_step(dynamic, instance)
        style = COPIED_STYLE if source < len(inputs) - 1 else ""
        cells = (_numbers(unrolled.state[instance]) for unrolled in (static, dynamic))
        grid.add_row("", f"state = step {source}", *cells, style=style, end_section=True)
    return grid


def source_step(unrolled: Unrolled, instance: int) -> int:
    """The step whose output the final state equals (a basic cell's state is its output)."""
    same = (unrolled.outputs[instance] == unrolled.state[instance]).all(dim=1)
    return int(same.nonzero().max())


def largest_difference(one: Unrolled, other: Unrolled) -> float:
    """The largest absolute difference between two unrollings, outputs and states together."""
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


def verdict(difference: float) -> Text:
    """Whether the two agree, with the number that says so."""
    relation, style = ("=", "green") if difference <= TOLERANCE else ("≠", "bold red")
    return Text(f"static_rnn {relation} dynamic_rnn: the largest difference anywhere is {difference:.1g}.", style)


def _numbers(values: Tensor) -> Text:
    """Five aligned numbers; exact zeros stand out by being short and dim."""
    shown = [(f"{value:5.2f}", "") if value else ("  0  ", ZERO_STYLE) for value in values.tolist()]
    return Text(" ").join(Text(number, style) for number, style in shown)
